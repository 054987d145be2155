# SPDX-License-Identifier: Apache-2.0
"""The CPU packages of this machine and their energy."""
from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import List, Optional

from harpe import _bindings as b
from harpe._library import InvalidArgumentError
from harpe.monitor.energy import ZeusMonitor

__all__ = ["CPUs", "CpuDramMeasurement", "get_cpus"]


@dataclass
class CpuDramMeasurement:
    """The energy of a CPU package.

    cpu_mj: mJ of the package.
    dram_mj: mJ of its DRAM; None if it is not measured.
    """

    cpu_mj: float
    dram_mj: Optional[float] = None

    def __sub__(self, other: CpuDramMeasurement) -> CpuDramMeasurement:
        known = self.dram_mj is not None and other.dram_mj is not None
        return CpuDramMeasurement(self.cpu_mj - other.cpu_mj,
                                  self.dram_mj - other.dram_mj if known else None)  # type: ignore

    def __truediv__(self, other: float) -> CpuDramMeasurement:
        return CpuDramMeasurement(self.cpu_mj / other,
                                  None if self.dram_mj is None else self.dram_mj / other)


class CPUs:
    """The CPU packages whose energy can be read, by their indices from 0."""

    def __init__(self) -> None:
        self._monitor = ZeusMonitor(gpu_indices=[])
        self._count = len(self._monitor.cpu_indices)
        self._sums = [CpuDramMeasurement(0.0) for _ in range(self._count)]
        self._monitor.begin_window("0", sync_execution=False)
        self._window = 0
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __len__(self) -> int:
        return self._count

    def get_total_energy_consumption(self, index: int) -> CpuDramMeasurement:
        """Returns the energy since the first get_cpus()."""
        if not 0 <= index < self._count:
            raise InvalidArgumentError(f"there is no CPU package {index}: {self._count} found",
                                       b.HARPE_INVALID_ARGUMENT)
        with self._lock:
            self._window += 1  # the next window begins before the last one ends
            self._monitor.begin_window(str(self._window), sync_execution=False)
            measured = self._monitor.end_window(str(self._window - 1), sync_execution=False)
            for cpu, total in enumerate(self._sums):
                total.cpu_mj += 1000 * (measured.cpu_energy or {})[cpu]
                dram_j = (measured.dram_energy or {}).get(cpu)
                if dram_j is not None:
                    total.dram_mj = (total.dram_mj or 0.0) + 1000 * dram_j
            return CpuDramMeasurement(self._sums[index].cpu_mj, self._sums[index].dram_mj)

    def supports_get_dram_energy_consumption(self, index: int) -> bool:
        """Returns true if the energy of the package's DRAM is measured."""
        return self.get_total_energy_consumption(index).dram_mj is not None


_shared: List[CPUs] = []


def get_cpus() -> CPUs:
    """Returns the CPU packages, the same object at each call in a process. If no package can be read,
    its length is 0."""
    if not _shared or _shared[0]._process != os.getpid():
        _shared[:] = [CPUs()]
    return _shared[0]
