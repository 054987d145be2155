# SPDX-License-Identifier: Apache-2.0
"""Runs torch.distributed.pipelining under the pipeline frequency optimizer. Add two lines to the
script, after the schedule object is created:

    from harpe.integrations import torch_pipelining as harpe_pipelining
    harpe_pipelining.install(schedule, server_url="http://head-node:7787", device_mesh=mesh)

The calls of a stage (forward_one_chunk, backward_one_chunk, backward_weight_one_chunk) and the
functions that a script has registered for a kind of computation (register_custom_function) become
instructions, and each schedule.step() becomes a step. A schedule.eval() is not a step; it runs at
the highest clock. Communication is not part of an instruction: the marks are around the calls of
stages, and not around the runtime's actions ("PP:0F3" in its profiles), because such an action
begins before its input has arrived, and older versions have no such actions.

write_csv(schedule, path) writes the schedule object's order of instructions to a file. Name the
file in the arguments of the server's scheduler, or give it to `harpe plan --schedule`.
"""
from __future__ import annotations

import csv
import ctypes as C
import io
import os
import re
from functools import wraps
from typing import Any, Callable, Collection, Dict, Iterator, List, Optional, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, call, lib, utf8
from harpe.callback import Callback
from harpe.integrations._installed import Installed, installed

__all__ = ["Installed", "csv_of", "install", "order_of", "write_csv"]

_KINDS = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight",
          "OVERLAP_F_B": "overlap_f_b"}
_PAIR = re.compile(r"\((\d+F\d+);(\d+[BI]\d+)\)OVERLAP_F_B")
_COMPUTATION = re.compile(r"(\d+)([FBIW])(\d+)")
_DATA = {"batch", "cp", "data", "ddp", "dp", "ep", "fsdp", "hsdp", "replicate", "shard"}

_Function = Callable[..., Any]


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


# ---- Ranks ----

def _kind_of(dimension: str) -> Optional[str]:
    """Returns "pp", "tp" or "dp" for the name of a mesh dimension, such as dp_shard_cp. Ranks with
    parts of a batch or of a sequence, or with other experts, count as data parallel ranks."""
    if dimension in ("pp", "tp"):
        return dimension
    return "dp" if set(dimension.split("_")) <= _DATA else None


def _mesh_of_parameters(stage: Any) -> Any:
    """Returns the mesh of a stage whose parameters are distributed (FSDP, tensor parallelism)."""
    parameters = getattr(getattr(stage, "submod", None), "parameters", None)
    for parameter in parameters() if parameters is not None else ():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            return mesh
    return None


def _of_mesh(mesh: Any) -> Dict[str, int]:
    """Returns the ranks and degrees in a mesh. Several dimensions of one kind count as one, the
    last of them fastest."""
    names, shape, place = mesh.mesh_dim_names, mesh.shape, mesh.get_coordinate()
    if not names or place is None:
        raise InvalidArgumentError(
            "install: the device mesh has no named dimensions, or does not contain this rank: give "
            "the mesh of all ranks, with names such as pp, dp and tp", b.HARPE_INVALID_ARGUMENT)
    for name in names:
        if _kind_of(name) is None:
            raise InvalidArgumentError(
                f"install: the device mesh has a dimension {name}, which is unknown: expected pp, "
                "tp, and names such as dp, dp_shard, fsdp, cp; or give dp_rank, dp_degree, tp_rank "
                "and tp_degree", b.HARPE_INVALID_ARGUMENT)
    found = {f"{kind}_{what}": value for kind in ("pp", "dp", "tp")
             for what, value in (("rank", 0), ("degree", 1))}
    for name, size, index in zip(names, shape, place):
        kind = _kind_of(name)
        found[f"{kind}_rank"] = found[f"{kind}_rank"] * size + index
        found[f"{kind}_degree"] *= size
    return found


def _device_id(stage: Any) -> int:
    import torch
    device = torch.device(stage.device)
    if device.index is not None:
        return int(device.index)
    if device.type == "cuda":
        return int(torch.cuda.current_device())
    return int(os.environ.get("LOCAL_RANK", stage.group_rank))


def _ranks(schedule: Any, mesh: Any, given: Collection[str]) -> Dict[str, int]:
    """Describes this rank and its job. The schedule knows its pipeline. A job with other dimensions
    has a mesh, or all ranks and degrees are `given`."""
    import torch
    stage = _stages(schedule)[0]
    world_size = torch.distributed.get_world_size()
    found = {"rank": torch.distributed.get_rank(), "world_size": world_size, "dp_rank": 0,
             "dp_degree": 1, "tp_rank": 0, "tp_degree": 1, "device_id": _device_id(stage)}
    if mesh is None and stage.group_size != world_size:
        mesh = _mesh_of_parameters(stage)
    if mesh is not None:
        found.update(_of_mesh(mesh))
    found.update(pp_rank=stage.group_rank, pp_degree=stage.group_size)
    is_known = {"dp_rank", "dp_degree", "tp_rank", "tp_degree"} <= set(given)
    ranks = found["pp_degree"] * found["dp_degree"] * found["tp_degree"]
    if not is_known and ranks != world_size:
        raise InvalidArgumentError(
            f"install: the job has {world_size} ranks, but {ranks} are known: its pipeline has "
            f"{found['pp_degree']}, data parallelism {found['dp_degree']} and tensor parallelism "
            f"{found['tp_degree']}: give device_mesh=, a DeviceMesh with all named dimensions, or "
            "dp_rank, dp_degree, tp_rank and tp_degree", b.HARPE_INVALID_ARGUMENT)
    return found


# ---- Marks ----

class _Marks:
    """Marks calls as instructions. A call inside an instruction is a part of it: a function that a
    script has registered may call a stage, also on other threads."""

    def __init__(self, one: Installed) -> None:
        self._one, self._is_running = one, False
        self._open: Optional[str] = None  # the instruction that has begun and not ended

    def end(self) -> None:
        """Ends the instruction that has begun, if there is one."""
        name, self._open = self._open, None
        if name is not None:
            self._one.end(name)

    def around(self, function: _Function, name_of: Callable[..., str],
               ends: bool = True) -> _Function:
        """Wraps a function. ends: its end is also the end of the instruction. If the function
        raises, the instruction has not run, and its end is not marked."""
        @wraps(function)
        def marked(*arguments: Any, **named: Any) -> Any:
            if self._is_running:
                return function(*arguments, **named)
            self.end()
            name = name_of(*arguments, **named)
            self._one.begin(name)
            self._is_running = True
            try:
                result = function(*arguments, **named)
            finally:
                self._is_running = False
            self._open = name
            if ends:
                self.end()
            return result
        return marked

    def until_end_of(self, function: _Function) -> _Function:
        """Wraps a function that completes an instruction."""
        @wraps(function)
        def marked(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            if not self._is_running:
                self.end()
            return result
        return marked


class _Functions(Dict[Any, _Function]):
    """The functions that the runtime calls instead of its own, by kind of action. They mark."""

    def __init__(self, functions: Dict[Any, _Function], marks: _Marks) -> None:
        super().__init__(functions)
        self._marks = marks

    def __getitem__(self, kind: Any) -> _Function:
        function = super().__getitem__(kind)
        name = _KINDS.get(getattr(kind, "value", kind))
        return function if name is None else self._marks.around(function, lambda *_: name)


def _backward_name(_chunk: int, loss: Any = None, full_backward: bool = True,
                   *_: Any, **__: Any) -> str:
    return "backward" if full_backward else "backward_input"


def _mark_stage(one: Installed, marks: _Marks, stage: Any, has_loss: bool) -> None:
    """has_loss: the schedule computes the loss of the last stage after its forward. The loss is
    part of the forward."""
    is_last = has_loss and bool(stage.is_last)
    one.replace(stage, "forward_one_chunk", marks.around(
        stage.forward_one_chunk, lambda *_, **__: "forward", ends=not is_last))
    one.replace(stage, "backward_one_chunk",
                marks.around(stage.backward_one_chunk, _backward_name))
    weights = getattr(stage, "backward_weight_one_chunk", None)
    if weights is not None:  # PyTorch 2.4 has none
        one.replace(stage, "backward_weight_one_chunk",
                    marks.around(weights, lambda *_, **__: "backward_weight"))


def _mark_functions(one: Installed, marks: _Marks, schedule: Any) -> None:
    before = getattr(schedule, "_comp_type_to_function_map", None)
    if before is None:
        return
    functions = _Functions(before, marks)
    # Those that are registered later stay registered.
    one.when_uninstalled(lambda: before.update(dict(functions.items())))
    one.replace(schedule, "_comp_type_to_function_map", functions)


def install(schedule: Any, optimizer: Optional[Callback] = None, *,
            server_url: Optional[str] = None, device_mesh: Any = None,
            **options: Any) -> Installed:
    """Marks the steps of a schedule and the instructions of its stages on this rank.

    schedule: Schedule1F1B, ScheduleInterleavedZeroBubble or any other of the package's.
    optimizer: the optimizer that receives the events; None: a new PipelineFrequencyOptimizer for
        this rank.
    server_url, options: arguments of the new optimizer; see its class. Ranks and degrees that are
        not among them come from the schedule and the mesh.
    device_mesh: the DeviceMesh of a job that has more dimensions than its pipeline. Its dimensions
        have names: pp, tp, and those of data parallelism, such as dp, dp_replicate, dp_shard, fsdp
        and cp. It may lack pp. None: the mesh of the stage's parameters, if they are distributed.

    Returns an object that uninstalls the marks. Raises InvalidArgumentError if this is not such a
    schedule, or if the dimensions that are known do not make up all ranks of the job, and the
    errors of the optimizer's constructor.
    """
    stages = _stages(schedule)
    one = installed(optimizer, server_url,
                    lambda: _ranks(schedule, device_mesh, options), options)
    marks = _Marks(one)
    compute_loss = getattr(schedule, "_maybe_compute_loss", None)
    has_loss = compute_loss is not None and getattr(schedule, "_loss_fn", None) is not None
    for stage in stages:
        _mark_stage(one, marks, stage, has_loss)
    if compute_loss is not None:
        one.replace(schedule, "_maybe_compute_loss", marks.until_end_of(compute_loss))
    _mark_functions(one, marks, schedule)
    # eval() calls step() without backward.
    one.replace(schedule, "step", one.around_step(
        marks.until_end_of(schedule.step), lambda *_, **__: bool(schedule._has_backward)))
    return one


# ---- Order ----

def _order_of_stages(kind: str, ranks: int, microbatches: int) -> Iterator[List[str]]:
    """Yields the order of each rank of a schedule with one stage per rank. PyTorch's own
    description of these schedules is missing in older versions, and counts the forwards of the last
    stage of 1F1B from 1 in newer versions."""
    for rank in range(ranks):
        forwards = [f"{rank}F{microbatch}" for microbatch in range(microbatches)]
        backwards = [f"{rank}B{microbatch}" for microbatch in range(microbatches)]
        first = min(ranks - 1 - rank, microbatches) if kind == "Schedule1F1B" else microbatches
        cells = forwards[:first]
        for forward, backward in zip(forwards[first:], backwards):
            cells += [forward, backward]
        yield cells + backwards[microbatches - first:]


def _cells(actions: List[Any], keeps_pairs: bool) -> Iterator[str]:
    """Yields the text of each computation, and "" for an action in which the rank waits or does
    something other than computing."""
    for action in actions:
        text = "" if action is None else str(action)
        pair = _PAIR.fullmatch(text)
        if pair and not keeps_pairs:
            yield from pair.groups()
        else:
            yield text if pair or _COMPUTATION.fullmatch(text) else ""


def _with_halves(cells: List[str]) -> List[str]:
    """PyTorch 2.5 writes B for the input half of a backward too, if W is its other half."""
    weights = {cell for cell in cells if "W" in cell}
    return [cell.replace("B", "I") if cell.replace("B", "W") in weights else cell
            for cell in cells]


def _orders(schedule: Any) -> List[List[str]]:
    kind = type(schedule).__name__
    if kind in ("Schedule1F1B", "ScheduleGPipe"):
        return list(_order_of_stages(kind, schedule._num_stages, schedule._n_microbatches))
    # A runtime runs the order with communication; it may have been loaded from a file.
    order = (getattr(schedule, "pipeline_order_with_comms", None)
             or getattr(schedule, "pipeline_order", None))
    if not order:
        raise InvalidArgumentError(
            f"{kind} has no pipeline_order: use a newer PyTorch, or a built-in schedule of Harpe's "
            "by name", b.HARPE_INVALID_ARGUMENT)
    functions = getattr(schedule, "_comp_type_to_function_map", None) or {}
    keeps_pairs = any(getattr(one, "value", one) == "OVERLAP_F_B" for one in functions)
    return [_with_halves(list(_cells(order[rank], keeps_pairs))) for rank in sorted(order)]


def csv_of(schedule: Any) -> str:
    """Returns the order of all ranks' instructions as the CSV that the torch package itself writes
    and Harpe reads: one row per rank, with cells such as 0F3, 2I1, 2W1, 1B0. Communication is left
    out. An overlapped pair is one instruction, (0F7;7B3)OVERLAP_F_B, if the script has registered
    a function for such pairs; otherwise PyTorch runs one after the other, and they are two
    instructions. Raises InvalidArgumentError if the schedule does not know its order."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for cells in _orders(schedule):
        writer.writerow([cell for cell in cells if cell])
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
    text = utf8(schedule if isinstance(schedule, str) else csv_of(schedule))
    handle = C.c_void_p()
    call(lib.harpe_schedule_parse_csv, text, len(text), b"schedule", C.byref(handle))
    try:
        return [_names_of_rank(handle, rank)
                for rank in range(lib.harpe_schedule_rank_count(handle))]
    finally:
        lib.harpe_schedule_free(handle)


def _names_of_rank(schedule: C.c_void_p, rank: int) -> List[str]:
    count = C.c_size_t()
    instructions = lib.harpe_schedule_rank(schedule, rank, C.byref(count))
    return [instruction.name.decode("ascii") for instruction in instructions[:count.value]]
