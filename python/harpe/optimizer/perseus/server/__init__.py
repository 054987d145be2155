# SPDX-License-Identifier: Apache-2.0
"""Schedulers in Python for the server. The server is the program `harpe serve`."""
