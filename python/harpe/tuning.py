# SPDX-License-Identifier: Apache-2.0
"""Finds the clock, or the power limit, with which this program needs the least energy while it is
hardly slower, and holds it. A thread of libharpe does all of it, and no step waits for it.

    with harpe.tune() as tuning:
        train()
    print(tuning.report())

The steps of PyTorch's optimizers are the work that is measured, else batches of DataLoaders, else
calls of models. A program that calls harpe.step() after each step of its own is measured by these.
`harpe tune -- python3 train.py` does the same without a change of the program, for jobs of several
processes too.
"""
from __future__ import annotations

import ctypes as C
import logging
import os
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Union

from harpe import _bindings as b
from harpe import distributed
from harpe._library import (HarpeError, InvalidArgumentError, UnavailableError, abandon_in_children,
                            call, encoded, lib, log_to)
from harpe.optimizer.power_limit.session import open_gpus

__all__ = ["Tuning", "TuningReport", "step", "tune"]

_LOGGER = "harpe.tune"
_AIMS = {"energy": b.HARPE_TUNING_ENERGY, "cost": b.HARPE_TUNING_COST, "time": b.HARPE_TUNING_TIME}
_PHASES = {b.HARPE_TUNING_WAITING: "waiting", b.HARPE_TUNING_MEASURING: "measuring",
           b.HARPE_TUNING_TRYING: "trying", b.HARPE_TUNING_SETTLED: "settled",
           b.HARPE_TUNING_UNMEASURABLE: "unmeasurable", b.HARPE_TUNING_STOPPED: "stopped"}


@dataclass(frozen=True)
class TuningReport:
    """What a tuning knows. Shares are against the highest setting, which is measured in turns with
    the others; an error is half of the 95 % interval. None: not known.

    phase: "waiting" (no work was seen, nothing is changed), "measuring" (at the highest setting),
        "trying", "settled", "unmeasurable" (nothing is changed) or "stopped" (GPUs are restored).
    meter: how work is measured. reason: why work cannot be measured, or why the tuning stopped.
    clock_mhz, power_limit_w: the choice; 0: as the GPUs were found.
    trials: settings that were compared with the highest one.
    saved, slowdown: shares of the energy and of the time of a unit of work.
    slowest_minute: the slowest minute so far was at most about this share slower.
    is_noise: the saving's interval contains 0.
    guess_low, guess_high: with dry_run, 19 of 20 measured programs have a saving between these.
    work, time_s, energy_j: units of work, and time and energy of all GPUs up to the last unit, without
        times in which the work or the energy is not known; both 0: no energy is known.
    highest_j_per_unit, chosen_j_per_unit, highest_s_per_unit, chosen_s_per_unit: of a unit of work.
    is_restored: settings were changed, and are as they were found.
    is_unrestored: a GPU could not be restored, or it is not known whether it is (harpe gpus --restore).
    """

    phase: str
    meter: Optional[str] = None
    reason: Optional[str] = None
    clock_mhz: int = 0
    power_limit_w: int = 0
    trials: int = 0
    saved: Optional[float] = None
    saved_error: Optional[float] = None
    slowdown: Optional[float] = None
    slowdown_error: Optional[float] = None
    slowest_minute: Optional[float] = None
    is_noise: bool = False
    work: float = 0.0
    time_s: float = 0.0
    energy_j: float = 0.0
    highest_j_per_unit: Optional[float] = None
    chosen_j_per_unit: Optional[float] = None
    highest_s_per_unit: Optional[float] = None
    chosen_s_per_unit: Optional[float] = None
    is_restored: bool = False
    is_unrestored: bool = False
    guess_low: Optional[float] = None
    guess_high: Optional[float] = None

    def __str__(self) -> str:
        """Returns the report as a line for people."""
        chosen = [f"{value} {unit}" for value, unit in
                  ((self.clock_mhz, "MHz"), (self.power_limit_w, "W")) if value]
        text = f"{self.phase}: " + (", ".join(chosen) if chosen and not self.reason else
                                    self.reason or "no setting is chosen")
        if self.saved is not None and self.slowdown is not None and not self.reason:
            text += (f"; {_percent(self.saved, self.saved_error)} of the energy saved, "
                     f"{_percent(self.slowdown, self.slowdown_error)} slower")
        return text + (f"; work is measured by {self.meter}" if self.meter else "")


def _percent(share: float, error: Optional[float]) -> str:
    return f"{100 * share:.1f} ± {100 * (error or 0):.1f} %"


def _report_of(found: b.harpe_tuning_report) -> TuningReport:
    def text(value: Optional[bytes]) -> Optional[str]:
        return value.decode("utf-8", "replace") if value else None

    is_compared, is_guessed = found.saved_error > 0, found.guess_high > 0
    shares = {name: getattr(found, name) if is_known else None for name, is_known in (
        ("saved", is_compared or is_guessed), ("saved_error", is_compared),
        ("slowdown", is_compared), ("slowdown_error", is_compared), ("slowest_minute", is_compared),
        ("guess_low", is_guessed), ("guess_high", is_guessed))}
    per_unit = {f"{name}_per_unit": getattr(found, f"{name}_per_work") or None
                for name in ("highest_j", "chosen_j", "highest_s", "chosen_s")}
    return TuningReport(
        phase=_PHASES[found.phase], meter=text(found.meter), reason=text(found.reason),
        clock_mhz=found.clock_mhz, power_limit_w=found.limit_w, trials=found.trials,
        is_noise=found.is_noise, work=found.work, time_s=found.time_s, energy_j=found.energy_j,
        is_restored=found.is_restored, is_unrestored=found.is_unrestored, **shares, **per_unit)


# ---- GPUs and ranks ------------------------------------------------------------------------------


def _number(name: str, default: int) -> int:
    """Returns a number that a launcher has set in the environment."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default


def _gpus_of_job(visible: int) -> Sequence[int]:
    """Returns the GPUs that this process tunes, or raises UnavailableError. In a job on one
    machine, the first rank tunes those of all ranks, so that they get one setting."""
    ranks = _number("LOCAL_WORLD_SIZE", 1)
    world = max(_number("WORLD_SIZE", 1), distributed.world_size())
    why_not = ""
    if _number("LOCAL_RANK", 0) != 0:
        why_not = "the first rank tunes the GPUs"
    elif world > ranks:
        why_not = "a job of several machines, or without LOCAL_WORLD_SIZE, is not tuned"
    elif ranks > visible:
        why_not = f"{ranks} ranks need as many GPUs, but the first sees {visible}: use harpe tune"
    if why_not:
        raise UnavailableError(why_not, b.HARPE_UNAVAILABLE)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if ranks == 1 and cuda is not None and cuda.is_initialized():
        return [cuda.current_device()]
    return range(ranks if ranks > 1 else visible)


class _Session:
    """The C objects of a tuning. It has no reference to its owner, so that it can end after the
    owner has gone."""

    def __init__(self) -> None:
        self.abandon()
        abandon_in_children(self)

    def start(self, options: b.harpe_tuning_options, indices: Optional[Sequence[int]]) -> None:
        """Raises the error if this fails."""
        def check(visible: int) -> Sequence[int]:
            if indices is None:
                return _gpus_of_job(visible)
            if not indices or not all(0 <= index < visible for index in indices):
                raise InvalidArgumentError(f"tuning: gpu_indices is {list(indices)}, but {visible} "
                                           "GPUs are visible", b.HARPE_INVALID_ARGUMENT)
            return indices

        try:
            self.gpus, _ = open_gpus(check, _LOGGER)
            options.gpus = self.gpus
            tuning = C.c_void_p()
            call(lib.harpe_tune_start, C.byref(options), C.byref(tuning))
            self.tuning = tuning
        except BaseException:
            self.close()
            raise

    def report(self) -> TuningReport:
        with self._lock:
            if self.tuning is not None:
                found = b.harpe_tuning_report()
                lib.harpe_tune_get_report(self.tuning, C.byref(found))
                self.last = _report_of(found)
            return self.last

    def close(self) -> None:
        with self._lock:
            tuning, self.tuning = self.tuning, None
            gpus, self.gpus = self.gpus, None
            if tuning is not None:
                found = b.harpe_tuning_report()
                lib.harpe_tune_stop(tuning, C.byref(found))
                self.last = _report_of(found)
            if gpus is not None:
                lib.harpe_gpus_close(gpus)

    def abandon(self) -> None:
        """Has no C objects. In a forked child, they belong to the parent."""
        self.gpus: Any = None
        self.tuning: Any = None
        self.last = TuningReport("stopped")
        self._lock = threading.Lock()  # no report of a tuning that another thread closes


# ---- Tuning --------------------------------------------------------------------------------------


_latest: Optional["weakref.ref[Tuning]"] = None


class Tuning:
    """A tuning of this program's GPUs, from its construction to close() or the end of its `with`
    block. harpe.tune() makes one. The GPUs are restored at its end, when it is garbage collected,
    at the end of the process, and also if the process is killed.

    It never makes the program fail: if the GPUs cannot be tuned, one line under "harpe.tune" says
    why, and report().phase is "stopped". In a command of `harpe tune` or `harpe power-limit run`,
    which tunes itself, it does nothing. Of the ranks of a job on one machine, the first tunes the
    GPUs of all. It belongs to the process that created it: in a forked child it does nothing. There
    is one tuning in a process: a new one ends the one before.
    """

    def __init__(self, gpu_indices: Optional[Sequence[int]] = None, knob: str = "clock",
                 max_slowdown: float = 0.02, *, aim: str = "energy", eta: float = 0.5,
                 save: Union[str, "os.PathLike[str]", None] = None, dry_run: bool = False,
                 rate_url: Optional[str] = None, rate: Optional[str] = None,
                 latency: Optional[str] = None, latency_p95_s: float = 0.0,
                 rate_file: Union[str, "os.PathLike[str]", None] = None) -> None:
        """gpu_indices: the GPUs that are tuned, and get one setting; None: those of all ranks on
            this machine; in a single process PyTorch's current GPU, or all that are visible.
        knob: "clock", "limit" (power limit), or "clock,limit".
        max_slowdown: share of time that may be lost, above 0; math.inf: any.
        aim: "energy" (least energy), "cost" (least eta * energy + (1 - eta) * highest power *
            time) or "time" (least time).
        save: file of the result; it is loaded if it exists, and written at the end.
        dry_run: change nothing, and estimate what could be saved.
        rate_url, rate: a page of metrics in Prometheus' format, and the name of the counter that is
            the work. latency, latency_p95_s: a histogram of the page, whose 95th percentile stays
            below this.
        rate_file: a file with a number, the work so far.

        Raises ValueError for values outside these ranges, and if `save` cannot be read.
        """
        knobs = set(knob.split(","))
        if not knobs <= {"clock", "limit"} or aim not in _AIMS or not max_slowdown > 0:
            raise InvalidArgumentError(
                f"tuning: knob {knob!r} must be clock, limit or clock,limit, aim {aim!r} energy, "
                f"cost or time, and max_slowdown {max_slowdown} above 0", b.HARPE_INVALID_ARGUMENT)
        options = b.harpe_tuning_options(
            tunes_clock="clock" in knobs, tunes_limit="limit" in knobs, max_slowdown=max_slowdown,
            aim=_AIMS[aim], eta=eta, is_dry=dry_run, save_path=encoded(save),
            rate_url=encoded(rate_url), rate_name=encoded(rate), latency_name=encoded(latency),
            latency_p95_s=latency_p95_s, rate_file=encoded(rate_file), log=log_to(_LOGGER))
        self._session = _Session()
        self._finalizer = weakref.finalize(self, self._session.close)
        if "HARPE_STEP_MEMORY" in os.environ:
            self._stay_away("the command that runs this program tunes the GPUs", logging.INFO)
            return
        _end_latest(self)
        self._start(options, gpu_indices)

    def _start(self, options: b.harpe_tuning_options, indices: Optional[Sequence[int]]) -> None:
        try:
            self._session.start(options, indices)
        except InvalidArgumentError:
            raise
        except HarpeError as error:
            is_first = _number("LOCAL_RANK", 0) == 0
            self._stay_away(str(error), logging.WARNING if is_first else logging.INFO)
            return
        torch = sys.modules.get("torch")
        if torch is None or options.rate_url or options.rate_file:
            return
        from harpe._run import counter
        try:
            counter.count_work(torch)
        except Exception as error:
            logging.getLogger(_LOGGER).warning("PyTorch's steps are not counted: %s", error)

    def _stay_away(self, why: str, level: int) -> None:
        self._session.last = TuningReport("stopped", reason=why)
        logging.getLogger(_LOGGER).log(level, "the GPUs are not tuned here: %s", why)

    def report(self) -> TuningReport:
        """Returns what is known now, or was known at the end."""
        return self._session.report()

    def close(self) -> None:
        """Ends the tuning, and restores the GPUs. A second call does nothing."""
        self._session.close()

    def __enter__(self) -> Tuning:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end_latest(new: Tuning) -> None:
    """Ends the tuning before. Each of two would measure what the other changes."""
    global _latest
    before = _latest() if _latest is not None else None
    if before is not None and before._session.tuning is not None:
        logging.getLogger(_LOGGER).warning("an earlier tuning of this program ends here")
        before.close()
    _latest = weakref.ref(new)


def tune(*arguments: Any, **options: Any) -> Tuning:
    """Starts to tune this program's GPUs, with the arguments of Tuning, which it returns:

        with harpe.tune(max_slowdown=0.02):
            train()
    """
    return Tuning(*arguments, **options)


def step(units: int = 1) -> None:
    """Counts finished units of work, such as steps or tokens, for the tuning of this process, or of
    the command `harpe tune` or `harpe power-limit run` that runs it. Without both it does nothing.
    Any thread may call it, and it never waits. From the first call on, only these units count."""
    lib.harpe_tune_mark(None, units)
