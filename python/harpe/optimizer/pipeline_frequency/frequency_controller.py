# SPDX-License-Identifier: Apache-2.0
"""FrequencyController sets a GPU's clock from a process of its own. PipelineFrequencyOptimizer has
one inside; this class is for a training loop that chooses the clocks itself."""
from __future__ import annotations

import ctypes as C
import weakref

from harpe import _bindings as b
from harpe._library import (InvalidArgumentError, abandon_in_children, call,
                            call_at_end_of_worker, lib, log_to)
from harpe.device.gpu import GPUs

__all__ = ["FrequencyController"]

_LOGGER = "harpe.frequency_controller"


class _Handle:
    """Holds the C controller and its GPU while they exist."""

    def __init__(self, device_id: int) -> None:
        self._gpus = GPUs()
        controller = C.c_void_p()
        call(lib.harpe_frequency_controller_start, C.byref(b.harpe_frequency_controller_options(
            gpus=self._gpus.handle, gpu=device_id, log=log_to(_LOGGER))), C.byref(controller))
        self.controller = controller.value
        abandon_in_children(self)

    def close(self) -> None:
        controller, self.controller = self.controller, None
        if controller:
            lib.harpe_frequency_controller_stop(controller)

    def abandon(self) -> None:
        self.controller = None


class FrequencyController:
    """Sets the clock of one GPU. It starts at the GPU's highest clocks. The original clocks are
    restored by end(), when the object is garbage collected, and at the end of the process, also if
    the process is killed."""

    def __init__(self, device_id: int = 0) -> None:
        """device_id: the GPU, an index among the visible ones.

        Raises PermissionError if the process may not set clocks; ValueError if there is no such
        GPU; HarpeError for other failures.
        """
        self._handle = _Handle(device_id)
        self._finalizer = weakref.finalize(self, self._handle.close)
        call_at_end_of_worker(self._handle.close)

    def set_frequency(self, frequency: int) -> None:
        """Requests a clock in MHz, and does not wait for it; 0 leaves the clock alone. Raises
        ValueError for a number that is no clock."""
        frequency = int(frequency)
        if not 0 <= frequency <= 1000000:
            raise InvalidArgumentError(f"a clock has 0 to 1000000 MHz, not {frequency}",
                                       b.HARPE_INVALID_ARGUMENT)
        if self._handle.controller:
            lib.harpe_frequency_controller_set(self._handle.controller, frequency)

    def end(self) -> None:
        """Restores the GPU's clocks, which takes at most 3 s. Later calls do nothing."""
        self._handle.close()
