# SPDX-License-Identifier: Apache-2.0
"""Schedulers in Python: the published interface. `harpe serve --scheduler python:module.Class` runs
a subclass in a process of its own (host.py); it decides which rank runs which instruction at which
clock, round after round, and learns from what the ranks measured."""
from __future__ import annotations

import abc
import functools
import os
from typing import (Any, Callable, Dict, Generator, List, Mapping, Optional, Sequence, Tuple, Type,
                    TypeVar)

from harpe.optimizer.pipeline_frequency.common import (FrequencySchedule, JobInfo,
                                                       PFOServerSettings, ProfilingResult,
                                                       RankInfo)

__all__ = ["FrequencyScheduler", "PointSolution", "PointSolution3D", "make_3d_parallel"]

Rounds = Generator[List[FrequencySchedule], List[ProfilingResult], None]
"""What `_run` is: it yields schedules and receives what was measured under them."""


class FrequencyScheduler(abc.ABC):
    """Decides on the clocks of one job. A subclass implements the generator `_run`, or overrides
    `observe` and `next_schedule`. The server calls next_schedule(), then for each round observe()
    and next_schedule(). After a restart of the server a new object is told all results again.

    Attributes:
        job_info: The job.
        rank_infos: Its ranks, sorted by rank.
        world_size: How many those are.
        pfo_settings: The server's settings.
    """

    def __init__(self, job_info: JobInfo, rank_infos: List[RankInfo],
                 pfo_settings: PFOServerSettings) -> None:
        """`rank_infos` may come in any order. Further arguments of a subclass are what the server
        was given as --scheduler-args."""
        self.job_info = job_info
        self.rank_infos = sorted(rank_infos, key=lambda info: info.rank)
        self.world_size = job_info.world_size
        self.pfo_settings = pfo_settings
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

        Once it ends, the schedules it yielded last are served for ever.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither _run nor next_schedule")
        yield []

    def observe(self, profiling_results: List[ProfilingResult]) -> None:
        """Takes what all ranks measured under the last schedule, in any order."""
        if not self._has_ended:
            self._next_schedule = self._step(profiling_results)

    def next_schedule(self) -> List[FrequencySchedule]:
        """One schedule per rank for the next round, in any order.

        Raises:
            RuntimeError: `_run` ended without having yielded any.
        """
        if self._next_schedule is None and not self._has_ended:
            self._next_schedule = self._step(None)
        if self._next_schedule is None:
            raise RuntimeError(f"{type(self).__name__}._run ended before it yielded a schedule")
        return self._next_schedule

    def _step(self, results: Optional[List[ProfilingResult]]) -> Optional[List[FrequencySchedule]]:
        """What the generator yields next; the last schedule where it ends. A generator that raised
        is spent: going on as if it had ended would hide that."""
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
    """A scheduler for data and tensor parallel jobs from one that knows pipelines only.

    `sched_cls` sees a job of one rank per stage (dp_degree = tp_degree = 1, rank = pp_rank), with
    the clocks that all GPUs of the stage have. Its schedule for a stage goes to every rank of the
    stage. What the ranks of a stage measured is combined element by element: the maximum of times,
    the sum of energies; lists of different lengths are a ValueError that names the ranks.

    Args:
        sched_cls: The class to wrap.
        name: Of the new class; None: that of `sched_cls` with "3D" behind it.
    """

    class Wrapper(sched_cls):  # type: ignore[valid-type,misc]
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
            of_rank = {result.rank: result for result in profiling_results}
            super().observe([_combined(stage, [of_rank[rank.rank] for rank in ranks])
                             for stage, ranks in self._stages.items()])

        def next_schedule(self) -> List[FrequencySchedule]:
            of_stage = {schedule.rank: schedule for schedule in super().next_schedule()}
            schedules = [FrequencySchedule(rank=rank.rank, frequencies=of_stage[stage].frequencies)
                         for stage, ranks in self._stages.items() if stage in of_stage
                         for rank in ranks]
            return sorted(schedules, key=lambda schedule: schedule.rank)

    Wrapper.__name__ = Wrapper.__qualname__ = name or f"{sched_cls.__name__}3D"
    Wrapper.__module__ = sched_cls.__module__
    Wrapper.__doc__ = (f"{sched_cls.__name__} for data and tensor parallel jobs.\n\n"
                       f"{sched_cls.__doc__ or ''}")
    # It adds nothing that could change a schedule once _run has ended.
    Wrapper._is_3d_wrapper = True
    return Wrapper


def _stages_of(rank_infos: Sequence[RankInfo]) -> Dict[int, List[RankInfo]]:
    """The ranks of each stage, stages and ranks in order."""
    stages: Dict[int, List[RankInfo]] = {}
    for info in sorted(rank_infos, key=lambda info: (info.pp_rank, info.rank)):
        stages.setdefault(info.pp_rank, []).append(info)
    return stages


def _one_of(ranks: Sequence[RankInfo]) -> RankInfo:
    """A stage as if it were one rank."""
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
    """The results of a stage's ranks as that of one."""

    def lists(what: str, values: Sequence[List[Any]], fold: Callable[..., Any]) -> List[Any]:
        if len({len(value) for value in values}) > 1:
            lengths = ", ".join(str(len(value)) for value in values)
            raise ValueError(f"stage {stage}: {_names(results)} reported {lengths} values of "
                             f"{what}: all must report as many")
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

class PointSolution(FrequencyScheduler):
    """Serves a plan file for ever."""

    def __init__(self, job_info: JobInfo, rank_infos: List[RankInfo],
                 pfo_settings: PFOServerSettings, solution_path: str) -> None:
        """`solution_path` is a plan file (harpe-plan(5)) with one list per rank. It is read, never
        executed.

        Raises:
            RuntimeError: It does not exist, does not end in .py, is no plan file, or has another
                number of lists than the job has ranks.
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
