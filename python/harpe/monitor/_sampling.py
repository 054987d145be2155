# SPDX-License-Identifier: Apache-2.0
"""Samples values of GPUs on a thread, for PowerMonitor and TemperatureMonitor."""
from __future__ import annotations

import bisect
import collections
import logging
import threading
import time
from typing import Any, Callable, Deque, Dict, Hashable, List, Optional, Sequence, Set, Tuple

from harpe import _bindings as b
from harpe._library import (HarpeError, InvalidArgumentError, abandon_in_children,
                            call_at_end_of_worker)
from harpe.device.gpu import GPUs

_LOGGER = "harpe.monitor"

Timeline = List[Tuple[float, float]]  # (s since 1970, value), oldest first
Reader = Callable[[int], float]
Samples = Dict[int, Deque[Tuple[float, float]]]


def choose_gpus(gpus: GPUs, gpu_indices: Optional[Sequence[int]]) -> List[int]:
    """Returns the indices; None stands for all GPUs. Raises ValueError if there is none, or if one
    does not exist."""
    chosen = list(range(len(gpus))) if gpu_indices is None else list(gpu_indices)
    if not chosen:
        raise InvalidArgumentError("gpu_indices must name a GPU, or be None for all of them",
                                   b.HARPE_INVALID_ARGUMENT)
    beyond = [index for index in chosen if not 0 <= index < len(gpus)]
    if beyond:
        raise InvalidArgumentError(f"there is no GPU {beyond[0]}: {len(gpus)} visible here",
                                   b.HARPE_INVALID_ARGUMENT)
    return chosen


class Sampler:
    """Reads series of values every `period_s` on a thread of its own. A value is recorded when it
    differs from the one before; until the next one it holds. It has no reference to its owner, so
    that the owner can be garbage collected."""

    def __init__(self, gpus: GPUs, indices: Sequence[int], series: Dict[Hashable, Reader],
                 period_s: float, maximum: Optional[int]) -> None:
        if not period_s > 0:
            raise InvalidArgumentError(f"update_period must be above 0, not {period_s}",
                                       b.HARPE_INVALID_ARGUMENT)
        self.samples: Dict[Hashable, Samples] = {
            name: {index: collections.deque(maxlen=maximum) for index in indices}
            for name in series}
        self._gpus, self._series, self._period_s = gpus, series, period_s
        self._lock = threading.Lock()
        self._is_ended = threading.Event()
        self._failing: Set[Any] = set()  # series that the last read could not read
        self._read_at: Dict[Any, float] = {}  # time of the last read
        abandon_in_children(self)
        call_at_end_of_worker(self.end)  # the GPUs are closed then
        self._look()
        self._thread = threading.Thread(target=self._run, name="harpe-sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_ended.wait(self._period_s):
            self._look()

    def _look(self) -> None:
        for name, read in self._series.items():
            for index, samples in self.samples[name].items():
                try:
                    value = read(index)
                except HarpeError as error:
                    if (name, index) not in self._failing:
                        logging.getLogger(_LOGGER).warning("GPU %d: %s is not sampled: %s", index,
                                                           name, error)
                    self._failing.add((name, index))
                    continue
                self._failing.discard((name, index))
                with self._lock:
                    now = self._read_at[name, index] = time.time()
                    if not samples or samples[-1][1] != value:
                        samples.append((now, value))

    def abandon(self) -> None:
        """In a forked child, which has no thread and may have a copy of a held lock."""
        self._lock = threading.Lock()
        self._is_ended.set()

    def end(self) -> None:
        self._is_ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def timeline(self, name: Hashable, index: int, start: Optional[float] = None,
                 end: Optional[float] = None) -> Timeline:
        """Returns the samples between two times."""
        with self._lock:
            found = list(self.samples[name].get(index, ()))
        return [one for one in found if (start is None or one[0] >= start)
                and (end is None or one[0] <= end)]

    def value_at(self, name: Hashable, index: int, at: Optional[float]) -> Optional[float]:
        """Returns the value that held at this time, or the last value; None without a sample. Before
        the first sample, its value is returned."""
        if at is None:
            with self._lock:
                samples = self.samples[name][index]
                return samples[-1][1] if samples else None
        found = self.timeline(name, index)
        if not found:
            return None
        return found[max(0, bisect.bisect_right([moment for moment, _ in found], at) - 1)][1]

    def integral(self, name: Hashable, index: int, start: float, end: float) -> float:
        """Returns the sum of value times duration, from `start` to `end`. A value holds until the
        next one, the last one until a period after the last read."""
        found = self.timeline(name, index)
        last = min(time.time(), self._read_at.get((name, index), start) + self._period_s)
        ends = [moment for moment, _ in found[1:]] + [last]
        return sum(value * max(0.0, min(until, end) - max(since, start))
                   for (since, value), until in zip(found, ends))
