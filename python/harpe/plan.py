# SPDX-License-Identifier: Apache-2.0
"""The planner: a profile in, the time-energy frontier and frequency plans out.

    import harpe.plan
    frontier = harpe.plan.solve("profile.csv", num_microbatches=32, blocking_power=84)
    plan = frontier.choose(max_slowdown=1.05)
    plan.save("plan.py")

Times are in s, energies in J, powers in W, frequencies in MHz. All results are plain Python data;
the objects of this module free the memory of the C library when they are freed. Any thread may use
the objects."""
from __future__ import annotations

import array
import bisect
import ctypes as C
import dataclasses
import decimal
import inspect
import math
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
from harpe._library import (InvalidArgumentError, NotFoundError, call, encoded, lib, member, utf8,
                            without_nul)

__all__ = ["Cost", "Frontier", "LateTimes", "Plan", "PowerShape", "Prices", "Problem", "Repeat", "Vertex",
           "load", "schedule_names", "solve"]

Path = Union[str, "os.PathLike[str]"]
Frequencies = List[List[Tuple[str, int]]]
"""The content of a plan file: for every rank its instructions in order, each with its MHz."""
Progress = Callable[[str, float], Optional[bool]]
"""A function that the calling thread calls with a phase, such as "solving", and the fraction of the
phase that is complete. The result False stops the work."""

_COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
# Columns that may be missing, with the values that are used instead.
_OPTIONAL = {"rank": -1, "gpus": 0, "blocking_power": 0.0, "switch_latency": 0.0}
# The members of harpe_measurement, in the order of _COLUMNS and _OPTIONAL.
_MEMBERS = ("stage", "instruction", "frequency_mhz", "time_s", "energy_j", "rank", "gpu_count",
            "blocking_power_w", "switch_latency_s")
_J_PER_KWH = 3.6e6
_SLACK = 1 + 1e-9  # a time that was printed and read back still selects its plan
_COST_MODELS = {"hull": b.HARPE_COST_HULL, "exponential": b.HARPE_COST_EXPONENTIAL}


class _Handle:
    """Owns one C object, and frees it when the last user of it is gone."""

    def __init__(self, address: C.c_void_p, free: Callable[[C.c_void_p], None],
                 *uses: _Handle) -> None:
        self.address = address
        self._uses = uses  # keeps these handles alive as long as this one
        self._finalizer = weakref.finalize(self, free, address)

    def close(self) -> None:
        """Frees the object now. For objects that are needed for one call only."""
        self._finalizer()


# ---- Profile ----

def _whole(value: Any) -> int:
    """Converts a whole number. Accepts 1410.0 too, because tables with other columns of real
    numbers store whole numbers in this form."""
    try:
        number = operator.index(value)
    except TypeError:
        number = int(float(value))
        if number != float(value):
            raise ValueError(f"{value!r} is not a whole number") from None
    if not -2 ** 31 <= number < 2 ** 31:  # ctypes would reduce the value modulo the type's size
        raise ValueError(f"{number} is too large")
    return number


def _plain(value: float, digits: int = 9) -> str:
    """Formats the number with at most `digits` digits, never in the form 1.646e+04."""
    return format(decimal.Decimal(f"{value:.{digits}g}"), "f")


def _count(name: str, value: Any) -> int:
    """Converts an argument that C takes as an int."""
    try:
        return _whole(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def _count_or_none(name: str, value: Any) -> int:
    """Converts an argument that is 0 for C if it is not given."""
    if value is None:
        return 0
    count = _count(name, value)
    if count == 0:
        raise InvalidArgumentError(f"{name} must be at least 1, or None, not 0")
    return count


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return without_nul(value)
    if not isinstance(value, str):
        raise TypeError("an instruction's name is expected")
    return utf8(value)


def _rows_of(profile: Any) -> Iterator[Tuple[Sequence[Any], Sequence[Any]]]:
    """Yields (values of _COLUMNS, values of _OPTIONAL) for every row of any kind of profile."""
    if hasattr(profile, "keys"):  # columns: a dict of lists or a data frame
        names = list(profile.keys())
        missing = [column for column in _COLUMNS if column not in names]
        if missing:
            raise InvalidArgumentError(f"profile: there is no column {missing[0]}; required are "
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
        # a record of a structured array
        fields = getattr(getattr(row, "dtype", None), "names", None)
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


def _measurement(index: int, values: Sequence[Any], optional: Sequence[Any]) -> Tuple[Any, ...]:
    """Returns the values of a row as C takes them, in the order of _MEMBERS."""
    converted: List[Any] = []
    converters: List[Callable[[Any], Any]] = [_whole, _text, _whole, float, float, _whole,
                                                _whole, float, float]
    for name, convert, value in zip((*_COLUMNS, *_OPTIONAL), converters, (*values, *optional)):
        try:
            converted.append(convert(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError(f"profile row {index}, {name}: {value!r}: {error}") from None
    return tuple(converted)


def _warn_of_rows(profile: _Handle) -> None:
    """Warns about rows that are probably wrong."""
    index = 0
    while (warning := lib.harpe_profile_warning_at(profile.address, index)) is not None:
        warnings.warn(f"profile: {warning.decode()}", stacklevel=_callers_level())
        index += 1


def _profile(profile: Any) -> Tuple[_Handle, Any]:
    """Returns the profile, and what makes it again in another process."""
    made = C.c_void_p()
    kept: Any
    if isinstance(profile, (str, os.PathLike)):
        call(lib.harpe_profile_read_csv, encoded(profile), C.byref(made))
        kept = _kept(profile)
    else:
        rows = [_measurement(index, values, optional)
                for index, (values, optional) in enumerate(_rows_of(profile))]
        call(lib.harpe_profile_new,
             (b.harpe_measurement * len(rows))(
                 *[b.harpe_measurement(**dict(zip(_MEMBERS, row))) for row in rows]),
             len(rows), C.byref(made))
        kept = dict(zip((*_COLUMNS, *_OPTIONAL), zip(*rows)))
    handle = _Handle(made, lib.harpe_profile_free)
    _warn_of_rows(handle)
    return handle, kept


class _File(NamedTuple):
    """An input file, for a copy of a problem in another process."""

    name: str  # ends in .csv if that of the file does
    content: bytes


def _kept(path: Path) -> Union[Path, _File]:
    """Returns the file's content; the path itself if the file can be read only once."""
    if not os.path.isfile(path):
        return path
    with open(path, "rb") as file:
        return _File(os.path.basename(os.fspath(path)), file.read())


# ---- Schedule ----

def schedule_names() -> List[str]:
    """Returns the names of the built-in pipeline schedules."""
    names: List[str] = []
    while lib.harpe_schedule_name_at(len(names)):
        names.append(lib.harpe_schedule_name_at(len(names)).decode())
    return names


def _names_for_c(names: Sequence[str]) -> Any:
    return (C.c_char_p * (len(names) + 1))(*[utf8(name) for name in names], None)


def _is_file(schedule: Path) -> bool:
    name = os.fspath(schedule)
    return isinstance(schedule, os.PathLike) or name not in schedule_names() and (
        name.endswith(".csv") or os.sep in name)


def _schedule(schedule: Path, profile: _Handle, num_microbatches: Optional[int],
              num_ranks: Optional[int], num_chunks: Optional[int], prologue: Sequence[str],
              epilogue: Sequence[str], microbatch_group_size: Optional[int],
              overlap_moe_expert_parallel_comm: bool, memory_limit: int) -> _Handle:
    name, is_file = os.fspath(schedule), _is_file(schedule)
    request = b.harpe_schedule_request(
        options=b.harpe_schedule_options(
            name=utf8(name), ranks=_count_or_none("num_ranks", num_ranks),
            microbatches=_count_or_none("num_microbatches", num_microbatches),
            chunks=_count("num_chunks", num_chunks or 0), prologue=_names_for_c(prologue),
            epilogue=_names_for_c(epilogue),
            microbatch_group_size=_count_or_none("microbatch_group_size", microbatch_group_size),
            overlaps_moe_expert_parallel_comm=overlap_moe_expert_parallel_comm),
        path=encoded(name) if is_file else None, memory_limit_bytes=memory_limit)
    made = C.c_void_p()
    call(lib.harpe_schedule_for_profile, profile.address, C.byref(request), C.byref(made))
    return _Handle(made, lib.harpe_schedule_free)


class Repeat(NamedTuple):
    """Rows of a profile that repeat one measurement and agree. They were averaged.

    Rows are lines of a file, or indices of the given rows; `rank` is -1 if they name none. A spread
    is the largest value divided by the smallest, minus 1."""

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
    """Returns the stacklevel of the code that called this module, for a warning of the calling
    function."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals is globals():
        level, frame = level + 1, frame.f_back
    return level - 1


def _repeats(profile: _Handle) -> List[Repeat]:
    """Returns the rows that were averaged, and warns about the first of them."""
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
    """Makes a long call of the library stoppable: by the caller's progress function, and on the
    main thread by Ctrl-C. The signal is stored during the call and raised after the call."""

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
            except BaseException as error:  # raised after the call: it cannot pass through C
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
                self._before(self._interrupted, None)  # usually raises KeyboardInterrupt
        if self._error is not None:
            raise self._error from None


# ---- Results ----

class Vertex(NamedTuple):
    """A corner of the frontier's lower bound. A plan that takes `time` s needs at least
    `lower_bound` J."""

    time: float
    lower_bound: float


@dataclasses.dataclass(frozen=True)
class Prices:
    """The prices of energy and time, in any currency.

    Attributes:
        energy: Price of a kWh.
        gpu_hour: Value of one GPU for an hour.
        carbon: Carbon of a kWh, in grams of CO2.
        carbon_price: Price of 1000 kg of CO2.
    """

    energy: float
    gpu_hour: float
    carbon: float = 0.0
    carbon_price: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = float(getattr(self, field.name))
            if not 0 <= value < math.inf:
                raise InvalidArgumentError(f"{field.name}: {_plain(value)} is not a price or an "
                                           "amount from 0 on")


class Cost(NamedTuple):
    """What one iteration costs, in the currency of the prices, and its carbon in grams of CO2."""

    energy: float
    gpu_time: float
    carbon: float
    total: float
    carbon_g: float


class PowerShape(NamedTuple):
    """The power of the whole pipeline during an iteration, in W.

    `swing` is the strongest component of the power between 0.1 and 20 Hz, from peak to peak, and
    `swing_frequency` its frequency in Hz. Both are 0 if there is none."""

    peak: float
    swing: float
    swing_frequency: float


class LateTimes(NamedTuple):
    """One iteration of a plan whose clocks change some time after the controller has asked for
    them, in the steady state.

    `requests` is the number of clocks that are requested, and `late_instructions` the number of
    instructions that do work at another clock than the plan's. `is_steady` is False if iterations
    differ; time and energy are then means."""

    time: float
    energy: float
    requests: int
    late_instructions: int
    is_steady: bool


@dataclasses.dataclass(frozen=True)
class Plan:
    """A clock for every instruction, and the time and energy of one iteration under these clocks.

    Attributes:
        time: Time of one iteration, in s.
        energy: Energy of all GPUs, including their waiting, in J. If the problem has overhead
            power, it is the energy of whole machines.
        lower_bound: No plan that takes `time` needs less energy, in J; None if no frontier was
            solved.
        average_power: Average power of one GPU, in W.
        compute_energy: Energy of the instructions alone, in J.
        blocking_energy: Energy of waiting alone, in J.
        overhead_energy: Energy that machines use outside of their GPUs, in J.
    """

    time: float
    energy: float
    lower_bound: Optional[float]
    average_power: float
    compute_energy: float
    blocking_energy: float
    _problem: Problem = dataclasses.field(repr=False, compare=False)
    _mhz: array.array[int] = dataclasses.field(repr=False, hash=False)  # in the order of the ranks
    _number: int = dataclasses.field(default=0, repr=False, compare=False)
    _cost_change: float = dataclasses.field(default=0.0, repr=False, compare=False)
    overhead_energy: float = 0.0

    @property
    def frequencies(self) -> Frequencies:
        """Returns [(instruction, MHz), ...] for every rank, in the order in which the rank runs
        them."""
        remaining = iter(self._mhz)
        return [[(name, next(remaining)) for name in names] for names in self._problem._names]

    @property
    def one_clock(self) -> Optional[int]:
        """Returns the clock of all instructions in MHz, or None if they differ. Instructions that
        were measured at 0 MHz alone do not count."""
        mhz = (C.c_int * len(self._mhz)).from_buffer(self._mhz)
        return lib.harpe_plan_one_clock_mhz(self._problem._handle.address, mhz) or None

    @property
    def gpu_energy(self) -> float:
        """Returns the energy of all GPUs, including their waiting, in J."""
        return self.compute_energy + self.blocking_energy

    @property
    def power_shape(self) -> PowerShape:
        """Returns the peak and the swing of the power of the whole pipeline, overhead included.
        They are computed from the timeline each time that this property is read."""
        made = b.harpe_power_shape()
        mhz = (C.c_int * len(self._mhz)).from_buffer(self._mhz)
        call(lib.harpe_plan_power_shape, self._problem._handle.address, mhz, C.byref(made))
        return PowerShape(made.peak_w, made.swing_w, made.swing_hz)

    def late(self, switch_latency: Union[float, str], *, lead: float = math.inf) -> LateTimes:
        """Returns the time and energy of an iteration if the GPUs have a clock `switch_latency`
        seconds after the request ("profile": as long as the profile says for each clock). The
        controller asks up to `lead` seconds before the instruction begins, and never earlier than
        necessary. With 0 it asks when the instruction begins."""
        made = b.harpe_late_plan()
        mhz = (C.c_int * len(self._mhz)).from_buffer(self._mhz)
        call(lib.harpe_plan_evaluate_late, self._problem._handle.address, mhz,
             C.byref(_switch(switch_latency)), lead, C.byref(made), None)
        return LateTimes(made.time_s, made.energy_j, made.request_count, made.late_count,
                         made.is_steady)

    def cost(self, prices: Prices) -> Cost:
        """Returns what one iteration costs: its energy, and the time of all GPUs."""
        kwh = self.energy / _J_PER_KWH
        energy = kwh * prices.energy
        gpu_time = self.time / 3600 * self._problem.num_gpus * prices.gpu_hour
        carbon_g = kwh * prices.carbon
        carbon = carbon_g / 1e6 * prices.carbon_price
        return Cost(energy, gpu_time, carbon, energy + gpu_time + carbon, carbon_g)

    def save(self, path: Path) -> None:
        """Writes the plan file (harpe-plan(5)) that servers read, whole or not at all."""
        values = b.harpe_plan(
            time_s=self.time, energy_j=self.energy, lower_bound_j=self.lower_bound or 0.0,
            compute_energy_j=self.compute_energy, blocking_energy_j=self.blocking_energy,
            average_power_w=self.average_power, overhead_energy_j=self.overhead_energy,
            frequency_mhz=(C.c_int * len(self._mhz)).from_buffer(self._mhz))
        call(lib.harpe_plan_file_write, encoded(path), self._problem._handle.address,
             C.byref(values), self._number, self._cost_change)


def _blocking_powers(given: Union[float, Sequence[float], None],
                     profile: _Handle) -> List[float]:
    """Returns the given powers; none if the profile has them. C would use 0 W for missing ones."""
    if given is None:
        for stage in range(lib.harpe_profile_stage_count(profile.address)):
            if lib.harpe_profile_blocking_power_w(profile.address, stage) <= 0:
                raise InvalidArgumentError("blocking_power: give one value, or one for each rank; "
                                           f"the profile has none for stage {stage}")
        return []
    powers = [float(power) for power in given] if isinstance(given, Iterable) else [float(given)]
    if not powers:
        raise InvalidArgumentError("blocking_power: give one value, or one for each rank")
    return powers


def _wait_powers(given: Union[Path, Mapping[str, float], Iterable[Tuple[Any, Any, float]], None]
                 ) -> Tuple[Any, bool]:
    """Returns the rows of wait powers for C, and whether one of them is for all ranks and kinds."""
    rows: List[b.harpe_wait_power] = []
    if given is None:
        return (b.harpe_wait_power * 0)(), False
    if isinstance(given, (str, os.PathLike)):
        made, count = C.c_void_p(), C.c_size_t()
        call(lib.harpe_wait_powers_read_csv, encoded(given), C.byref(made))
        file = _Handle(made, lib.harpe_wait_powers_free)
        read = lib.harpe_wait_powers_rows(made, C.byref(count))
        rows = [b.harpe_wait_power(rank=read[i].rank, wait=read[i].wait, power_w=read[i].power_w)
                for i in range(count.value)]
        file.close()
    else:
        triples = [(None, wait, power) for wait, power in given.items()] \
            if isinstance(given, Mapping) else given
        for index, row in enumerate(triples):
            try:
                rank, wait, power = row
                rows.append(b.harpe_wait_power(rank=-1 if rank is None else _whole(rank),
                                               wait=None if wait is None else _text(wait),
                                               power_w=float(power)))
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidArgumentError(f"wait_powers, row {index}: {row!r} is not (rank or "
                                           f"None, wait or None, W): {error}") from None
    return ((b.harpe_wait_power * len(rows))(*rows),
            any(row.rank < 0 and not row.wait for row in rows))


class Problem:
    """A profile joined with a pipeline schedule: the input of the solver."""

    def __init__(self, profile: Any, *, num_microbatches: Optional[int] = None,
                 blocking_power: Union[float, Sequence[float], None] = None,
                 overhead_power: float = 0.0, transfer_time: float = 0.0, schedule: Path = "1f1b",
                 wait_powers: Union[Path, Mapping[str, float],
                                    Iterable[Tuple[Any, Any, float]], None] = None,
                 num_ranks: Optional[int] = None, num_chunks: Optional[int] = None,
                 gpus_per_stage: Optional[int] = None,
                 prologue: Sequence[str] = (), epilogue: Sequence[str] = (),
                 microbatch_group_size: Optional[int] = None,
                 overlap_moe_expert_parallel_comm: bool = False,
                 cost_model: str = "hull", unit_time: float = 0.001, noise_factor: float = 0.95,
                 memory_limit: int = 4 << 30) -> None:
        """Takes the arguments of solve()."""
        self._arguments = {name: value for name, value in locals().items() if name != "self"}
        if cost_model not in _COST_MODELS:
            raise InvalidArgumentError(f"cost_model {cost_model!r} is none of "
                                       f"{', '.join(_COST_MODELS)}")
        profile_handle, kept_profile = _profile(profile)
        waits, has_usual = _wait_powers(wait_powers)
        powers = [] if has_usual and blocking_power is None else _blocking_powers(blocking_power,
                                                                                  profile_handle)
        is_file = isinstance(wait_powers, (str, os.PathLike))
        schedule_handle = _schedule(schedule, profile_handle, num_microbatches, num_ranks,
                                    num_chunks, prologue, epilogue, microbatch_group_size,
                                    overlap_moe_expert_parallel_comm, memory_limit)
        options = b.harpe_problem_options(
            blocking_power_w=(C.c_double * len(powers))(*powers), blocking_power_count=len(powers),
            cost_model=_COST_MODELS[cost_model], unit_time_s=unit_time, noise_factor=noise_factor,
            memory_limit_bytes=memory_limit, overhead_power_w=overhead_power,
            transfer_time_s=transfer_time,
            gpus_per_stage=_count("gpus_per_stage", gpus_per_stage or 0),
            wait_powers=waits, wait_power_count=len(waits),
            wait_powers_name=encoded(wait_powers) if is_file else b"wait_powers")
        made = C.c_void_p()
        call(lib.harpe_problem_new, profile_handle.address, schedule_handle.address,
             C.byref(options), C.byref(made))
        self._handle = _Handle(made, lib.harpe_problem_free)
        ranks = lib.harpe_problem_rank_count(made)
        self._gpus = [lib.harpe_problem_gpu_count(made, rank) for rank in range(ranks)]
        self._total_blocking_power = sum(lib.harpe_problem_blocking_power_w(made, rank)
                                         for rank in range(ranks))
        self.repeats = _repeats(profile_handle)
        self._names = [
            [lib.harpe_problem_instruction_name(made, rank, index).decode()
             for index in range(lib.harpe_problem_rank_length(made, rank))]
            for rank in range(ranks)]
        profile_handle.close()
        schedule_handle.close()
        self._arguments.update(
            profile=kept_profile, blocking_power=powers or None,
            wait_powers=[(row.rank if row.rank >= 0 else None, row.wait, row.power_w)
                         for row in waits],
            schedule=_kept(schedule) if _is_file(schedule) else schedule)

    def __reduce__(self) -> Tuple[Any, ...]:
        """A copy in another process is made from the same input. Files come along."""
        return _made_again, (self._arguments,)

    def __copy__(self) -> Problem:
        """Returns the problem itself, because it does not change."""
        return self

    def __deepcopy__(self, _memo: Any) -> Problem:
        """Returns the problem itself, because it does not change."""
        return self

    @property
    def num_ranks(self) -> int:
        """Returns the number of pipeline ranks. Each rank has one GPU or several."""
        return len(self._names)

    @property
    def num_gpus(self) -> int:
        """Returns the number of GPUs of all ranks together."""
        return sum(self._gpus)

    @property
    def num_instructions(self) -> int:
        """Returns the number of instructions of all ranks in one iteration."""
        return sum(map(len, self._names))

    @property
    def all_maximum(self) -> Plan:
        """Returns the plan with every instruction at its highest profiled clock. It is the usual
        reference for comparisons."""
        made = b.harpe_plan()
        call(lib.harpe_plan_all_maximum, self._handle.address, C.byref(made))
        return self._plan(made, None)

    @property
    def one_clock_plans(self) -> List[Plan]:
        """Returns the plans with one clock for all GPUs, which need no planner, fastest first: one
        for each clock at which every instruction was measured, and the plan at the highest
        clocks."""
        plan_set = C.c_void_p()
        call(lib.harpe_plan_set_one_clock, self._handle.address, C.byref(plan_set))
        handle = _Handle(plan_set, lib.harpe_plan_set_free)
        plans = [self._plan(lib.harpe_plan_set_at(plan_set, index)[0], None)
                 for index in range(lib.harpe_plan_set_count(plan_set))]
        handle.close()
        return plans

    def evaluate(self, plan: Union[Plan, Path, Sequence[Sequence[Tuple[str, int]]]]) -> Plan:
        """Computes the time and energy of a plan for this problem.

        Args:
            plan: A Plan, a plan file, or one list of (instruction, MHz) per rank.

        Raises:
            InvalidArgumentError: The plan does not fit the problem: a different number of ranks or
                instructions, a different name, or a clock that was not profiled.
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

    def solve(self, plans: Union[int, str, Sequence[float]] = 100,
              progress: Optional[Progress] = None, *, threads: int = 0,
              switch_latency: Union[float, str] = 0.0, max_peak_power: Optional[float] = None,
              max_swing: Union[float, str, None] = None) -> Frontier:
        """Solves the whole frontier and makes plans along it. The arguments are those of the
        module's solve()."""
        request = _request(plans)
        request.threads = _threads(threads)
        request.clock_switch = _switch(switch_latency)
        _limit_power(request, max_peak_power, max_swing)
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
                    made.compute_energy_j, made.blocking_energy_j, self, mhz, number, cost_change,
                    made.overhead_energy_j)


def _made_again(arguments: Dict[str, Any]) -> Problem:
    """Makes a problem from what Problem.__reduce__ has packed. The first one has warned about its
    rows."""
    import tempfile
    with tempfile.TemporaryDirectory(prefix="harpe-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("profile", "schedule"):
            value = arguments[name]
            if isinstance(value, _File):
                path = os.path.join(folder, f"{name}-{value.name}")
                with open(path, "wb") as file:
                    file.write(value.content)
                arguments = {**arguments, name: path}
        return Problem(**arguments)


def _request(plans: Union[int, str, Sequence[float]]) -> b.harpe_plan_request:
    if isinstance(plans, str) and plans == "all":
        return b.harpe_plan_request(choice=b.HARPE_PLANS_ALL)
    if isinstance(plans, str) and plans == "fastest":
        plans = [0]
    if isinstance(plans, int) and plans >= 1:
        return b.harpe_plan_request(choice=b.HARPE_PLANS_SPREAD, count=_count("plans", plans))
    try:
        if isinstance(plans, (int, str)):
            raise ValueError
        times = sorted(float(time) for time in plans)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"plans: {plans!r} is neither 'all' nor 'fastest', nor a number from 1 on, "
                                   f"nor a list of times") from None
    return b.harpe_plan_request(choice=b.HARPE_PLANS_AT, time_count=len(times),
                                times_s=(C.c_double * len(times))(*times))


def _switch(latency: Union[float, str]) -> b.harpe_clock_switch:
    if latency == "profile":
        return b.harpe_clock_switch(takes_profile=True)
    if isinstance(latency, str):
        raise InvalidArgumentError(f"switch_latency: {latency!r} is neither 'profile' nor a number")
    return b.harpe_clock_switch(latency_s=latency)


def _limit_power(request: Any, max_peak_power: Optional[float],
                 max_swing: Union[float, str, None]) -> None:
    """Fills in the limits on power of a request: watts, or "5%" of the mean power."""
    if max_peak_power is not None:
        request.max_peak_power_w = _above_0("max_peak_power", max_peak_power)
    if isinstance(max_swing, str) and max_swing.endswith("%"):
        request.max_swing_share = _above_0("max_swing", max_swing[:-1]) / 100
    elif max_swing is not None:
        request.max_swing_w = _above_0("max_swing", max_swing)


def _above_0(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InvalidArgumentError(f"{name}: {value!r} is not a number above 0")
    return number


def _threads(threads: int) -> int:
    return _count("threads", threads) if threads else 0


def _within(plans: List[Plan], values: List[float], limit: float, message: str) -> List[Plan]:
    """Returns the plans whose values are within a limit. The message says what is wrong if there
    are none."""
    kept = [plan for plan, value in zip(plans, values) if value <= limit * _SLACK]
    if not kept:
        raise NotFoundError(
            "no plan within the limits " + message.format(_plain(limit), _plain(min(values))),
            b.HARPE_INFEASIBLE)
    return kept


def _vertices(frontier: _Handle) -> List[Vertex]:
    """Returns the corners of a frontier, and frees it."""
    count = C.c_size_t()
    vertices = lib.harpe_frontier_vertices(frontier.address, C.byref(count))
    found = [Vertex(vertices[i].time_s, vertices[i].lower_bound_j) for i in range(count.value)]
    frontier.close()
    return found


def _bound_at(vertices: List[Vertex], time: float) -> float:
    """Does what harpe_frontier_bound_at() does, without the memory of C."""
    first, last = vertices[0], vertices[-1]
    if time < first.time - max(min(1e-9, 1e-3 * first.time), 1e-12 * first.time):
        return math.inf
    if time <= first.time or time > last.time:
        return first.lower_bound if time <= first.time else last.lower_bound
    high = bisect.bisect_left(vertices, (time,))
    before, after = vertices[high - 1], vertices[high]
    share = (time - before.time) / (after.time - before.time)
    return before.lower_bound + share * (after.lower_bound - before.lower_bound)


class Frontier:
    """The exact lower bound of energy over time, and plans close to it.

    Attributes:
        problem: The problem that was solved.
        vertices: Corners (time, lower bound) of the bound, fastest first, in s and J. Two of them may
            have the same time; the first one holds then.
        plans: The plans, fastest first. No plan is both faster and of less energy than another.
        all_maximum: The plan with every instruction at its highest profiled clock, for comparison.
    """

    def __init__(self, problem: Problem, frontier: _Handle, plan_set: _Handle) -> None:
        """Takes the results of solve(), which creates these objects."""
        self.problem = problem
        self.plans = self._copied(plan_set)
        self.vertices = _vertices(frontier)
        plan_set.close()
        self.all_maximum = self._bounded(problem.all_maximum)

    def _copied(self, plan_set: _Handle) -> List[Plan]:
        """Returns the plan with this number. As in `harpe plan`, 0 is the slowest plan."""
        count = lib.harpe_plan_set_count(plan_set.address)
        made = [lib.harpe_plan_set_at(plan_set.address, index)[0] for index in range(count)]
        power = self.problem._total_blocking_power
        costs = [plan.energy_j - plan.overhead_energy_j - power * plan.time_s for plan in made]
        changes = [faster - slower for faster, slower in zip(costs, costs[1:])] + [0.0]
        return [self.problem._plan(plan, plan.lower_bound_j, count - 1 - index, change)
                for index, (plan, change) in enumerate(zip(made, changes))]

    def _bounded(self, plan: Plan) -> Plan:
        return dataclasses.replace(plan, lower_bound=self.bound_at(plan.time))

    def bound_at(self, time: float) -> float:
        """Returns the energy in J that a plan of `time` s needs at least; with a switch_latency, a
        plan whose clocks hold as long as that. It is infinite below the shortest possible time."""
        return _bound_at(self.vertices, time)

    def one_clock(self, max_time: Optional[float] = None) -> Plan:
        """Returns the plan with one clock for all GPUs that needs the least energy of those that
        take at most `max_time` s (None: the time of all_maximum). It is what a user can have
        without a planner; all_maximum is one of these plans.

        Raises:
            NotFoundError: All of them take longer.
        """
        limit = self.all_maximum.time if max_time is None else max_time
        plans = self.problem.one_clock_plans
        kept = [plan for plan in plans if plan.time <= limit * _SLACK]
        if not kept:
            raise NotFoundError(f"no plan with one clock for all GPUs takes at most "
                                f"{_plain(limit)} s; the fastest takes {_plain(plans[0].time)} s",
                                b.HARPE_INFEASIBLE)
        return self._bounded(min(kept, key=lambda plan: plan.energy))

    def evaluate(self, plan: Union[Plan, Path, Sequence[Sequence[Tuple[str, int]]]]) -> Plan:
        """Evaluates a plan as Problem.evaluate() does, and adds the lower bound at the plan's
        time."""
        return self._bounded(self.problem.evaluate(plan))

    def choose(self, *, max_slowdown: Optional[float] = None, max_time: Optional[float] = None,
               max_power: Optional[float] = None, max_peak_power: Optional[float] = None,
               max_swing: Optional[float] = None, prices: Optional[Prices] = None) -> Plan:
        """Returns the plan of least energy within the limits, or with `prices` the plan of least
        cost. With a limit on power and without prices it returns the fastest plan within all
        limits.

        Args:
            max_slowdown: Largest iteration time, as a multiple of the time of all_maximum.
            max_time: Largest iteration time, in s.
            max_power: Largest average power of one GPU, in W.
            max_peak_power: Largest power of the whole pipeline at any moment, in W.
            max_swing: Largest swing of the power of the whole pipeline (see PowerShape), in W.
            prices: What energy and time cost.

        Raises:
            NotFoundError: No plan is within the limits.
        """
        allowed = [limit for limit in (
            max_time, None if max_slowdown is None else max_slowdown * self.all_maximum.time)
            if limit is not None]
        kept = [plan for plan in self.plans
                if all(plan.time <= limit * _SLACK for limit in allowed)]
        if not kept:
            raise NotFoundError(f"no plan takes at most {_plain(min(allowed))} s; the fastest takes "
                                f"{_plain(self.plans[0].time)} s", b.HARPE_INFEASIBLE)
        if max_power is not None:
            kept = _within(kept, [plan.average_power for plan in kept], max_power,
                           "draws at most {} W per GPU; the least draws {} W")
        if max_peak_power is not None:
            kept = _within(kept, [plan.power_shape.peak for plan in kept], max_peak_power,
                           "has a peak power of at most {} W; the lowest is {} W")
        if max_swing is not None:
            kept = _within(kept, [plan.power_shape.swing for plan in kept], max_swing,
                           "has a swing of at most {} W; the smallest is {} W")
        if prices is not None:
            costs = [plan.cost(prices).total for plan in kept]
            return kept[costs.index(min(costs))]
        limits = (max_power, max_peak_power, max_swing)
        if all(limit is None for limit in limits):
            return min(kept, key=lambda plan: plan.energy)
        return min(kept, key=lambda plan: plan.time)

    def __repr__(self) -> str:
        return (f"<Frontier of {self.problem.num_instructions} instructions on "
                f"{self.problem.num_ranks} ranks: {_plain(self.vertices[0].time, 6)} to "
                f"{_plain(self.vertices[-1].time, 6)} s, {len(self.vertices)} vertices, "
                f"{len(self.plans)} plans>")


def solve(profile: Any, *, num_microbatches: Optional[int] = None,
          blocking_power: Union[float, Sequence[float], None] = None, schedule: Path = "1f1b",
          plans: Union[int, str, Sequence[float]] = 100, progress: Optional[Progress] = None,
          threads: int = 0, switch_latency: Union[float, str] = 0.0,
          max_peak_power: Optional[float] = None, max_swing: Union[float, str, None] = None,
          **options: Any) -> Frontier:
    """Solves the whole time-energy frontier and makes plans along it. Ctrl-C stops it.

    Args:
        profile: The time and energy of every instruction at every clock. It is the path of a CSV
            file (harpe-profile(5)); or columns (a dict of lists or arrays, a data frame) named
            stage, instruction, frequency, time, energy, and optionally rank, gpus, blocking_power
            or switch_latency; or rows (dicts with those names, records of a structured NumPy array, or
            sequences in that order).
        num_microbatches: Microbatches of one iteration. Not needed if the schedule is a file.
        blocking_power: Power in W of one GPU while it waits for its neighbour: one number, or one
            for each rank. It is the power of one GPU even if a rank has several. Not needed if the
            profile has the column blocking_power.
        schedule: One of schedule_names(), or a CSV file: that of torch.distributed.pipelining, with
            the further cells of harpe-plan(1).
        plans: Approximate number of plans; or "all": one for each vertex; or "fastest"; or a list of iteration
            times: for each the plan of least energy that is not slower. With a number there are
            always plans for the shortest time, for the time of least energy, and for 0, 0.1, 0.2,
            0.5, 1, 2 and 5 % more time than the highest clocks. The others are spread evenly
            between the first two.
        progress: Function that is called with (phase, fraction), at most some hundred times a
            second. If it returns False, the work stops and raises HarpeError. An exception
            in it reaches the caller.
        threads: The most threads that make plans; 0: one for each core. The plans do not depend on
            it.
        switch_latency: Seconds from the request for a clock until a GPU has it, or "profile": as
            long as the profile says for each clock. Each clock of a plan then holds so long that
            the next one can be requested in time.
        max_peak_power: No plan draws more than this power in W at any moment; see PowerShape.
        max_swing: No plan has a larger swing than this, in W, or as "5%" of its mean power.
        **options: overhead_power (power in W of all machines outside of their GPUs; energies and
            the bound are then those of whole machines), transfer_time (seconds from the end of an
            instruction to the start of one of another rank that waits for it), wait_powers
            (blocking power in W of each kind of wait, named after the instruction that ends the
            wait, or "end": a dict, rows (rank or None for all, wait or None for all other kinds,
            W), or the path of a CSV file; see --wait-powers in harpe-plan(1)), num_ranks (default:
            as many as the profile has stages for), num_chunks (stages per rank, if the schedule has
            several),
            gpus_per_stage (number of GPUs whose summed energy a row of the profile has, for a
            profile without rank and gpus), prologue and epilogue (names of instructions that every
            rank runs first and last), microbatch_group_size and overlap_moe_expert_parallel_comm
            (of interleaved-1f1b, as Megatron's settings microbatch_group_size_per_vp_stage and
            overlap_moe_expert_parallel_comm), cost_model ("hull" or "exponential"), unit_time and
            noise_factor of the exponential model, memory_limit in bytes.

    Raises:
        InvalidArgumentError: A value is invalid. The message names the value and its place in the
            profile.
        NotFoundError: The profile lacks an instruction that the schedule runs, or the file does not
            exist.
        HarpeError: `progress` has stopped the work, or the library has failed for another reason.
    """
    problem = Problem(profile, num_microbatches=num_microbatches, blocking_power=blocking_power,
                      schedule=schedule, **options)
    return problem.solve(plans, progress, threads=threads, switch_latency=switch_latency,
                         max_peak_power=max_peak_power, max_swing=max_swing)


# ---- Plan files ----

def _plan_file(path: Path) -> _Handle:
    made = C.c_void_p()
    call(lib.harpe_plan_file_read, encoded(path), C.byref(made))
    return _Handle(made, lib.harpe_plan_file_free)


def _plan_text(text: str) -> _Handle:
    made, data = C.c_void_p(), utf8(text)
    call(lib.harpe_plan_file_parse, data, len(data), b"plan", C.byref(made))
    return _Handle(made, lib.harpe_plan_file_free)


def load(path: Path) -> Frequencies:
    """Reads a plan file (harpe-plan(5)). It is never executed.

    Raises:
        InvalidArgumentError: The file is not a plan file. The message names the place.
        NotFoundError: The file does not exist.
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
