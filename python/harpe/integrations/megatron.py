# SPDX-License-Identifier: Apache-2.0
"""Runs Megatron-LM and Megatron-Core under the pipeline frequency optimizer. Add two lines to the
script at a place where model parallelism is initialised, for example in the
train_valid_test_datasets_provider:

    from harpe.integrations import megatron as harpe_megatron
    harpe_megatron.install(get_timers(), server_url="http://head-node:7787")

Megatron has timers around the parts of an iteration. What the timers "forward-compute" and
"backward-compute" enclose becomes instructions "forward" and "backward", and what
"forward-backward" encloses becomes a step. Megatron runs evaluation without timers, so Harpe does
not see it, and the clock stays as the last instruction left it.

write_csv(config, num_microbatches, path) writes the order of a pipeline with virtual stages, also
if its groups of microbatches are larger than the pipeline. Name the file in the arguments of the
server's scheduler, or give it to `harpe plan --schedule`.
"""
from __future__ import annotations

import copy
import inspect
import logging
import os
import sys
from functools import partial, wraps
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError
from harpe.callback import Callback
from harpe.integrations._installed import Installed, installed, write_order

__all__ = ["Installed", "csv_of", "install", "write_csv"]

_INSTRUCTIONS = {"forward-compute": "forward", "backward-compute": "backward"}
_STEP = "forward-backward"

_LOG = logging.getLogger("harpe.pipeline_frequency")

Mark = Callable[[], None]


# ---- Settings ----

def _settings(timers: Any) -> List[Any]:
    """Returns the objects that hold Megatron's settings: the config that install() was given, and
    the arguments of a Megatron-LM script."""
    module = sys.modules.get("megatron.training.global_vars")
    try:
        return [timers] if module is None else [timers, module.get_args()]
    except AssertionError:  # the script has not parsed its arguments
        return [timers]


def _whole_graph(settings: Any) -> Optional[str]:
    """Returns the setting that makes Megatron run an iteration as one CUDA graph, or None. Older
    versions have it as a scope: a word, a member of an enumeration, or a list of these."""
    for name in ("cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules"):
        value = getattr(settings, name, None)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if getattr(one, "name", one) == "full_iteration":
                return f"{name}=full_iteration"
    return None


def _refuse_what_cannot_be_marked(settings: Any) -> None:
    if getattr(settings, "overlap_moe_expert_parallel_comm", False) is True:
        raise InvalidArgumentError(
            "install: overlap_moe_expert_parallel_comm is not supported: Megatron runs a forward "
            "and a backward at the same time (combined 1F1B) and times no backward: turn it off, "
            "or train without Harpe", b.HARPE_INVALID_ARGUMENT)
    graph = _whole_graph(settings)
    if graph:
        raise InvalidArgumentError(
            f"install: {graph} is not supported: Megatron repeats whole iterations without Python, "
            "so that nothing can be marked: use CUDA graphs of layers or none, or train without "
            "Harpe", b.HARPE_INVALID_ARGUMENT)


# ---- Order ----

def _positions(microbatches: int, chunks: int, group: int) -> List[Tuple[int, int]]:
    """Returns (chunk, microbatch) of a rank's forwards in order: a group of microbatches passes
    through all chunks before the next group begins."""
    return [(chunk, microbatch)
            for first in range(0, microbatches, group)
            for chunk in range(chunks)
            for microbatch in range(first, min(first + group, microbatches))]


def csv_of(config: Any, num_microbatches: int) -> str:
    """Returns the order of all ranks' instructions as the CSV that Harpe reads: one row per rank,
    with cells such as 0F3 and 2B1.

    config: Megatron's config, or the arguments of a Megatron-LM script:
        pipeline_model_parallel_size, virtual_pipeline_model_parallel_size,
        microbatch_group_size_per_vp_stage (None: as many as the pipeline has ranks).
    num_microbatches: microbatches of a step.

    Raises InvalidArgumentError for sizes of groups that Megatron does not run, and for settings
    that install() refuses.
    """
    _refuse_what_cannot_be_marked(config)
    ranks: int = config.pipeline_model_parallel_size
    chunks: int = config.virtual_pipeline_model_parallel_size or 1
    group: int = getattr(config, "microbatch_group_size_per_vp_stage", None) or ranks
    if chunks > 1 and not (ranks <= group <= num_microbatches
                           and not 0 < num_microbatches % group < ranks):
        raise InvalidArgumentError(
            f"csv_of: {num_microbatches} microbatches on {ranks} ranks do not fit "
            f"microbatch_group_size_per_vp_stage={group}: a group, also the last one, needs at "
            "least as many microbatches as the pipeline has ranks", b.HARPE_INVALID_ARGUMENT)
    positions = _positions(num_microbatches, chunks, group)
    lines = []
    for rank in range(ranks):
        forwards = [f"{chunk * ranks + rank}F{microbatch}" for chunk, microbatch in positions]
        backwards = [f"{(chunks - 1 - chunk) * ranks + rank}B{microbatch}"
                     for chunk, microbatch in positions]
        first = (ranks - 1 - rank) * (2 if chunks > 1 else 1) + (chunks - 1) * group
        cells = forwards[:first]
        for forward, backward in zip(forwards[first:], backwards):
            cells += [forward, backward]
        cells += backwards[len(forwards[first:]):]
        lines.append(",".join(cells) + "\n")
    return "".join(lines)


def write_csv(config: Any, num_microbatches: int, path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes csv_of(config, num_microbatches) to a file. Call it on one rank; the order contains
    all ranks."""
    write_order(csv_of(config, num_microbatches), path)


# ---- Ranks ----

def _of_group(groups: Any, group: str, what: str) -> int:
    value: int = getattr(getattr(groups, group), what)()
    return value


def _lookups(groups: Any) -> Dict[str, Callable[[], int]]:
    """Returns for each rank and degree the call that tells it. Context parallel ranks hold the same
    weights, like data parallel ranks, and count as data parallel ranks."""
    import torch
    lookups: Dict[str, Callable[[], int]] = {
        "rank": torch.distributed.get_rank, "world_size": torch.distributed.get_world_size}
    if groups is None:
        from megatron.core import parallel_state as state  # type: ignore[import]
        lookups.update({
            "pp_rank": state.get_pipeline_model_parallel_rank,
            "pp_degree": state.get_pipeline_model_parallel_world_size,
            "dp_rank": partial(state.get_data_parallel_rank, with_context_parallel=True),
            "dp_degree": partial(state.get_data_parallel_world_size, with_context_parallel=True),
            "tp_rank": state.get_tensor_model_parallel_rank,
            "tp_degree": state.get_tensor_model_parallel_world_size})
    else:
        data = "dp_cp" if hasattr(groups, "dp_cp") else "dp"
        for name, group in (("pp", "pp"), ("dp", data), ("tp", "tp")):
            lookups[f"{name}_rank"] = partial(_of_group, groups, group, "rank")
            lookups[f"{name}_degree"] = partial(_of_group, groups, group, "size")
    lookups["device_id"] = torch.cuda.current_device
    return lookups


def _ranks(groups: Any, given: Collection[str]) -> Dict[str, int]:
    """Returns the ranks and degrees of this process that are not `given`. groups: Megatron's
    ProcessGroupCollection; None: Megatron's parallel_state knows the groups."""
    found: Dict[str, int] = {}
    missing: Dict[str, str] = {}
    for name, look_up in _lookups(groups).items():
        if name in given:
            continue
        try:
            found[name] = look_up()
        except (AssertionError, AttributeError, RuntimeError, ValueError) as error:
            missing[name] = str(error)
    if missing:
        raise InvalidArgumentError(
            f"install: Megatron cannot tell {', '.join(missing)} "
            f"({'; '.join(dict.fromkeys(missing.values()))}): call install where model parallelism "
            "is set up, or give pg_collection=, Megatron's ProcessGroupCollection, or give these "
            "arguments themselves", b.HARPE_INVALID_ARGUMENT)
    return found


def _tokens_per_step(settings: List[Any]) -> Dict[str, int]:
    """Returns the tokens of a step of the whole job, if Megatron-LM's arguments have them and the
    batch keeps its size."""
    for place in settings:
        batch, length = (getattr(place, name, None) for name in ("global_batch_size", "seq_length"))
        if not isinstance(batch, int) or not isinstance(length, int):
            continue
        if getattr(place, "rampup_batch_size", None) is None and 0 < batch * length <= 1000000000:
            return {"tokens_per_step": batch * length}
    return {}


def _facts(groups: Any, given: Collection[str], settings: List[Any]) -> Dict[str, int]:
    return {**_ranks(groups, given), **_tokens_per_step(settings)}


# ---- Marks ----

class _MarkedTimer:
    """A timer of Megatron whose start and stop are also marks. The marks come after the timer's own
    work, so that a timer that waits for the GPU or for other ranks has already waited."""

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

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What is saved is the timer itself. Newer protocols refuse to save one object as
        another."""
        return self._timer.__reduce_ex__(0)


class _Steps:
    """Passes marks on, and tells once if Megatron times forwards without a backward. install()
    cannot always see the setting that causes this."""

    def __init__(self, one: Installed) -> None:
        self._one, self._is_told = one, False
        self._counts = dict.fromkeys(_INSTRUCTIONS.values(), 0)

    def begin_step(self) -> None:
        self._counts = dict.fromkeys(self._counts, 0)
        self._one.begin_step()

    def begin(self, instruction: str) -> None:
        self._counts[instruction] += 1
        self._one.begin(instruction)

    def end_step(self) -> None:
        self._one.end_step()
        forwards = self._counts["forward"]
        if forwards and not self._counts["backward"] and not self._is_told:
            self._is_told = True
            _LOG.error("Megatron timed %d forwards and no backward in a step, which fits no plan. "
                       "This is so with overlap_moe_expert_parallel_comm (combined 1F1B), which "
                       "Harpe does not support", forwards)


def _marks(one: Installed) -> Dict[str, Tuple[Mark, Mark]]:
    steps = _Steps(one)
    marks: Dict[str, Tuple[Mark, Mark]] = {_STEP: (steps.begin_step, steps.end_step)}
    for timer, name in _INSTRUCTIONS.items():
        marks[timer] = (partial(steps.begin, name), partial(one.end, name))
    return marks


def _marked_class(kind: Any, marks: Dict[str, Tuple[Mark, Mark]]) -> Any:
    """Megatron holds its timers in several places, and removes and restores them in some of these
    places. The object therefore stays the same, and only its __call__ changes. A saved
    configuration names the original class and can be loaded without Harpe. A copy within the
    process marks too."""
    class Marked(kind):  # type: ignore[misc]
        def __call__(self, name: str, *arguments: Any, **named: Any) -> Any:
            timer = super().__call__(name, *arguments, **named)
            return _MarkedTimer(timer, *marks[name]) if name in marks else timer

        def __reduce_ex__(self, protocol: Any) -> Any:
            function, arguments, *rest = super().__reduce_ex__(0)
            return (function, tuple(kind if one is Marked else one for one in arguments), *rest)

        def __copy__(self) -> Any:
            copied = kind.__new__(type(self))
            vars(copied).update(vars(self))
            return copied

        def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
            copied = memo[id(self)] = kind.__new__(type(self))
            vars(copied).update(copy.deepcopy(vars(self), memo))
            return copied

    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(Marked, name, getattr(kind, name))
    return Marked


def _time_several_modules(one: Installed) -> None:
    """Megatron times the forward of a pipeline with several modules, but not its backward, which is
    another function than that of other pipelines. Adds the timer."""
    schedules = sys.modules.get("megatron.core.pipeline_parallel.schedules")
    function = getattr(schedules, "backward_step_multimodule", None)
    if function is None:
        return
    bind = inspect.signature(function).bind

    @wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:
        timers = bind(*arguments, **named).arguments["config"].timers
        if timers is None:
            return function(*arguments, **named)
        timers("backward-compute", log_level=2).start()
        result = function(*arguments, **named)
        timers("backward-compute").stop()
        return result

    one.replace(schedules, "backward_step_multimodule", timed)


# ---- In ----

def install(timers: Any, optimizer: Optional[Callback] = None, *,
            server_url: Optional[str] = None, pg_collection: Any = None,
            **options: Any) -> Installed:
    """Makes Megatron's timers mark steps and instructions. Their own measurements and output do not
    change.

    timers: the Timers object, get_timers(); or a config whose `timers` it is.
    optimizer: the optimizer that receives the events; None: a new PipelineFrequencyOptimizer for
        this rank of Megatron.
    server_url, options: arguments of the new optimizer; see its class. Ranks and degrees that are
        not among them come from Megatron, and so does tokens_per_step: Megatron-LM's
        global_batch_size times seq_length, unless the batch size ramps up.
    pg_collection: the ProcessGroupCollection of a job that gives its own process groups to
        Megatron; None: Megatron's parallel_state has the groups.

    Megatron calls the functions of a script once for each virtual stage. If the timers already
    mark, the result of the first call is returned.

    Returns an object that uninstalls the marks. Raises InvalidArgumentError if there are no timers,
    or if the config or Megatron-LM's arguments have a setting with which Megatron's timers show no
    instructions (overlap_moe_expert_parallel_comm, CUDA graphs of full iterations), and the errors
    of the optimizer's constructor.
    """
    settings = _settings(timers)
    timers = getattr(timers, "timers", timers)
    kind = type(timers)
    if not callable(timers) or not hasattr(timers, "__dict__"):
        raise InvalidArgumentError(
            f"install: {timers!r} is not a Timers object: expected get_timers(), or a config whose "
            "`timers` is set", b.HARPE_INVALID_ARGUMENT)
    before: Optional[Installed] = getattr(kind, "_harpe_installed", None)
    if before is not None and optimizer in (None, before.optimizer):
        return before
    if before is not None:
        raise InvalidArgumentError("install: these timers already mark for another optimizer: "
                                   "uninstall that optimizer first", b.HARPE_INVALID_ARGUMENT)
    for place in settings:
        _refuse_what_cannot_be_marked(place)
    one = installed(optimizer, server_url, partial(_facts, pg_collection, options, settings), options)
    marked = _marked_class(kind, _marks(one))
    marked._harpe_installed = one
    timers.__class__ = marked

    def undo() -> None:
        if type(timers) is marked:
            timers.__class__ = kind

    one.when_uninstalled(undo)
    _time_several_modules(one)
    return one
