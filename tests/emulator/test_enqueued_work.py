#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Work that a host enqueues ahead of time. The delays of a simulated rank that shares its core with
many others must not appear in the GPU's time and energy."""
import os
import tempfile
import threading
import time

from nvml_client import *

TIME_S = {1410: 0.2, 1200: 0.24, 900: 0.3}
POWER_W = {1410: 300.0, 1200: 220.0, 900: 180.0}
BLOCKING_W = 83.5


class EnqueuedWork(EmulatorTestCase):
    def start(self, **options):
        with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as profile:
            profile.write("stage,instruction,frequency,time,energy\n")
            for mhz, seconds in TIME_S.items():
                profile.write(f"0,forward,{mhz},{seconds},{seconds * POWER_W[mhz]}\n")
        self.addCleanup(os.unlink, profile.name)
        options.setdefault("scale", 10)
        options.setdefault("gpus", "1xA100")
        nvml = super().start(HARPE_EMULATOR_PROFILE=profile.name,
                             HARPE_EMULATOR_BLOCKING_POWER=str(BLOCKING_W), **options)
        nvml.functions.harpe_emulator_instruction_at.argtypes = [
            C.c_uint, C.c_int, C.c_char_p, C.c_double, C.c_int64, C.POINTER(C.c_int64)]
        nvml.functions.harpe_emulator_energy.argtypes = [C.c_uint, C.c_int64, C.POINTER(C.c_double)]
        return nvml

    def forward(self, nvml, ready_ns=0, slowdown=1.0):
        finished = C.c_int64()
        nvml.harpe_emulator_instruction_at(0, 0, b"forward", slowdown, ready_ns, C.byref(finished))
        return finished.value

    def energy(self, nvml, at_ns):
        joules = C.c_double()
        nvml.harpe_emulator_energy(0, at_ns, C.byref(joules))
        return joules.value

    def now(self, nvml):
        return nvml.functions.harpe_emulator_now_ns()

    def test_it_starts_when_it_was_ready_however_late_its_host_is(self):
        nvml = self.start()
        first = self.forward(nvml)
        before = self.energy(nvml, first)
        time.sleep(0.05)  # half an emulated second, longer than the work
        second = self.forward(nvml, first)
        self.assertAlmostEqual((second - first) * 1e-9, TIME_S[1410], places=6)
        self.assertAlmostEqual(self.energy(nvml, second) - before, TIME_S[1410] * 300, delta=1e-3)

    def test_work_that_waited_for_a_message_starts_with_the_message(self):
        nvml = self.start()
        first = self.forward(nvml)
        before = self.energy(nvml, first)
        time.sleep(0.05)
        ready = first + 100_000_000
        second = self.forward(nvml, ready)
        self.assertAlmostEqual((second - ready) * 1e-9, TIME_S[1410], places=6)
        expected = 0.1 * BLOCKING_W + TIME_S[1410] * 300
        self.assertAlmostEqual(self.energy(nvml, second) - before, expected, delta=1e-3)

    def test_it_never_starts_before_the_work_before_it_has_ended(self):
        nvml = self.start()
        first = self.forward(nvml)
        second = self.forward(nvml, first - 150_000_000)
        self.assertAlmostEqual((second - first) * 1e-9, TIME_S[1410], places=6)

    def test_it_starts_after_whatever_was_set_meanwhile(self):
        nvml = self.start()
        first = self.forward(nvml)
        time.sleep(0.02)
        before_ns = self.now(nvml)
        nvml.nvmlDeviceSetPersistenceMode(nvml.gpu(), 1)
        after_ns = self.now(nvml)
        time.sleep(0.02)
        start_ns = self.forward(nvml, first) - int(TIME_S[1410] * 1e9)
        self.assertTrue(before_ns - 1000 <= start_ns <= after_ns + 1000, (before_ns, start_ns, after_ns))

    def test_work_that_is_ready_at_once_starts_at_once(self):
        nvml = self.start()
        self.forward(nvml)
        time.sleep(0.02)
        called = self.now(nvml)
        self.assertGreaterEqual(self.forward(nvml), called + int(TIME_S[1410] * 1e9) - 1000)

    def set_clock_during_work(self, nvml, slow_set_s=0):
        """Runs work of half a real second, during which a clock is set. Returns the times at which
        it was ready and done, and its energy. Repeats the run if the machine delayed the clock
        until after the work."""
        for _ in range(20):
            nvml.nvmlDeviceResetGpuLockedClocks(nvml.gpu())
            first, results = self.forward(nvml), []
            before_j = self.energy(nvml, first)
            thread = threading.Thread(target=lambda: results.append(self.forward(nvml, first)))
            thread.start()
            self.wait_until(lambda: results or
                            nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu()) == 300000)
            nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 1200, 1200)
            # the second half follows the effect
            set_ns = self.now(nvml) - int(slow_set_s / 2 * 1e9)
            thread.join()
            if set_ns < first + int(TIME_S[1410] * 1e9):
                return (results[0] - first) * 1e-9, self.energy(nvml, results[0]) - before_j
        self.fail("the machine let every clock come after the work")

    def test_a_clock_that_comes_late_holds_from_the_start(self):
        nvml = self.start(scale=0.4)
        took_s, energy_j = self.set_clock_during_work(nvml)
        self.assertAlmostEqual(took_s, TIME_S[1200], places=6)
        self.assertAlmostEqual(energy_j, TIME_S[1200] * 220, delta=1e-3)

    def test_work_that_is_held_waits_for_a_clock_that_comes_after_its_end(self):
        nvml = self.start(scale=10)
        is_set, finished = threading.Event(), C.c_int64()
        asked = []
        is_held = C.CFUNCTYPE(C.c_int, C.c_void_p)(lambda _: asked.append(1) or not is_set.is_set())
        held = nvml.functions.harpe_emulator_instruction_held
        held.argtypes = [C.c_uint, C.c_int, C.c_char_p, C.c_double, C.c_int64, type(is_held), C.c_void_p,
                         C.POINTER(C.c_int64)]
        for _ in range(20):
            is_set.clear()
            nvml.nvmlDeviceResetGpuLockedClocks(nvml.gpu())
            first, put_s = self.forward(nvml), time.monotonic()
            before_j = self.energy(nvml, first)
            thread = threading.Thread(target=lambda: held(0, 0, b"forward", 1.0, first, is_held, None,
                                                          C.byref(finished)))
            thread.start()
            self.wait_until(lambda: self.now(nvml) > first + 2 * TIME_S[1410] * 1e9)
            self.assertTrue(thread.is_alive())
            nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 1200, 1200)
            # within the permitted time after the work was enqueued
            is_early = time.monotonic() < put_s + 1
            is_set.set()
            thread.join()
            if is_early and asked:
                break
        self.assertTrue(is_early)
        self.assertAlmostEqual((finished.value - first) * 1e-9, TIME_S[1200], places=6)
        self.assertAlmostEqual(self.energy(nvml, finished.value) - before_j, TIME_S[1200] * 220, delta=1e-3)

    def test_unlocked_work_runs_at_the_highest_clock_and_nobody_sees_it(self):
        nvml = self.start(scale=1)
        unlocked, finished = nvml.functions.harpe_emulator_instruction_unlocked, C.c_int64()
        unlocked.argtypes = [C.c_uint, C.c_int, C.c_char_p, C.c_int64, C.POINTER(C.c_int64)]
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 900, 900)
        first = self.forward(nvml)
        before_j, seen = self.energy(nvml, first), set()
        thread = threading.Thread(target=lambda: unlocked(0, 0, b"forward", first, C.byref(finished)))
        thread.start()
        while thread.is_alive():
            seen.add(nvml.number("nvmlDeviceGetClockInfo", nvml.gpu(), 0))
        thread.join()
        self.assertEqual(seen, {900})
        self.assertAlmostEqual((finished.value - first) * 1e-9, TIME_S[1410], places=6)
        self.assertAlmostEqual(self.energy(nvml, finished.value) - before_j, TIME_S[1410] * 300, delta=1e-3)
        self.assertAlmostEqual((self.forward(nvml, finished.value) - finished.value) * 1e-9, TIME_S[900], places=6)

    def test_a_slow_driver_stays_slow(self):
        # 100 ms before the effect: half of the work
        nvml = self.start(scale=0.4, faults="slow_set=200")
        took_s, _ = self.set_clock_during_work(nvml, slow_set_s=0.2)
        self.assertAlmostEqual(took_s, 0.5 * TIME_S[1410] + 0.5 * TIME_S[1200], places=3)

    def test_the_energy_counter_never_goes_back(self):
        nvml = self.start(faults="energy_step=1")
        gpu, last, at_ns = nvml.gpu(), 0.0, self.forward(nvml)
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, 900, 900)
        for _ in range(10):
            time.sleep(0.005)
            for value in (nvml.energy_j(gpu),):
                self.assertGreaterEqual(value, last)
                last = value
            at_ns = self.forward(nvml, at_ns)

    def test_a_throttled_gpu_gains_nothing_from_higher_clocks(self):
        nvml = self.start()
        first = self.forward(nvml)
        before = self.energy(nvml, first)
        second = self.forward(nvml, first, 1.2)
        self.assertAlmostEqual((second - first) * 1e-9, 0.24, places=6)
        self.assertAlmostEqual(self.energy(nvml, second) - before, 0.24 * 220, delta=1e-3)
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 900, 900)  # already slower than that
        third = self.forward(nvml, second, 1.2)
        self.assertAlmostEqual((third - second) * 1e-9, 0.3, places=6)

    def test_a_throttled_gpu_gains_nothing_beyond_its_profile_either(self):
        nvml = self.start(gpus="1xV100")  # 1530 MHz, where the profile ends at 1410
        first = self.forward(nvml)
        second = self.forward(nvml, first)
        self.assertLess((second - first) * 1e-9, 0.199)
        third = self.forward(nvml, second, 1.2)
        self.assertAlmostEqual((third - second) * 1e-9, 0.24, places=6)

    def test_the_default_power_limit_was_there_when_it_was_measured(self):
        # 300 W at most, which is the power of this work at 1410 MHz
        nvml = self.start(gpus="1xV100")
        POWER_W[1410] = 450.0
        self.addCleanup(POWER_W.__setitem__, 1410, 300.0)
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 1410, 1410)  # its own clocks go up to 1530
        first = self.forward(nvml)
        self.assertAlmostEqual((self.forward(nvml, first) - first) * 1e-9, 0.2, places=6)

    def test_what_makes_no_sense_is_refused(self):
        nvml = self.start()
        for slowdown in (0.5, float("nan"), 1e9):
            with self.assertRaises(Client.Failure):
                self.forward(nvml, 0, slowdown)
        with self.assertRaises(Client.Failure):
            nvml.harpe_emulator_instruction_at(7, 0, b"forward", 1.0, 0, None)
        os.environ["HARPE_EMULATOR_BLOCKING_POWER"] = "-1"
        os.environ["HARPE_EMULATOR_CLUSTER"] += "-other"
        message = C.create_string_buffer(200)
        self.assertNotEqual(nvml.code("harpe_emulator_check", message, 200), SUCCESS)
        self.assertIn(b"blocking power", message.value)
