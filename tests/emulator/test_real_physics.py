#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Effects of real GPUs, seen by processes through NVML: late clocks, processes that die before their
change has happened, disobedience, heat, seeds, and consistent answers under `real`. The formulas are
tested in C, without time."""
import ctypes as C
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from nvml_client import *

SMI = pathlib.Path(os.environ.get("HARPE_SMI", pathlib.Path(LIBRARY).parent / "bin/nvidia-smi"))
GRAPHICS = 0
IDLE, CLOCKS_SET, POWER_CAP, HW_SLOWDOWN = 1, 2, 4, 8
SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x20, 0x40, 0x80


class RealPhysicsTest(EmulatorTestCase):
    def with_effects(self, effects, **options):
        """Starts a cluster whose GPUs have these effects."""
        file = tempfile.NamedTemporaryFile("w", suffix=".json")
        self.addCleanup(file.close)
        json.dump(effects, file)
        file.flush()
        return self.start(HARPE_EMULATOR_PHYSICS=file.name, **options)

    def clocks(self, nvml, gpu=0):
        """Returns the present clock, and the clock and the time of the pending change."""
        current, following, at_ns = C.c_uint32(), C.c_uint32(), C.c_int64()
        nvml.harpe_emulator_clock(gpu, C.byref(current), C.byref(following), C.byref(at_ns))
        return current.value, following.value, at_ns.value * 1e-9

    def reported(self, nvml):
        return nvml.number("nvmlDeviceGetClockInfo", nvml.gpu(), GRAPHICS)

    def reasons(self, nvml):
        return nvml.number("nvmlDeviceGetCurrentClocksEventReasons", nvml.gpu(),
                           kind=C.c_ulonglong)

    # ---- Late clocks ------------------------------------------------------------------------

    def test_a_set_call_blocks_and_the_old_clock_holds(self):
        nvml = self.with_effects({"switch_call_s": 0.5, "switch_latency_s": 2}, scale=10)
        nvml.harpe_emulator_wait(0, 1)
        begin_s = nvml.now_s()
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 600, 600)
        self.assertGreaterEqual(nvml.now_s() - begin_s, 0.5)
        now_mhz, next_mhz, at_s = self.clocks(nvml)
        if nvml.now_s() < at_s:  # not if this process had to wait for a processor
            self.assertEqual((now_mhz, next_mhz), (1410, 600))
        self.assertGreaterEqual(at_s if at_s else math.inf, begin_s + 2.5)
        old = 0
        while True:
            reported, after_s = self.reported(nvml), nvml.now_s()
            if reported == 600:
                break
            self.assertEqual(reported, 1410)
            old += 1
        self.assertGreaterEqual(after_s, begin_s + 2.5)
        self.assertEqual(self.clocks(nvml), (600, 0, 0))
        self.assertEqual(nvml.write_counts()[1], 1)

    def test_every_call_that_changes_graphics_clocks_is_late(self):
        nvml = self.with_effects({"switch_latency_s": 1}, scale=50)
        nvml.harpe_emulator_wait(0, 1)
        gpu = nvml.gpu()
        for name, arguments, mhz in (("nvmlDeviceSetGpuLockedClocks", (300, 900), 900),
                                     ("nvmlDeviceResetGpuLockedClocks", (), 1410),
                                     ("nvmlDeviceSetApplicationsClocks", (1593, 705), 705),
                                     ("nvmlDeviceResetApplicationsClocks", (), 1410)):
            begin_s = nvml.now_s()
            getattr(nvml, name)(gpu, *arguments)
            self.wait_until(lambda: self.reported(nvml) == mhz)
            self.assertGreaterEqual(nvml.now_s(), begin_s + 1)

    def slow_down(self, nvml):
        """Another process runs work of 8 s, which is slowed to half during the run. Returns its
        duration, when it was called and ended, and the time of the clock change (0: not known)."""
        child = self.spawn("""
            begin_s = nvml.now_s()
            took_s = nvml.work(0, 8)
            print(begin_s, took_s, nvml.now_s(), flush=True)
            """)
        self.addCleanup(self.end, child)
        self.wait_until(lambda: self.is_working(nvml) or child.poll() is not None)
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 705, 705)
        _, _, at_s = self.clocks(nvml)
        begin_s, took_s, end_s = map(float, child.stdout.readline().split())
        nvml.nvmlDeviceResetGpuLockedClocks(nvml.gpu())
        self.wait_until(lambda: 705 not in self.clocks(nvml)[:2] and not self.clocks(nvml)[1])
        return took_s, begin_s, end_s, at_s

    def test_work_changes_its_speed_at_the_transition(self):
        nvml = self.with_effects({"switch_call_s": 0.2, "switch_latency_s": 4}, scale=5)
        for _ in range(20):
            took_s, begin_s, end_s, at_s = self.slow_down(nvml)
            if 0 < at_s < begin_s + 7.5:  # otherwise the machine ran this process too late
                break
        self.assertTrue(0 < at_s < begin_s + 7.5, (begin_s, at_s))
        # Full speed until the transition, then half: the time is 16 - (at_s - start). The start is
        # not known exactly, but it is between begin_s and end_s - took_s.
        self.assertGreater(took_s, 8.1)
        self.assertGreater(took_s, 16 - (at_s - begin_s) - 1e-6)
        self.assertLess(took_s, 16 - (at_s - (end_s - took_s)) + 1e-6)

    def test_a_killed_process_leaves_its_change_behind(self):
        nvml = self.with_effects({"switch_call_s": 5, "switch_latency_s": 1}, scale=5)
        nvml.harpe_emulator_wait(0, 1)
        child = self.spawn("nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 450, 450)")
        self.addCleanup(self.end, child)
        self.wait_until(lambda: self.clocks(nvml)[1] == 450 or self.clocks(nvml)[0] == 450)
        child.kill()
        child.wait()
        self.wait_until(lambda: self.reported(nvml) == 450)

    def test_a_host_can_state_when_it_called(self):
        nvml = self.with_effects({"switch_latency_s": 0.25})
        nvml.harpe_emulator_wait(0, 1)
        nvml.harpe_emulator_calls_at(0, int((nvml.now_s() - 0.25) * 1e9))
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 600, 600)
        self.assertEqual(self.clocks(nvml), (600, 0, 0))
        nvml.harpe_emulator_calls_at(0, 0)
        begin_s = nvml.now_s()
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 900, 900)
        self.wait_until(lambda: self.reported(nvml) == 900)
        self.assertGreaterEqual(nvml.now_s(), begin_s + 0.25)

    # ---- Disobedience, limits, heat ---------------------------------------------------------

    def test_a_lock_may_be_ignored(self):
        for effects in ({"lock_ignored": 1}, {"lock_ignored": 1, "switch_latency_s": 1e-4}):
            nvml = self.with_effects(effects)
            nvml.harpe_emulator_wait(0, 1)
            nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 600, 600)
            time.sleep(0.01)
            self.assertEqual(self.reported(nvml), 1410)
            self.assertEqual(nvml.write_counts()[1], 1)

    def test_an_administrators_lock_and_a_boards_limit_hold(self):
        nvml = self.with_effects({"administrator_lock_mhz": 1005, "power_cap_w": 200})
        nvml.harpe_emulator_wait(0, 1)
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 1410, 1410)
        self.assertEqual(self.reported(nvml), 1005)
        self.assertEqual(self.reasons(nvml), CLOCKS_SET)
        self.assertEqual(nvml.number("nvmlDeviceGetEnforcedPowerLimit", nvml.gpu()), 200000)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerManagementLimit", nvml.gpu()), 400000)
        self.keep_working()
        self.wait_until(lambda: self.reasons(nvml) == CLOCKS_SET | POWER_CAP)
        self.assertLessEqual(nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu()), 200000)

    def test_a_hot_gpu_reports_its_slowdown(self):
        nvml = self.with_effects({"heating_k": 100, "thermal_limit_c": 80,
                                  "thermal_slowdown_c": 84}, scale=1000)
        thresholds = [nvml.number("nvmlDeviceGetTemperatureThreshold", nvml.gpu(), which)
                      for which in (1, 3)]
        self.assertEqual(thresholds, [84, 80])
        self.keep_working()
        self.wait_until(lambda: self.reasons(nvml) & SW_THERMAL)
        supported = nvml.number("nvmlDeviceGetSupportedClocksEventReasons", nvml.gpu(),
                                kind=C.c_ulonglong)
        self.assertEqual(supported & (SW_THERMAL | HW_THERMAL | HW_SLOWDOWN),
                         SW_THERMAL | HW_THERMAL | HW_SLOWDOWN)
        self.assertLess(self.reported(nvml), 1410)
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        shown = subprocess.run([SMI, "-q", "-d", "PERFORMANCE"], capture_output=True, text=True,
                               env={**environment, "HARPE_NVML_LIBRARY": LIBRARY}, check=True,
                               timeout=LIMIT_S).stdout
        self.assertRegex(shown, r"SW Thermal Slowdown +: Active")
        self.assertRegex(shown, r"HW Thermal Slowdown +: (Not )?Active")
        self.assertRegex(shown, r"HW Power Brake Slowdown +: Not Active")

    # ---- Seeds ------------------------------------------------------------------------------

    def durations(self, seed, effects):
        nvml = self.with_effects(effects, gpus="2xA100", scale=1000,
                                 HARPE_EMULATOR_SEED=str(seed))
        return [nvml.work(gpu, 0.5, 0.5) for gpu in (0, 0, 1, 1, 0)]

    def test_the_seed_decides_how_long_work_takes(self):
        effects = {"jitter": 0.05, "jitter_tail": {"share": 0.2, "factor": 2}}
        first, again, other = (self.durations(seed, effects) for seed in (3, 3, 4))
        for a, b in zip(first, again):
            self.assertAlmostEqual(a, b, delta=5e-9)
        self.assertNotEqual(first, other)
        self.assertEqual(len(set(first)), len(first))
        for ideal in self.durations(3, {}):
            self.assertAlmostEqual(ideal, 0.5, delta=2e-9)

    # ---- Counters ---------------------------------------------------------------------------

    def test_the_counter_has_the_step(self):
        nvml = self.with_effects({"energy_step_s": 2}, scale=20)
        gpu, values = nvml.gpu(), set()
        end_s = nvml.now_s() + 5
        while nvml.now_s() < end_s:
            values.add(nvml.energy_j(gpu))
        self.assertLessEqual(len(values), 4 + (nvml.now_s() - end_s) / 2)

    def test_the_counter_of_a_module_has_the_scope(self):
        for scope, power_w in (("model", 78 + 84), ("gpu", 78)):
            nvml = self.with_effects({"counter_scope": scope}, gpus="GH200", scale=100,
                                     faults="energy_step=0")
            first_j, first_s = nvml.energy_at(nvml.gpu())
            end_s = first_s + 20
            while nvml.now_s() < end_s:
                time.sleep(0.01)
            last_j, last_s = nvml.energy_at(nvml.gpu())
            self.assertAlmostEqual((last_j - first_j) / (last_s - first_s) / power_w, 1, delta=0.05)

    # ---- All effects ------------------------------------------------------------------------

    def test_answers_are_consistent_under_real(self):
        models = {"V100": 1530, "A40": 1740, "A100": 1410, "H100": 1980, "GH200": 1980}
        nvml = self.start(gpus=",".join(f"2x{m}" for m in models), scale=100,
                          HARPE_EMULATOR_PHYSICS="real", HARPE_EMULATOR_SEED="9")
        for index in range(10):
            gpu, highest = nvml.gpu(index), list(models.values())[index // 2]
            limit = nvml.number("nvmlDeviceGetEnforcedPowerLimit", gpu)
            energy_j = nvml.energy_j(gpu)
            for mhz in (0, highest * 2 // 3, highest):
                if mhz:
                    nvml.nvmlDeviceSetGpuLockedClocks(gpu, mhz, mhz)
                nvml.work(index, 2, 0.7)
                clock = nvml.number("nvmlDeviceGetClockInfo", gpu, GRAPHICS)
                self.assertLessEqual(clock, highest)
                self.assertGreater(clock, 0)
                self.assertLess(nvml.number("nvmlDeviceGetPowerUsage", gpu), limit)
                self.assertGreater(nvml.number("nvmlDeviceGetPowerUsage", gpu), 10000)
                temperature = nvml.number("nvmlDeviceGetTemperature", gpu, 0)
                self.assertTrue(28 <= temperature <= 85, temperature)
                known = nvml.number("nvmlDeviceGetSupportedClocksEventReasons", gpu,
                                    kind=C.c_ulonglong)
                now = nvml.number("nvmlDeviceGetCurrentClocksEventReasons", gpu,
                                  kind=C.c_ulonglong)
                self.assertEqual(now & ~known, 0)
                more_j = nvml.energy_j(gpu)
                self.assertGreater(more_j, energy_j)
                energy_j = more_j

    def test_real_gpus_of_a_model_differ(self):
        nvml = self.start(gpus="16xA100", HARPE_EMULATOR_PHYSICS="real")
        powers = {nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu(i)) for i in range(16)}
        self.assertGreater(len(powers), 12)
        self.assertLess(max(powers) / min(powers), 2)

    # ---- The command ------------------------------------------------------------------------

    def emulate(self, *arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HARPE_EMULATOR_")}
        return subprocess.run([HARPE, "emulate", *arguments], capture_output=True, text=True,
                              env=environment, timeout=LIMIT_S)

    def test_the_command_refuses_a_file_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "effects.json")
            for text, says in (('{"switch_latency": 1}', "'switch_latency' is not an effect"),
                               ('{"jitter": 7}', "jitter: expected a number from 0 to 0.5")):
                path.write_text(text)
                result = self.emulate("--physics", str(path), "--", "true")
                self.assertNotEqual(result.returncode, 0)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertIn(says, result.stderr)
            result = self.emulate("--physics", str(path) + ".no", "--", "true")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("effects.json.no", result.stderr)

    def test_the_command_finds_a_file_relative_to_its_own_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "effects.json").write_text('{"administrator_lock_mhz": 1200}')
            code = ("import os; os.chdir('/'); from nvml_client import *; n = Client();"
                    "n.nvmlInit_v2(); n.harpe_emulator_wait(0, 1);"
                    "print(n.number('nvmlDeviceGetClockInfo', n.gpu(), 0))")
            environment = {k: v for k, v in os.environ.items()
                           if not k.startswith("HARPE_EMULATOR_")}
            environment["PYTHONPATH"] = str(pathlib.Path(__file__).resolve().parent)
            result = subprocess.run([HARPE, "emulate", "--physics", "effects.json", "--",
                                     sys.executable, "-c", code], cwd=folder, env=environment,
                                    capture_output=True, text=True, timeout=LIMIT_S)
            self.assertEqual((result.returncode, result.stdout), (0, "1200\n"), result.stderr)
