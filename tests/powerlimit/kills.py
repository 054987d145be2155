# SPDX-License-Identifier: Apache-2.0
"""Kills a training loop under the power limit optimizer at random moments, on emulated GPUs, and
checks whether and when limits and persistence mode are restored. The test (20 kills) and
bench/kill_power_limit (1000) use it. Needs only Python's standard library."""
import ctypes
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from process_groups import end_group  # noqa: E402

WITHIN_S = 1.0  # the limit of bench/kill_power_limit, on a machine that is otherwise idle
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


class Outcome:
    def __init__(self, within_s):
        self.within_s = within_s
        self.kills = self.changed = self.failures = 0
        self.longest_s = 0.0

    def __str__(self):
        return (f"{self.kills} kills ({self.changed} with something changed): {self.failures} not put "
                f"back within {self.within_s:g} s, longest {self.longest_s * 1000:.0f} ms")


def kill_once(machine, found, outcome, slow_set, choose):
    writes = machine.writes()
    process = machine.start(slow_set)
    if choose.random() < 0.8:
        process.stdout.readline()  # "training"; otherwise also kills before the first set call
    time.sleep(choose.uniform(0, 1.5 if slow_set else 0.25))
    end_group(process)
    outcome.kills += 1
    outcome.changed += machine.writes() > writes
    took = machine.wait_until(found, outcome.within_s)
    # The state stays: no set call of the dead trainer arrives late.
    time.sleep(0.05)
    if took is None or machine.state() != found:
        outcome.failures += 1
        machine.wait_until(found, LIMIT_S)
    else:
        outcome.longest_s = max(outcome.longest_s, took)


ORDERS = ("together", "guard first", "trainer first")


class OutcomeOfBoth:
    """Kills guard and trainer in one of the orders. Returns the process that restored the GPUs."""

    def __init__(self):
        self.kills = dict.fromkeys(ORDERS, 0)
        self.by_guard = dict.fromkeys(ORDERS, 0)
        self.by_next_start = dict.fromkeys(ORDERS, 0)
        self.failures = 0

    def __str__(self):
        lines = [f"{order}: {self.kills[order]} kills, {self.by_guard[order]} put back by a guard or never changed, "
                 f"{self.by_next_start[order]} by 'harpe gpus --restore'" for order in ORDERS]
        return "\n".join(lines + [f"{self.failures} left changed"])


def guards():
    """Returns the guard processes of any trainer of these GPUs."""
    mine = f"HARPE_EMULATOR_CLUSTER={os.environ['HARPE_EMULATOR_CLUSTER']}".encode()
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (b"--guard-process" in (folder / "cmdline").read_bytes().split(b"\0") and
                    mine in (folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def kill_one(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_both_once(machine, found, outcome, order, slow_set, choose):
    process = machine.start(slow_set)
    process.stdout.readline()  # "training"
    time.sleep(choose.uniform(0, 1.5 if slow_set else 0.25))
    victims = [*guards(), process.pid]
    for victim in reversed(victims) if order == "trainer first" else victims:
        kill_one(victim)
        if order == "guard first" and victim != process.pid:
            time.sleep(1.5)
    process.wait()
    process.stdout.close()
    machine.wait_for(lambda: not guards(), 60)
    outcome.kills[order] += 1
    if machine.state() == found:
        outcome.by_guard[order] += 1
    subprocess.run([machine.build / "harpe", "gpus", "--restore"], env=machine.environment, check=True,
                   stdout=subprocess.DEVNULL)
    if machine.state() != found or machine.notes():
        outcome.failures += 1
        for index, (limit, _) in enumerate(found):
            machine.set_limit(index, limit)
    outcome.by_next_start[order] = outcome.kills[order] - outcome.by_guard[order]


def kill_both_many(machine, count, seed, progress=lambda done: None):
    choose = random.Random(seed)
    outcome = OutcomeOfBoth()
    machine.set_limit(0, 231000)
    found = machine.state()
    for i in range(count):
        kill_both_once(machine, found, outcome, ORDERS[i % len(ORDERS)], slow_set=i % 4 == 0, choose=choose)
        progress(i + 1)
    return outcome


def kill_many(machine, count, seed, progress=lambda done: None, within_s=WITHIN_S):
    choose = random.Random(seed)
    outcome = Outcome(within_s)
    machine.set_limit(0, 231000)  # the original limit need not be the default
    found = machine.state()
    for i in range(count):
        kill_once(machine, found, outcome, slow_set=i % 4 == 0, choose=choose)
        progress(i + 1)
    return outcome
