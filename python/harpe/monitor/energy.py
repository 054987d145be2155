# SPDX-License-Identifier: Apache-2.0
"""Measures time and energy of any part of a program, on GPUs and CPUs, in windows. libharpe reads
some counters at the beginning and at the end of a window. In between, a window costs nothing.

    monitor = ZeusMonitor(gpu_indices=[0])
    monitor.begin_window("epoch")
    train()
    measurement = monitor.end_window("epoch")
    print(measurement.time, measurement.total_energy)
"""
from __future__ import annotations

import ctypes as C
import logging
import math
import operator
import os
import weakref
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Set, Union

from harpe import _bindings as b
from harpe._cuda import Synchronizer, synchronizer
from harpe._library import (InvalidArgumentError, NotFoundError, UnavailableError,
                            abandon_in_children, call, encoded, lib, log_to)

__all__ = ["EnergyMonitor", "Measurement", "ZeusMonitor"]

_LOGGER = "harpe.monitor"
_RAPL_PATH: Optional[bytes] = None  # None: /sys/class/powercap


@dataclass
class Measurement:
    """The time and energy of a window.

    time: seconds.
    gpu_energy: J of each GPU, by its index.
    cpu_energy: J of each CPU package, by its index; None where it cannot be measured.
    dram_energy: J of the DRAM of those packages that measure it; None where none does.
    soc_energy: always None: Harpe does not measure systems on a chip.
    """

    time: float
    gpu_energy: Dict[int, float]
    cpu_energy: Optional[Dict[int, float]] = None
    dram_energy: Optional[Dict[int, float]] = None
    soc_energy: Optional[Any] = None

    @property
    def total_energy(self) -> float:
        """Returns the energy of all GPUs together, in J."""
        return sum(self.gpu_energy.values())


class _NoSuchGpuError(InvalidArgumentError, IndexError):
    """An index beyond the visible GPUs. Zeus raises IndexError."""


class _NoGpusError(UnavailableError, ValueError):
    """GPUs were asked for by index and none can be measured. Zeus raises ValueError."""


for _private, _shown in ((_NoSuchGpuError, InvalidArgumentError), (_NoGpusError, UnavailableError)):
    _private.__module__, _private.__name__ = _shown.__module__, _shown.__name__
    _private.__qualname__ = _shown.__qualname__  # Tracebacks show the names that users catch.


class _Windows:
    """Holds the C monitor and its GPUs, which this process owns. It has no reference to its owner,
    so that it can live longer than the owner, until the end of the process."""

    def __init__(self) -> None:
        self.gpus: Optional[int] = None
        self.monitor: Optional[int] = None
        self.names: Set[str] = set()  # keys of open windows
        abandon_in_children(self)

    def open_gpus(self, log: b.harpe_log) -> int:
        """Opens the GPUs and returns their number."""
        gpus = C.c_void_p()
        call(lib.harpe_gpus_open, C.byref(b.harpe_gpus_options(log=log)), C.byref(gpus))
        self.gpus = gpus.value
        return int(lib.harpe_gpus_count(self.gpus))

    def open(self, options: b.harpe_monitor_options) -> None:
        monitor = C.c_void_p()
        call(lib.harpe_monitor_new, C.byref(options), C.byref(monitor))
        self.monitor = monitor.value

    def close(self) -> None:
        monitor, self.monitor = self.monitor, None
        gpus, self.gpus = self.gpus, None
        self.names.clear()
        if monitor:
            lib.harpe_monitor_free(monitor)
        if gpus:
            lib.harpe_gpus_close(gpus)

    def abandon(self) -> None:
        self.monitor = self.gpus = None


def _cpu_count(log: b.harpe_log) -> int:
    """Opens the CPU packages whose energy can be read. If there is none, the log says why."""
    windows = _Windows()
    measured = b.harpe_window_measurement()
    try:
        windows.open(b.harpe_monitor_options(with_cpu=True, rapl_path=_RAPL_PATH, log=log))
        call(lib.harpe_monitor_begin, windows.monitor, b"count", False)
        call(lib.harpe_monitor_end, windows.monitor, b"count", False, C.byref(measured))
        return int(measured.cpu_count)
    finally:
        lib.harpe_window_measurement_clear(C.byref(measured))
        windows.close()


class ZeusMonitor:
    """Measures time and energy of windows, which may overlap and nest. Any thread may call it.

    It belongs to the process that created it. In a forked child, and in a process that has
    unpickled a copy (the spawned worker of a data loader), it touches nothing: begin_window and
    end_window raise UnavailableError there.

    gpu_indices: the GPUs that are measured, as the process counts them (CUDA_VISIBLE_DEVICES).
    cpu_indices: the CPU packages that are measured.
    """

    _windows: Optional[_Windows] = None
    _synchronize: Optional[Synchronizer] = None

    def __init__(self, gpu_indices: Optional[Sequence[int]] = None,
                 cpu_indices: Optional[Sequence[int]] = None, approx_instant_energy: bool = False,
                 log_file: Union[str, "os.PathLike[str]", None] = None,
                 sync_execution_with: Union[str, Synchronizer, None] = "torch") -> None:
        """gpu_indices: GPUs to measure, as the process counts them; None: all. If none can be
            measured, a warning in the log says why, and gpu_energy is empty.
        cpu_indices: CPU packages to measure (RAPL); None: all that can be read; []: none.
        approx_instant_energy: a window in which a GPU's energy counter did not move gets power *
            time for that GPU; otherwise 0 J and a warning in the log.
        log_file: CSV file with a line for each ended window: start_time, window_name,
            elapsed_time, gpu0_energy, ... (s and J). An existing file is emptied, and a missing
            directory is created.
        sync_execution_with: the framework that waits, at the beginning and the end of a window,
            until the GPUs have finished all work: "torch", "jax", "cupy", a callable that receives
            the list of GPU indices, or None.

        Raises ValueError for indices that do not exist (the error is also an IndexError if they are
        beyond the last GPU), for indices that occur twice, for indices if no GPU can be measured,
        and for an unknown sync_execution_with. Raises TypeError for indices that are not whole
        numbers, and HarpeError if the driver refuses a call.
        """
        self._synchronize = synchronizer(sync_execution_with)
        self.sync_with = sync_execution_with
        self.approx_instant_energy = approx_instant_energy
        log = log_to(_LOGGER)
        windows = self._windows = _Windows()
        self._finalizer = weakref.finalize(self, windows.close)
        self.gpu_indices: List[int] = self._choose_gpus(windows, gpu_indices, log)
        self.cpu_indices: List[int] = self._choose_cpus(cpu_indices, log)
        if log_file is not None:
            os.makedirs(os.path.dirname(os.path.abspath(log_file)), exist_ok=True)
        self.log_file = log_file
        windows.open(b.harpe_monitor_options(
            gpus=windows.gpus, gpu_indices=(C.c_int * len(self.gpu_indices))(*self.gpu_indices),
            gpu_count=len(self.gpu_indices), with_cpu=bool(self.cpu_indices),
            rapl_path=_RAPL_PATH, approximate_instant_energy=approx_instant_energy,
            log_path=encoded(log_file), log=log))

    @staticmethod
    def _choose_gpus(windows: _Windows, indices: Optional[Sequence[int]],
                     log: b.harpe_log) -> List[int]:
        if indices is not None and len(indices) == 0:
            return []
        try:
            count = windows.open_gpus(log)
        except UnavailableError as error:
            if indices is not None:
                raise _NoGpusError(str(error), error.status, error.vendor_code) from None
            logging.getLogger(_LOGGER).warning(
                "no GPU can be measured, and results have no GPU energy: %s; pass gpu_indices=[] "
                "if this is intended", error)
            return []
        if indices is None:
            return list(range(count))
        chosen = [operator.index(index) for index in indices]
        beyond = [index for index in chosen if index >= count]
        if beyond:
            raise _NoSuchGpuError(f"there is no GPU {beyond[0]} to monitor: {count} visible here",
                                  b.HARPE_INVALID_ARGUMENT)
        return chosen

    @staticmethod
    def _choose_cpus(indices: Optional[Sequence[int]], log: b.harpe_log) -> List[int]:
        if indices is not None and len(indices) == 0:
            return []
        count = _cpu_count(log)
        chosen = list(range(count)) if indices is None else [int(index) for index in indices]
        wrong = [cpu for cpu in chosen if not 0 <= cpu < count]
        if wrong:
            raise InvalidArgumentError(
                f"there is no CPU package {wrong[0]} whose energy can be read: {count} found; pass "
                "cpu_indices=[] to measure no CPU", b.HARPE_INVALID_ARGUMENT)
        return chosen

    def _live(self) -> _Windows:
        windows = self._windows
        if windows is None or windows.monitor is None:
            raise UnavailableError("this monitor was closed, or belongs to another process: make "
                                   "a new one here", b.HARPE_UNAVAILABLE)
        return windows

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Begins the window named `key`.

        sync_execution: first waits until the GPUs have finished all work.
        restart: discards an open window of that name; without it such a window is a ValueError.
        """
        windows = self._live()
        if key in windows.names and not restart:
            raise InvalidArgumentError(f"window {key!r} is already open: end it, cancel it or "
                                       "restart it", b.HARPE_ALREADY_EXISTS)
        if sync_execution and self._synchronize is not None and self.gpu_indices:
            self._synchronize(self.gpu_indices)
        call(lib.harpe_monitor_begin, windows.monitor, encoded(key), restart)
        windows.names.add(key)

    def end_window(self, key: str, sync_execution: bool = True,
                   cancel: bool = False) -> Measurement:
        """Ends the window named `key` and returns its time and energy.

        sync_execution: waits first until the GPUs have done all work.
        cancel: discards the window: nothing is logged, and time and energies are 0.

        Raises ValueError when no window of that name is open; HarpeError when its energy is not
        known (a GPU lost, a driver reloaded).
        """
        windows = self._live()
        if key not in windows.names:
            raise InvalidArgumentError(f"window {key!r} is not open: it was never begun, or has "
                                       "ended", b.HARPE_NOT_FOUND)
        if sync_execution and self._synchronize is not None and self.gpu_indices:
            self._synchronize(self.gpu_indices)
        measured = b.harpe_window_measurement()
        windows.names.discard(key)
        try:
            call(lib.harpe_monitor_end, windows.monitor, encoded(key), cancel, C.byref(measured))
        except NotFoundError as error:
            raise InvalidArgumentError(str(error), error.status) from None
        if cancel:
            return Measurement(0.0, dict.fromkeys(self.gpu_indices, 0.0),
                               dict.fromkeys(self.cpu_indices, 0.0) or None)
        try:
            return self._measurement(measured)
        finally:
            lib.harpe_window_measurement_clear(C.byref(measured))

    def reset_windows(self) -> None:
        """Discards all open windows, as end_window(cancel=True) discards one."""
        windows = self._live()
        dropped = sorted(windows.names)
        for key in dropped:
            windows.names.discard(key)
            measured = b.harpe_window_measurement()
            try:
                call(lib.harpe_monitor_end, windows.monitor, encoded(key), True, C.byref(measured))
            except NotFoundError:  # another thread has ended it in the meantime
                pass
        logging.getLogger(_LOGGER).info("discarded the open windows: %s", dropped)

    def _measurement(self, measured: b.harpe_window_measurement) -> Measurement:
        gpu_energy = dict(zip(self.gpu_indices, measured.gpu_energy_j[:measured.gpu_count]))
        if not self.cpu_indices:
            return Measurement(measured.time_s, gpu_energy)
        dram_energy = {cpu: measured.dram_energy_j[cpu] for cpu in self.cpu_indices
                       if not math.isnan(measured.dram_energy_j[cpu])}
        return Measurement(measured.time_s, gpu_energy,
                           {cpu: measured.cpu_energy_j[cpu] for cpu in self.cpu_indices},
                           dram_energy or None)

    def close(self) -> None:
        """Discards open windows and releases the GPUs. This also happens when the monitor is
        garbage collected and at the end of the process."""
        if self._windows is not None:
            self._windows.close()

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


EnergyMonitor = ZeusMonitor
