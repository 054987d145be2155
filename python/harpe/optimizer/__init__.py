# SPDX-License-Identifier: Apache-2.0
"""Optimizers that ride in a training loop as callbacks: power_limit finds and holds the one power
limit that suits its user, pipeline_frequency sets each pipeline instruction's clock."""
