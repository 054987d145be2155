# SPDX-License-Identifier: Apache-2.0
"""The events of a training loop, to which every optimizer listens, and a set of listeners that a
loop calls once per event.

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
    """Listens to a training loop. A subclass overrides the events that it needs; the others do
    nothing. Call all events from the training thread."""

    def on_train_begin(self) -> None:
        """Training begins."""

    def on_train_end(self) -> None:
        """Training has ended."""

    def on_epoch_begin(self) -> None:
        """An epoch begins."""

    def on_epoch_end(self) -> None:
        """An epoch has ended."""

    def on_step_begin(self) -> None:
        """A step (an iteration: one batch, one update of the weights) begins."""

    def on_step_end(self) -> None:
        """A step has ended."""

    def on_evaluate(self, metric: float) -> None:
        """The model was evaluated. `metric` is its result, such as the accuracy."""

    def on_instruction_begin(self, name: str) -> None:
        """An instruction of a pipeline (`name`: "forward", "backward" ...) begins."""

    def on_instruction_end(self, name: str) -> None:
        """An instruction of a pipeline has ended."""


class CallbackSet(Callback):
    """Combines several callbacks into one: each event goes to all of them, in their order. If a
    callback raises, the exception reaches the loop, and the callbacks after it do not receive that
    event."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        """Keeps the callbacks in `self.callbacks`, a list that may be changed between events."""
        self.callbacks: List[Callback] = list(callbacks)

    def on_train_begin(self) -> None:
        """Training begins."""
        for callback in self.callbacks:
            callback.on_train_begin()

    def on_train_end(self) -> None:
        """Training has ended."""
        for callback in self.callbacks:
            callback.on_train_end()

    def on_epoch_begin(self) -> None:
        """An epoch begins."""
        for callback in self.callbacks:
            callback.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """An epoch has ended."""
        for callback in self.callbacks:
            callback.on_epoch_end()

    def on_step_begin(self) -> None:
        """A step begins."""
        for callback in self.callbacks:
            callback.on_step_begin()

    def on_step_end(self) -> None:
        """A step has ended."""
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
        """An instruction of a pipeline has ended."""
        for callback in self.callbacks:
            callback.on_instruction_end(name)
