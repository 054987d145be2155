# SPDX-License-Identifier: Apache-2.0
"""The temperature of GPUs over time, sampled on a thread."""
from __future__ import annotations

import weakref
from typing import Dict, List, Optional

from harpe.device.gpu import GPUs
from harpe.monitor._sampling import Sampler, Timeline, choose_gpus

__all__ = ["TemperatureMonitor"]

_SERIES = "temperature"


class TemperatureMonitor:
    """Samples the temperature of GPUs in degrees Celsius, from its construction to stop(). Times are
    those of time.time(). A timeline contains changes only: a temperature holds until the next one.

    gpu_indices: the GPUs.
    """

    def __init__(self, gpu_indices: Optional[List[int]] = None, update_period: float = 1.0,
                 max_samples_per_gpu: Optional[int] = None) -> None:
        """gpu_indices: None: all visible GPUs.
        update_period: s between two samples.
        max_samples_per_gpu: older samples of a GPU are dropped; None: none is dropped.

        Raises ValueError for a GPU that does not exist; UnavailableError without a GPU.
        """
        gpus = GPUs()
        self.gpu_indices = choose_gpus(gpus, gpu_indices)
        self.update_period = update_period
        self._sampler = Sampler(gpus, self.gpu_indices, {_SERIES: gpus.get_gpu_temperature},
                                update_period, max_samples_per_gpu)
        self._finalizer = weakref.finalize(self, self._sampler.end)

    def stop(self) -> None:
        """Ends the sampling. The samples stay."""
        self._finalizer()

    def get_temperature_timeline(self, gpu_index: Optional[int] = None,
                                 start_time: Optional[float] = None,
                                 end_time: Optional[float] = None) -> Dict[int, Timeline]:
        """Returns {GPU: [(time, degrees), ...]}, between two times if they are given, of one GPU or
        of all (None)."""
        return {index: self._sampler.timeline(_SERIES, index, start_time, end_time)
                for index in self.gpu_indices if gpu_index in (None, index)}

    def get_temperature(self, time: Optional[float] = None) -> Optional[Dict[int, int]]:
        """Returns {GPU: degrees} at this time, or at the last sample; None without a sample."""
        found = {index: self._sampler.value_at(_SERIES, index, time) for index in self.gpu_indices}
        if None in found.values():
            return None
        return {index: int(degrees) for index, degrees in found.items() if degrees is not None}
