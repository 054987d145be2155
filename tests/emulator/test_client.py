#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The NVML emulator's calls, GPUs and faults, tested with an independent client
(nvml_client.py)."""
import ctypes as C
import os
import pathlib
import subprocess
import tempfile
import threading
import time

from nvml_client import *


def busy_power_w(clock_share):
    """Returns an A100's power at a share of its highest clock, by the formula in
    docs/emulator.md."""
    rise = max(0.0, (clock_share - 0.76) / 0.24)
    voltage = 0.75 + 0.25 * rise
    return 98 + 290 * clock_share * voltage ** 2


class EmulatorTest(EmulatorTestCase):
    # ---- Identity ---------------------------------------------------------------------------

    def test_calls_before_init_and_after_shutdown_are_refused(self):
        nvml = self.start()
        gpu = nvml.gpu()
        nvml.nvmlInit_v2()
        nvml.nvmlShutdown()
        self.assertEqual(nvml.number("nvmlDeviceGetIndex", gpu), 0)  # initialised twice
        nvml.nvmlShutdown()
        value = C.c_uint()
        for name in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetName", "nvmlDeviceGetSerial"):
            self.assertEqual(nvml.code(name, gpu, C.byref(value), 96), UNINITIALIZED)
        self.assertEqual(nvml.code("nvmlDeviceGetCount_v2", C.byref(value)), UNINITIALIZED)
        self.assertEqual(nvml.code("nvmlShutdown"), UNINITIALIZED)

    def test_models_have_their_public_names_limits_and_clocks(self):
        nvml = self.start(gpus="V100,A40,A100,H100,A100-PCIe")
        expected = [("Tesla V100-SXM2-32GB", 150, 300, 1530, 877),
                    ("NVIDIA A40", 100, 300, 1740, 7251),
                    ("NVIDIA A100-SXM4-80GB", 100, 400, 1410, 1593),
                    ("NVIDIA H100 80GB HBM3", 200, 700, 1980, 2619),
                    ("NVIDIA A100-PCIE-40GB", 150, 250, 1410, 1215)]
        for index, (name, minimum, maximum, clock, memory) in enumerate(expected):
            gpu = nvml.gpu(index)
            low, high = C.c_uint(), C.c_uint()
            self.assertEqual(nvml.text("nvmlDeviceGetName", gpu), name)
            nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu, C.byref(low), C.byref(high))
            self.assertEqual((low.value, high.value), (minimum * 1000, maximum * 1000))
            for call in ("Limit", "DefaultLimit"):
                value = nvml.number(f"nvmlDeviceGetPowerManagement{call}", gpu)
                self.assertEqual(value, maximum * 1000)
            self.assertEqual(nvml.number("nvmlDeviceGetMaxClockInfo", gpu, 1), clock)
            self.assertEqual(nvml.number("nvmlDeviceGetMaxClockInfo", gpu, 2), memory)

    def test_a_gpu_is_found_by_uuid_and_pci_bus_id(self):
        nvml = self.start(gpus="3xA100")
        for index in range(3):
            gpu, found, pci = nvml.gpu(index), C.c_void_p(), PciInfo()
            uuid = nvml.text("nvmlDeviceGetUUID", gpu)
            self.assertRegex(uuid, "^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
            nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), C.byref(found))
            self.assertEqual(found.value, gpu.value)
            nvml.nvmlDeviceGetPciInfo_v3(gpu, C.byref(pci))
            self.assertEqual(pci.pciDeviceId & 0xffff, 0x10de)
            for text in (pci.busId, pci.busIdLegacy, pci.busId.lower()):
                found = C.c_void_p()
                nvml.nvmlDeviceGetHandleByPciBusId_v2(text, C.byref(found))
                self.assertEqual(found.value, gpu.value)
        found = C.c_void_p()
        self.assertEqual(nvml.code("nvmlDeviceGetHandleByUUID", b"GPU-no", C.byref(found)),
                         NOT_FOUND)
        self.assertEqual(nvml.code("nvmlDeviceGetHandleByPciBusId_v2", b"0000:FF:00.0",
                                   C.byref(found)), NOT_FOUND)
        for text in (b"", b"zebra", b"0000:"):
            self.assertEqual(nvml.code("nvmlDeviceGetHandleByPciBusId_v2", text, C.byref(found)),
                             INVALID_ARGUMENT)

    def test_bad_handles_and_null_pointers_are_invalid_arguments(self):
        nvml = self.start()
        value, gpu = C.c_uint(), nvml.gpu()
        for handle in (None, C.c_void_p(1), C.c_void_p(gpu.value + 1)):
            self.assertEqual(nvml.code("nvmlDeviceGetPowerUsage", handle, C.byref(value)),
                             INVALID_ARGUMENT)
        self.assertEqual(nvml.code("nvmlDeviceGetPowerUsage", gpu, None), INVALID_ARGUMENT)
        self.assertEqual(nvml.code("nvmlDeviceGetPciInfo_v3", gpu, None), INVALID_ARGUMENT)
        self.assertEqual(nvml.code("nvmlDeviceGetHandleByIndex_v2", 1, C.byref(gpu)),
                         INVALID_ARGUMENT)
        buffer = C.create_string_buffer(4)
        self.assertEqual(nvml.code("nvmlDeviceGetName", gpu, buffer, 4), INSUFFICIENT_SIZE)

    def test_versions_and_error_texts(self):
        nvml = self.start()
        self.assertRegex(nvml.text("nvmlSystemGetDriverVersion"), r"^\d+\.\d+")
        self.assertRegex(nvml.text("nvmlSystemGetNVMLVersion"), r"^12\.\d+")
        version = C.c_int()
        nvml.nvmlSystemGetCudaDriverVersion(C.byref(version))
        self.assertEqual(version.value // 1000, 12)
        self.assertEqual(nvml.functions.nvmlErrorString(4), b"Insufficient Permissions")
        self.assertEqual(nvml.functions.nvmlErrorString(12345), b"Unknown Error")

    def test_every_documented_name_resolves_and_is_refused_politely(self):
        nvml = self.start()
        table = (SOURCE / "emulator/nvml_unsupported.h").read_text()
        names = [line[12:-1] for line in table.splitlines() if line.startswith("UNSUPPORTED(")]
        self.assertGreater(len(names), 200)
        for name in names:
            self.assertEqual(nvml.code(name, nvml.gpu(), None, None, None), NOT_SUPPORTED, name)
        for name in ("nvmlInit", "nvmlInitWithFlags", "nvmlDeviceGetCount", "nvmlDeviceGetPciInfo",
                     "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetHandleByIndex",
                     "nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetComputeRunningProcesses",
                     "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetMemoryInfo_v2"):
            self.assertTrue(hasattr(nvml.functions, name), name)

    # ---- Lists and structs ------------------------------------------------------------------

    def two_calls(self, nvml, name, *arguments):
        count = C.c_uint(0)
        self.assertEqual(nvml.code(name, *arguments, C.byref(count), None), INSUFFICIENT_SIZE)
        clocks = (C.c_uint * count.value)()
        short = C.c_uint(count.value - 1)
        self.assertEqual(nvml.code(name, *arguments, C.byref(short), clocks), INSUFFICIENT_SIZE)
        self.assertEqual(short.value, count.value)
        getattr(nvml, name)(*arguments, C.byref(count), clocks)
        return list(clocks)

    def test_supported_clocks_are_two_call_lists(self):
        nvml = self.start(gpus="A100,V100")
        gpu = nvml.gpu()
        self.assertEqual(self.two_calls(nvml, "nvmlDeviceGetSupportedMemoryClocks", gpu), [1593])
        clocks = self.two_calls(nvml, "nvmlDeviceGetSupportedGraphicsClocks", gpu, 1593)
        self.assertEqual(clocks, list(range(1410, 209, -15)))
        count = C.c_uint(0)
        self.assertEqual(nvml.code("nvmlDeviceGetSupportedGraphicsClocks", gpu, 1, C.byref(count),
                                   None), NOT_FOUND)
        clocks = self.two_calls(nvml, "nvmlDeviceGetSupportedGraphicsClocks", nvml.gpu(1), 877)
        self.assertEqual((clocks[:4], clocks[-1]), ([1530, 1522, 1515, 1507], 135))

    def test_struct_versions_are_checked(self):
        nvml = self.start()
        old, new = Memory(), MemoryV2()
        self.assertEqual(nvml.code("nvmlDeviceGetMemoryInfo_v2", nvml.gpu(), C.byref(new)),
                         VERSION_MISMATCH)
        new.version = C.sizeof(MemoryV2) | 2 << 24
        nvml.nvmlDeviceGetMemoryInfo_v2(nvml.gpu(), C.byref(new))
        nvml.nvmlDeviceGetMemoryInfo(nvml.gpu(), C.byref(old))
        self.assertEqual((old.total, new.total), (80 << 30, 80 << 30))
        self.assertEqual(old.used + old.free, old.total)
        self.assertEqual(new.used + new.free + new.reserved, new.total)

    def test_each_field_value_has_its_own_answer(self):
        nvml = self.start()
        values = (FieldValue * 5)()
        for value, field, scope in zip(values, (186, 4711, 83, 189, 186), (0, 0, 0, 0, 1)):
            value.fieldId, value.scopeId = field, scope
        nvml.nvmlDeviceGetFieldValues(nvml.gpu(), 5, values)
        self.assertEqual([value.nvmlReturn for value in values],
                         [SUCCESS, NOT_SUPPORTED, SUCCESS, SUCCESS, NOT_SUPPORTED])
        self.assertEqual(values[0].value & 0xffffffff, 62000)
        self.assertEqual([values[0].valueType, values[2].valueType], [1, 3])
        self.assertGreater(values[0].timestamp, 1e15)

    def test_processes_are_listed_in_all_versions(self):
        nvml = self.start()
        count = C.c_uint(0)
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(nvml.gpu(), C.byref(count), None)
        self.assertEqual(count.value, 0)
        child = self.keep_working()
        for kind, version in ((ProcessInfo, "_v3"), (ProcessInfo, "_v2"), (ProcessInfoV1, "")):
            name = "nvmlDeviceGetComputeRunningProcesses" + version
            self.wait_until(lambda: nvml.code(name, nvml.gpu(), C.byref(C.c_uint(0)), None)
                            == INSUFFICIENT_SIZE)
            processes = (kind * 3)()
            count = C.c_uint(3)
            getattr(nvml, name)(nvml.gpu(), C.byref(count), processes)
            self.assertEqual([p.pid for p in processes], [child.pid, 0, 0])

    def test_samples_hold_the_present(self):
        nvml = self.start()
        kind, count, sample = C.c_uint(), C.c_uint(0), (C.c_ulonglong * 2)()
        nvml.nvmlDeviceGetSamples(nvml.gpu(), 0, C.c_ulonglong(0), C.byref(kind), C.byref(count),
                                  None)
        self.assertEqual(count.value, 1)
        nvml.nvmlDeviceGetSamples(nvml.gpu(), 0, C.c_ulonglong(0), C.byref(kind), C.byref(count),
                                  sample)
        self.assertEqual((kind.value, sample[1]), (1, 62000))
        count = C.c_uint(0)
        self.assertEqual(nvml.code("nvmlDeviceGetSamples", nvml.gpu(), 0, C.c_ulonglong(0),
                                   C.byref(kind), C.byref(count), sample), INSUFFICIENT_SIZE)

    # ---- Setting ----------------------------------------------------------------------------

    def test_power_limits_outside_the_range_are_refused(self):
        nvml = self.start()
        gpu = nvml.gpu()
        for limit in (0, 99999, 400001, 2**32 - 1):
            self.assertEqual(nvml.code("nvmlDeviceSetPowerManagementLimit", gpu, limit),
                             INVALID_ARGUMENT)
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, 100000)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerManagementLimit", gpu), 100000)
        self.assertEqual(nvml.number("nvmlDeviceGetEnforcedPowerLimit", gpu), 100000)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerManagementDefaultLimit", gpu), 400000)

    def test_persistence_and_clock_locks_are_checked(self):
        nvml = self.start(gpus="A100,V100")
        gpu = nvml.gpu()
        nvml.nvmlDeviceSetPersistenceMode(gpu, 1)
        self.assertEqual(nvml.number("nvmlDeviceGetPersistenceMode", gpu), 1)
        self.assertEqual(nvml.code("nvmlDeviceSetPersistenceMode", gpu, 2), INVALID_ARGUMENT)
        self.assertEqual(nvml.code("nvmlDeviceSetGpuLockedClocks", gpu, 900, 800),
                         INVALID_ARGUMENT)
        nvml.nvmlDeviceSetMemoryLockedClocks(gpu, 1593, 1593)
        self.assertEqual(nvml.code("nvmlDeviceSetMemoryLockedClocks", nvml.gpu(1), 877, 877),
                         NOT_SUPPORTED)  # before Ampere

    def test_set_calls_that_were_obeyed_are_counted(self):
        nvml = self.start(gpus="2xA100")
        gpu = nvml.gpu()
        self.assertEqual(nvml.write_counts(), (0, 0, 0))
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, 300000)
        nvml.code("nvmlDeviceSetPowerManagementLimit", gpu, 1)  # refused
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, 705, 705)
        nvml.nvmlDeviceSetMemoryLockedClocks(gpu, 1593, 1593)
        nvml.nvmlDeviceResetMemoryLockedClocks(gpu)
        nvml.nvmlDeviceResetGpuLockedClocks(gpu)
        nvml.nvmlDeviceSetPersistenceMode(gpu, 1)
        self.spawn("nvml.nvmlDeviceSetPersistenceMode(nvml.gpu(), 0)").communicate()
        self.assertEqual(nvml.write_counts(), (1, 4, 2))
        self.assertEqual(nvml.write_counts(1), (0, 0, 0))
        self.assertEqual(nvml.code("harpe_emulator_write_count", 0, None, None, None), SUCCESS)
        self.assertEqual(nvml.code("harpe_emulator_write_count", 2, None, None, None),
                         INVALID_ARGUMENT)

    # ---- Physics ----------------------------------------------------------------------------

    def busy_energy(self, nvml, gpu, work):
        """Returns the duration of `work()` in emulated s and its energy in J: the energy that the
        GPU draws meanwhile, minus the energy while its caller is late (idle: 83 W)."""
        begin_j, begin_s = nvml.energy_at(gpu)
        took_s = work()
        end_j, end_s = nvml.energy_at(gpu)
        return took_s, end_j - begin_j - 83 * (end_s - begin_s - took_s)

    def test_energy_is_power_times_time(self):
        nvml = self.start(scale=20, faults="energy_step=0")
        for share in (1.0, 0.3):
            took_s, energy_j = self.busy_energy(nvml, nvml.gpu(), lambda: nvml.work(0, 5.0, share))
            self.assertAlmostEqual(took_s, 5.0, places=6)
            self.assertAlmostEqual(energy_j / (388 * 5.0), 1.0, delta=0.002)

    def test_idle_energy_matches_idle_power(self):
        nvml = self.start(scale=50, faults="energy_step=0")
        gpu, real_s = nvml.gpu(), time.monotonic()
        begin_j, begin_s = nvml.energy_at(gpu)
        time.sleep(0.1)
        end_j, end_s = nvml.energy_at(gpu)
        self.assertGreaterEqual(end_s - begin_s, 50 * 0.1 - 0.1)  # time scale
        self.assertLessEqual(end_s - begin_s, 50 * (time.monotonic() - real_s))
        self.assertAlmostEqual((end_j - begin_j) / (62 * (end_s - begin_s)), 1.0, delta=0.02)

    def test_the_energy_counter_is_monotone_and_steps(self):
        nvml = self.start(faults="energy_step=50")
        gpu, seen, exact = nvml.gpu(), [], {}
        step = lambda: nvml.functions.harpe_emulator_now_ns() // 50_000_000

        def look():
            before = step()
            seen.append(nvml.energy_j(gpu))
            if step() == before:
                exact.setdefault(before, set()).add(seen[-1])
            return len(exact) >= 8  # the first one created the cluster
        self.wait_until(look)
        self.assertEqual(seen, sorted(seen))
        self.assertEqual({len(values) for values in exact.values()}, {1}, exact)
        (first, (first_j,)), *others = sorted(exact.items())[1:]
        for number, (energy_j,) in others:
            self.assertAlmostEqual(energy_j - first_j, (number - first) * 0.05 * 62, delta=0.0021)

    def test_locked_clocks_slow_the_compute_share(self):
        nvml = self.start(scale=20, faults="energy_step=0")
        gpu = nvml.gpu()
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, 705, 705)  # half
        self.assertAlmostEqual(nvml.work(0, 1.0, 1.0), 2.0, places=5)
        self.assertAlmostEqual(nvml.work(0, 1.0, 0.5), 1.5, places=5)
        took_s, energy_j = self.busy_energy(nvml, gpu, lambda: nvml.work(0, 5.0, 1.0))
        self.assertAlmostEqual(took_s, 10, places=5)
        self.assertAlmostEqual(energy_j / (10 * busy_power_w(0.5)), 1.0, delta=0.002)
        self.assertEqual(nvml.number("nvmlDeviceGetClockInfo", gpu, 0), 705)
        nvml.nvmlDeviceResetGpuLockedClocks(gpu)
        self.assertAlmostEqual(nvml.work(0, 1.0, 1.0), 1.0, places=5)

    def test_a_power_limit_throttles_to_the_highest_clock_that_fits(self):
        nvml = self.start(scale=20, faults="energy_step=0")
        gpu = nvml.gpu()
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, 250000)
        clock = next(c for c in range(1410, 209, -15) if busy_power_w(c / 1410) <= 250)
        took_s, energy_j = self.busy_energy(nvml, gpu, lambda: nvml.work(0, 4.0, 1.0))
        power_w = energy_j / took_s
        self.assertAlmostEqual(took_s, 4.0 * 1410 / clock, places=5)
        self.assertAlmostEqual(power_w / busy_power_w(clock / 1410), 1.0, delta=0.002)
        self.assertLessEqual(power_w, 250)

    def slow_down(self, nvml, full_s):
        """Another process runs work of `full_s`, which is slowed to half during the run. Returns
        its duration, and the least and the greatest possible duration, from the times of its start
        and of the clock change."""
        child = self.spawn("input(); begin_s = nvml.now_s()\n"
                           f"print(begin_s, nvml.work(0, {full_s}, 1.0), nvml.now_s())",
                           stdin=subprocess.PIPE)
        child.stdin.write("\n")
        child.stdin.flush()
        self.wait_until(lambda: self.is_working(nvml) or child.poll() is not None)
        reasons = nvml.number("nvmlDeviceGetCurrentClocksEventReasons", nvml.gpu(),
                              kind=C.c_ulonglong)
        before_s = nvml.now_s()
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 705, 705)
        after_s = nvml.now_s()
        called_s, took_s, end_s = map(float, child.communicate()[0].split())
        nvml.nvmlDeviceResetGpuLockedClocks(nvml.gpu())
        took_at = lambda set_s, start_s: 2 * full_s - (set_s - start_s)
        return reasons, took_s, took_at(after_s, called_s), took_at(before_s, end_s - took_s)

    def test_another_process_slows_work_under_way(self):
        nvml = self.start()
        for _ in range(20):
            reasons, took_s, least_s, most_s = self.slow_down(nvml, 0.5)
            if least_s > 0.55:  # the machine ran no process until the work was over
                break
        self.assertGreater(least_s, 0.55)
        self.assertEqual(reasons, 0)
        self.assertTrue(least_s - 1e-4 <= took_s <= most_s + 1e-4, (least_s, took_s, most_s))

    def test_works_share_a_gpu_evenly(self):
        nvml = self.start(scale=5, gpus="2xA100")
        for works in (2, 3):
            child = self.keep_working()
            self.wait_until(lambda: child.pid in self.processes(nvml))
            self.assertAlmostEqual(nvml.work(0, 1.0), works, places=5)
        self.assertAlmostEqual(nvml.work(1, 1.0), 1.0, places=5)  # the other GPU is free

    def processes(self, nvml):
        processes, count = (ProcessInfo * 8)(), C.c_uint(8)
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(nvml.gpu(), C.byref(count), processes)
        return [process.pid for process in processes[:count.value]]

    def test_waiting_draws_blocking_power(self):
        nvml = self.start()
        gpu = nvml.gpu()
        nvml.harpe_emulator_wait(0, 1)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", gpu), 84000)
        nvml.work(0, 0.01)  # work ends the waiting
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", gpu), 83000)
        nvml.harpe_emulator_wait(0, 1)
        nvml.harpe_emulator_wait(0, 0)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", gpu), 83000)
        nvml.harpe_emulator_close_context(0)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", gpu), 62000)

    def test_power_usage_is_an_average_where_it_really_is(self):
        nvml = self.start(gpus="H100")
        values = (FieldValue * 2)()
        values[0].fieldId, values[1].fieldId = 186, 185
        idle_w, busy_w = 130, 141 + 535
        for _ in range(20):
            called_s = nvml.now_s()
            took_s = nvml.work(0, 1.2)
            woken_s = nvml.now_s()
            nvml.nvmlDeviceGetFieldValues(nvml.gpu(), 2, values)
            read_s = nvml.now_s()
            usage_w = nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu()) / 1e3
            end_s = nvml.now_s()
            idle_s = end_s - called_s - took_s  # the latest time at which the usage was read
            if idle_s < 0.5:  # the work still fills most of the last second
                break
        instant_w, average_w = ((value.value & 0xffffffff) / 1e3 for value in values)
        self.assertLess(idle_s, 0.5)
        self.assertEqual(instant_w, idle_w)
        least_w = lambda since_s: busy_w - (busy_w - idle_w) * since_s
        self.assertGreaterEqual(average_w, least_w(read_s - called_s - took_s) - 1)
        self.assertLessEqual(average_w, busy_w)
        self.assertGreaterEqual(usage_w, least_w(idle_s) - 1)
        self.assertLessEqual(usage_w, average_w)
        self.assertGreaterEqual(woken_s - called_s, took_s)

    def test_instructions_follow_a_measured_profile(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as profile:
            profile.write("stage,instruction,frequency,time,energy\n0,forward,1410,0.5,150\n"
                          "0,forward,705,0.8,120\n1,forward,1410,9,9\n")
            profile.flush()
            nvml = self.start(scale=10, faults="energy_step=0",
                              HARPE_EMULATOR_PROFILE=profile.name)
            took, gpu = C.c_double(), nvml.gpu()
            def forward():
                nvml.harpe_emulator_instruction(0, 0, b"forward", C.byref(took))
                return took.value
            took_s, energy_j = self.busy_energy(nvml, gpu, forward)
            self.assertAlmostEqual(took_s, 0.5, places=6)
            self.assertAlmostEqual(energy_j, 150, delta=1)
            nvml.nvmlDeviceSetGpuLockedClocks(gpu, 705, 705)
            nvml.harpe_emulator_instruction(0, 0, b"forward", C.byref(took))
            self.assertAlmostEqual(took.value, 0.8, places=6)
            nvml.nvmlDeviceResetGpuLockedClocks(gpu)
            nvml.nvmlDeviceSetPowerManagementLimit(gpu, 200000)  # between 150 W and 300 W
            nvml.harpe_emulator_instruction(0, 0, b"forward", C.byref(took))
            self.assertTrue(0.5 < took.value < 0.8)
            self.assertEqual(nvml.code("harpe_emulator_instruction", 0, 0, b"backward", None),
                             NOT_FOUND)

    def test_rows_of_the_same_clock_are_averaged(self):
        """Tests rows in any order and number, and of different ranks."""
        head = "rank,frequency,energy,gpus,instruction,time,stage\n"
        for count in (1, 2, 3, 7):
            rows = [(rank % 3, 1410, 60 + 13 * rank, 0.2 + 0.07 * rank) for rank in range(count)]
            rows += [(0, 705, 60, 0.9)]  # no clock reaches the limit of 400 W
            for gpus in (1, 2, 5):
                with self.subTest(count=count, gpus=gpus), \
                        tempfile.NamedTemporaryFile("w", suffix=".csv") as profile:
                    self.doCleanups()
                    profile.write(head + "".join(
                        f"{rank},{mhz},{joules},{gpus},forward,{seconds},0\n"
                        for rank, mhz, joules, seconds in rows[::-1]))
                    profile.flush()
                    nvml = self.start(scale=10, faults="energy_step=0",
                                      HARPE_EMULATOR_PROFILE=profile.name)
                    took, gpu = C.c_double(), nvml.gpu()

                    def forward():
                        nvml.harpe_emulator_instruction(0, 0, b"forward", C.byref(took))
                        return took.value
                    took_s, energy_j = self.busy_energy(nvml, gpu, forward)
                    expected_s = sum(row[3] for row in rows[:count]) / count
                    expected_j = sum(row[2] for row in rows[:count]) / count / gpus
                    self.assertAlmostEqual(took_s, expected_s, places=6)
                    self.assertAlmostEqual(energy_j, expected_j, delta=0.01 * expected_j)

    def followed(self, rows, gpus="A100"):
        """Makes the GPU follow a profile of these rows (stage, instruction, MHz, s, J) instead of
        the previous profile."""
        self.doCleanups()
        profile = tempfile.NamedTemporaryFile("w", suffix=".csv")
        self.addCleanup(profile.close)
        profile.write("stage,instruction,frequency,time,energy\n" +
                      "".join(",".join(map(str, row)) + "\n" for row in rows))
        profile.flush()
        return self.start(gpus=gpus, scale=100, faults="energy_step=0",
                          HARPE_EMULATOR_PROFILE=profile.name)

    def offered(self, nvml):
        clocks, count = (C.c_uint * 256)(), C.c_uint(256)
        memory, one = (C.c_uint * 8)(), C.c_uint(8)
        nvml.nvmlDeviceGetSupportedMemoryClocks(nvml.gpu(), C.byref(one), memory)
        nvml.nvmlDeviceGetSupportedGraphicsClocks(nvml.gpu(), memory[0], C.byref(count), clocks)
        return list(clocks[:count.value])

    def test_only_the_clocks_of_a_profile_are_offered(self):
        every = list(range(1410, 209, -15))
        families = [
            ([(0, "forward", mhz, 1, 10) for mhz in every], every),
            ([(0, "forward", mhz, 1, 10) for mhz in (1410, 900, 855)], [1410, 900, 855]),
            ([(0, "forward", 1200, 1, 10)], [1200]),
            # clocks that all instructions have; clocks left alone; clocks that no A100 has
            ([(0, "forward", mhz, 1, 10) for mhz in (1410, 1395, 1380)] +
             [(0, "backward", mhz, 1, 10) for mhz in (1395, 1380, 1365)] +
             [(1, "forward", mhz, 1, 10) for mhz in (1380, 1395, 1000)] +
             [(0, "load", 0, 1, 10)], [1395, 1380]),
            ([(0, "forward", mhz, 1, 10) for mhz in (1980, 1410, 1402, 300, 100)], [1410, 300]),
            # a profile of another GPU or of nothing: all clocks
            ([(0, "forward", 1402, 1, 10)], every),
            ([(0, "load", 0, 1, 10)], every),
        ]
        for rows, expected in families:
            self.assertEqual(self.offered(self.followed(rows)), expected, rows[:3])
        self.doCleanups()
        self.assertEqual(self.offered(self.start()), every)

    def test_beyond_a_profile_time_and_power_go_on(self):
        """Below the measured clocks, work is slower, at most by the ratio of clocks. Above them it
        is faster. The curve is never flat, and no clock is better in both time and energy."""
        rows = [(0, "forward", mhz, 0.5 * (0.8 * 1200 / mhz + 0.2), 0.1 * mhz)
                for mhz in (1200, 1050, 900)]
        nvml, gpu, took = self.followed(rows), None, C.c_double()
        gpu = nvml.gpu()
        seen = {}
        for mhz in (1410, 1305, 1200, 1050, 900, 855, 600, 450, 210):
            nvml.nvmlDeviceSetGpuLockedClocks(gpu, mhz, mhz)
            before = nvml.energy_j(gpu)
            nvml.harpe_emulator_instruction(0, 0, b"forward", C.byref(took))
            seen[mhz] = took.value
            self.assertAlmostEqual(took.value, 0.5 * (0.8 * 1200 / mhz + 0.2), places=6)
            self.assertGreater(nvml.energy_j(gpu), before)
        self.assertEqual(list(seen.values()), sorted(seen.values()))
        # purely memory-bound, and measured once
        for rows, ratio in (([(0, "forward", 1200, 0.5, 90), (0, "forward", 900, 0.5, 80)], 1),
                            ([(0, "forward", 900, 0.5, 80)], 2)):
            nvml = self.followed(rows)
            nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 450, 450)
            nvml.harpe_emulator_instruction(0, 0, b"forward", C.byref(took))
            self.assertAlmostEqual(took.value, 0.5 * ratio, places=6)
        # clock left alone
        nvml = self.followed([(0, "load", 0, 0.25, 20)])
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 450, 450)
        nvml.harpe_emulator_instruction(0, 0, b"load", C.byref(took))
        self.assertAlmostEqual(took.value, 0.25, places=6)

    def test_work_that_makes_no_sense_is_refused(self):
        nvml = self.start()
        for seconds, share in ((0, 1), (-1, 1), (float("nan"), 1), (1, 1.1), (1, -0.1)):
            self.assertEqual(nvml.code("harpe_emulator_work", 0, C.c_double(seconds),
                                       C.c_double(share), None), INVALID_ARGUMENT)
        self.assertEqual(nvml.code("harpe_emulator_work", 7, C.c_double(1), C.c_double(1), None),
                         INVALID_ARGUMENT)

    # ---- Faults -----------------------------------------------------------------------------

    def test_no_permission_refuses_sets_and_allows_reads(self):
        nvml = self.start(faults="no_permission")
        gpu = nvml.gpu()
        self.assertEqual(nvml.code("nvmlDeviceSetPowerManagementLimit", gpu, 300000),
                         NO_PERMISSION)
        self.assertEqual(nvml.code("nvmlDeviceSetPersistenceMode", gpu, 1), NO_PERMISSION)
        self.assertEqual(nvml.code("nvmlDeviceResetGpuLockedClocks", gpu), NO_PERMISSION)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerManagementLimit", gpu), 400000)

    def test_each_feature_can_be_missing(self):
        numbers = {"power_limit": "nvmlDeviceGetPowerManagementLimit",
                   "persistence": "nvmlDeviceGetPersistenceMode",
                   "clock_locks": "nvmlDeviceResetGpuLockedClocks",
                   "memory_locks": "nvmlDeviceResetMemoryLockedClocks",
                   "supported_clocks": "nvmlDeviceGetSupportedMemoryClocks",
                   "clocks": "nvmlDeviceGetPerformanceState",
                   "power": "nvmlDeviceGetPowerUsage",
                   "field_values": "nvmlDeviceGetFieldValues",
                   "energy": "nvmlDeviceGetTotalEnergyConsumption",
                   "reasons": "nvmlDeviceGetCurrentClocksEventReasons",
                   "load": "nvmlDeviceGetUtilizationRates"}
        fields = {"instant_power": 186, "average_power": 185, "temperature": 82}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "faults"
            nvml = self.start("A40", HARPE_EMULATOR_FAULTS_FILE=str(path))
            room, one = (C.c_ulonglong * 64)(), C.c_uint(1)
            for index, feature in enumerate((*numbers, *fields)):
                # the size of the struct distinguishes it, too
                path.write_text(f"not_supported={feature:<{20 + index}}\n")
                for other, name in numbers.items():
                    arguments = (1, room) if other == "field_values" else (room, None)
                    code = nvml.code(name, nvml.gpu(), *arguments)
                    self.assertEqual(code == NOT_SUPPORTED, feature == other, (feature, other))
                for other, field in fields.items():
                    if feature == "field_values":
                        continue
                    value = FieldValue(fieldId=field)
                    nvml.nvmlDeviceGetFieldValues(nvml.gpu(), one, C.byref(value))
                    self.assertEqual(value.nvmlReturn == NOT_SUPPORTED, feature == other,
                                     (feature, other))

    def test_features_can_be_missing(self):
        nvml = self.start(faults="no_energy_counter,not_supported=power_limit")
        gpu, value = nvml.gpu(), C.c_ulonglong()
        self.assertEqual(nvml.code("nvmlDeviceGetTotalEnergyConsumption", gpu, C.byref(value)),
                         NOT_SUPPORTED)
        self.assertEqual(nvml.code("nvmlDeviceSetPowerManagementLimit", gpu, 300000),
                         NOT_SUPPORTED)
        field = FieldValue(fieldId=83)
        nvml.nvmlDeviceGetFieldValues(gpu, 1, C.byref(field))
        self.assertEqual(field.nvmlReturn, NOT_SUPPORTED)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", gpu), 62000)

    def test_a_gpu_is_lost_after_some_calls_for_everybody(self):
        nvml = self.start(gpus="2xA100", faults="lost_after=3@1")
        codes = [nvml.code("nvmlDeviceGetPowerUsage", nvml.gpu(1), C.byref(C.c_uint()))
                 for _ in range(5)]
        self.assertEqual(codes, [0, 0, 0, GPU_IS_LOST, GPU_IS_LOST])
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu(0)), 62000)
        self.assertEqual(nvml.code("harpe_emulator_work", 1, C.c_double(1), C.c_double(1), None),
                         GPU_IS_LOST)

    def test_a_lost_gpu_returns_as_after_a_reset(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "faults"
            nvml = self.start(gpus="2xA100", HARPE_EMULATOR_FAULTS_FILE=str(path))
            limits = lambda: [nvml.number("nvmlDeviceGetPowerManagementLimit", nvml.gpu(gpu)) for gpu in range(2)]
            for gpu in range(2):
                nvml.nvmlDeviceSetPowerManagementLimit(nvml.gpu(gpu), 300000)
                nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(gpu), 900, 900)
                self.wait_until(lambda: nvml.energy_j(nvml.gpu(gpu)) > 20)
            path.write_text("lost_after=0@0,returns_after=1e9")
            self.assertEqual(nvml.code("nvmlDeviceGetPowerUsage", nvml.gpu(0), C.byref(C.c_uint())), GPU_IS_LOST)
            self.assertEqual(nvml.code("nvmlDeviceGetPowerUsage", nvml.gpu(0), C.byref(C.c_uint())), GPU_IS_LOST)
            path.write_text("energy_step=0,returns_after=0")
            begin_s = time.monotonic()
            energy_j = nvml.energy_j(nvml.gpu(0))
            self.assertLessEqual(energy_j, 70 * (time.monotonic() - begin_s))
            self.assertGreater(nvml.energy_j(nvml.gpu(1)), 20)
            self.assertEqual(limits(), [400000, 300000])
            self.assertEqual([nvml.number("nvmlDeviceGetClockInfo", nvml.gpu(gpu), 0) for gpu in range(2)], [210, 900])
            self.assertEqual(nvml.code("harpe_emulator_work", 0, C.c_double(0.01), C.c_double(1), None), SUCCESS)

    def test_a_lost_gpu_may_be_left_out_of_the_numbers(self):
        nvml = self.start(gpus="3xA100", faults="lost_after=3@0,leave_out_lost")
        uuids = [nvml.text("nvmlDeviceGetUUID", nvml.gpu(gpu)) for gpu in range(3)]
        while nvml.code("nvmlDeviceGetPowerUsage", nvml.gpu(0), C.byref(C.c_uint())) == SUCCESS:
            pass
        later = self.spawn("count = C.c_uint()\n"
                           "nvml.nvmlDeviceGetCount_v2(C.byref(count))\n"
                           "gpus = [nvml.gpu(number) for number in range(count.value)]\n"
                           "print([(nvml.text('nvmlDeviceGetUUID', gpu), nvml.number('nvmlDeviceGetIndex', gpu),\n"
                           "        nvml.number('nvmlDeviceGetMinorNumber', gpu)) for gpu in gpus], flush=True)")
        self.addCleanup(self.end, later)
        self.assertEqual(later.stdout.readline().strip(), str([(uuids[1], 0, 1), (uuids[2], 1, 2)]))
        self.assertEqual(nvml.text("nvmlDeviceGetUUID", nvml.gpu(2)), uuids[2])

    def test_a_gpu_can_be_lost_whichever_it_is(self):
        nvml = self.start(gpus="2xA100", faults="lost_after=1")
        for gpu in range(2):
            codes = [nvml.code("nvmlDeviceGetPowerUsage", nvml.gpu(gpu), C.byref(C.c_uint()))
                     for _ in range(2)]
            self.assertEqual(codes, [SUCCESS, GPU_IS_LOST])

    def check_it_ends(self, call):
        """Slow calls take 10000 s here. This call is not slow."""
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(LIMIT_S)
        self.assertFalse(thread.is_alive())

    def get_limit(self, nvml):
        return nvml.number("nvmlDeviceGetPowerManagementLimit", nvml.gpu())

    def set_limit(self, nvml):
        nvml.nvmlDeviceSetPowerManagementLimit(nvml.gpu(), 300000)

    def test_slow_reads_leave_sets_alone(self):
        nvml = self.start(faults="slow_get=60")
        begin_s = time.monotonic()
        self.get_limit(nvml)
        self.assertGreaterEqual(time.monotonic() - begin_s, 0.06)
        nvml.nvmlShutdown()
        nvml = self.start(faults="slow_get=1e7")
        self.check_it_ends(lambda: self.set_limit(nvml))

    def test_reads_of_one_gpu_are_slow(self):
        nvml = self.start(gpus="2xA100", faults="slow_get=1e7@1")
        self.assertEqual(self.get_limit(nvml), 400000)  # of GPU 0
        nvml.nvmlShutdown()
        nvml = self.start(gpus="2xA100", faults="slow_get=60@0")
        begin_s = time.monotonic()
        self.get_limit(nvml)
        self.assertGreaterEqual(time.monotonic() - begin_s, 0.06)
        for right in ("slow_get=60@1", "slow_get=1@15,mig", "mig"):
            self.assertEqual(self.check_faults(nvml, right), SUCCESS, right)
        for wrong in ("slow_get=60@", "slow_get=60@x", "slow_get=60@-1", "slow_get=60@4096",
                      "slow_get=@0", "slow_set=60@0", "mig=1"):
            self.assertEqual(self.check_faults(nvml, wrong), INVALID_ARGUMENT, wrong)

    def check_faults(self, nvml, faults):
        os.environ["HARPE_EMULATOR_FAULTS"] = faults
        return nvml.code("harpe_emulator_check", None, 0)

    def test_mig_is_enabled_where_the_model_has_it(self):
        for fault, enabled in (("", 0), ("mig", 1)):
            nvml = self.start(gpus="A100,H100,V100,A40", faults=fault)
            for index, has_mig in enumerate((True, True, False, False)):
                current, pending = C.c_uint(7), C.c_uint(7)
                code = nvml.code("nvmlDeviceGetMigMode", nvml.gpu(index), C.byref(current),
                                 C.byref(pending))
                self.assertEqual(code, SUCCESS if has_mig else NOT_SUPPORTED)
                if has_mig:
                    self.assertEqual((current.value, pending.value), (enabled, enabled))
                self.check_mig_devices(nvml, index, 2 if has_mig and enabled else 0)

    def check_mig_devices(self, nvml, index, count):
        gpu, found, uuids = nvml.gpu(index), C.c_void_p(), {nvml.text("nvmlDeviceGetUUID", nvml.gpu(index))}
        self.assertEqual(nvml.number("nvmlDeviceGetMaxMigDeviceCount", gpu), 7 if count else 0)
        for device in range(count):
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, device, C.byref(found))
            uuids.add(nvml.text("nvmlDeviceGetUUID", found))
            self.assertRegex(max(uuids), "^MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
            self.assertEqual(nvml.code("nvmlDeviceGetPowerUsage", found, C.byref(C.c_uint())),
                             INVALID_ARGUMENT)
        self.assertEqual(len(uuids), 1 + count)
        for device, code in ((count, NOT_FOUND), (7, INVALID_ARGUMENT)):
            self.assertEqual(nvml.code("nvmlDeviceGetMigDeviceHandleByIndex", gpu, device,
                                       C.byref(found)), code if count else NOT_SUPPORTED)

    def test_slow_calls_take_their_time(self):
        nvml = self.start(faults="slow_set=60")
        begin_s = time.monotonic()
        self.set_limit(nvml)
        self.assertGreaterEqual(time.monotonic() - begin_s, 0.06)
        nvml.nvmlShutdown()
        nvml = self.start(faults="slow_set=1e7")
        self.check_it_ends(lambda: self.get_limit(nvml))

    def test_slow_calls_hold_nobody_else_up(self):
        nvml = self.start()
        calls = {"slow_get": "number('nvmlDeviceGetPowerManagementLimit', nvml.gpu())",
                 "slow_set": "nvmlDeviceSetPowerManagementLimit(nvml.gpu(), 250000)"}
        for fault, call in calls.items():
            os.environ["HARPE_EMULATOR_FAULTS"] = fault + "=1e7"  # only of the other process
            child = self.spawn(f"print('go', flush=True); nvml.{call}; print('over')")
            self.addCleanup(self.end, child)
            child.stdout.readline()
            stat = pathlib.Path(f"/proc/{child.pid}/stat")
            self.wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "S")
            self.check_it_ends(lambda: self.set_limit(nvml))
            self.assertEqual(self.get_limit(nvml), 300000)
            self.assertIsNone(child.poll())  # the process is still in its call

    def test_the_energy_counter_restarts(self):
        before_j = 0
        while before_j == 0:  # the machine delayed the read until the counter had restarted
            begin_s = time.monotonic()
            nvml = self.start(faults="energy_step=0,counter_restart_after=0.2")
            begun_s, gpu = time.monotonic(), nvml.gpu()
            value_j = nvml.energy_j(gpu)
            if time.monotonic() < begin_s + 0.2:
                before_j = value_j
            else:
                nvml.nvmlShutdown()
        seen_j = [before_j]

        def has_restarted():
            called_s = time.monotonic()
            seen_j.append(nvml.energy_j(gpu))
            if called_s < begun_s + 0.2 and time.monotonic() < begin_s + 0.2:
                self.assertGreaterEqual(seen_j[-1], seen_j[-2])
            if called_s >= begun_s + 0.2:
                self.assertLess(seen_j[-1], seen_j[-2])
            return seen_j[-1] < seen_j[-2]
        self.wait_until(has_restarted)
        time.sleep(0.3)
        self.assertGreater(nvml.energy_j(gpu), seen_j[-1])  # only once

    def test_faults_change_with_their_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "faults"
            nvml = self.start(HARPE_EMULATOR_FAULTS_FILE=str(path))
            set_limit = lambda: nvml.code("nvmlDeviceSetPowerManagementLimit", nvml.gpu(), 300000)
            self.assertEqual(set_limit(), SUCCESS)
            path.write_text("no_permission # for now\n")
            self.assertEqual(set_limit(), NO_PERMISSION)
            path.write_text("")
            self.assertEqual(set_limit(), SUCCESS)

    def test_settings_that_make_no_sense_fail_at_init(self):
        self.start().nvmlShutdown()
        for key, value in (("GPUS", "4xB300"), ("GPUS", "4097xA100"), ("GPUS", "0xA100"),
                           ("GPUS", "A100,"), ("TIME_SCALE", "0"), ("TIME_SCALE", "1e9"),
                           ("FAULTS", "no_such"), ("FAULTS", "slow_set=x"),
                           ("FAULTS", "enforced_limit=-1"), ("NOISE", "21"), ("NOISE", "-0.1"),
                           ("NOISE", "loud"), ("SEED", "1.5"), ("SEED", "-1"),
                           ("CLUSTER", "a/b")):
            name = f"HARPE_EMULATOR_{key}"
            before = os.environ.get(name)
            os.environ[name] = value
            self.assertEqual(Client().code("nvmlInit_v2"), INVALID_ARGUMENT, value)
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before

