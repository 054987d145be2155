#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the calls of the published Zeus and of newer PyTorch and gpustat, in the order in which
those programs make them through their Python binding of NVML."""
import ctypes as C
import os
import shutil
import subprocess
import sys
import tempfile
import time

from nvml_client import *

FIELD_AVERAGE, FIELD_INSTANT = 185, 186
SCOPE_GPU, SCOPE_MEMORY = 0, 2
ARCHITECTURE_VOLTA = 5


class TemperatureV1(C.Structure):
    _fields_ = [("version", C.c_uint), ("sensorType", C.c_uint), ("temperature", C.c_int)]


class ZeusCallsTest(EmulatorTestCase):
    def field(self, nvml, gpu, field, scope):
        value = FieldValue(fieldId=field, scopeId=scope)
        nvml.nvmlDeviceGetFieldValues(gpu, 1, C.byref(value))
        return value.nvmlReturn, value.value & 0xffffffff

    def clocks(self, nvml, name, *arguments):
        count = C.c_uint(0)
        self.assertEqual(nvml.code(name, *arguments, C.byref(count), None), INSUFFICIENT_SIZE)
        clocks = (C.c_uint * count.value)()
        getattr(nvml, name)(*arguments, C.byref(count), clocks)
        return list(clocks)

    def test_zeus_opens_a_gpu(self):
        nvml = self.start(gpus="2xA100,V100")
        count = C.c_uint()
        nvml.nvmlDeviceGetCount_v2(C.byref(count))
        for index in range(count.value):
            gpu, info = nvml.gpu(index), (C.c_uint * 2)(C.sizeof(C.c_uint * 2) | 1 << 24)
            # The GPU is not a Grace Hopper: with any other code than this one, the program warns.
            self.assertEqual(nvml.code("nvmlDeviceGetC2cModeInfoV", gpu, info), NOT_SUPPORTED)
            self.assertTrue(nvml.text("nvmlDeviceGetName", gpu))
            self.assertGreaterEqual(nvml.number("nvmlDeviceGetArchitecture", gpu),
                                    ARCHITECTURE_VOLTA)

    def test_zeus_reads_power_energy_and_heat(self):
        nvml = self.start()
        gpu = nvml.gpu()
        self.assertEqual(self.field(nvml, gpu, FIELD_INSTANT, SCOPE_GPU), (SUCCESS, 62000))
        self.assertEqual(self.field(nvml, gpu, FIELD_AVERAGE, SCOPE_GPU)[0], NOT_SUPPORTED)
        self.assertEqual(self.field(nvml, gpu, FIELD_AVERAGE, SCOPE_MEMORY)[0], NOT_SUPPORTED)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", gpu), 62000)
        before = nvml.energy_j(gpu)
        time.sleep(0.15)
        self.assertGreater(nvml.energy_j(gpu), before)
        heat = TemperatureV1(C.sizeof(TemperatureV1) | 1 << 24, 0)
        nvml.nvmlDeviceGetTemperatureV(gpu, C.byref(heat))
        self.assertEqual(heat.temperature, nvml.number("nvmlDeviceGetTemperature", gpu, 0))

    def test_zeus_sets_limits_and_clocks_and_puts_them_back(self):
        nvml = self.start()
        gpu, low, high = nvml.gpu(), C.c_uint(), C.c_uint()
        nvml.nvmlDeviceSetPersistenceMode(gpu, 1)
        nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu, C.byref(low), C.byref(high))
        for limit in range(high.value, low.value - 1, -25000):
            nvml.nvmlDeviceSetPowerManagementLimit(gpu, limit)
            self.assertEqual(nvml.number("nvmlDeviceGetPowerManagementLimit", gpu), limit)
        default = nvml.number("nvmlDeviceGetPowerManagementDefaultLimit", gpu)
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, default)
        memory = self.clocks(nvml, "nvmlDeviceGetSupportedMemoryClocks", gpu)[0]
        graphics = self.clocks(nvml, "nvmlDeviceGetSupportedGraphicsClocks", gpu, memory)
        nvml.nvmlDeviceSetMemoryLockedClocks(gpu, memory, memory)
        for clock in graphics[::10]:
            nvml.nvmlDeviceSetGpuLockedClocks(gpu, clock, clock)
            self.assertEqual(nvml.number("nvmlDeviceGetClockInfo", gpu, 0), clock)
        nvml.nvmlDeviceResetGpuLockedClocks(gpu)
        nvml.nvmlDeviceResetMemoryLockedClocks(gpu)
        self.assertEqual(nvml.write_counts(), (14, len(graphics[::10]) + 3, 1))

    def test_newer_pytorch_lists_uuids_and_reads_a_gpu(self):
        nvml = self.start(gpus="4xA100")
        count = C.c_int(-1)
        self.assertEqual(nvml.code("nvmlInit"), SUCCESS)
        nvml.nvmlDeviceGetCount_v2(C.byref(count))
        uuids = {nvml.text("nvmlDeviceGetUUID", nvml.gpu(index)) for index in range(count.value)}
        self.assertEqual(len(uuids), 4)
        gpu, rates = nvml.gpu(3), (C.c_uint * 2)()
        nvml.nvmlDeviceGetUtilizationRates(gpu, rates)
        self.assertEqual(list(rates), [0, 0])
        nvml.number("nvmlDeviceGetClockInfo", gpu, 1)
        for name in ("nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetGpuFabricInfoV",
                     "nvmlDeviceGetNvLinkRemotePciInfo_v2"):
            self.assertEqual(nvml.code(name, gpu, 0, None), NOT_SUPPORTED)
        nvml.nvmlShutdown()

    def test_pytorch_counts_no_cuda_device_unless_asked(self):
        """A process has PyTorch if it has loaded a library of this name."""
        script = ("import ctypes, sys\nnvml, count = ctypes.CDLL('libnvidia-ml.so.1'), "
                  "ctypes.c_int(-1)\nif sys.argv[1:]:\n    ctypes.CDLL(sys.argv[1])\n"
                  "for init in ('nvmlInit', 'nvmlInit_v2', 'nvmlInit'):\n"
                  "    assert getattr(nvml, init)() == 0\n    for _ in range(2):\n"
                  "        assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0\n"
                  "        print(count.value, end=' ')\n")
        with tempfile.TemporaryDirectory(prefix="harpe-torch-") as folder:
            library = os.path.join(folder, "libtorch_python.so")
            shutil.copy(os.environ["HARPE_MINIMAL_NVML"], library)
            for options, arguments, counts in (([], [], "4 4 4 4 4 4 "),
                                               ([], [library], "0 4 4 4 0 4 "),
                                               (["--visible-to-torch"], [library], "4 4 4 4 4 4 ")):
                done = subprocess.run(
                    [HARPE, "emulate", "--gpus", "4xA100", *options, "--", sys.executable, "-c",
                     script, *arguments], capture_output=True, text=True, check=False, timeout=LIMIT_S)
                self.assertEqual((done.stdout, done.stderr), (counts, ""))

    def test_gpustat_shows_a_gpu(self):
        nvml = self.start()
        gpu, value, other = nvml.gpu(), C.c_uint(), C.c_uint()
        nvml.text("nvmlSystemGetDriverVersion")
        memory = MemoryV2(version=C.sizeof(MemoryV2) | 2 << 24)
        nvml.nvmlDeviceGetMemoryInfo_v2(gpu, C.byref(memory))
        self.assertGreater(memory.total, 0)
        self.assertEqual(nvml.code("nvmlDeviceGetFanSpeed", gpu, C.byref(value)), NOT_SUPPORTED)
        for name in ("nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization"):
            getattr(nvml, name)(gpu, C.byref(value), C.byref(other))
        self.assertEqual(nvml.number("nvmlDeviceGetEnforcedPowerLimit", gpu), 400000)
        for kind in ("Compute", "Graphics", "MPSCompute"):
            count = C.c_uint(0)
            nvml.code(f"nvmlDeviceGet{kind}RunningProcesses_v3", gpu, C.byref(count), None)
            self.assertEqual(count.value, 0)
