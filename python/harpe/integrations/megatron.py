# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM and Megatron-Core under the pipeline frequency optimizer. Two lines more in a script,
where model parallelism is initialised (in the model_provider, say):

    from harpe.integrations import megatron as harpe_megatron
    harpe_megatron.install(get_timers(), server_url="http://head-node:7787")

Megatron runs its timers around what matters: "forward-compute" and "backward-compute" become
instructions "forward" and "backward", "forward-backward" a step. Evaluation, for which Megatron
takes the timers away, is not seen: the clock stays at what the last instruction had.
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple

from harpe import _bindings as b
from harpe._library import InvalidArgumentError
from harpe.callback import Callback
from harpe.integrations._installed import Installed, installed

__all__ = ["Installed", "install"]

_INSTRUCTIONS = {"forward-compute": "forward", "backward-compute": "backward"}
_STEP = "forward-backward"

Mark = Callable[[], None]


def _ranks() -> Dict[str, int]:
    """What Megatron-Core says of this process. Context parallel ranks hold the same weights, like
    data parallel ones, and count as such."""
    import torch
    from megatron.core import parallel_state as state  # type: ignore[import]
    return {
        "rank": torch.distributed.get_rank(),
        "world_size": torch.distributed.get_world_size(),
        "device_id": torch.cuda.current_device(),
        "pp_rank": state.get_pipeline_model_parallel_rank(),
        "pp_degree": state.get_pipeline_model_parallel_world_size(),
        "dp_rank": state.get_data_parallel_rank(with_context_parallel=True),
        "dp_degree": state.get_data_parallel_world_size(with_context_parallel=True),
        "tp_rank": state.get_tensor_model_parallel_rank(),
        "tp_degree": state.get_tensor_model_parallel_world_size(),
    }


class _MarkedTimer:
    """A timer of Megatron's whose start and stop are marks too. Marks come after them: a timer that
    waits for the GPU or for other ranks has done so by then."""

    def __init__(self, timer: Any, begin: Mark, end: Mark) -> None:
        self._timer, self._begin, self._end = timer, begin, end

    def start(self, *arguments: Any, **named: Any) -> Any:
        result = self._timer.start(*arguments, **named)
        self._begin()
        return result

    def stop(self, *arguments: Any, **named: Any) -> Any:
        result = self._timer.stop(*arguments, **named)
        self._end()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timer, name)


def _marks(one: Installed) -> Dict[str, Tuple[Mark, Mark]]:
    marks: Dict[str, Tuple[Mark, Mark]] = {_STEP: (one.begin_step, one.end_step)}
    for timer, name in _INSTRUCTIONS.items():
        marks[timer] = (partial(one.begin, name), partial(one.end, name))
    return marks


def _marked_class(kind: Any, marks: Dict[str, Tuple[Mark, Mark]]) -> Any:
    """Megatron holds its timers in several places and takes them away and puts them back in some:
    the object stays the same, only what calling it does is another."""
    class Marked(kind):  # type: ignore[misc]
        def __call__(self, name: str, *arguments: Any, **named: Any) -> Any:
            timer = super().__call__(name, *arguments, **named)
            return _MarkedTimer(timer, *marks[name]) if name in marks else timer

    Marked.__name__, Marked.__qualname__ = kind.__name__, kind.__qualname__
    return Marked


def install(timers: Any, optimizer: Optional[Callback] = None, *,
            server_url: Optional[str] = None, **options: Any) -> Installed:
    """Makes Megatron's timers mark steps and instructions. What they measure and print is the same.

    timers: the Timers object, get_timers(); or a config whose `timers` it is.
    optimizer: who is told; None: a PipelineFrequencyOptimizer for this rank of Megatron's.
    server_url, options: of that optimizer; see its class.

    A model_provider is called once for each virtual stage: where timers mark already, what the
    first call installed is returned.

    Returns what uninstalls it. Raises InvalidArgumentError if there are no timers, and what the
    optimizer's construction raises.
    """
    timers = getattr(timers, "timers", timers)
    kind = type(timers)
    if not callable(timers) or not hasattr(timers, "__dict__"):
        raise InvalidArgumentError(
            f"install: {timers!r} are no timers: expected get_timers(), or a config whose `timers` "
            "are set", b.HARPE_INVALID_ARGUMENT)
    before: Optional[Installed] = getattr(kind, "_harpe_installed", None)
    if before is not None and optimizer in (None, before.optimizer):
        return before
    if before is not None:
        raise InvalidArgumentError("install: these timers mark already, for another optimizer: "
                                   "uninstall that one first", b.HARPE_INVALID_ARGUMENT)
    one = installed(optimizer, server_url, _ranks, options)
    marked = _marked_class(kind, _marks(one))
    marked._harpe_installed = one
    timers.__class__ = marked

    def undo() -> None:
        if type(timers) is marked:
            timers.__class__ = kind

    one.when_uninstalled(undo)
    return one
