# SPDX-License-Identifier: Apache-2.0
"""GlobalPowerLimitOptimizer, the callback of a training loop. libharpe contains the state machine;
session.py contains the functions that it calls."""
from __future__ import annotations

import ctypes as C
import logging
import os
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from harpe import _bindings as b
from harpe import distributed
from harpe._library import InvalidArgumentError, encoded, lib
from harpe.callback import Callback
from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit.member import FleetMember
from harpe.optimizer.pipeline_frequency.common import write_whole
from harpe.optimizer.power_limit.selectors import OptimumSelector, ZeusCost, index_of
from harpe.optimizer.power_limit.session import Session
from harpe.optimizer.power_limit.states import (Done, PowerLimitMeasurement,
                                                PowerLimitMeasurementList, Profiling, Ready, Warmup)

__all__ = ["GlobalPowerLimitOptimizer"]


def _check(name: str, value: int, minimum: int) -> int:
    if value < minimum:
        raise InvalidArgumentError(f"{name} must be at least {minimum}, not {value}",
                                   b.HARPE_INVALID_ARGUMENT)
    return value


def _gpus_of_job(monitor: Any) -> int:
    return max(1, len(monitor.gpu_indices)) * distributed.world_size()


class GlobalPowerLimitOptimizer(Callback):
    """Tries one power limit after another on all GPUs of the job while the job trains, highest
    first, then keeps the best. It needs on_step_begin and on_epoch_end; other events are optional.

    The original limits are restored by on_train_end or close(), when the object is garbage
    collected, and at the end of the process. If the process is killed, a guard process restores
    them. A failure after construction (a GPU is lost, a peer is gone) is logged once under
    "harpe.power_limit" and stops the optimizer, but never training. Only exceptions of a user's own
    selector, monitor or subclass reach the loop.

    It belongs to the process that created it: in a forked child, or unpickled in a spawned process,
    its events do nothing. In a job of several processes (torch.distributed or MPI, initialised
    before) every rank creates one for its own GPUs, with the same settings. The optimizer then uses
    the sum of the energies and the maximum of the times of all ranks.
    """

    _session: Optional[Session] = None

    def __init__(self, monitor: ZeusMonitor, optimum_selector: Optional[OptimumSelector] = None,
                 wait_steps: int = 1, warmup_steps: int = 10, profile_steps: int = 40,
                 pl_step: int = 25,
                 profile_path: Union[str, "os.PathLike[str]", None] = None, *,
                 fleet: Optional[FleetMember] = None) -> None:
        """monitor: measures, and lists the GPUs whose limits are set (`gpu_indices`). It is a
            ZeusMonitor or an object with its gpu_indices, begin_window and end_window.
        optimum_selector: chooses among the measured limits; None: ZeusCost(0.5) over the GPUs of
            the whole job.
        wait_steps: steps before the first limit is tried, from 0 on.
        warmup_steps: steps under a new limit before it is measured, from 0 on.
        profile_steps: steps that are measured, from 1 on.
        pl_step: W from one limit to the next, from 1 on; the lowest allowed limit is tried as well.
        profile_path: JSON file of measurements. If it exists, it is loaded and its optimum is set
            at once; otherwise it is written after all limits were tried.
        fleet: how the job is a member of the fleet of a server; None: FleetMember(), which is
            a member of the fleet of $HARPE_SERVER, if that is set.

        Raises ValueError for values outside these ranges and for a profile of another machine;
        PermissionError if the process may not set power limits; HarpeError if the driver refuses
        another operation.
        """
        options: Dict[str, Any] = {
            "wait_steps": _check("wait_steps", wait_steps, 0),
            "warmup_steps": _check("warmup_steps", warmup_steps, 0),
            "profile_steps": _check("profile_steps", profile_steps, 1),
            "step_w": _check("pl_step", pl_step, 1),
        }
        fleet_c = (fleet or FleetMember())._options()
        options["fleet"] = C.pointer(fleet_c)
        self.monitor = monitor
        self.optimum_selector = optimum_selector or ZeusCost(0.5, _gpus_of_job(monitor))
        self.wait_steps = wait_steps
        self.warmup_steps = warmup_steps
        self.profile_steps = profile_steps
        self.pl_step = pl_step
        self.profile_path = profile_path
        self.fleet = fleet
        # The library loads a profile, and saves it unless a subclass does that.
        is_loaded = profile_path is not None and os.path.exists(profile_path)
        self._saves = not is_loaded and type(self)._save_profile is not _LIBRARY_SAVES
        if not self._saves:
            options["profile_path"] = encoded(profile_path)
        self._session = session = Session(monitor, *self._steps())
        self._finalizer = weakref.finalize(self, session.close)
        try:
            session.start(options)
        except BaseException:
            self._session = None
            raise
        self._step_begin = lib.harpe_power_limit_on_step_begin

    def _steps(self) -> Tuple[Callable[[int], None], Callable[[], int]]:
        """Returns what the session calls at the steps that a subclass may override."""
        owner = weakref.ref(self)

        def set_limit(limit_w: int) -> None:
            optimizer = owner()
            if optimizer is not None:
                optimizer._set_power_limit(limit_w * 1000)

        def choose() -> int:
            optimizer = owner()
            return optimizer._compute_optimal_power_limit() // 1000 if optimizer is not None else 0

        return set_limit, choose

    # ---- Steps that a subclass may override ----

    def _set_power_limit(self, power_limit: int) -> None:
        """Sets the limit of all GPUs, in mW. Called whenever the state machine sets a limit, but not
        when the original limits are restored."""
        if self._session is not None:
            self._session.set_limit(power_limit // 1000)

    def _compute_optimal_power_limit(self) -> int:
        """Returns the best of the measured limits, in mW. Called when all limits are measured, or
        loaded."""
        measurements = self.measurements
        chosen_w = self.optimum_selector.select(list(measurements))
        return measurements[index_of(chosen_w, measurements)].power_limit * 1000

    def _save_profile(self) -> None:
        """Writes the measurements to `profile_path`. Called after all limits were measured and the
        best one is set."""
        if self.profile_path is None:
            return
        content = PowerLimitMeasurementList(measurements=self.measurements)
        try:
            write_whole(os.fspath(self.profile_path), content.json(indent=4))
        except OSError as error:
            logging.getLogger("harpe.power_limit").warning(
                "the power limit profile was not saved: %s", error)

    # ---- Events ----

    def on_step_begin(self) -> None:
        """A step begins: counts it, and enters the next state when the steps of the current state
        are complete."""
        session = self._session
        if session is not None and session.optimizer:
            self._step_begin(session.optimizer)
            if session.raised is not None or session.must_close:
                session.reraise()
            if self._saves and self.is_done:
                self._saves = False
                self._save_profile()

    def on_epoch_end(self) -> None:
        """An epoch has ended. An unfinished measurement is discarded and repeated later."""
        session = self._session
        if session is not None and session.optimizer:
            lib.harpe_power_limit_on_epoch_end(session.optimizer)
            session.reraise()

    def on_train_end(self) -> None:
        """Training has ended: restores the original limits, and leaves the fleet."""
        self.close()

    def close(self) -> None:
        """Restores the original limits, ends the guard, and leaves the fleet. Later events do
        nothing. If the fleet's server does not answer, this takes up to 5 s."""
        if self._session is not None:
            self._session.close()

    # ---- Results ----

    @property
    def is_done(self) -> bool:
        """Returns true if the optimum was found."""
        return self._session is not None and self._session.is_done()

    @property
    def state(self) -> Union[Ready, Warmup, Profiling, Done, None]:
        """Returns the state of the state machine, or None after a failure. After the end it is the
        last state."""
        found = self._session.state() if self._session is not None else None
        if found is None or found.phase == b.HARPE_POWER_LIMIT_FAILED:
            return None
        limit_mw = found.power_limit_w * 1000
        if found.phase == b.HARPE_POWER_LIMIT_DONE:
            return Done(optimal_power_limit=limit_mw)
        steps = max(1, found.steps)  # 0 in a step that a subclass overrides
        if found.phase == b.HARPE_POWER_LIMIT_READY:
            return Ready(next_power_limit=limit_mw, steps=steps)
        kind = Warmup if found.phase == b.HARPE_POWER_LIMIT_WARMUP else Profiling
        return kind(current_power_limit=limit_mw, steps=steps)

    @property
    def power_limits(self) -> List[int]:
        """Returns the limits that are tried, in mW, highest first."""
        return [limit_w * 1000 for limit_w in self._session.limits_w] if self._session else []

    @property
    def current_power_limit(self) -> Optional[int]:
        """Returns the limit in W that the optimizer has set, or None after a failure and after the
        end."""
        return (self._session.current_w() or None) if self._session is not None else None

    @property
    def optimal_power_limit(self) -> Optional[int]:
        """Returns the optimum in W, or None while it is not known."""
        return (self._session.optimum_w() or None) if self._session is not None else None

    @property
    def measurements(self) -> List[PowerLimitMeasurement]:
        """Returns the measurements that were taken or loaded, highest limit first."""
        return self._session.measurements() if self._session is not None else []

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


_LIBRARY_SAVES = GlobalPowerLimitOptimizer._save_profile
