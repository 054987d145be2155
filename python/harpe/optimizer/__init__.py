# SPDX-License-Identifier: Apache-2.0
"""Optimizers that run in a training loop as callbacks. power_limit finds the best power limit for
the user's criterion and keeps it. pipeline_frequency sets a clock for each pipeline instruction."""
from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Finds the classes that Zeus once had here: from zeus.optimizer import
    GlobalPowerLimitOptimizer."""
    if name not in ("GlobalPowerLimitOptimizer", "HFGlobalPowerLimitOptimizer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harpe.optimizer import power_limit
    return getattr(power_limit, name)
