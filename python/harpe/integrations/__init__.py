# SPDX-License-Identifier: Apache-2.0
"""Adapters for training frameworks: each is two lines in a user's script, needs no change in the
framework, and can be taken out again. A module here loads its framework; this package loads none."""
