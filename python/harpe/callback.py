# SPDX-License-Identifier: Apache-2.0
"""Events of a training loop: what every optimizer listens to, and a set of listeners that a loop
calls once per event.

    on_train_begin
      on_epoch_begin
        on_step_begin   on_instruction_begin / on_instruction_end   on_step_end
      on_evaluate
      on_epoch_end
    on_train_end
"""
from __future__ import annotations

from typing import Iterable, List

__all__ = ["Callback", "CallbackSet"]


class Callback:
    """Listens to a training loop. A subclass overrides the events that it cares about; the others
    do nothing. Call all events from the training thread."""

    def on_train_begin(self) -> None:
        """Training begins."""

    def on_train_end(self) -> None:
        """Training is over."""

    def on_epoch_begin(self) -> None:
        """An epoch begins."""

    def on_epoch_end(self) -> None:
        """An epoch is over."""

    def on_step_begin(self) -> None:
        """A step (an iteration: one batch, one update of the weights) begins."""

    def on_step_end(self) -> None:
        """A step is over."""

    def on_evaluate(self, metric: float) -> None:
        """The model was evaluated; `metric` is what the loop goes by, such as the accuracy."""

    def on_instruction_begin(self, name: str) -> None:
        """An instruction of a pipeline (`name`: "forward", "backward" ...) begins."""

    def on_instruction_end(self, name: str) -> None:
        """An instruction of a pipeline is over."""


class CallbackSet(Callback):
    """Several callbacks as one: each event goes to all of them, in their order. An exception in one
    reaches the loop, and the rest do not hear of that event."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        """Keeps the callbacks in `self.callbacks`, a list that may be changed between events."""
        self.callbacks: List[Callback] = list(callbacks)

    def on_train_begin(self) -> None:
        """Training begins."""
        for callback in self.callbacks:
            callback.on_train_begin()

    def on_train_end(self) -> None:
        """Training is over."""
        for callback in self.callbacks:
            callback.on_train_end()

    def on_epoch_begin(self) -> None:
        """An epoch begins."""
        for callback in self.callbacks:
            callback.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """An epoch is over."""
        for callback in self.callbacks:
            callback.on_epoch_end()

    def on_step_begin(self) -> None:
        """A step begins."""
        for callback in self.callbacks:
            callback.on_step_begin()

    def on_step_end(self) -> None:
        """A step is over."""
        for callback in self.callbacks:
            callback.on_step_end()

    def on_evaluate(self, metric: float) -> None:
        """The model was evaluated."""
        for callback in self.callbacks:
            callback.on_evaluate(metric)

    def on_instruction_begin(self, name: str) -> None:
        """An instruction of a pipeline begins."""
        for callback in self.callbacks:
            callback.on_instruction_begin(name)

    def on_instruction_end(self, name: str) -> None:
        """An instruction of a pipeline is over."""
        for callback in self.callbacks:
            callback.on_instruction_end(name)
