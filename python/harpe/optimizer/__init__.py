# SPDX-License-Identifier: Apache-2.0
"""Optimizers that run in a training loop as callbacks. power_limit finds the best power limit for
the user's criterion and keeps it. pipeline_frequency sets a clock for each pipeline instruction."""
