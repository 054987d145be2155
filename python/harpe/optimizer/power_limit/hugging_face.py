# SPDX-License-Identifier: Apache-2.0
"""GlobalPowerLimitOptimizer as a callback of the Trainer of Hugging Face transformers, and what all
of Harpe's callbacks for this Trainer share. Importing this module imports transformers if it is
installed."""
from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from typing import (TYPE_CHECKING, Any, Callable, ContextManager, Dict, List, Optional, TypeVar,
                    Union)

from harpe import distributed
from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit.idle import IDLE_S, IdleWatch
from harpe.optimizer.power_limit.member import FleetMember
from harpe.optimizer.power_limit.optimizer import GlobalPowerLimitOptimizer
from harpe.optimizer.power_limit.selectors import OptimumSelector

__all__ = ["ClosingCallback", "HFGlobalPowerLimitOptimizer"]

_LOGGER = "harpe.power_limit"


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


# ---- What the Trainer does not tell ----

_Self = TypeVar("_Self", bound="ClosingCallback")


class ClosingCallback(TrainerCallback):
    """A callback that ends its work after an exception in train() too, with close(), and with the
    `with` block.

    The Trainer has no event for an exception, which Ctrl-C in a notebook also is, and none for the
    beginning of an evaluate() outside of train(). So the first such callback wraps train() and
    evaluate() of the class Trainer.
    """

    def __init__(self) -> None:
        _wrap_trainer()

    def close(self) -> None:
        """Ends the work of the callback, as the end of train() does. A second call does nothing."""

    def on_train_exception(self, why: str) -> None:
        """An exception has ended train()."""
        self.close()

    def while_evaluating(self, trainer: Any) -> ContextManager[None]:
        """Returns what surrounds a call of evaluate()."""
        return contextlib.nullcontext()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _closing_callbacks(trainer: Any) -> List[ClosingCallback]:
    handler = getattr(trainer, "callback_handler", None)
    return [one for one in getattr(handler, "callbacks", ()) if isinstance(one, ClosingCallback)]


def _telling_train(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def train(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except BaseException as error:
            for one in _closing_callbacks(self):
                one.on_train_exception(f"the training has ended with {type(error).__name__}")
            raise
    return train


def _telling_evaluate(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def evaluate(self: Any, *arguments: Any, **named: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for one in _closing_callbacks(self):
                stack.enter_context(one.while_evaluating(self))
            return method(self, *arguments, **named)
    return evaluate


def _wrap_trainer() -> None:
    """Wraps the methods of the class Trainer, once."""
    if "transformers" not in sys.modules:
        return
    try:
        from transformers.trainer import Trainer
    except Exception:  # it is being imported, or it needs a package that is not there
        return
    for name, wrap in (("train", _telling_train), ("evaluate", _telling_evaluate)):
        method = getattr(Trainer, name, None)
        if method is not None and not hasattr(method, "_harpe_tells"):
            wrapped = wrap(method)
            wrapped._harpe_tells = True  # type: ignore[attr-defined]
            setattr(Trainer, name, wrapped)


# ---- The optimizer ----

class HFGlobalPowerLimitOptimizer(ClosingCallback):
    """Finds and keeps the best power limit while a Trainer trains, and restores the original limits
    when train() ends, also with an exception, and when no step has begun for 10 minutes. `optimizer`
    is the GlobalPowerLimitOptimizer that does this.

        trainer = Trainer(..., callbacks=[HFGlobalPowerLimitOptimizer(ZeusMonitor())])
    """

    def __init__(self, monitor: ZeusMonitor, optimum_selector: Optional[OptimumSelector] = None,
                 wait_steps: int = 1, warmup_steps: int = 10, profile_steps: int = 40,
                 pl_step: int = 25,
                 profile_path: Union[str, "os.PathLike[str]", None] = None, *,
                 fleet: Optional[FleetMember] = None) -> None:
        """Takes the arguments of GlobalPowerLimitOptimizer and raises the same errors."""
        super().__init__()
        self.optimizer = GlobalPowerLimitOptimizer(
            monitor=monitor, optimum_selector=optimum_selector, wait_steps=wait_steps,
            warmup_steps=warmup_steps, profile_steps=profile_steps, pl_step=pl_step,
            profile_path=profile_path, fleet=fleet)
        self._watch = IdleWatch(IDLE_S if distributed.world_size() == 1 else None, self._give_back)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Warns if an earlier train() has ended the optimizer."""
        if self.optimizer.current_power_limit is None:
            logging.getLogger(_LOGGER).warning(
                "the power limit optimizer has already ended: this training goes on without it; "
                "create a new optimizer for each train()")
        else:
            self._watch.start()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins. With gradient accumulation, a step is an update of the weights."""
        with self._watch:
            self.optimizer.on_step_begin()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A batch has been evaluated."""
        with self._watch:
            pass

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch has ended."""
        with self._watch:
            self.optimizer.on_epoch_end()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training has ended: restores the original limits."""
        self.close()

    def on_train_exception(self, why: str) -> None:
        """An exception has ended the training: restores the original limits, and says so."""
        self._give_back(why)

    def close(self) -> None:
        """Restores the original limits. A second call does nothing."""
        self._watch.stop()
        with self._watch:
            self.optimizer.on_train_end()

    def _give_back(self, why: str) -> None:
        if self.optimizer.current_power_limit is not None:
            self.close()
            logging.getLogger(_LOGGER).warning("%s: the original power limits are restored", why)

    def __getstate__(self) -> Dict[str, Any]:
        """A copy in another process touches no GPU."""
        return {name: value for name, value in self.__dict__.items() if name != "_watch"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._watch = IdleWatch(None, self._give_back)
