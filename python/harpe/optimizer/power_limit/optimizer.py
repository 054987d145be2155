# SPDX-License-Identifier: Apache-2.0
"""GlobalPowerLimitOptimizer: the callback that a training loop holds. The state machine is
libharpe's; what it calls back into is session.py."""
from __future__ import annotations

import os
import weakref
from typing import Any, Dict, List, Optional, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, encoded, lib
from harpe.callback import Callback
from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit.selectors import OptimumSelector, PowerLimitMeasurement
from harpe.optimizer.power_limit.session import Session

__all__ = ["GlobalPowerLimitOptimizer"]


def _check(name: str, value: int, minimum: int) -> int:
    if value < minimum:
        raise InvalidArgumentError(f"{name} must be at least {minimum}, not {value}",
                                   b.HARPE_INVALID_ARGUMENT)
    return value


class GlobalPowerLimitOptimizer(Callback):
    """Tries one power limit after another on all GPUs of the job while it trains, highest first,
    then holds the best. It needs on_step_begin and on_epoch_end; other events may be left out.

    The limits that were found are put back by on_train_end or close(), when the object is
    collected, at the end of the process, and by a guard process however the process dies. What goes
    wrong after construction (a GPU lost, a peer gone) is logged once under "harpe.power_limit" and
    stops the optimizer, never training; only what a user's own selector or monitor raises reaches
    the loop.

    It belongs to the process that made it: in a forked child, or unpickled in a spawned one, its
    events do nothing. In a job of several processes (torch.distributed or MPI, initialised before)
    every rank makes one for its own GPUs, with the same settings; energies are summed and times
    maximised over all.
    """

    _session: Optional[Session] = None

    def __init__(self, monitor: ZeusMonitor, optimum_selector: Optional[OptimumSelector] = None,
                 wait_steps: int = 1, warmup_steps: int = 10, profile_steps: int = 40,
                 pl_step: int = 25,
                 profile_path: Union[str, "os.PathLike[str]", None] = None) -> None:
        """monitor: measures, and names the GPUs whose limits are set (`gpu_indices`); a ZeusMonitor
            or anything with its gpu_indices, begin_window and end_window.
        optimum_selector: chooses among the measured limits; None: ZeusCost(0.5) over the GPUs of
            the whole job.
        wait_steps: steps before the first limit is tried, from 0 on.
        warmup_steps: steps under a new limit before it is measured, from 0 on.
        profile_steps: steps that are measured, from 1 on.
        pl_step: W from one limit to the next, from 1 on; the lowest allowed limit is tried as well.
        profile_path: JSON file of measurements. Where it exists it is loaded and its optimum set at
            once; otherwise it is written when all limits were tried.

        Raises ValueError for values outside of these and for a profile that is not of this machine;
        PermissionError where power limits may not be set; HarpeError for what else the driver
        refuses.
        """
        options: Dict[str, Any] = {
            "wait_steps": _check("wait_steps", wait_steps, 0),
            "warmup_steps": _check("warmup_steps", warmup_steps, 0),
            "profile_steps": _check("profile_steps", profile_steps, 1),
            "step_w": _check("pl_step", pl_step, 1),
            "profile_path": encoded(profile_path),
        }
        self.monitor = monitor
        self.optimum_selector = optimum_selector
        self.wait_steps = wait_steps
        self.warmup_steps = warmup_steps
        self.profile_steps = profile_steps
        self.pl_step = pl_step
        self.profile_path = profile_path
        session = Session(monitor, optimum_selector)
        self._finalizer = weakref.finalize(self, session.close)
        session.start(options)
        self._session = session
        self._step_begin = lib.harpe_power_limit_on_step_begin

    # ---- Events ----

    def on_step_begin(self) -> None:
        """A step begins: counts it, and goes on to the next state when its steps are over."""
        session = self._session
        if session is not None and session.optimizer:
            self._step_begin(session.optimizer)
            if session.raised is not None:
                session.reraise()

    def on_epoch_end(self) -> None:
        """An epoch is over: a measurement that is under way is given up, and taken again later."""
        session = self._session
        if session is not None and session.optimizer:
            lib.harpe_power_limit_on_epoch_end(session.optimizer)
            session.reraise()

    def on_train_end(self) -> None:
        """Training is over: puts back the limits that were found."""
        self.close()

    def close(self) -> None:
        """Puts back the limits that were found and dismisses the guard; events do nothing more."""
        if self._session is not None:
            self._session.close()

    # ---- What came of it ----

    @property
    def is_done(self) -> bool:
        """Whether the optimum was found."""
        return self._session is not None and self._session.is_done()

    @property
    def current_power_limit(self) -> Optional[int]:
        """The limit in W that it has set; None after a failure and after the end."""
        return (self._session.current_w() or None) if self._session is not None else None

    @property
    def optimal_power_limit(self) -> Optional[int]:
        """The optimum in W; None while it is not known."""
        return (self._session.optimum_w() or None) if self._session is not None else None

    @property
    def measurements(self) -> List[PowerLimitMeasurement]:
        """What was measured or loaded, highest limit first."""
        return self._session.measurements() if self._session is not None else []

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
