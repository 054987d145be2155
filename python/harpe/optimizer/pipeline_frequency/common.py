# SPDX-License-Identifier: Apache-2.0
"""The data that server, clients and schedulers of the pipeline frequency optimizer exchange: the
models, their JSON, and the files that the server dumps. Needs neither libharpe nor pydantic."""
from __future__ import annotations

import importlib
import inspect
import json
import os
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from harpe.optimizer.pipeline_frequency._model import Model, ValidationError

__all__ = [
    "FrequencySchedule", "InstructionProfilingResult", "JobInfo", "OfflineProfilingResult",
    "PFOServerSettings", "PerseusSettings", "ProfilingResult", "RankInfo", "ValidationError",
    "load_prof",
    "load_ranks", "load_sched", "save_prof", "save_ranks", "save_sched", "GET_SERVER_INFO_URL",
    "REGISTER_JOB_URL", "REGISTER_RANK_URL", "GET_FREQUENCY_SCHEDULE_URL",
    "REPORT_PROFILING_RESULT_URL",
]

GET_SERVER_INFO_URL = "/info"
REGISTER_JOB_URL = "/register_job"
REGISTER_RANK_URL = "/register_rank/{job_id}"
GET_FREQUENCY_SCHEDULE_URL = "/schedule/{job_id}"
REPORT_PROFILING_RESULT_URL = "/result/{job_id}"

_JOB_KEY_BYTES = 256


_SCHEDULERS = "harpe.optimizer.pipeline_frequency.server.scheduler"
_SET_BY_SERVER = ("job_info", "rank_infos", "pfo_settings", "perseus_settings")


class PFOServerSettings(Model):
    """The server's settings as a scheduler sees them. A value that is not given comes from the
    environment: from ZEUS_PFO_ and its name, in capital or small letters, such as
    ZEUS_PFO_LOG_LEVEL; scheduler_args is JSON there. PerseusSettings reads the variables that begin
    with PERSEUS_.

    Attributes:
        scheduler: The scheduler's class. It is given as the class, as its name in
            harpe.optimizer.pipeline_frequency.server.scheduler, or as module.Class.
        scheduler_args: Its arguments besides job, ranks and settings.
        log_level: "DEBUG", "INFO", "WARNING" or "ERROR".
        dump_data: Whether the server dumps ranks, schedules and results.
        dump_dir: The directory of these files.
        max_job_idle_time: The server removes a job after this many seconds without a request.

    Raises ValidationError. It names each value that cannot be used.
    """

    scheduler: Any = "PointSolution"
    scheduler_args: Dict[str, Any] = {}
    log_level: str = "DEBUG"
    dump_data: bool = True
    dump_dir: str = "./dump"
    max_job_idle_time: int = 7 * 24 * 60 * 60

    _prefix = "zeus_pfo_"

    def _fill(self, reader: Any, values: Mapping[str, Any], place: Tuple[Any, ...]) -> None:
        given = dict(values)
        environment = {name.lower(): text for name, text in os.environ.items()}
        for name in self._kinds():
            text = environment.get(self._prefix + name)
            if name not in given and text is not None:
                given[name] = self._of_text(name, text)
        super()._fill(reader, given, place)
        for name in sorted(given.keys() - self._kinds().keys()):
            reader.refuse((*place, name), "value_error.extra", "extra fields not permitted")
        if not reader.problems:
            self.log_level = self.log_level.upper()
            self._take_scheduler(reader, place)

    @staticmethod
    def _of_text(name: str, text: str) -> Any:
        if name != "scheduler_args":
            return text
        try:
            return json.loads(text)
        except ValueError:
            return text  # no dictionary, which is then said

    def _take_scheduler(self, reader: Any, place: Tuple[Any, ...]) -> None:
        path = self._fix_scheduler_import_path(self.scheduler)
        try:
            self.scheduler = _imported(path) if isinstance(path, str) else path
        except (ImportError, AttributeError, ValueError) as error:
            reader.refuse((*place, "scheduler"), "type_error.pyobject",
                          f"{path} cannot be imported: {error}")
            return
        try:
            self.scheduler_args = self._validate_scheduler_args(self.scheduler_args, self.__dict__)
        except ValueError as error:
            reader.refuse((*place, "scheduler_args"), "value_error", str(error))

    @classmethod
    def _fix_scheduler_import_path(cls, value: Any) -> Any:
        """Returns the path from which the scheduler is imported. Called first. A class stays as it
        is."""
        return f"{_SCHEDULERS}.{value}" if isinstance(value, str) and "." not in value else value

    @classmethod
    def _validate_scheduler_args(cls, args: Dict[str, Any],
                                 values: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns the arguments. Called when the scheduler, values["scheduler"], is known. Raises
        ValueError if its constructor would not take them."""
        twice = sorted(args.keys() & set(_SET_BY_SERVER))
        if twice:
            raise ValueError(f"the server itself sets {twice[0]}")
        try:
            inspect.signature(values["scheduler"]).bind(None, None, None, **args)
        except TypeError as error:
            raise ValueError(str(error)) from None
        return args


class PerseusSettings(PFOServerSettings):
    """PFOServerSettings under its older name, with the variables PERSEUS_SCHEDULER,
    PERSEUS_LOG_LEVEL and so on."""

    _prefix = "perseus_"


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class JobInfo(Model):
    """A training job.

    Attributes:
        job_id: Assigned by the server. Empty in a JobInfo that a client sends.
        pp_degree: Pipeline parallel degree, 1 or more.
        dp_degree: Data parallel degree, 1 or more.
        tp_degree: Tensor parallel degree, 1 or more.
        world_size: The product of the three degrees.
        job_metadata: Text that describes the job and becomes part of its id.
        job_key: An extension of Harpe: ranks that register with the same key (1 to 256 bytes) get
            the same job. Written only if it is set.
    """

    job_id: str = ""
    pp_degree: int
    dp_degree: int
    tp_degree: int
    world_size: int
    job_metadata: Optional[str] = None
    job_key: Optional[str] = None

    _minimum = {"pp_degree": 1, "dp_degree": 1, "tp_degree": 1, "world_size": 1}
    _left_out = ("job_key",)

    def _complaints(self) -> Iterator[Tuple[str, str]]:
        if self.job_id:
            yield "job_id", "job_id must be empty: the server chooses it"
        if self.pp_degree * self.dp_degree * self.tp_degree != self.world_size:
            yield "world_size", "world_size must be pp_degree * dp_degree * tp_degree"
        if self.job_key is not None and not 1 <= len(self.job_key.encode()) <= _JOB_KEY_BYTES:
            yield "job_key", f"job_key must have 1 to {_JOB_KEY_BYTES} bytes"

    def set_job_id(self, scheduler_name: str) -> None:
        """Sets job_id as the published server does: from the local time, the degrees, the
        scheduler's name and job_metadata. `harpe serve` makes ids that are different within a
        second, too."""
        parts = [time.strftime("%Y-%m-%d-%H-%M-%S"), f"dp{self.dp_degree}", f"pp{self.pp_degree}",
                 f"tp{self.tp_degree}", scheduler_name]
        self.job_id = "+".join(parts + ([self.job_metadata] if self.job_metadata else []))


class RankInfo(Model):
    """One rank of a job: its place, and the clocks of its GPU.

    Attributes:
        rank: Number in the whole job.
        dp_rank: Data parallel rank.
        pp_rank: Pipeline parallel rank, that is its stage.
        tp_rank: Tensor parallel rank.
        available_frequencies: Graphics clocks that its GPU can be locked to, in MHz.
    """

    rank: int
    dp_rank: int
    pp_rank: int
    tp_rank: int
    available_frequencies: List[int]

    _minimum = {"rank": 0, "dp_rank": 0, "pp_rank": 0, "tp_rank": 0}


class FrequencySchedule(Model):
    """A rank's clocks for one iteration.

    Attributes:
        rank: The rank.
        frequencies: (instruction, MHz) in the order in which the rank runs them; 0 MHz leaves the
            clock alone.
    """

    rank: int
    frequencies: List[Tuple[str, int]]

    _minimum = {"rank": 0}


class ProfilingResult(Model):
    """The measurements of one rank under one schedule.

    Attributes:
        rank: The rank.
        iter_time: Time of each iteration, in s.
        iter_energy: Energy of each iteration, in J.
        time_breakdown: {instruction: [[s of each such instruction of iteration 0], ...]}.
        energy_breakdown: The same in J.
    """

    rank: int
    iter_time: List[float]
    iter_energy: List[float]
    time_breakdown: Dict[str, List[List[float]]] = {}
    energy_breakdown: Dict[str, List[List[float]]] = {}

    _minimum = {"rank": 0}


class OfflineProfilingResult(Model):
    """A rank's instructions at every clock, averaged.

    Attributes:
        rank: Number in the whole job.
        dp_rank: Data parallel rank.
        pp_rank: Pipeline parallel rank.
        tp_rank: Tensor parallel rank.
        forward_time: {MHz: s}.
        forward_energy: {MHz: J}.
        backward_time: {MHz: s}.
        backward_energy: {MHz: J}.
    """

    rank: int
    dp_rank: int
    pp_rank: int
    tp_rank: int
    forward_time: Dict[int, float]
    forward_energy: Dict[int, float]
    backward_time: Dict[int, float]
    backward_energy: Dict[int, float]

    _minimum = {"rank": 0, "dp_rank": 0, "pp_rank": 0, "tp_rank": 0}

    def _rows(self) -> Iterator[Tuple[Any, ...]]:
        """Returns the rows of this result in a profile: all rows of forward, then all rows of
        backward."""
        place = (self.rank, self.dp_rank, self.pp_rank, self.tp_rank, self.pp_rank)
        for name, times, energies in (
                ("forward", self.forward_time, self.forward_energy),
                ("backward", self.backward_time, self.backward_energy)):
            alone = times.keys() ^ energies.keys()
            if alone:
                raise ValueError(f"rank {self.rank}: {name} at {min(alone)} MHz has only a time "
                                 "or only an energy, but needs both")
            for frequency, time in times.items():
                yield (*place, name, frequency, time, energies[frequency])


class InstructionProfilingResult(Model):
    """The results of all ranks: a list, which is `__root__`."""

    __root__: List[OfflineProfilingResult]

    def to_csv(self, filepath: str) -> None:
        """Writes a profile (harpe-profile(5)) with the columns rank, dp_rank, pp_rank, tp_rank,
        stage, instruction, frequency (MHz), time (s) and energy (J), whole or not at all.

        Raises:
            ValueError: `filepath` does not end in .csv, or a clock has a time and no energy.
        """
        if not os.fspath(filepath).endswith(".csv"):
            raise ValueError(f"{filepath}: the name must end in .csv")
        lines = ["rank,dp_rank,pp_rank,tp_rank,stage,instruction,frequency,time,energy"]
        for result in self.__root__:
            lines += [",".join(map(str, row)) for row in result._rows()]
        write_whole(filepath, "\n".join(lines) + "\n")


# ---- Files that the server dumps ----

class _RankInfoList(Model):
    __root__: List[RankInfo]


class _FrequencyScheduleList(Model):
    __root__: List[FrequencySchedule]


class _ProfilingResultList(Model):
    __root__: List[ProfilingResult]


def write_whole(path: str, text: str) -> None:
    """Replaces the file: afterwards it has all of `text`, or its old content if writing fails."""
    directory, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(directory, f".{name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _save(models: Model, directory: str, name: str) -> None:
    os.makedirs(directory, exist_ok=True)
    write_whole(os.path.join(directory, name), models.json())


async def save_prof(data: Sequence[ProfilingResult], directory: str, schedule_num: int) -> None:
    """Writes DIRECTORY/SCHEDULE_NUM.prof.json, whole or not at all. Creates the directory."""
    _save(_ProfilingResultList(__root__=data), directory, f"{schedule_num}.prof.json")


def load_prof(directory: str, schedule_num: int) -> List[ProfilingResult]:
    """Reads a file that save_prof or the server has written."""
    path = os.path.join(directory, f"{schedule_num}.prof.json")
    return _ProfilingResultList.parse_file(path).__root__


async def save_sched(data: Sequence[FrequencySchedule], directory: str, schedule_num: int) -> None:
    """Writes DIRECTORY/SCHEDULE_NUM.sched.json, whole or not at all. Creates the directory."""
    _save(_FrequencyScheduleList(__root__=data), directory, f"{schedule_num}.sched.json")


def load_sched(directory: str, schedule_num: int) -> List[FrequencySchedule]:
    """Reads a file that save_sched or the server has written."""
    path = os.path.join(directory, f"{schedule_num}.sched.json")
    return _FrequencyScheduleList.parse_file(path).__root__


async def save_ranks(data: Sequence[RankInfo], directory: str) -> None:
    """Writes DIRECTORY/ranks.json, whole or not at all. Creates the directory."""
    _save(_RankInfoList(__root__=data), directory, "ranks.json")


def load_ranks(directory: str) -> List[RankInfo]:
    """Reads a file that save_ranks or the server has written."""
    return _RankInfoList.parse_file(os.path.join(directory, "ranks.json")).__root__
