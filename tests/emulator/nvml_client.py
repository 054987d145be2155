# SPDX-License-Identifier: Apache-2.0
"""An independent client of NVML for the emulator's tests: uses ctypes and NVML's documented names,
numbers and layouts, and nothing of Harpe's headers. Needs HARPE (the program) and HARPE_EMULATOR
(the library).
"""
import ctypes as C
import math
import os
import pathlib
import subprocess
import sys
import textwrap
import time
import unittest

PRELOAD = os.environ.get("HARPE_PRELOAD", "")
if PRELOAD and os.environ.get("LD_PRELOAD") != PRELOAD:
    os.environ["LD_PRELOAD"] = PRELOAD  # a sanitizer's runtime must be loaded first
    os.execv(sys.executable, [sys.executable, *sys.argv])

HARPE = os.environ["HARPE"]
LIBRARY = os.environ["HARPE_EMULATOR"]
SOURCE = pathlib.Path(os.environ["HARPE_SOURCE_DIR"])
LIMIT_S = 120  # of every wait: far more than a loaded machine needs

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 0, 1, 2, 3, 4
NOT_FOUND, INSUFFICIENT_SIZE, TIMEOUT, GPU_IS_LOST, VERSION_MISMATCH = 6, 7, 10, 15, 25


class FieldValue(C.Structure):
    _fields_ = [("fieldId", C.c_uint), ("scopeId", C.c_uint), ("timestamp", C.c_longlong),
                ("latencyUsec", C.c_longlong), ("valueType", C.c_uint), ("nvmlReturn", C.c_uint),
                ("value", C.c_ulonglong)]


class PciInfo(C.Structure):
    _fields_ = [("busIdLegacy", C.c_char * 16), ("domain", C.c_uint), ("bus", C.c_uint),
                ("device", C.c_uint), ("pciDeviceId", C.c_uint), ("pciSubSystemId", C.c_uint),
                ("busId", C.c_char * 32)]


class Memory(C.Structure):
    _fields_ = [("total", C.c_ulonglong), ("free", C.c_ulonglong), ("used", C.c_ulonglong)]


class MemoryV2(C.Structure):
    _fields_ = [("version", C.c_uint), ("total", C.c_ulonglong), ("reserved", C.c_ulonglong),
                ("free", C.c_ulonglong), ("used", C.c_ulonglong)]


class ProcessInfo(C.Structure):
    _fields_ = [("pid", C.c_uint), ("usedGpuMemory", C.c_ulonglong),
                ("gpuInstanceId", C.c_uint), ("computeInstanceId", C.c_uint)]


class ProcessInfoV1(C.Structure):
    _fields_ = [("pid", C.c_uint), ("usedGpuMemory", C.c_ulonglong)]


class Client:
    """The NVML of one process. Calls return their first result, and raise Failure for other
    codes."""

    class Failure(Exception):
        pass

    def __init__(self):
        self.functions = C.CDLL(LIBRARY)
        self.functions.nvmlErrorString.restype = C.c_char_p
        self.functions.harpe_emulator_now_ns.restype = C.c_int64

    def __getattr__(self, name):
        function = getattr(self.functions, name)

        def call(*arguments):
            code = function(*arguments)
            if code != SUCCESS:
                raise Client.Failure(code)
        return call

    def code(self, name, *arguments):
        return getattr(self.functions, name)(*arguments)

    def gpu(self, index=0):
        handle = C.c_void_p()
        self.nvmlDeviceGetHandleByIndex_v2(index, C.byref(handle))
        return handle

    def number(self, name, gpu, *arguments, kind=C.c_uint):
        value = kind()
        getattr(self, name)(gpu, *arguments, C.byref(value))
        return value.value

    def text(self, name, *arguments):
        buffer = C.create_string_buffer(96)
        getattr(self, name)(*arguments, buffer, 96)
        return buffer.value.decode()

    def energy_j(self, gpu):
        return self.number("nvmlDeviceGetTotalEnergyConsumption", gpu, kind=C.c_ulonglong) / 1e3

    def work(self, gpu, seconds, share=1.0):
        took = C.c_double()
        self.harpe_emulator_work(gpu, C.c_double(seconds), C.c_double(share), C.byref(took))
        return took.value

    def write_counts(self, gpu=0):
        """Returns the number of set calls: of the power limit, of clocks, and of the persistence
        mode."""
        counts = (C.c_uint64 * 3)()
        self.harpe_emulator_write_count(gpu, *(C.byref(counts, 8 * i) for i in range(3)))
        return tuple(counts)

    def fields(self, gpu, *wanted):
        """Returns (code, value) for each (field, scope)."""
        values = (FieldValue * len(wanted))()
        for value, (value.fieldId, value.scopeId) in zip(values, wanted):
            pass
        self.nvmlDeviceGetFieldValues(gpu, len(wanted), values)
        return [(v.nvmlReturn, v.value & 0xffffffff if v.valueType == 1 else v.value)
                for v in values]

    def processes(self, gpu):
        """Returns {pid: bytes} of the compute processes."""
        room = (ProcessInfo * 128)()
        count = C.c_uint(128)
        self.nvmlDeviceGetComputeRunningProcesses_v3(gpu, C.byref(count), room)
        return {room[i].pid: room[i].usedGpuMemory for i in range(count.value)}

    def now_s(self):
        return self.functions.harpe_emulator_now_ns() * 1e-9

    def energy_at(self, gpu):
        """Returns the energy in J and the time of the read in emulated s: the middle of the shortest
        of several intervals, at most 1 ms of real time. A read that the machine interrupted is
        repeated."""
        give_up_s = time.monotonic() + LIMIT_S
        shortest_s, tries = math.inf, 0
        while True:
            real_s, begin_s = time.monotonic(), self.now_s()
            energy_j = self.energy_j(gpu)
            end_s, took_s = self.now_s(), time.monotonic() - real_s
            tries += 1
            if took_s < shortest_s:
                shortest_s, found = took_s, (energy_j, (begin_s + end_s) / 2)
            is_short = shortest_s < 1e-4 or shortest_s < 1e-3 and tries >= 50
            if is_short or time.monotonic() > give_up_s:
                return found


class EmulatorTestCase(unittest.TestCase):
    """Gives each test a cluster of its own, which is removed afterwards."""
    count = 0

    def start(self, gpus="1xA100", scale=1, faults="", noise=0, **environment):
        self.stop()
        EmulatorTestCase.count += 1
        self.name = f"test-{os.getpid()}-{EmulatorTestCase.count}"
        os.environ.update({"HARPE_EMULATOR_CLUSTER": self.name, "HARPE_EMULATOR_GPUS": gpus,
                           "HARPE_EMULATOR_TIME_SCALE": str(scale),
                           "HARPE_EMULATOR_NOISE": str(noise),
                           "HARPE_EMULATOR_FAULTS": faults, **environment})
        client, memory = Client(), f"/dev/shm/harpe-emulator-{os.getuid()}-{self.name}"
        client.nvmlInit_v2()

        def stop():
            client.code("nvmlShutdown")
            for key in environment:
                os.environ.pop(key)
            os.unlink(memory)
        self.stop_cluster = stop
        self.addCleanup(self.stop)
        return client

    def stop(self):
        """Leaves the last started cluster, as the next start and the end of the test do."""
        stop, self.stop_cluster = getattr(self, "stop_cluster", None), None
        if stop:
            stop()

    def wait_until(self, condition):
        end_s = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), end_s, "it never came")
            time.sleep(0.002)

    def is_working(self, nvml):
        """Makes GPU 0 draw the power of an A100 at its highest clock."""
        return nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu()) == 388000

    def keep_working(self):
        """Starts a process that works on GPU 0 and is killed at the end of the test."""
        child = self.spawn("nvml.work(0, 1e5)")
        self.addCleanup(self.end, child)
        return child

    def end(self, child):
        child.kill()
        child.wait()
        child.stdout.close()

    def spawn(self, source, stdin=None):
        """Another process on the same cluster. `nvml` is its client."""
        source = ("import sys; sys.path.insert(0, %r); from nvml_client import *\n"
                  "nvml = Client(); nvml.nvmlInit_v2()\n" % str(pathlib.Path(__file__).parent)
                  + textwrap.dedent(source))
        return subprocess.Popen([sys.executable, "-c", source], stdin=stdin, stdout=subprocess.PIPE,
                                text=True)
