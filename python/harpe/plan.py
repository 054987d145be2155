# SPDX-License-Identifier: Apache-2.0
"""The planner: a profile in, the time-energy frontier and frequency plans out.

    import harpe.plan
    frontier = harpe.plan.solve("profile.csv", num_microbatches=32, blocking_power=84)
    plan = frontier.choose(max_slowdown=1.05)
    plan.save("plan.py")

Times are in s, energies in J, powers in W, frequencies in MHz. All results are plain Python data;
what the C library holds is given back together with the objects here. Objects may be used from any
thread."""
from __future__ import annotations

import array
import ctypes as C
import dataclasses
import decimal
import inspect
import operator
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import (Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple,
                    Union)

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, NotFoundError, call, encoded, lib, member

__all__ = ["Frontier", "Plan", "Problem", "Repeat", "Vertex", "load", "schedule_names", "solve"]

Path = Union[str, "os.PathLike[str]"]
Frequencies = List[List[Tuple[str, int]]]
"""For every rank its instructions in order, each with its MHz: what a plan file holds."""
Progress = Callable[[str, float], Optional[bool]]
"""Called with a phase such as "solving" and the fraction of it that is done, on the thread that
called; False stops the work."""

_COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
_OPTIONAL = {"rank": -1, "gpus": 0}  # with the value of a missing column
_SLACK = 1 + 1e-9  # a time that was printed and read again still finds its plan
_COST_MODELS = {"hull": b.HARPE_COST_HULL, "exponential": b.HARPE_COST_EXPONENTIAL}


class _Handle:
    """One C object; given back when the last that uses it is gone."""

    def __init__(self, address: C.c_void_p, free: Callable[[C.c_void_p], None],
                 *uses: _Handle) -> None:
        self.address = address
        self._uses = uses  # these must live as long
        self._finalizer = weakref.finalize(self, free, address)

    def close(self) -> None:
        """At once: for what is needed no longer than a call."""
        self._finalizer()


# ---- Profile ----

def _whole(value: Any) -> int:
    """Also of 1410.0, which is how tables with other columns of real numbers hold it."""
    try:
        number = operator.index(value)
    except TypeError:
        number = int(float(value))
        if number != float(value):
            raise ValueError(f"{value!r} is not a whole number") from None
    if not -2 ** 31 <= number < 2 ** 31:  # ctypes would wrap it round
        raise ValueError(f"{number} is too large")
    return number


def _plain(value: float, digits: int = 9) -> str:
    """The number with that many digits, and never as 1.646e+04."""
    return format(decimal.Decimal(f"{value:.{digits}g}"), "f")


def _count(name: str, value: Any) -> int:
    """An argument that C takes as an int."""
    try:
        return _whole(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError("an instruction's name is expected")
    return value.encode()


def _rows_of(profile: Any) -> Iterator[Tuple[Sequence[Any], Sequence[Any]]]:
    """Yields (values of _COLUMNS, values of _OPTIONAL) for every row of any kind of profile."""
    if hasattr(profile, "keys"):  # columns: a dict of lists, a data frame
        names = list(profile.keys())
        missing = [column for column in _COLUMNS if column not in names]
        if missing:
            raise InvalidArgumentError(f"profile: there is no column {missing[0]}; needed are "
                                       f"{', '.join(_COLUMNS)}")
        columns = [list(profile[column]) for column in _COLUMNS]
        optional = [list(profile[column]) if column in names else [default] * len(columns[0])
                    for column, default in _OPTIONAL.items()]
        if len({len(column) for column in [*columns, *optional]}) > 1:
            raise InvalidArgumentError("profile: its columns have different lengths")
        yield from zip(zip(*columns), zip(*optional))
        return
    if not isinstance(profile, Iterable):
        raise InvalidArgumentError(f"profile: a path, columns or rows are expected, not "
                                   f"{type(profile).__name__}")
    for index, row in enumerate(profile):
        fields = getattr(getattr(row, "dtype", None), "names", None)  # of a structured array
        if isinstance(row, Mapping) or fields:
            names = fields or row.keys()
            missing = [column for column in _COLUMNS if column not in names]
            if missing:
                raise InvalidArgumentError(f"profile row {index}: there is no {missing[0]}")
            yield ([row[column] for column in _COLUMNS],
                   [row[column] if column in names else default
                    for column, default in _OPTIONAL.items()])
            continue
        if not hasattr(row, "__len__") or isinstance(row, (str, bytes)) or len(row) != 5:
            raise InvalidArgumentError(f"profile row {index}: {row!r} is not "
                                       f"({', '.join(_COLUMNS)})")
        yield row, list(_OPTIONAL.values())


def _measurement(index: int, values: Sequence[Any],
                 optional: Sequence[Any]) -> b.harpe_measurement:
    converted: Dict[str, Any] = {}
    converters: List[Callable[[Any], Any]] = [_whole, _text, _whole, float, float, _whole,
                                                _whole]
    for name, convert, value in zip((*_COLUMNS, *_OPTIONAL), converters, (*values, *optional)):
        try:
            converted[name] = convert(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError(f"profile row {index}, {name}: {value!r}: {error}") from None
    return b.harpe_measurement(
        stage=converted["stage"], rank=converted["rank"], instruction=converted["instruction"],
        frequency_mhz=converted["frequency"], time_s=converted["time"],
        energy_j=converted["energy"], gpu_count=converted["gpus"])


def _profile(profile: Any) -> _Handle:
    made = C.c_void_p()
    if isinstance(profile, (str, os.PathLike)):
        call(lib.harpe_profile_read_csv, encoded(profile), C.byref(made))
    else:
        rows = [_measurement(index, values, optional)
                for index, (values, optional) in enumerate(_rows_of(profile))]
        call(lib.harpe_profile_new, (b.harpe_measurement * len(rows))(*rows), len(rows),
             C.byref(made))
    return _Handle(made, lib.harpe_profile_free)


# ---- Schedule ----

def schedule_names() -> List[str]:
    """The built-in pipeline schedules."""
    names: List[str] = []
    while lib.harpe_schedule_name_at(len(names)):
        names.append(lib.harpe_schedule_name_at(len(names)).decode())
    return names


def _names_for_c(names: Sequence[str]) -> Any:
    return (C.c_char_p * (len(names) + 1))(*[name.encode() for name in names], None)


def _schedule(schedule: Path, profile: _Handle, num_microbatches: Optional[int],
              num_ranks: Optional[int], num_chunks: Optional[int], prologue: Sequence[str],
              epilogue: Sequence[str]) -> _Handle:
    made = C.c_void_p()
    name = os.fspath(schedule)
    if isinstance(schedule, os.PathLike) or name not in schedule_names() and (
            name.endswith(".csv") or os.sep in name):
        if num_chunks or prologue or epilogue:
            raise InvalidArgumentError(f"{name}: num_chunks, prologue and epilogue do not go with "
                                       "a schedule file, which says itself what each rank runs")
        call(lib.harpe_schedule_read_csv, encoded(name), C.byref(made))
        handle = _Handle(made, lib.harpe_schedule_free)
        for what, given, has in (
                ("num_microbatches", num_microbatches, lib.harpe_schedule_microbatch_count(made)),
                ("num_ranks", num_ranks, lib.harpe_schedule_rank_count(made))):
            if given is not None and given != has:
                raise InvalidArgumentError(f"{what} is {given}, but {name} has {has} (leave it "
                                           "out)")
        return handle
    if num_microbatches is None:
        raise InvalidArgumentError("num_microbatches is missing: say how many microbatches an "
                                   "iteration has")
    options = b.harpe_schedule_options(
        name=name.encode(), ranks=1, microbatches=2, chunks=_count("num_chunks", num_chunks or 0),
        prologue=_names_for_c(prologue), epilogue=_names_for_c(epilogue))
    if num_ranks is None:  # as many as the profile has stages for
        call(lib.harpe_schedule_new, C.byref(options), C.byref(made))
        stages_per_rank = lib.harpe_schedule_stage_count(made)
        lib.harpe_schedule_free(made)
        stages = lib.harpe_profile_stage_count(profile.address)
        if stages % stages_per_rank:
            raise InvalidArgumentError(f"the profile has {stages} stages, which cannot be shared "
                                       f"out by {stages_per_rank} to a rank as {name} needs")
        num_ranks = stages // stages_per_rank
    options.ranks = _count("num_ranks", num_ranks)
    options.microbatches = _count("num_microbatches", num_microbatches)
    made = C.c_void_p()
    call(lib.harpe_schedule_new, C.byref(options), C.byref(made))
    return _Handle(made, lib.harpe_schedule_free)


class Repeat(NamedTuple):
    """Rows of a profile that repeat one measurement, agree, and were averaged.

    Rows are lines of a file, or indices of the given rows; `rank` is -1 if they name none. A
    spread is the largest value divided by the smallest, minus 1."""

    stage: int
    rank: int
    instruction: str
    frequency: int
    rows: int
    first_row: int
    last_row: int
    time_spread: float
    energy_spread: float


def _callers_level() -> int:
    """The stacklevel, for a warning of the function that asks, of who called this module."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals is globals():
        level, frame = level + 1, frame.f_back
    return level - 1


def _repeats(profile: _Handle) -> List[Repeat]:
    """What was averaged, and a warning that tells the first of it."""
    repeats: List[Repeat] = []
    for index in range(lib.harpe_profile_repeat_count(profile.address)):
        made = lib.harpe_profile_repeat_at(profile.address, index)[0]
        repeats.append(Repeat(made.stage, made.rank, made.instruction.decode(), made.frequency_mhz,
                              made.row_count, made.first_row, made.last_row, made.time_spread,
                              made.energy_spread))
    if repeats:
        first = repeats[0]
        more = f" (and {len(repeats) - 1} more such)" if len(repeats) > 1 else ""
        between = "to" if first.rows > 2 else "and"
        warnings.warn(f"profile: {first.rows} rows ({first.first_row} {between} {first.last_row}) "
                      f"measure stage {first.stage}, '{first.instruction}' at {first.frequency} "
                      f"MHz: averaged{more}", stacklevel=_callers_level())
    return repeats


# ---- Interrupts ----

class _Watch:
    """Lets a long call of the library be stopped: by the caller's progress function, and on the
    main thread by Ctrl-C, which is noted while the call runs and raised after it."""

    def __init__(self, progress: Optional[Progress]) -> None:
        self._progress = progress
        self._error: Optional[BaseException] = None
        self._interrupted: Optional[int] = None
        self._before: Any = None
        self.struct = b.harpe_progress(report=member(b.harpe_progress, "report", self._on_report))

    def _on_report(self, _user: Any, phase: bytes, fraction: float) -> bool:
        if self._progress is not None and self._error is None:
            try:
                if self._progress(phase.decode(), fraction) is False:
                    return False
            except BaseException as error:  # no way through C: it is raised after the call
                self._error = error
        return self._error is None and self._interrupted is None

    def _on_signal(self, number: int, _frame: Any) -> None:
        self._interrupted = number

    def __enter__(self) -> _Watch:
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._before = handler
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if self._interrupted is not None:
                self._before(self._interrupted, None)  # raises KeyboardInterrupt as a rule
        if self._error is not None:
            raise self._error from None


# ---- Results ----

class Vertex(NamedTuple):
    """A corner of the frontier's lower bound: no plan that takes `time` s needs less than
    `lower_bound` J."""

    time: float
    lower_bound: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """A clock for every instruction, and what one iteration really takes under it.

    Attributes:
        time: Of one iteration, in s.
        energy: Of all GPUs, with their waiting, in J.
        lower_bound: No plan that takes `time` needs less, in J; None where no frontier was solved.
        average_power: Of one GPU, in W.
        compute_energy: Of the instructions alone, in J.
        blocking_energy: Of waiting alone, in J.
    """

    time: float
    energy: float
    lower_bound: Optional[float]
    average_power: float
    compute_energy: float
    blocking_energy: float
    _problem: Problem = dataclasses.field(repr=False, compare=False)
    _mhz: array.array[int] = dataclasses.field(repr=False, hash=False)  # rank after rank
    _number: int = dataclasses.field(default=0, repr=False, compare=False)
    _cost_change: float = dataclasses.field(default=0.0, repr=False, compare=False)

    @property
    def frequencies(self) -> Frequencies:
        """[(instruction, MHz), ...] for every rank, in the order in which it runs them."""
        remaining = iter(self._mhz)
        return [[(name, next(remaining)) for name in names] for names in self._problem._names]

    def save(self, path: Path) -> None:
        """Writes the plan file (harpe-plan(5)) that servers read, whole or not at all."""
        values = b.harpe_plan(
            time_s=self.time, energy_j=self.energy, lower_bound_j=self.lower_bound or 0.0,
            compute_energy_j=self.compute_energy, blocking_energy_j=self.blocking_energy,
            average_power_w=self.average_power,
            frequency_mhz=(C.c_int * len(self._mhz)).from_buffer(self._mhz))
        call(lib.harpe_plan_file_write, encoded(path), self._problem._handle.address,
             C.byref(values), self._number, self._cost_change)


class Problem:
    """A profile joined with a pipeline schedule: everything but the solution."""

    def __init__(self, profile: Any, *, num_microbatches: Optional[int] = None,
                 blocking_power: Union[float, Sequence[float]], schedule: Path = "1f1b",
                 num_ranks: Optional[int] = None, num_chunks: Optional[int] = None,
                 gpus_per_stage: Optional[int] = None,
                 prologue: Sequence[str] = (), epilogue: Sequence[str] = (),
                 cost_model: str = "hull", unit_time: float = 0.001, noise_factor: float = 0.95,
                 memory_limit: int = 4 << 30) -> None:
        """The arguments are those of solve()."""
        if cost_model not in _COST_MODELS:
            raise InvalidArgumentError(f"cost_model {cost_model!r} is none of "
                                       f"{', '.join(_COST_MODELS)}")
        powers = ([float(power) for power in blocking_power]
                  if isinstance(blocking_power, Iterable) else [float(blocking_power)])
        profile_handle = _profile(profile)
        schedule_handle = _schedule(schedule, profile_handle, num_microbatches, num_ranks,
                                    num_chunks, prologue, epilogue)
        ranks = lib.harpe_schedule_rank_count(schedule_handle.address)
        if len(powers) not in (1, ranks):
            raise InvalidArgumentError(f"blocking_power: {len(powers)} values for {ranks} ranks; "
                                       "give one, or one for each rank")
        options = b.harpe_problem_options(
            blocking_power_w=(C.c_double * len(powers))(*powers), blocking_power_count=len(powers),
            cost_model=_COST_MODELS[cost_model], unit_time_s=unit_time, noise_factor=noise_factor,
            memory_limit_bytes=memory_limit,
            gpus_per_stage=_count("gpus_per_stage", gpus_per_stage or 0))
        made = C.c_void_p()
        call(lib.harpe_problem_new, profile_handle.address, schedule_handle.address,
             C.byref(options), C.byref(made))
        self._handle = _Handle(made, lib.harpe_problem_free)
        self._gpus = [lib.harpe_problem_gpu_count(made, rank) for rank in range(ranks)]
        self._total_blocking_power = sum(
            gpus * powers[rank if len(powers) > 1 else 0] for rank, gpus in enumerate(self._gpus))
        self.repeats = _repeats(profile_handle)
        self._names = [
            [lib.harpe_problem_instruction_name(made, rank, index).decode()
             for index in range(lib.harpe_problem_rank_length(made, rank))]
            for rank in range(ranks)]
        profile_handle.close()
        schedule_handle.close()

    @property
    def num_ranks(self) -> int:
        """Ranks of the pipeline; each is one GPU or several."""
        return len(self._names)

    @property
    def num_gpus(self) -> int:
        """GPUs of all ranks together."""
        return sum(self._gpus)

    @property
    def num_instructions(self) -> int:
        """Of all ranks in one iteration."""
        return sum(map(len, self._names))

    @property
    def all_maximum(self) -> Plan:
        """Every instruction at its highest profiled clock: the usual point of comparison."""
        made = b.harpe_plan()
        call(lib.harpe_plan_all_maximum, self._handle.address, C.byref(made))
        return self._plan(made, None)

    def evaluate(self, plan: Union[Plan, Path, Sequence[Sequence[Tuple[str, int]]]]) -> Plan:
        """What a plan takes here.

        Args:
            plan: A Plan, a plan file, or one list of (instruction, MHz) per rank.

        Raises:
            InvalidArgumentError: It does not fit: another number of ranks or instructions, another
                name, a clock that was not profiled.
        """
        count = self.num_instructions
        mhz = (C.c_int * count)()
        if isinstance(plan, (str, os.PathLike)):
            with_file = _plan_file(plan)
        else:
            lists = plan.frequencies if isinstance(plan, Plan) else plan
            with_file = _plan_text(repr([[(str(name), _whole(clock)) for name, clock in rank]
                                         for rank in lists]))
        call(lib.harpe_plan_file_match, with_file.address, self._handle.address, mhz)
        with_file.close()
        made = b.harpe_plan()
        call(lib.harpe_plan_evaluate, self._handle.address, mhz, C.byref(made), None)
        return self._plan(made, None)

    def solve(self, plans: Union[int, str] = 100, progress: Optional[Progress] = None) -> Frontier:
        """Solves the whole frontier and makes plans along it; the arguments are those of the
        module's solve()."""
        request = b.harpe_plan_request()
        if plans == "all":
            request.choice = b.HARPE_PLANS_ALL
        elif isinstance(plans, int) and plans >= 1:
            request.choice, request.count = b.HARPE_PLANS_SPREAD, _count("plans", plans)
        else:
            raise InvalidArgumentError(f"plans: {plans!r} is neither 'all' nor a number from 1 on")
        frontier, plan_set = C.c_void_p(), C.c_void_p()
        with _Watch(progress) as watch:
            call(lib.harpe_plan_set_new, self._handle.address, C.byref(request),
                 C.byref(watch.struct), C.byref(frontier), C.byref(plan_set))
            handles = (_Handle(frontier, lib.harpe_frontier_free, self._handle),
                       _Handle(plan_set, lib.harpe_plan_set_free, self._handle))
        return Frontier(self, *handles)

    def _plan(self, made: b.harpe_plan, lower_bound: Optional[float], number: int = 0,
              cost_change: float = 0.0) -> Plan:
        count = self.num_instructions
        mhz = array.array("i")
        if count:
            mhz.frombytes(C.string_at(made.frequency_mhz, count * mhz.itemsize))
        return Plan(made.time_s, made.energy_j, lower_bound, made.average_power_w,
                    made.compute_energy_j, made.blocking_energy_j, self, mhz, number, cost_change)


class Frontier:
    """The exact lower bound of energy over time, and plans close to it.

    Attributes:
        problem: What was solved.
        vertices: (time, lower bound) corners of the bound, fastest first, in s and J.
        plans: Fastest first; none is beaten by another in both time and energy.
        all_maximum: Every instruction at its highest profiled clock, for comparison.
    """

    def __init__(self, problem: Problem, frontier: _Handle, plan_set: _Handle) -> None:
        """Made by solve()."""
        self.problem = problem
        self._handle = frontier
        count = C.c_size_t()
        vertices = lib.harpe_frontier_vertices(frontier.address, C.byref(count))
        self.vertices = [Vertex(vertices[i].time_s, vertices[i].lower_bound_j)
                         for i in range(count.value)]
        self.plans = self._copied(plan_set)
        plan_set.close()
        self.all_maximum = self._bounded(problem.all_maximum)

    def _copied(self, plan_set: _Handle) -> List[Plan]:
        """Numbered as `harpe plan` does: the slowest is 0."""
        count = lib.harpe_plan_set_count(plan_set.address)
        made = [lib.harpe_plan_set_at(plan_set.address, index)[0] for index in range(count)]
        power = self.problem._total_blocking_power
        costs = [plan.energy_j - power * plan.time_s for plan in made]
        changes = [faster - slower for faster, slower in zip(costs, costs[1:])] + [0.0]
        return [self.problem._plan(plan, plan.lower_bound_j, count - 1 - index, change)
                for index, (plan, change) in enumerate(zip(made, changes))]

    def _bounded(self, plan: Plan) -> Plan:
        return dataclasses.replace(plan, lower_bound=self.bound_at(plan.time))

    def bound_at(self, time: float) -> float:
        """No plan that takes `time` s needs less than this many J; infinite below the shortest
        possible time."""
        return float(lib.harpe_frontier_bound_at(self._handle.address, time))

    def evaluate(self, plan: Union[Plan, Path, Sequence[Sequence[Tuple[str, int]]]]) -> Plan:
        """As Problem.evaluate(), with the lower bound at the plan's time."""
        return self._bounded(self.problem.evaluate(plan))

    def choose(self, *, max_slowdown: Optional[float] = None, max_time: Optional[float] = None,
               max_power: Optional[float] = None) -> Plan:
        """The plan of least energy, within limits; with `max_power` the fastest of those that keep
        all limits.

        Args:
            max_slowdown: It takes at most so many times as long as all_maximum.
            max_time: It takes at most so many s.
            max_power: One GPU draws at most so many W on average.

        Raises:
            NotFoundError: No plan keeps the limits.
        """
        allowed = [limit for limit in (
            max_time, None if max_slowdown is None else max_slowdown * self.all_maximum.time)
            if limit is not None]
        kept = [plan for plan in self.plans
                if all(plan.time <= limit * _SLACK for limit in allowed)]
        if not kept:
            raise NotFoundError(f"no plan takes at most {_plain(min(allowed))} s; the fastest takes "
                                f"{_plain(self.plans[0].time)} s", b.HARPE_INFEASIBLE)
        if max_power is None:
            return min(kept, key=lambda plan: plan.energy)
        cool = [plan for plan in kept if plan.average_power <= max_power]
        if not cool:
            least = min(plan.average_power for plan in kept)
            raise NotFoundError(f"no plan within the limits draws at most {_plain(max_power)} W per "
                                f"GPU; the least draws {_plain(least)} W", b.HARPE_INFEASIBLE)
        return min(cool, key=lambda plan: plan.time)

    def __repr__(self) -> str:
        return (f"<Frontier of {self.problem.num_instructions} instructions on "
                f"{self.problem.num_ranks} ranks: {_plain(self.vertices[0].time, 6)} to "
                f"{_plain(self.vertices[-1].time, 6)} s, {len(self.vertices)} vertices, "
                f"{len(self.plans)} plans>")


def solve(profile: Any, *, num_microbatches: Optional[int] = None,
          blocking_power: Union[float, Sequence[float]], schedule: Path = "1f1b",
          plans: Union[int, str] = 100, progress: Optional[Progress] = None,
          **options: Any) -> Frontier:
    """Solves the whole time-energy frontier and makes plans along it. Ctrl-C stops it.

    Args:
        profile: What every instruction takes at every clock: the path of a CSV file
            (harpe-profile(5)); columns (a dict of lists or arrays, a data frame) named stage,
            instruction, frequency, time, energy, and rank or gpus if there is one; or rows: dicts with
            those names, records of a structured NumPy array, or sequences in that order.
        num_microbatches: Of one iteration; may be left out if the schedule is a file.
        blocking_power: W that one GPU draws while it waits for its neighbour, also if a rank has
            several GPUs: one number, or one for each rank.
        schedule: One of schedule_names(), or a CSV file of torch.distributed.pipelining.
        plans: About so many, evenly spread in time, or "all": one for each vertex.
        progress: Called with (phase, fraction) some hundred times a second at most; False stops
            the work, which then raises HarpeError. An exception in it goes to the caller.
        **options: num_ranks (default: as many as the profile has stages for), num_chunks (stages
            per rank, if the schedule has several), gpus_per_stage (number of GPUs whose summed
            energy a row of the profile has, for a profile without rank and gpus), prologue and
            epilogue (names of instructions that every rank runs first and last), cost_model
            ("hull" or "exponential"), unit_time and noise_factor of the exponential model,
            memory_limit in bytes.

    Raises:
        InvalidArgumentError: A value that cannot be; says which, and where in the profile.
        NotFoundError: The profile lacks an instruction that the schedule runs, or there is no such
            file.
        HarpeError: Stopped by `progress`, or what else the library could not do.
    """
    problem = Problem(profile, num_microbatches=num_microbatches, blocking_power=blocking_power,
                      schedule=schedule, **options)
    return problem.solve(plans, progress)


# ---- Plan files ----

def _plan_file(path: Path) -> _Handle:
    made = C.c_void_p()
    call(lib.harpe_plan_file_read, encoded(path), C.byref(made))
    return _Handle(made, lib.harpe_plan_file_free)


def _plan_text(text: str) -> _Handle:
    made, data = C.c_void_p(), text.encode()
    call(lib.harpe_plan_file_parse, data, len(data), b"plan", C.byref(made))
    return _Handle(made, lib.harpe_plan_file_free)


def load(path: Path) -> Frequencies:
    """Reads a plan file (harpe-plan(5)); never executes it.

    Raises:
        InvalidArgumentError: It is none; says where.
        NotFoundError: There is no such file.
    """
    file = _plan_file(path)
    count = C.c_size_t()
    lists: Frequencies = []
    for rank in range(lib.harpe_plan_file_rank_count(file.address)):
        entries = lib.harpe_plan_file_rank(file.address, rank, C.byref(count))
        lists.append([(entries[i].instruction.decode(), entries[i].frequency_mhz)
                      for i in range(count.value)])
    file.close()
    return lists
