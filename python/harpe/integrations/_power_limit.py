# SPDX-License-Identifier: Apache-2.0
"""The common part of the power limit callbacks that are made when a training begins: a power limit
optimizer, or a tuning of the clock, that a failure replaces by nothing. Knows no particular
framework."""
from __future__ import annotations

import logging
from typing import Any, Dict, Optional, Sequence

from harpe import distributed
from harpe.integrations._energy import visible_gpus
from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer
from harpe.optimizer.power_limit.idle import IDLE_S, IdleWatch
from harpe.tuning import Tuning, step

LOGGER = "harpe.power_limit"


class Limiter:
    """A GlobalPowerLimitOptimizer from begin() to end(). If it cannot be made on one rank, no rank
    has one, one line says why, and training goes on.

    optimizer: the optimizer; None before begin() and if it could not be made.
    """

    tuning: Optional[Tuning] = None

    def __init__(self, gpu_indices: Optional[Sequence[int]], options: Dict[str, Any]) -> None:
        """options: arguments of the optimizer, and perhaps idle_s: after so many seconds without an
            event, the original limits are restored; None: never. With several ranks it is always
            never: they agree on each step, so none of them may stop alone."""
        self.gpu_indices = gpu_indices
        self._idle_s = options.pop("idle_s", IDLE_S)
        self.options = options
        self.optimizer: Optional[GlobalPowerLimitOptimizer] = None
        self._has_failed = False
        self._watch: Optional[IdleWatch] = None

    def begin(self, gpu_indices: Optional[Sequence[int]]) -> None:
        """A training begins. Every rank must call it. gpu_indices: the rank's GPUs if the user has
        named none; None: all."""
        self.end()
        self.optimizer, self._has_failed = None, False
        chosen = gpu_indices if self.gpu_indices is None else self.gpu_indices
        monitor: Optional[ZeusMonitor] = None
        try:
            try:
                monitor = ZeusMonitor(gpu_indices=visible_gpus() if chosen is None else chosen,
                                      cpu_indices=[])
            finally:  # a rank without a monitor must not leave the others waiting
                failed = distributed.all_reduce([float(monitor is None)], "sum")[0]
            if not failed:
                self.optimizer = GlobalPowerLimitOptimizer(monitor, **self.options)
                self._watch = IdleWatch(self._idle_s if distributed.world_size() == 1 else None,
                                        self.give_back)
                self._watch.start()
            else:
                self._say("another rank could not start; its message gives the reason")
        except Exception as error:
            self._say(error)

    @staticmethod
    def _say(why: Any, since: str = "") -> None:
        logging.getLogger(LOGGER).warning("no power limit is changed%s: %s; training goes on",
                                          since, why)

    def _tell(self, event: str) -> None:
        """Passes an event on. If that fails (a selector that raises), the original limits are
        restored, and later events do nothing."""
        if self.optimizer is None or self._watch is None:
            return
        try:
            with self._watch:
                if not self._has_failed:
                    getattr(self.optimizer, event)()
        except Exception as error:
            self._has_failed = True
            self._say(error, " from here on")
            self.end()

    def is_active(self) -> None:
        """Something happens that is no step, for example an evaluation."""
        if self._watch is not None:
            with self._watch:
                pass

    def step_begins(self) -> None:
        """An update of the weights begins."""
        self._tell("on_step_begin")

    def interrupted(self) -> None:
        """An epoch has ended, or an evaluation interrupts it. An unfinished measurement is
        repeated."""
        self._tell("on_epoch_end")

    def end(self) -> None:
        """Restores the original limits. `optimizer` keeps its measurements."""
        if self._watch is not None and self.optimizer is not None:
            self._watch.stop()
            with self._watch:
                self.optimizer.on_train_end()

    def give_back(self, why: str) -> None:
        """Ends as end() does, and says why. Later events do nothing until begin()."""
        if self.optimizer is None or self.optimizer.current_power_limit is None:
            return
        self._has_failed = True
        self.end()
        logging.getLogger(LOGGER).warning("%s: the original power limits are restored", why)

    def __getstate__(self) -> Dict[str, Any]:
        """A copy has no optimizer and no tuning until begin()."""
        return {**self.__dict__, "optimizer": None, "tuning": None, "_watch": None}


class Tuner(Limiter):
    """A Tuning from begin() to end(). It notices itself that no steps come.

    tuning: also after the end; None before begin() and if the options were wrong.
    """

    def begin(self, gpu_indices: Optional[Sequence[int]]) -> None:
        """A training begins. With several ranks, Tuning finds their GPUs."""
        self.end()
        self.tuning = None
        chosen = gpu_indices if self.gpu_indices is None else self.gpu_indices
        try:
            self.tuning = Tuning(chosen if distributed.world_size() == 1 else None, **self.options)
        except Exception as error:
            logging.getLogger("harpe.tune").warning("the GPUs are not tuned: %s; training goes on",
                                                    error)

    def step_begins(self) -> None:
        """An update of the weights begins, so the one before has ended."""
        if self.tuning is not None:
            step()

    def end(self) -> None:
        """Restores the GPUs."""
        if self.tuning is not None:
            self.tuning.close()

    def give_back(self, why: str) -> None:
        """Ends as end() does, and says why."""
        if self.tuning is not None:
            self.tuning.close()
            logging.getLogger("harpe.tune").warning("%s: the GPUs are restored", why)


def limiter_for(gpu_indices: Optional[Sequence[int]], options: Dict[str, Any]) -> Limiter:
    """Returns what a callback with these options tells of its events."""
    return (Tuner if "knob" in options else Limiter)(gpu_indices, options)
