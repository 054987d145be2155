# SPDX-License-Identifier: Apache-2.0
"""The power of GPUs over time, sampled on a thread. ZeusMonitor measures energy with the GPUs'
counters, which miss nothing between two samples; use it where energy is wanted."""
from __future__ import annotations

import enum
import weakref
from typing import Dict, List, Optional, Sequence, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError
from harpe.device.gpu import GPUs, is_supported
from harpe.monitor._sampling import Reader, Sampler, Timeline, choose_gpus

__all__ = ["PowerDomain", "PowerMonitor"]

_PERIOD_S = 0.1  # GPUs update their power every 20 to 100 ms


class PowerDomain(enum.Enum):
    """What is sampled: the present power of the GPU, or its mean over a time that depends on the
    GPU. Harpe does not measure the memory's power."""

    DEVICE_INSTANT = "device_instant"
    DEVICE_AVERAGE = "device_average"
    MEMORY_AVERAGE = "memory_average"


def _domain(name: Union[PowerDomain, str]) -> PowerDomain:
    try:
        return PowerDomain(name)
    except ValueError:
        known = ", ".join(one.value for one in PowerDomain)
        raise InvalidArgumentError(f"there is no power domain {name!r}: there are {known}",
                                   b.HARPE_INVALID_ARGUMENT) from None


class PowerMonitor:
    """Samples the power of GPUs from its construction to stop(). Powers are in W, times are those of
    time.time(). A timeline contains changes only: a power holds until the next one.

    gpu_indices: the GPUs.
    measurement_domains: the domains that are sampled.
    """

    def __init__(self, gpu_indices: Optional[List[int]] = None,
                 update_period: Optional[float] = None,
                 max_samples_per_gpu: Optional[int] = None,
                 power_domains: Optional[Sequence[Union[PowerDomain, str]]] = None) -> None:
        """gpu_indices: None: all visible GPUs.
        update_period: s between two samples; None: 0.1.
        max_samples_per_gpu: older samples of a GPU and domain are dropped; None: none is dropped.
        power_domains: None: all that the GPUs support.

        Raises ValueError for a GPU or a domain that does not exist or is not supported;
        UnavailableError without a GPU.
        """
        if power_domains is not None and not power_domains:
            raise InvalidArgumentError("power_domains must name a domain, or be None for all",
                                       b.HARPE_INVALID_ARGUMENT)
        gpus = GPUs()
        readers: Dict[PowerDomain, Reader] = {
            PowerDomain.DEVICE_INSTANT: gpus.get_instant_power_usage,
            PowerDomain.DEVICE_AVERAGE: gpus.get_average_power_usage}
        self.gpu_indices = choose_gpus(gpus, gpu_indices)
        supported = [domain for domain, read in readers.items()
                     if is_supported(read, self.gpu_indices[0])]
        wanted = supported if power_domains is None else [_domain(one) for one in power_domains]
        missing = [domain.value for domain in wanted if domain not in supported]
        if missing or not wanted:
            raise InvalidArgumentError(
                f"the power domain {(missing or ['device_instant'])[0]} is not supported here: "
                f"supported are {', '.join(one.value for one in supported) or 'none'}",
                b.HARPE_INVALID_ARGUMENT)
        self.measurement_domains = list(dict.fromkeys(wanted))
        self.update_period = _PERIOD_S if update_period is None else update_period
        self._sampler = Sampler(gpus, self.gpu_indices,
                                {domain: readers[domain] for domain in self.measurement_domains},
                                self.update_period, max_samples_per_gpu)
        self._finalizer = weakref.finalize(self, self._sampler.end)

    def stop(self) -> None:
        """Ends the sampling. The samples stay."""
        self._finalizer()

    def get_power_timeline(self, power_domain: Union[PowerDomain, str],
                           gpu_index: Optional[int] = None, start_time: Optional[float] = None,
                           end_time: Optional[float] = None) -> Dict[int, Timeline]:
        """Returns {GPU: [(time, W), ...]} of a domain, between two times if they are given, of one
        GPU or of all (None)."""
        domain = _domain(power_domain)
        if domain not in self.measurement_domains:
            sampled = ", ".join(one.value for one in self.measurement_domains)
            raise InvalidArgumentError(f"the power domain {domain.value} is not sampled: {sampled}",
                                       b.HARPE_INVALID_ARGUMENT)
        wanted = [index for index in self.gpu_indices if gpu_index in (None, index)]
        return {index: [(moment, power_mw / 1000) for moment, power_mw in
                        self._sampler.timeline(domain, index, start_time, end_time)]
                for index in wanted}

    def get_all_power_timelines(
            self, gpu_index: Optional[int] = None, start_time: Optional[float] = None,
            end_time: Optional[float] = None) -> Dict[str, Dict[int, Timeline]]:
        """Returns {domain: {GPU: [(time, W), ...]}}."""
        return {domain.value: self.get_power_timeline(domain, gpu_index, start_time, end_time)
                for domain in self.measurement_domains}

    def get_energy(self, start_time: float, end_time: float) -> Optional[Dict[int, float]]:
        """Returns {GPU: J} between two times. It uses the present power if that is sampled, otherwise
        the mean power. Time after stop() counts nothing. A change between two samples is noticed late, by up to
        `update_period`."""
        domain = self._domain_of_device()
        return {index: self._sampler.integral(domain, index, start_time, end_time) / 1000
                for index in self.gpu_indices}

    def get_power(self, time: Optional[float] = None) -> Optional[Dict[int, float]]:
        """Returns {GPU: W} at this time, or at the last sample; None without a sample."""
        domain = self._domain_of_device()
        powers = {index: self._sampler.value_at(domain, index, time) for index in self.gpu_indices}
        if None in powers.values():
            return None
        return {index: power_mw / 1000 for index, power_mw in powers.items()
                if power_mw is not None}

    def _domain_of_device(self) -> PowerDomain:
        instant = PowerDomain.DEVICE_INSTANT
        return instant if instant in self.measurement_domains else self.measurement_domains[0]
