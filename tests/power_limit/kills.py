# SPDX-License-Identifier: Apache-2.0
"""Emulated GPUs with power limits, and a training loop under the power limit optimizer that can be
killed. Needs only Python's standard library."""
import ctypes
import os
import pathlib
import subprocess
import time

LIMIT_S = 60  # the limit of the tests, which check whether it happens and not how fast
# The directory of the settings that were found on emulated GPUs.
NOTES = pathlib.Path(f"/dev/shm/harpe-emulated-{os.geteuid()}")

# Source text for a command of `harpe power-limit run`: mark() marks a step and waits until the mark
# was handled: it was read, and its reader sleeps. A set call that is slow is also such a sleep; the
# steps during it are skipped.
MARK = """
import array, fcntl, os, termios, time
def is_read(marks):
    waiting = array.array("i", [0])
    fcntl.ioctl(marks, termios.FIONREAD, waiting)
    with open(f"/proc/{os.getppid()}/stat") as stat:
        return waiting[0] == 0 and stat.read().rsplit(")", 1)[1].split()[0] == "S"
def mark():
    marks = int(os.environ["HARPE_STEP_FD"])
    os.write(marks, b"step\\n")
    while not is_read(marks):
        time.sleep(0.0002)
"""


class Machine:
    """Emulated GPUs with a name of their own, accessed through the documented NVML calls."""

    def __init__(self, build, gpus="2xV100", time_scale=100):
        self.build = pathlib.Path(build)
        library = self.build / "emulator" / "libnvidia-ml.so.1"
        self.environment = dict(os.environ, HARPE_NVML_LIBRARY=str(library),
                                HARPE_EMULATOR_GPUS=gpus, HARPE_EMULATOR_TIME_SCALE=str(time_scale),
                                HARPE_EMULATOR_CLUSTER=f"kills-{os.getpid()}",
                                HARPE_PROGRAM=str(self.build / "harpe"))
        for name in ("HARPE_EMULATOR_FAULTS", "HARPE_EMULATOR_FAULTS_FILE", "CUDA_VISIBLE_DEVICES"):
            self.environment.pop(name, None)
        os.environ.update(self.environment)
        self.nvml = ctypes.CDLL(str(library))
        self._must(self.nvml.nvmlInit_v2())
        count = ctypes.c_uint()
        self._must(self.nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        self.handles = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self._must(self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)))
            self.handles.append(handle)

    @staticmethod
    def _must(code):
        if code != 0:
            raise RuntimeError(f"NVML error {code}")

    def state(self):
        """Returns (power limit in mW, persistence mode) of every GPU."""
        values = []
        for index, handle in enumerate(self.handles):
            mode = ctypes.c_uint()
            self._must(self.nvml.nvmlDeviceGetPersistenceMode(handle, ctypes.byref(mode)))
            values.append((self.limit(index), mode.value))
        return values

    def limit(self, index):
        limit = ctypes.c_uint()
        self._must(self.nvml.nvmlDeviceGetPowerManagementLimit(self.handles[index], ctypes.byref(limit)))
        return limit.value

    def set_limit(self, index, milliwatts):
        self._must(self.nvml.nvmlDeviceSetPowerManagementLimit(self.handles[index], milliwatts))

    def writes(self):
        """Returns the number of set calls on GPU 0, by all processes."""
        counts = [ctypes.c_uint64() for _ in range(3)]
        self._must(self.nvml.harpe_emulator_write_count(0, *map(ctypes.byref, counts)))
        return sum(count.value for count in counts)

    def close(self):
        self.nvml.nvmlShutdown()
        pathlib.Path(f"/dev/shm/harpe-emulator-{os.getuid()}-"
                     f"{self.environment['HARPE_EMULATOR_CLUSTER']}").unlink(missing_ok=True)

    def start(self, slow_set):
        # In emulated ms: 200 ms at this time scale.
        faults = {"HARPE_EMULATOR_FAULTS": "slow_set=20000"} if slow_set else {}
        return subprocess.Popen([self.build / "examples" / "example_power_limit_loop", "100000", "400", "0.05"],
                                env=dict(self.environment, **faults), start_new_session=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def uuids(self):
        texts = []
        for handle in self.handles:
            text = ctypes.create_string_buffer(96)
            self._must(self.nvml.nvmlDeviceGetUUID(handle, text, 96))
            texts.append(text.value.decode())
        return texts

    def notes(self):
        """Returns the files with the original settings of these GPUs."""
        return sorted(path for uuid in self.uuids() for path in NOTES.glob(f"{uuid}.*"))

    def wait_until(self, expected, within_s):
        """Returns the seconds until the state is `expected`, or None."""
        return self.wait_for(lambda: self.state() == expected, within_s)

    @staticmethod
    def wait_for(reached, within_s):
        """Returns the seconds until reached() is true, or None."""
        start = time.monotonic()
        while not reached():
            if time.monotonic() - start > within_s:
                return None
            time.sleep(0.002)
        return time.monotonic() - start
