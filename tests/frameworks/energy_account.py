# SPDX-License-Identifier: Apache-2.0
"""What the scripts of jobs whose training loop is measured share: the work of a step, the lines
that Harpe logs, and the emulator's own account of energy. The account brackets every window of a
Meter with the exact energy that the GPU had drawn: just before and just after the window was
opened, and again when it was closed. The measured energy lies between these bounds, however busy
the machine is."""
import contextlib
import ctypes
import logging
import os

LENGTH = 8  # of a sample
TRAINING_S, EVALUATION_S = 0.4, 0.8  # emulated work of a step
STEP_J = 25.0  # an A100's counter moves every 50 ms, and the GPU draws at most 400 W


class Lines(logging.Handler):
    """Keeps the lines that Harpe logs."""

    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("harpe").addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())


class Gpu:
    """The emulated GPU of this rank. The only rank of a job is charged for all GPUs that it sees,
    because there is no CUDA that says which of them it uses."""

    def __init__(self, index, world_size):
        self.index = index
        self.counted = [index] if world_size > 1 else range(4)
        self.library = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])
        self.library.harpe_emulator_now_ns.restype = ctypes.c_int64

    def work(self, full_speed_s):
        """Keeps the GPU busy for this emulated time."""
        assert self.try_to_work(full_speed_s) == 0

    def try_to_work(self, full_speed_s):
        """The same. Returns NVML's code."""
        return self.library.harpe_emulator_work(self.index, ctypes.c_double(full_speed_s),
                                                ctypes.c_double(1.0), None)

    def energy_j(self):
        total_j = 0.0
        for index in self.counted:
            energy = ctypes.c_double()
            now = ctypes.c_int64(self.library.harpe_emulator_now_ns())
            assert self.library.harpe_emulator_energy(index, now, ctypes.byref(energy)) == 0
            total_j += energy.value
        return total_j


class Account:
    """The bounds of what a Meter measures on one GPU, for each phase."""

    def __init__(self, gpu, meter):
        self.gpu, self.meter = gpu, meter
        self.step_j = STEP_J * len(gpu.counted)
        self.least = {"training": 0.0, "evaluation": 0.0}
        self.most = dict(self.least)
        self.loops_j = 0.0  # drawn inside of the evaluations' loops
        self._phase = self._opened = None
        self._open, self._close = meter._open_window, meter._close_window
        meter._open_window, meter._close_window = self._open_window, self._close_window

    def _open_window(self):
        before = self.gpu.energy_j()
        self._open()
        self._phase, self._opened = self.meter.phase, (before, self.gpu.energy_j())

    def _close_window(self):
        before = self.gpu.energy_j()
        self._close()
        if self._phase is not None:
            self.least[self._phase] += max(0, before - self._opened[1] - self.step_j)
            self.most[self._phase] += self.gpu.energy_j() - self._opened[0] + self.step_j
        self._phase = None

    @contextlib.contextmanager
    def evaluation_loop(self):
        before = self.gpu.energy_j()
        yield
        self.loops_j += self.gpu.energy_j() - before

    def found(self):
        return {"least": self.least, "most": self.most, "loops_j": self.loops_j}
