# SPDX-License-Identifier: Apache-2.0
"""Schedulers in Python for the server, which is `harpe serve`."""
