# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this machine: one call for each value or setting."""
from __future__ import annotations

import ctypes as C
import logging
import weakref
from typing import Any, Callable, List, Optional, Tuple

from harpe import _bindings as b
from harpe._library import (UnavailableError, _free, abandon_in_children, call,
                            call_at_end_of_worker, lib, log_to)

__all__ = ["GPUs", "get_gpus"]

_LOGGER = "harpe.device"


class GPUs:
    """The visible GPUs, by their indices from 0. Powers are in mW, energies in mJ, clocks in MHz.

    The object restores the settings that it has changed when it is garbage collected and at the end
    of the process. If the process is killed, nothing restores them. A call that the driver refuses raises
    PermissionError; a call that the GPU does not support raises UnavailableError. In a forked child
    every call raises UnavailableError. Do not change here what an optimizer of Harpe changes at the
    same time: each of the two restores what it found.

    The setters return when the driver has answered, and ignore their argument `block`.
    """

    def __init__(self, ensure_homogeneous: bool = False) -> None:
        """ensure_homogeneous: raises ValueError if the GPUs are not all of one model."""
        self._gpus = C.c_void_p()
        call(lib.harpe_gpus_open, C.byref(b.harpe_gpus_options(log=log_to(_LOGGER))),
             C.byref(self._gpus))
        self._finalizer = weakref.finalize(self, _restore_and_close, self._gpus)
        call_at_end_of_worker(self._finalizer)
        abandon_in_children(self)
        if ensure_homogeneous:
            self._call(lib.harpe_gpus_check_same_model)

    def abandon(self) -> None:
        """Forgets the GPUs in a forked child: they belong to the parent."""
        self._finalizer.detach()

    @property
    def handle(self) -> C.c_void_p:
        """Returns the harpe_gpus of C. Raises UnavailableError if this process does not have it."""
        if not self._finalizer.alive:
            raise UnavailableError("these GPUs were closed, or belong to another process: call "
                                   "get_gpus() here", b.HARPE_UNAVAILABLE)
        return self._gpus

    def _call(self, function: Any, *arguments: Any) -> None:
        call(function, self.handle, *arguments)

    def _read(self, function: Any, gpu_index: int, kind: Any = C.c_uint32) -> Any:
        value = kind()
        self._call(function, gpu_index, C.byref(value))
        return value.value

    def _list(self, function: Any, *arguments: Any) -> List[int]:
        values, count = C.POINTER(C.c_uint32)(), C.c_size_t()
        self._call(function, *arguments, C.byref(values), C.byref(count))
        try:
            return [int(value) for value in values[:count.value]]
        finally:
            _free(C.cast(values, C.c_void_p))

    def __len__(self) -> int:
        return int(lib.harpe_gpus_count(self.handle))

    # ---- Reading ----

    def get_name(self, gpu_index: int) -> str:
        """Returns the GPU's model."""
        self._call(lib.harpe_gpu_current_clocks, gpu_index, None, None)  # checks the index
        return str(lib.harpe_gpu_info_at(self.handle, gpu_index).contents.name.decode())

    def get_power_management_limit_constraints(self, gpu_index: int) -> Tuple[int, int]:
        """Returns the lowest and the highest power limit."""
        least, most = C.c_uint32(), C.c_uint32()
        self._call(lib.harpe_gpu_power_limit_range, gpu_index, C.byref(least), C.byref(most))
        return least.value, most.value

    def get_power_management_limit(self, gpu_index: int) -> int:
        """Returns the power limit."""
        return int(self._read(lib.harpe_gpu_power_limit, gpu_index))

    def get_persistence_mode(self, gpu_index: int) -> bool:
        """Returns true if persistence mode is on."""
        return bool(self._read(lib.harpe_gpu_persistence_mode, gpu_index, C.c_bool))

    def get_supported_memory_clocks(self, gpu_index: int) -> List[int]:
        """Returns the memory clocks, highest first."""
        return self._list(lib.harpe_gpu_memory_clocks, gpu_index)

    def get_supported_graphics_clocks(self, gpu_index: int,
                                      memory_clock_mhz: Optional[int] = None) -> List[int]:
        """Returns the graphics clocks at a memory clock, highest first; None: the highest one."""
        if memory_clock_mhz is None:
            memory_clock_mhz = max(self.get_supported_memory_clocks(gpu_index))
        return self._list(lib.harpe_gpu_graphics_clocks, gpu_index, memory_clock_mhz)

    def get_instant_power_usage(self, gpu_index: int) -> int:
        """Returns the present power."""
        return int(self._read(lib.harpe_gpu_instant_power, gpu_index))

    def get_average_power_usage(self, gpu_index: int) -> int:
        """Returns the mean power of the last second, or what the GPU averages."""
        return int(self._read(lib.harpe_gpu_average_power, gpu_index))

    def supports_get_total_energy_consumption(self, gpu_index: int) -> bool:
        """Returns true if the GPU has an energy counter."""
        return is_supported(self.get_total_energy_consumption, gpu_index)

    def get_total_energy_consumption(self, gpu_index: int) -> int:
        """Returns the energy since the driver was loaded."""
        return int(self._read(lib.harpe_gpu_total_energy, gpu_index, C.c_uint64))

    def get_gpu_temperature(self, gpu_index: int) -> int:
        """Returns the temperature in degrees Celsius."""
        return int(self._read(lib.harpe_gpu_temperature, gpu_index))

    # ---- Setting ----

    def set_power_management_limit(self, gpu_index: int, power_limit_mw: int,
                                   block: bool = True) -> None:
        """Sets the power limit."""
        self._call(lib.harpe_gpu_set_power_limit, gpu_index, power_limit_mw)

    def reset_power_management_limit(self, gpu_index: int, block: bool = True) -> None:
        """Sets the GPU's default power limit."""
        default_mw = self._read(lib.harpe_gpu_default_power_limit, gpu_index)
        self.set_power_management_limit(gpu_index, default_mw)

    def set_persistence_mode(self, gpu_index: int, enabled: bool, block: bool = True) -> None:
        """Turns persistence mode on or off."""
        self._call(lib.harpe_gpu_set_persistence_mode, gpu_index, enabled)

    def set_memory_locked_clocks(self, gpu_index: int, min_clock_mhz: int, max_clock_mhz: int,
                                 block: bool = True) -> None:
        """Locks the memory clock to a range."""
        self._call(lib.harpe_gpu_lock_memory_clocks, gpu_index, min_clock_mhz, max_clock_mhz)

    def reset_memory_locked_clocks(self, gpu_index: int, block: bool = True) -> None:
        """Unlocks the memory clock."""
        self._call(lib.harpe_gpu_reset_memory_clocks, gpu_index)

    def set_gpu_locked_clocks(self, gpu_index: int, min_clock_mhz: int, max_clock_mhz: int,
                              block: bool = True) -> None:
        """Locks the graphics clock to a range."""
        self._call(lib.harpe_gpu_lock_graphics_clocks, gpu_index, min_clock_mhz, max_clock_mhz)

    def reset_gpu_locked_clocks(self, gpu_index: int, block: bool = True) -> None:
        """Unlocks the graphics clock."""
        self._call(lib.harpe_gpu_reset_graphics_clocks, gpu_index)


def is_supported(read: Callable[[int], Any], gpu_index: int) -> bool:
    """Returns true if the GPU has the value that `read` reads."""
    try:
        read(gpu_index)
    except UnavailableError as error:
        if error.status != b.HARPE_NOT_SUPPORTED:
            raise
        return False
    return True


def _restore_and_close(gpus: C.c_void_p) -> None:
    error = b.harpe_error()
    if lib.harpe_gpus_restore(gpus, C.byref(error)) != b.HARPE_OK:
        logging.getLogger(_LOGGER).warning("%s", error.message.decode("utf-8", "replace"))
    lib.harpe_gpus_close(gpus)


_shared: List[GPUs] = []


def get_gpus(ensure_homogeneous: bool = False) -> GPUs:
    """Returns the visible GPUs, the same object at each call.

    ensure_homogeneous: raises ValueError if they are not all of one model.

    Raises UnavailableError if there is no GPU or no driver.
    """
    if not _shared or not _shared[0]._finalizer.alive:
        _shared[:] = [GPUs()]
    if ensure_homogeneous:
        _shared[0]._call(lib.harpe_gpus_check_same_model)
    return _shared[0]
