# SPDX-License-Identifier: Apache-2.0
"""The common part of the callbacks that measure the energy of a training loop: windows of training
and of evaluation on this rank's GPUs, and their sums over all ranks. Knows no particular framework.
A failed measurement is logged once. It never raises an exception, and no number is made up."""
from __future__ import annotations

import logging
import math
import sys
from dataclasses import asdict, dataclass, fields
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from harpe import distributed
from harpe._library import log_to
from harpe.monitor.energy import Measurement, ZeusMonitor, _Windows

LOGGER = "harpe.monitor"
TRAINING = "training"
EVALUATION = "evaluation"
STANDS_STILL_S = 1.0  # energy counters move every 10 to 100 ms


@dataclass
class EnergyTotals:
    """What a job has used, all ranks together.

    energy_j, time_s: of the training. Each second counts once, however many GPUs there are.
    evaluation_energy_j, evaluation_time_s: of evaluations during the training.
    tokens, samples: on which the job has trained; 0 or NaN if they are not known.
    """

    energy_j: float = 0.0
    time_s: float = 0.0
    evaluation_energy_j: float = 0.0
    evaluation_time_s: float = 0.0
    tokens: float = 0.0
    samples: float = 0.0

    def __add__(self, other: EnergyTotals) -> EnergyTotals:
        return EnergyTotals(*(a + b for a, b in zip(_values(self), _values(other))))

    def __sub__(self, other: EnergyTotals) -> EnergyTotals:
        return EnergyTotals(*(a - b for a, b in zip(_values(self), _values(other))))

    def saved(self) -> Dict[str, float]:
        """Returns the totals for a checkpoint, with 0 for what is not known."""
        return {name: 0.0 if math.isnan(value) else value for name, value in asdict(self).items()}

    @classmethod
    def loaded(cls, saved: Any) -> EnergyTotals:
        """Returns the totals of a checkpoint; zeros if it has none. If it has impossible ones, one
        line says so."""
        known = saved if isinstance(saved, Mapping) else {}
        totals = {}
        for field in fields(cls):
            value = known.get(field.name, 0.0)
            try:
                totals[field.name] = float(value)
                is_possible = 0 <= totals[field.name] < math.inf
            except (TypeError, ValueError, OverflowError):
                is_possible = False
            if not is_possible:
                logging.getLogger(LOGGER).warning(
                    "the energies of the checkpoint cannot be read (%s is %.40r): they begin at 0; "
                    "training goes on", field.name, value)
                return cls()
        return cls(**totals)

    def rates(self, prefix: str = "") -> Dict[str, float]:
        """Returns power_w and energy_per_token_j (or energy_per_sample_j) of the training. What is
        not known is left out."""
        found = {}
        if self.time_s > 0:
            found[f"{prefix}power_w"] = self.energy_j / self.time_s
        if self.tokens > 0:
            found[f"{prefix}energy_per_token_j"] = self.energy_j / self.tokens
        elif self.samples > 0:
            found[f"{prefix}energy_per_sample_j"] = self.energy_j / self.samples
        return found


def _values(totals: EnergyTotals) -> Sequence[float]:
    return [getattr(totals, field.name) for field in fields(totals)]


def own_gpus(device: Any, local_rank: int, world_size: int) -> Optional[Sequence[int]]:
    """Returns the GPUs of this rank; None: all that it sees. `device` is the framework's device; on
    a CPU (with emulated GPUs) the local rank decides, if the job has several ranks."""
    if getattr(device, "type", None) == "cuda":
        cuda = sys.modules["torch"].cuda
        return [device.index if device.index is not None else cuda.current_device()]
    return [local_rank] if world_size > 1 else None


def visible_gpus() -> Sequence[int]:
    """Returns the indices of all GPUs that this process sees. Raises UnavailableError if there is
    none."""
    windows = _Windows()
    try:
        return list(range(windows.open_gpus(log_to(LOGGER))))
    finally:
        windows.close()


class Meter:
    """Measures one training after another. begin(), then switch() between training and evaluation,
    and end().

    totals: of the job, as of the last sync(). A resumed training sets it before begin().
    begun_with: the totals at begin().
    """

    def __init__(self, gpu_indices: Optional[Sequence[int]]) -> None:
        self.gpu_indices = gpu_indices
        self.totals = EnergyTotals()
        self.begun_with = EnergyTotals()
        self._logged = EnergyTotals()  # the totals of the last metrics()
        self._monitor: Optional[ZeusMonitor] = None
        self._phase: Optional[str] = None
        self._local = EnergyTotals()  # of this rank, since the last sync()
        self._is_running = self._can_measure = self._can_count = False
        self._still_s: Dict[int, float] = {}  # for how long a GPU's energy has not grown

    @property
    def is_running(self) -> bool:
        """Returns true between begin() and end()."""
        return self._is_running

    @property
    def can_measure(self) -> bool:
        """Returns true between begin() and end() while this rank measures."""
        return self._is_running and self._can_measure

    def begin(self, gpu_indices: Optional[Sequence[int]], phase: str = TRAINING) -> None:
        """A training begins, or a phase that stands alone. gpu_indices: the rank's GPUs if the user
        has named none; None: all."""
        self.end()
        self.begun_with = self._logged = self.totals
        self._local = EnergyTotals()
        self._is_running = self._can_measure = self._can_count = True
        self._still_s = {}
        chosen = gpu_indices if self.gpu_indices is None else self.gpu_indices
        try:
            # A short window gets power * time, because the energy counter may not have moved.
            self._monitor = ZeusMonitor(
                gpu_indices=visible_gpus() if chosen is None else chosen, cpu_indices=[],
                approx_instant_energy=True)
            self._can_measure = bool(self._monitor.gpu_indices)
        except Exception as error:
            self._fail("no energy is measured", error)
        self.switch(phase)

    def switch(self, phase: Optional[str]) -> None:
        """Training or evaluation begins. None: neither of them."""
        if not self._is_running or phase == self._phase:
            return
        self._close_window()
        self._phase = phase
        self._open_window()

    @property
    def phase(self) -> Optional[str]:
        return self._phase

    def count(self, tokens: float = 0, samples: float = 0) -> None:
        """Adds to what this rank has trained on."""
        self._local.tokens += tokens
        self._local.samples += samples

    def count_batch(self, size: Callable[[], Mapping[str, float]]) -> None:
        """Calls count() with what size() returns. If it raises, tokens and samples are not known
        from here on, because a part of them would give a wrong energy per token."""
        if not self._is_running:
            return
        try:
            found = {name: float(value) for name, value in size().items()}
        except Exception as error:
            if self._can_count:
                logging.getLogger(LOGGER).warning(
                    "tokens and samples are not known from here on: %s; training goes on",
                    " ".join(f"{type(error).__name__}: {error}".split()))
            self._can_count = False
            found = {"tokens": math.nan, "samples": math.nan}
        self.count(**found)

    def sync(self) -> bool:
        """Adds the measurements of all ranks to the totals. Every rank must call it. Returns false
        if no energy is known yet, or if a rank cannot measure; the totals are then unknown from
        here on."""
        if not self._is_running:
            return False
        phase = self._phase
        self._close_window()
        self._phase = phase
        self._open_window()
        local, self._local = self._local, EnergyTotals()
        try:
            failed, *sums = distributed.all_reduce(
                [0.0 if self._can_measure else 1.0, *_values(local)], "sum")
        except Exception as error:  # a peer is gone, and the framework will notice it
            self._fail("the ranks' energies cannot be added", error)
            failed = 1.0
        if failed:
            if self._can_measure:
                self._fail("no energy is logged from here on",
                           f"{failed:.0f} of the job's ranks cannot measure it")
            self._close()
            return False
        added = EnergyTotals(*sums)
        added.time_s /= distributed.world_size()
        added.evaluation_time_s /= distributed.world_size()
        self.totals = self.totals + added
        return self.totals.energy_j + self.totals.evaluation_energy_j > 0

    def run(self) -> EnergyTotals:
        """Returns the totals since begin(), without what a checkpoint had."""
        return self.totals - self.begun_with

    def metrics(self) -> Dict[str, float]:
        """Returns what a framework logs after a sync(): the energy until now, and the power and the
        energy per token since the last call."""
        found = {"energy_j": self.totals.energy_j, **(self.totals - self._logged).rates()}
        self._logged = self.totals
        if self.totals.evaluation_time_s > 0:
            found["evaluation_energy_j"] = self.totals.evaluation_energy_j
        return found

    def end(self) -> None:
        """The training has ended, or an exception has ended it. A second call does nothing."""
        if self._is_running:
            self._close()

    # ---- Windows ----

    def _open_window(self) -> None:
        if self._monitor is None or self._phase is None:
            return
        try:
            self._monitor.begin_window("training loop", restart=True)
        except Exception as error:
            self._fail("energy is not measured from here on", error)

    def _close_window(self) -> None:
        phase, self._phase = self._phase, None
        if self._monitor is None or phase is None:
            return
        try:
            measured = self._monitor.end_window("training loop")
        except Exception as error:
            self._fail("energy is not measured from here on", error)
            return
        fault = self._fault_of(measured)
        if fault:
            self._fail("energy is not measured from here on", fault)
        elif phase == TRAINING:
            self._local.energy_j += measured.total_energy
            self._local.time_s += measured.time
        else:
            self._local.evaluation_energy_j += measured.total_energy
            self._local.evaluation_time_s += measured.time

    def _fault_of(self, measured: Measurement) -> Optional[str]:
        """Returns why a window cannot be right, or None."""
        for gpu, energy_j in measured.gpu_energy.items():
            if not 0 <= energy_j < math.inf:
                return f"GPU {gpu}: a window of {measured.time:.3g} s took {energy_j:g} J"
            still_s = 0.0 if energy_j > 0 else self._still_s.get(gpu, 0.0) + measured.time
            self._still_s[gpu] = still_s
            if still_s >= STANDS_STILL_S:
                return f"GPU {gpu}: its energy has not grown in {still_s:.3g} s"
        return None

    def _fail(self, what: str, error: Any) -> None:
        if self._can_measure:
            logging.getLogger(LOGGER).warning("%s: %s; training goes on", what, error)
        self._can_measure = False
        self._close_monitor()

    def _close(self) -> None:
        self._is_running = False
        self._phase = None
        self._close_monitor()

    def _close_monitor(self) -> None:
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.close()

    def __getstate__(self) -> Dict[str, Any]:
        """A copy in another process has measured nothing and measures nothing until begin()."""
        return {**self.__dict__, "_monitor": None, "_phase": None, "_is_running": False}


def size_of(batch: Any) -> Dict[str, int]:
    """Returns the tokens and samples of a batch, as far as they are known: "input_ids" are tokens;
    the first dimension of a tensor, of a list's first tensor, or of a dictionary's first tensor
    counts samples."""
    if hasattr(batch, "keys"):
        tokens = batch["input_ids"] if "input_ids" in batch.keys() else None
        if hasattr(tokens, "numel"):
            return {"tokens": int(tokens.numel()), "samples": int(tokens.shape[0])}
        batch = [batch[name] for name in batch.keys()]
    if hasattr(batch, "shape"):
        return {"samples": int(batch.shape[0])} if len(batch.shape) > 0 else {}
    if isinstance(batch, (list, tuple)):
        for one in batch:
            found = size_of(one)
            if found:
                return found
    return {}
