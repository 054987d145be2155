# SPDX-License-Identifier: Apache-2.0
"""Finds the best GPU power limit for the user's criterion while a job trains, and keeps it.

    monitor = ZeusMonitor(gpu_indices=[0])
    optimizer = GlobalPowerLimitOptimizer(monitor, MaxSlowdownConstraint(factor=1.1))
    for epoch in range(epochs):
        optimizer.on_epoch_begin()
        for batch in loader:
            optimizer.on_step_begin()
            train_step(batch)
            optimizer.on_step_end()
        optimizer.on_epoch_end()

With FleetMember, the job follows the power budgets of a server. HFGlobalPowerLimitOptimizer does
the same work in the Trainer of Hugging Face transformers. transformers is imported only when that
name is first used.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harpe.optimizer.power_limit.member import FleetMember
from harpe.optimizer.power_limit.optimizer import GlobalPowerLimitOptimizer
from harpe.optimizer.power_limit.selectors import (Energy, MaxSlowdownConstraint, OptimumSelector,
                                                   Time, ZeusCost)
from harpe.optimizer.power_limit.states import (Done, PowerLimitMeasurement,
                                                PowerLimitMeasurementList, Profiling, Ready, Warmup)

if TYPE_CHECKING:
    from harpe.optimizer.power_limit.hugging_face import HFGlobalPowerLimitOptimizer

__all__ = ["Done", "Energy", "FleetMember", "GlobalPowerLimitOptimizer",
           "HFGlobalPowerLimitOptimizer", "MaxSlowdownConstraint", "OptimumSelector",
           "PowerLimitMeasurement", "PowerLimitMeasurementList", "Profiling", "Ready", "Time",
           "Warmup", "ZeusCost"]

_PowerLimitMeasurementList = PowerLimitMeasurementList  # the name in Zeus


def __getattr__(name: str) -> Any:
    if name != "HFGlobalPowerLimitOptimizer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harpe.optimizer.power_limit.hugging_face import HFGlobalPowerLimitOptimizer
    globals()[name] = HFGlobalPowerLimitOptimizer
    return HFGlobalPowerLimitOptimizer
