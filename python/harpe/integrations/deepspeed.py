# SPDX-License-Identifier: Apache-2.0
"""Runs DeepSpeed's pipeline engine under the pipeline frequency optimizer. Add two lines to the
script, after deepspeed.initialize:

    from harpe.integrations import deepspeed as harpe_deepspeed
    harpe_deepspeed.install(engine, server_url="http://head-node:7787")

The engine's ForwardPass and BackwardPass become instructions "forward" and "backward", and each
train_batch becomes a step. An eval_batch is not a step; it runs at the highest clock. Only this
engine is changed, not its class. With install(..., epilogue="optimizer"), what the engine does at
the end of a step, the reduction of gradients and the optimizer step, is one instruction of this
name. The scheduler then needs the same name among its arguments: {"epilogue": ["optimizer"]}.

A PipelineModule runs in Harpe's order 1f1b. A DualPipeVModule has an order of its own:
write_csv(engine, path) writes it to a file. Name the file in the arguments of the server's
scheduler, or give it to `harpe plan --schedule`.
"""
from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any, Dict, Iterator, Optional, Tuple, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError
from harpe.callback import Callback
from harpe.integrations._installed import Installed, always, installed, write_order

__all__ = ["Installed", "csv_of", "install", "write_csv"]

_INSTRUCTIONS = {"ForwardPass": "forward", "BackwardPass": "backward"}
_LETTERS = {"ForwardPass": "F", "BackwardPass": "B"}
# The engine runs them in this order, after its last backward.
_END = ("ReduceTiedGrads", "ReduceGrads", "OptimizerStep")


def _ranks(engine: Any) -> Dict[str, int]:
    """Returns the ranks and degrees that DeepSpeed's grid of processes reports."""
    grid = engine.grid
    pp_degree = int(grid.get_pipe_parallel_world_size())
    dp_degree = int(grid.get_data_parallel_world_size())
    tp_degree = int(grid.get_slice_parallel_world_size())
    index = engine.device.index  # None: the accelerator does not number its devices
    return {
        "rank": int(grid.get_global_rank()), "pp_rank": int(grid.get_pipe_parallel_rank()),
        "dp_rank": int(grid.get_data_parallel_rank()),
        "tp_rank": int(grid.get_slice_parallel_rank()), "pp_degree": pp_degree,
        "dp_degree": dp_degree, "tp_degree": tp_degree,
        "world_size": pp_degree * dp_degree * tp_degree,
        "device_id": int(engine.local_rank) if index is None else index,
    }


def _is_training(schedule: Any) -> bool:
    """Finds the class by name. Forks of DeepSpeed keep the name, but not always the module. One
    class does both training and evaluation; it has an attribute that tells which."""
    return (not getattr(schedule, "forward_only", False)
            and all(kind.__name__ != "InferenceSchedule" for kind in type(schedule).__mro__))


# ---- Order ----

def _cells(schedule: Any) -> Iterator[str]:
    """Yields the computations of one rank: 0F3, 1B0 ... With two stages on a rank, the second is on
    the way back to rank 0. A stage runs its microbatches in order, forward and backward."""
    counts: Dict[Tuple[int, str], int] = {}
    for commands in schedule:
        for command in commands:
            letter = _LETTERS.get(type(command).__name__)
            if letter is None:
                continue
            stage = schedule.stage_id
            if getattr(command, "phase", 0) == 1:
                stage = 2 * schedule.stages - 1 - stage
            microbatch = counts.get((stage, letter), 0)
            counts[stage, letter] = microbatch + 1
            yield f"{stage}{letter}{microbatch}"


def _kind_of_schedule(engine: Any) -> Any:
    """Returns the class of the engine's schedule. Engines of older versions have one class, next to
    those of the instructions."""
    if hasattr(engine, "_train_schedule"):
        return type(engine._train_schedule())
    forward = next(kind for kind in engine._INSTRUCTION_MAP if kind.__name__ == "ForwardPass")
    return getattr(sys.modules[forward.__module__], "TrainSchedule")


def csv_of(engine: Any) -> str:
    """Returns the order of all ranks' instructions as the CSV that Harpe reads: one row per rank,
    with cells such as 0F3 and 1B0. `engine` is a PipelineEngine."""
    kind = _kind_of_schedule(engine)
    return "".join(",".join(_cells(kind(engine.micro_batches, engine.num_stages, rank))) + "\n"
                   for rank in range(engine.num_stages))


def write_csv(engine: Any, path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes csv_of(engine) to a file. Call it on one rank; the order contains all ranks."""
    write_order(csv_of(engine), path)


# ---- In ----

def _find_end(known: Dict[Any, Any]) -> Tuple[Any, Any]:
    """Returns the engine's first and last instruction of the end of a step."""
    kinds = {kind.__name__: kind for kind in known}
    missing = [kind for kind in _END if kind not in kinds]
    if missing:
        raise InvalidArgumentError(
            f"install: this engine has no {missing[0]}, so the end of a step cannot be an "
            "instruction", b.HARPE_INVALID_ARGUMENT)
    return kinds[_END[0]], kinds[_END[-1]]


def install(engine: Any, optimizer: Optional[Callback] = None, *, server_url: Optional[str] = None,
            epilogue: Optional[str] = None, **options: Any) -> Installed:
    """Marks the engine's steps and instructions.

    engine: a PipelineEngine, as deepspeed.initialize returns it for a PipelineModule.
    optimizer: the optimizer that receives the events; None: a new PipelineFrequencyOptimizer for
        this rank of the engine's grid.
    server_url, options: arguments of the new optimizer; see its class.
    epilogue: the name of an instruction for the end of a step; None: it is no instruction.

    Returns an object that uninstalls the marks. Raises InvalidArgumentError if this is not a
    pipeline engine, and the errors of the optimizer's constructor.
    """
    known = getattr(engine, "_INSTRUCTION_MAP", None)
    entries = {kind: _INSTRUCTIONS[kind.__name__] for kind in known or {}
               if getattr(kind, "__name__", None) in _INSTRUCTIONS}
    if known is None or set(entries.values()) != set(_INSTRUCTIONS.values()):
        raise InvalidArgumentError(
            f"install: {type(engine).__name__} has no _INSTRUCTION_MAP with ForwardPass and "
            "BackwardPass: expected a PipelineEngine of DeepSpeed", b.HARPE_INVALID_ARGUMENT)
    end = _find_end(known) if epilogue is not None else None
    one = installed(optimizer, server_url, lambda: _ranks(engine), options)
    marked = dict(known)
    for kind, name in entries.items():
        marked[kind] = one.around(known[kind], always(name))
    if epilogue is not None and end is not None:
        first, last = end
        marked[first] = one.after(partial(one.begin, epilogue), known[first])
        marked[last] = one.before(known[last], partial(one.end, epilogue))
    one.replace(engine, "_INSTRUCTION_MAP", marked)
    one.replace(engine, "_exec_schedule",
                one.around_step(engine._exec_schedule, lambda schedule: _is_training(schedule)))
    return one
