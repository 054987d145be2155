# SPDX-License-Identifier: Apache-2.0
"""GlobalPowerLimitOptimizer as a callback of the Trainer of Hugging Face transformers. Importing
this module imports transformers if it is installed."""
from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Optional, Union

from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit.member import FleetMember
from harpe.optimizer.power_limit.optimizer import GlobalPowerLimitOptimizer
from harpe.optimizer.power_limit.selectors import OptimumSelector

__all__ = ["HFGlobalPowerLimitOptimizer"]


class _EveryEvent:
    """Stands in for transformers.TrainerCallback: a callback that accepts every event."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *arguments, **keywords: None
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


if TYPE_CHECKING:
    TrainerCallback = _EveryEvent
else:
    try:
        from transformers import TrainerCallback
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        TrainerCallback = _EveryEvent


class HFGlobalPowerLimitOptimizer(TrainerCallback):
    """Finds and keeps the best power limit while a Trainer trains, and restores the original limits
    when train() ends. `optimizer` is the GlobalPowerLimitOptimizer that does this.

        trainer = Trainer(..., callbacks=[HFGlobalPowerLimitOptimizer(ZeusMonitor())])
    """

    def __init__(self, monitor: ZeusMonitor, optimum_selector: Optional[OptimumSelector] = None,
                 wait_steps: int = 1, warmup_steps: int = 10, profile_steps: int = 40,
                 pl_step: int = 25,
                 profile_path: Union[str, "os.PathLike[str]", None] = None, *,
                 fleet: Optional[FleetMember] = None) -> None:
        """Takes the arguments of GlobalPowerLimitOptimizer and raises the same errors."""
        self.optimizer = GlobalPowerLimitOptimizer(
            monitor=monitor, optimum_selector=optimum_selector, wait_steps=wait_steps,
            warmup_steps=warmup_steps, profile_steps=profile_steps, pl_step=pl_step,
            profile_path=profile_path, fleet=fleet)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Warns if an earlier train() has ended the optimizer."""
        if self.optimizer.current_power_limit is None:
            logging.getLogger("harpe.power_limit").warning(
                "the power limit optimizer has already ended: this training goes on without it; "
                "create a new optimizer for each train()")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins. With gradient accumulation, a step is an update of the weights."""
        self.optimizer.on_step_begin()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch has ended."""
        self.optimizer.on_epoch_end()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training has ended: restores the original limits."""
        self.optimizer.on_train_end()
