# SPDX-License-Identifier: Apache-2.0
"""An emulated GPU, and a trainer that sets frequencies through the frequency controller and can be
killed. Needs only Python's standard library."""
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import time

LIMIT_S = 120  # the limit of the tests, which check whether it happens and not how fast
LOWEST_MHZ, HIGHEST_MHZ, HIGHEST_MEMORY_MHZ = 210, 1740, 7251  # of the emulated A40
FOUND_MW = 231000  # the original settings need not be the defaults

# The directory of the settings that were found on emulated GPUs.
NOTES = pathlib.Path(f"/dev/shm/harpe-emulated-{os.geteuid()}")

# Reads one command per line and answers each with one line. Its frequencies are never the lowest
# clock, which is the clock of a GPU without work and without a lock.
TRAINER = """
import ctypes, itertools, os, signal, sys, time
harpe = ctypes.CDLL(sys.argv[1])
class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("code", ctypes.c_int), ("message", ctypes.c_char * 1024)]
class Options(ctypes.Structure):
    _fields_ = [("gpus", ctypes.c_void_p), ("gpu", ctypes.c_int), ("zeusd", ctypes.c_char_p),
                ("dwell", ctypes.c_double), ("poll", ctypes.c_double), ("write", ctypes.c_void_p),
                ("user", ctypes.c_void_p)]
error, gpus, controller = Error(), ctypes.c_void_p(), ctypes.c_void_p()
def must(status):
    if status != 0:
        print(f"failed {status}: {error.message.decode()}", flush=True)
        sys.exit(1)
must(harpe.harpe_gpus_open(None, ctypes.byref(gpus), ctypes.byref(error)))
options = Options(gpus.value, 0, None, float(os.environ.get("DWELL_S", -1)), 0, None, None)
print("starting", flush=True)
must(harpe.harpe_frequency_controller_start(ctypes.byref(options), ctypes.byref(controller), ctypes.byref(error)))
print("training", flush=True)
def train():
    for i in itertools.count():
        harpe.harpe_frequency_controller_set(controller, 300 + 15 * (i % 90))
        time.sleep(0.0005)
signal.signal(signal.SIGINT, signal.SIG_DFL)
for line in sys.stdin:
    words = line.split()
    if words[0] == "train":
        train()
    elif words[0] == "set":
        harpe.harpe_frequency_controller_set(controller, int(words[1]))
        print("set", flush=True)
    elif words[0] == "fork":
        child = os.fork()
        if child == 0:
            os.close(0)
            os.close(1)
            time.sleep(60)
            os._exit(0)
        print(child, flush=True)
    elif words[0] == "fork-stop":
        child = os.fork()
        if child == 0:
            harpe.harpe_frequency_controller_stop(controller)
            os._exit(0)
        os.waitpid(child, 0)
        print("stopped in a child", flush=True)
    elif words[0] == "stop":
        harpe.harpe_frequency_controller_stop(controller)
        print("stopped", flush=True)
    elif words[0] == "exit":
        sys.exit(0)
    elif words[0] == "abort":
        os._exit(3)
"""


class Machine:
    """An emulated A40 with a name of its own, accessed through the documented NVML calls."""

    def __init__(self, build, time_scale=1, gpus="1xA40"):
        self.build = pathlib.Path(build)
        self.nvml_path = self.build / "emulator" / "libnvidia-ml.so.1"
        self.cluster = f"controller-{os.getpid()}" + ("" if gpus == "1xA40" else f"-{gpus}")
        self.environment = dict(os.environ, HARPE_NVML_LIBRARY=str(self.nvml_path),
                                HARPE_EMULATOR_GPUS=gpus, HARPE_EMULATOR_TIME_SCALE=str(time_scale),
                                HARPE_EMULATOR_CLUSTER=self.cluster,
                                HARPE_PROGRAM=str(self.build / "harpe"))
        for name in ("HARPE_EMULATOR_FAULTS", "HARPE_EMULATOR_FAULTS_FILE", "CUDA_VISIBLE_DEVICES",
                     "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT", "ZEUSD_TOKEN", "HARPE_AGENT_SOCKET"):
            self.environment.pop(name, None)
            os.environ.pop(name, None)
        os.environ.update(self.environment)
        self.nvml = ctypes.CDLL(str(self.nvml_path))
        self.call("nvmlInit_v2")
        self.handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.handle))
        self.call("nvmlDeviceSetPowerManagementLimit", self.handle, FOUND_MW)
        self.found = self.state()

    def call(self, name, *arguments):
        code = getattr(self.nvml, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: NVML error {code}")

    def read(self, name, *arguments):
        value = ctypes.c_uint()
        self.call(name, self.handle, *arguments, ctypes.byref(value))
        return value.value

    def state(self):
        """Returns graphics and memory clock (that of the lock, or the lowest), power limit,
        persistence mode."""
        return (self.clock(), self.read("nvmlDeviceGetClockInfo", 2),
                self.read("nvmlDeviceGetPowerManagementLimit"), self.read("nvmlDeviceGetPersistenceMode"))

    def uuid(self):
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetUUID", self.handle, text, 96)
        return text.value.decode()

    def writes(self):
        """Returns the number of set calls of all processes."""
        counts = [ctypes.c_uint64() for _ in range(3)]
        self.call("harpe_emulator_write_count", 0, *map(ctypes.byref, counts))
        return sum(count.value for count in counts)

    def clock(self):
        return self.read("nvmlDeviceGetClockInfo", 0)

    def close(self):
        self.nvml.nvmlShutdown()
        pathlib.Path(f"/dev/shm/harpe-emulator-{os.getuid()}-{self.cluster}").unlink(missing_ok=True)

    def start(self, **environment):
        return subprocess.Popen([sys.executable, "-c", TRAINER, self.build / "libharpe.so"],
                                env=dict(self.environment, **environment), start_new_session=True, text=True,
                                bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_until(self, reached, within_s):
        """Returns the seconds until reached() is true, or None."""
        start = time.monotonic()
        while not reached():
            if time.monotonic() - start > within_s:
                return None
            time.sleep(0.002)
        return time.monotonic() - start

    def is_restored(self):
        return self.state() == self.found

    def controllers(self):
        """Returns the controller processes of this machine."""
        mine = f"HARPE_EMULATOR_CLUSTER={self.cluster}".encode()
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (b"--controller-process" in (folder / "cmdline").read_bytes().split(b"\0") and
                        mine in (folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found


def is_stopped(pid):
    """Tells whether all threads of the process are stopped by a signal."""
    return all(task.read_text().rpartition(")")[2].split()[0] == "T"
               for task in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"))


def is_zombie(pid):
    """Tells whether the process has ended and nobody has waited for it."""
    states = [task.read_text().rpartition(")")[2].split()[0]
              for task in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
    return states == ["Z"]


def segments():
    return set(os.listdir("/dev/shm"))


def own_segments(before):
    """Returns the segments that this process has made and that are not in `before`."""
    mine = re.compile(f"-{os.getpid()}(-|$)")
    return {name for name in segments() - before if mine.search(name)}
