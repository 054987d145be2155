# SPDX-License-Identifier: Apache-2.0
"""Adapters for training frameworks. Each adds two lines to a user's script, needs no change in the
framework, and can be removed again. Each module here loads its framework; the package itself loads
none."""
