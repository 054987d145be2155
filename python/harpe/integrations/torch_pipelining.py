# SPDX-License-Identifier: Apache-2.0
"""Runs torch.distributed.pipelining under the pipeline frequency optimizer. Add two lines to the
script, after the schedule object is created:

    from harpe.integrations import torch_pipelining as harpe_pipelining
    harpe_pipelining.install(schedule, server_url="http://head-node:7787")

A stage's forward_one_chunk, backward_one_chunk and backward_weight_one_chunk become instructions,
and each schedule.step() becomes a step. A schedule.eval() is not a step; it runs at the highest
clock. write_csv(schedule, path) writes the schedule object's order of instructions to a file. Name
the file in the arguments of the server's scheduler, or give it to `harpe plan --schedule`.
"""
from __future__ import annotations

import csv
import ctypes as C
import io
import os
import re
from typing import Any, Callable, Dict, List, Optional, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, call, lib
from harpe.callback import Callback
from harpe.integrations._installed import Installed, always, installed

__all__ = ["Installed", "csv_of", "install", "order_of", "write_csv"]

_OPERATIONS = {b.HARPE_FORWARD: "forward", b.HARPE_BACKWARD: "backward",
               b.HARPE_BACKWARD_INPUT: "backward_input",
               b.HARPE_BACKWARD_WEIGHT: "backward_weight"}
_COMPUTATION = re.compile(r"\d+[FBIW]\d+|\(.*\)OVERLAP_F_B")


# ---- Marks ----

def _stages(schedule: Any) -> List[Any]:
    """Returns the stages of this rank. Schedules with one stage and with several stages store them
    under different names."""
    stages = getattr(schedule, "_stages", None)
    if stages is None:
        stages = [schedule._stage] if hasattr(schedule, "_stage") else []
    if not stages or not hasattr(schedule, "step"):
        raise InvalidArgumentError(
            f"install: {type(schedule).__name__} has no stages: expected a schedule of "
            "torch.distributed.pipelining", b.HARPE_INVALID_ARGUMENT)
    return list(stages)


def _ranks(schedule: Any) -> Dict[str, int]:
    """Describes a job with pipeline parallelism only. The schedule knows no other dimensions."""
    import torch
    stage = _stages(schedule)[0]
    world_size = torch.distributed.get_world_size()
    if stage.group_size != world_size:
        raise InvalidArgumentError(
            f"install: the job has {world_size} ranks and its pipeline {stage.group_size}: create "
            "a PipelineFrequencyOptimizer with all dimensions, and install it",
            b.HARPE_INVALID_ARGUMENT)
    device = torch.device(stage.device)
    return {"rank": stage.group_rank, "pp_rank": stage.group_rank, "pp_degree": world_size,
            "dp_rank": 0, "dp_degree": 1, "tp_rank": 0, "tp_degree": 1, "world_size": world_size,
            "device_id": device.index if device.index is not None else stage.group_rank}


def _backward_name(_chunk: int, loss: Any = None, full_backward: bool = True,
                   *_: Any, **__: Any) -> str:
    return "backward" if full_backward else "backward_input"


_NAMES: Dict[str, Callable[..., str]] = {
    "forward_one_chunk": always("forward"),
    "backward_one_chunk": _backward_name,
    "backward_weight_one_chunk": always("backward_weight"),
}


def install(schedule: Any, optimizer: Optional[Callback] = None, *,
            server_url: Optional[str] = None, **options: Any) -> Installed:
    """Marks the steps of a schedule and the instructions of its stages on this rank.

    schedule: Schedule1F1B, ScheduleInterleavedZeroBubble or any other of the package's.
    optimizer: the optimizer that receives the events; None: a new PipelineFrequencyOptimizer for
        this rank of the pipeline. The pipeline then must have all ranks of the job.
    server_url, options: arguments of the new optimizer; see its class.

    Returns an object that uninstalls the marks. Raises InvalidArgumentError if this is not such a
    schedule, and the errors of the optimizer's constructor.
    """
    stages = _stages(schedule)
    one = installed(optimizer, server_url, lambda: _ranks(schedule), options)
    for stage in stages:
        for method, name_of in _NAMES.items():
            function = getattr(stage, method, None)
            if function is not None:  # PyTorch 2.4 has no backward_weight_one_chunk
                one.replace(stage, method, one.around(function, name_of))
    # eval() calls step() without backward.
    one.replace(schedule, "step", one.around_step(
        schedule.step, lambda *_, **__: bool(schedule._has_backward)))
    return one


# ---- Order ----

def _cell(action: Any) -> str:
    """Returns the text of a computation, and "" for an action in which the rank waits or does
    something other than computing."""
    text = "" if action is None else str(action)
    return text if _COMPUTATION.fullmatch(text) else ""


def csv_of(schedule: Any) -> str:
    """Returns the order of all ranks' instructions as the compute-only CSV that the torch package
    itself writes and Harpe reads: one row per rank, with cells such as 0F3, 2I1, 2W1, 1B0. Raises
    InvalidArgumentError if the schedule does not know its order (PyTorch is too old)."""
    order = getattr(schedule, "pipeline_order", None)
    if not order:
        raise InvalidArgumentError(
            f"{type(schedule).__name__} has no pipeline_order: use a newer PyTorch, or a built-in "
            "schedule of Harpe's by name", b.HARPE_INVALID_ARGUMENT)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for rank in sorted(order):
        writer.writerow([_cell(action) for action in order[rank]])
    return text.getvalue()


def write_csv(schedule: Any, path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes csv_of(schedule) to a file. Call it on one rank; the order contains all ranks."""
    temporary = f"{os.fspath(path)}.{os.getpid()}"
    with open(temporary, "w", newline="", encoding="ascii") as file:
        file.write(csv_of(schedule))
    os.replace(temporary, path)


def order_of(schedule: Any) -> List[List[str]]:
    """Returns for each rank the names of its instructions in order, as install() marks them.
    `schedule` is a schedule object or the text of its CSV. Raises InvalidArgumentError for an
    impossible order, such as one that never finishes."""
    text = (schedule if isinstance(schedule, str) else csv_of(schedule)).encode("utf-8")
    handle = C.c_void_p()
    call(lib.harpe_schedule_parse_csv, text, len(text), b"schedule", C.byref(handle))
    try:
        return [_names_of_rank(handle, rank)
                for rank in range(lib.harpe_schedule_rank_count(handle))]
    finally:
        lib.harpe_schedule_free(handle)


def _names_of_rank(schedule: C.c_void_p, rank: int) -> List[str]:
    """PyTorch runs the two instructions of an overlapped pair one after the other."""
    count = C.c_size_t()
    instructions = lib.harpe_schedule_rank(schedule, rank, C.byref(count))
    return [_OPERATIONS[action.operation] for instruction in instructions[:count.value]
            for action in instruction.actions[:instruction.action_count]]
