# SPDX-License-Identifier: Apache-2.0
"""The published interface of schedulers in Python. `harpe serve --scheduler python:module.Class`
runs a subclass in a process of its own (host.py). The scheduler decides in each round which rank
runs which instruction at which clock, and receives the measurements of all ranks."""
from __future__ import annotations

import abc
import functools
import os
from typing import (Any, Callable, Dict, Generator, List, Mapping, Optional, Sequence, Tuple, Type,
                    TypeVar)

from harpe.optimizer.pipeline_frequency.common import (FrequencySchedule, JobInfo,
                                                       PFOServerSettings, ProfilingResult,
                                                       RankInfo)

__all__ = ["AllMaxFrequency", "FrequencyScheduler", "PointSolution", "PointSolution3D",
           "make_3d_parallel"]

Rounds = Generator[List[FrequencySchedule], List[ProfilingResult], None]
"""What `_run` is: it yields schedules and receives what was measured under them."""


def _with_either_name(init: Callable[..., None]) -> Callable[..., None]:
    """Lets a constructor take its argument pfo_settings as perseus_settings, its older name."""

    @functools.wraps(init)
    def take(self: Any, *args: Any, **kwargs: Any) -> None:
        if "perseus_settings" in kwargs:
            kwargs["pfo_settings"] = kwargs.pop("perseus_settings")
        init(self, *args, **kwargs)

    return take


class FrequencyScheduler(abc.ABC):
    """Decides on the clocks of one job. A subclass implements the generator `_run`, or overrides
    `observe` and `next_schedule`. The server calls next_schedule(), then for each round observe()
    and next_schedule(). After a restart of the server, a new object receives all results again.

    Attributes:
        job_info: The job.
        rank_infos: Its ranks, sorted by rank.
        world_size: The number of ranks.
        pfo_settings: The server's settings, also called perseus_settings.
    """

    @_with_either_name
    def __init__(self, job_info: JobInfo, rank_infos: List[RankInfo],
                 pfo_settings: PFOServerSettings) -> None:
        """Creates the scheduler of one job. `rank_infos` may have any order. A subclass takes the
        values of --scheduler-args as further arguments."""
        self.job_info = job_info
        self.rank_infos = sorted(rank_infos, key=lambda info: info.rank)
        self.world_size = job_info.world_size
        self.pfo_settings = self.perseus_settings = pfo_settings
        self._generator = self._run()
        self._next_schedule: Optional[List[FrequencySchedule]] = None
        self._has_ended = False
        self._failure: Optional[BaseException] = None

    def _run(self) -> Rounds:
        """Yields one FrequencySchedule per rank and receives one ProfilingResult per rank, again
        and again:

            while self.is_worth_trying():
                results = yield self.schedules()
                self.learn_from(results)
            yield self.best_schedules()

        After it ends, the server uses the schedules that it yielded last for the rest of the job.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither _run nor next_schedule")
        yield []

    def observe(self, profiling_results: List[ProfilingResult]) -> None:
        """Receives the measurements of all ranks under the last schedule, in any order."""
        if not self._has_ended:
            self._next_schedule = self._step(profiling_results)

    def next_schedule(self) -> List[FrequencySchedule]:
        """Returns one schedule per rank for the next round, in any order.

        Raises:
            RuntimeError: `_run` ended without having yielded any.
        """
        if self._next_schedule is None and not self._has_ended:
            self._next_schedule = self._step(None)
        if self._next_schedule is None:
            raise RuntimeError(f"{type(self).__name__}._run ended before it yielded a schedule")
        return self._next_schedule

    def _step(self, results: Optional[List[ProfilingResult]]) -> Optional[List[FrequencySchedule]]:
        """Returns the next schedules of the generator, or the last ones if it has ended. After an
        exception the generator is exhausted, and this method must not treat it as if it had ended
        normally, because that would hide the exception."""
        if self._failure is not None:
            raise RuntimeError(f"{type(self).__name__}._run failed in an earlier round: "
                               f"{self._failure!r}") from self._failure
        try:
            if results is None:
                return next(self._generator)
            return self._generator.send(results)
        except StopIteration:
            self._has_ended = True
            return self._next_schedule
        except BaseException as error:
            self._failure = error
            raise


# ---- Data and tensor parallel jobs ----

_Numbers = TypeVar("_Numbers", List[float], List[List[float]])
Place = Tuple[int, int]  # data parallel rank, tensor parallel rank


def make_3d_parallel(sched_cls: Type[FrequencyScheduler],
                     name: Optional[str] = None) -> Type[FrequencyScheduler]:
    """Makes a scheduler for data and tensor parallel jobs from a scheduler that knows pipelines
    only.

    `sched_cls` sees a job of one rank per stage (dp_degree = tp_degree = 1, rank = pp_rank), with
    the clocks that all GPUs of the stage have. Its schedule for a stage goes to every rank of the
    stage. The measurements of a stage's ranks are combined element by element: a time is the
    maximum of the ranks' times, an energy is the sum of their energies. Lists of different lengths
    are a ValueError that names the ranks.

    Args:
        sched_cls: The class to wrap.
        name: Name of the new class; None: the name of `sched_cls` with "3D" appended.
    """

    class Wrapper(sched_cls):  # type: ignore[valid-type,misc]
        @_with_either_name
        @functools.wraps(sched_cls.__init__)
        def __init__(self, job_info: JobInfo, rank_infos: List[RankInfo],
                     pfo_settings: PFOServerSettings, *args: Any, **kwargs: Any) -> None:
            self._stages = _stages_of(rank_infos)
            pipeline = job_info.copy()
            pipeline.dp_degree = pipeline.tp_degree = 1
            pipeline.world_size = pipeline.pp_degree
            super().__init__(pipeline, [_one_of(self._stages[stage]) for stage in self._stages],
                             pfo_settings, *args, **kwargs)

        def observe(self, profiling_results: List[ProfilingResult]) -> None:
            """Receives the measurements of all ranks, and passes on those of each stage."""
            of_rank = {result.rank: result for result in profiling_results}
            super().observe([_combined(stage, [of_rank[rank.rank] for rank in ranks])
                             for stage, ranks in self._stages.items()])

        def next_schedule(self) -> List[FrequencySchedule]:
            """Returns one schedule per rank. The ranks of a stage have the same."""
            of_stage = {schedule.rank: schedule for schedule in super().next_schedule()}
            schedules = [FrequencySchedule(rank=rank.rank, frequencies=of_stage[stage].frequencies)
                         for stage, ranks in self._stages.items() if stage in of_stage
                         for rank in ranks]
            return sorted(schedules, key=lambda schedule: schedule.rank)

    Wrapper.__name__ = Wrapper.__qualname__ = name or f"{sched_cls.__name__}3D"
    Wrapper.__module__ = sched_cls.__module__
    Wrapper.__doc__ = (f"{sched_cls.__name__} for data and tensor parallel jobs.\n\n"
                       f"{sched_cls.__doc__ or ''}")
    # The subclass adds nothing that could change a schedule after _run has ended.
    Wrapper._is_3d_wrapper = True
    return Wrapper


def _stages_of(rank_infos: Sequence[RankInfo]) -> Dict[int, List[RankInfo]]:
    """Groups ranks by stage. Stages and ranks are in order."""
    stages: Dict[int, List[RankInfo]] = {}
    for info in sorted(rank_infos, key=lambda info: (info.pp_rank, info.rank)):
        stages.setdefault(info.pp_rank, []).append(info)
    return stages


def _one_of(ranks: Sequence[RankInfo]) -> RankInfo:
    """Describes a stage as one rank."""
    common = set.intersection(*(set(info.available_frequencies) for info in ranks))
    clocks = [mhz for mhz in ranks[0].available_frequencies if mhz in common]
    if not clocks and any(info.available_frequencies for info in ranks):
        raise ValueError(f"the GPUs of stage {ranks[0].pp_rank}, {_names(ranks)}, have no clock in "
                         "common")
    stage = ranks[0].pp_rank
    return RankInfo(rank=stage, dp_rank=0, pp_rank=stage, tp_rank=0, available_frequencies=clocks)


def _names(items: Sequence[Any]) -> str:
    return "ranks " + ", ".join(str(item.rank) for item in items)


def _combined(stage: int, results: Sequence[ProfilingResult]) -> ProfilingResult:
    """Combines the results of a stage's ranks into one result."""

    def lists(what: str, values: Sequence[List[Any]], fold: Callable[..., Any]) -> List[Any]:
        if len({len(value) for value in values}) > 1:
            lengths = ", ".join(str(len(value)) for value in values)
            raise ValueError(f"stage {stage}: {_names(results)} reported {lengths} values of "
                             f"{what}: all must report the same number")
        return [fold(group) for group in zip(*values)]

    def breakdown(field: str, fold: Callable[..., Any]) -> Mapping[str, List[List[float]]]:
        tables = [getattr(result, field) for result in results]
        names = list(tables[0])
        for result, table in zip(results, tables):
            if table.keys() != tables[0].keys():
                raise ValueError(f"stage {stage}: {_names([results[0], result])} reported "
                                 f"different instructions in {field}")
        return {name: lists(f"{field} of {name}", [table[name] for table in tables],
                            lambda group, name=name: lists(
                                f"{field} of {name} in one iteration", group, fold))
                for name in names}

    return ProfilingResult(
        rank=stage,
        iter_time=lists("iter_time", [result.iter_time for result in results], max),
        iter_energy=lists("iter_energy", [result.iter_energy for result in results], sum),
        time_breakdown=breakdown("time_breakdown", max),
        energy_breakdown=breakdown("energy_breakdown", sum))


# ---- Built in ----

class AllMaxFrequency(FrequencyScheduler):
    """Runs every instruction of every rank at the highest clock of its GPU."""

    def __init__(self, job_info: JobInfo, rank_infos: List[RankInfo],
                 pfo_settings: PFOServerSettings, num_microbatches: Optional[int] = None,
                 schedule: str = "1f1b") -> None:
        """num_microbatches: of an iteration. None: it is not known, so that the schedules are
            empty, which ranks run at their highest clocks.
        schedule: the pipeline schedule, which gives the order of the instructions.
        """
        self.num_microbatches = num_microbatches
        self.schedule = schedule
        super().__init__(job_info, rank_infos, pfo_settings)

    def _run(self) -> Rounds:
        orders: Sequence[Sequence[str]] = [[]] * self.job_info.pp_degree
        if self.num_microbatches is not None:
            orders = _orders(self.schedule, self.job_info.pp_degree, self.num_microbatches)
        yield [FrequencySchedule(rank=info.rank, frequencies=[
            (name, max(info.available_frequencies, default=0)) for name in orders[info.pp_rank]])
            for info in self.rank_infos]


def _orders(name: str, stages: int, microbatches: int) -> List[List[str]]:
    """Returns the names of each stage's instructions in their order."""
    import ctypes as C

    from harpe import _bindings as b
    from harpe._library import call, lib, utf8
    options = b.harpe_schedule_options(name=utf8(name), ranks=stages, microbatches=microbatches)
    schedule, count = C.c_void_p(), C.c_size_t()
    call(lib.harpe_schedule_new, C.byref(options), C.byref(schedule))
    try:
        orders = []
        for stage in range(stages):
            instructions = lib.harpe_schedule_rank(schedule, stage, C.byref(count))
            orders.append([instructions[i].name.decode() for i in range(count.value)])
        return orders
    finally:
        lib.harpe_schedule_free(schedule)


class PointSolution(FrequencyScheduler):
    """Serves the same plan file in every round."""

    def __init__(self, job_info: JobInfo, rank_infos: List[RankInfo],
                 pfo_settings: PFOServerSettings, solution_path: str) -> None:
        """`solution_path` is a plan file (harpe-plan(5)) with one list per rank. It is read, never
        executed.

        Raises:
            RuntimeError: The file does not exist, its name does not end in .py, it is not a plan
                file, or its number of lists differs from the job's number of ranks.
        """
        super().__init__(job_info, rank_infos, pfo_settings)
        from harpe.plan import load
        if not os.path.isfile(solution_path):
            raise RuntimeError(f"{solution_path}: there is no such plan file")
        if not os.fspath(solution_path).endswith(".py"):
            raise RuntimeError(f"{solution_path}: a plan file's name ends in .py")
        lists = load(solution_path)
        if len(lists) != self.world_size:
            raise RuntimeError(f"{solution_path} has {len(lists)} lists, but the job has "
                               f"{self.world_size} ranks")
        self.schedule = [FrequencySchedule(rank=rank, frequencies=frequencies)
                         for rank, frequencies in enumerate(lists)]

    def _run(self) -> Rounds:
        yield self.schedule


PointSolution3D = make_3d_parallel(PointSolution)
