#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measured workloads on emulated GPUs: the calls of the library, and `harpe emulate --workload`, also
under `harpe power-limit run`."""
import ctypes as C
import os
import re
import subprocess
import unittest

from nvml_client import (HARPE, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, EmulatorTestCase)

SMALL, LARGE = b"gpt2-bf16-b8-s128", b"bert-large-bf16-b32-s512"
LINE = re.compile(r"(\S+): (\d+) iterations of ([\d.]+) ms and ([\d.]+) J\n")


class Calls(EmulatorTestCase):
    def step(self, nvml, name, stretch=1.0, ready_ns=0, gpu=0):
        end = C.c_int64()
        nvml.harpe_emulator_workload_step(gpu, name, C.c_double(stretch), C.c_int64(ready_ns), C.byref(end))
        return end.value

    def test_steps_follow_each_other_exactly(self):
        nvml = self.start("A100-PCIe", scale=5, faults="energy_step=0")
        end_ns = first_ns = self.step(nvml, SMALL)
        for _ in range(40):
            end_ns = self.step(nvml, SMALL, ready_ns=end_ns)
        self.assertAlmostEqual((end_ns - first_ns) / 40e9, 0.007881, delta=1e-6)

    def test_a_clock_slows_only_work_that_fills_the_gpu(self):
        nvml = self.start("A100-PCIe", scale=5, faults="energy_step=0")
        took_s = {}
        for mhz in (1005, 705):
            nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(), 210, mhz)
            for name in (SMALL, LARGE):
                begin_ns = self.step(nvml, name, 0.01)
                took_s[name, mhz] = (self.step(nvml, name, ready_ns=begin_ns) - begin_ns) * 1e-9
        self.assertAlmostEqual(took_s[SMALL, 705], took_s[SMALL, 1005], delta=1e-6)
        self.assertAlmostEqual(took_s[LARGE, 1005], 0.1471, delta=0.002)
        self.assertAlmostEqual(took_s[LARGE, 705], 0.1961, delta=0.002)

    def test_stretch_and_names_are_checked(self):
        nvml = self.start("A100-PCIe", scale=10)
        code = lambda *arguments: nvml.code("harpe_emulator_workload_step", *arguments)
        for stretch in (0.0, -1.0, 101.0, float("nan")):
            self.assertEqual(code(0, SMALL, C.c_double(stretch), C.c_int64(0), None), INVALID_ARGUMENT)
        self.assertEqual(code(0, b"gpt2", C.c_double(1), C.c_int64(0), None), NOT_FOUND)
        self.assertEqual(code(0, None, C.c_double(1), C.c_int64(0), None), NOT_FOUND)
        self.assertEqual(code(1, SMALL, C.c_double(1), C.c_int64(0), None), INVALID_ARGUMENT)
        self.assertEqual(code(0, SMALL, C.c_double(1), C.c_int64(0), None), SUCCESS)
        nvml.functions.harpe_emulator_workload_name.restype = C.c_char_p
        name = nvml.functions.harpe_emulator_workload_name
        self.assertEqual((name(19), name(20)), (b"qwen2-1.5b-bf16-b8-s4096", None))

    def test_the_environment_names_a_workload(self):
        nvml = self.start("A100-PCIe", scale=10, HARPE_EMULATOR_WORKLOAD=SMALL.decode())
        self.assertEqual(nvml.code("harpe_emulator_workload_step", 0, None, C.c_double(1), C.c_int64(0), None),
                         SUCCESS)


class Program(unittest.TestCase):
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("HARPE_", "LD_PRELOAD"))}

    def emulate(self, *arguments, code=0):
        result = subprocess.run([HARPE, "emulate", *arguments], capture_output=True, text=True,
                                env=self.environment, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout if code == 0 else result.stderr

    def run_workload(self, *arguments, name=SMALL.decode(), steps=100):
        out = self.emulate("--gpus", "A100-PCIe", "--time-scale", "10", "--workload", name, "--steps",
                           str(steps), *arguments)
        found, count, milliseconds, joules = LINE.fullmatch(out).groups()
        self.assertEqual((found, int(count)), (name, steps))
        return float(milliseconds), float(joules)

    def test_list_prints_the_workloads(self):
        names = self.emulate("--workload", "list").split()
        self.assertEqual(len(names), 20)
        self.assertEqual(names, sorted(set(names)))
        self.assertIn(SMALL.decode(), names)

    def test_an_iteration_takes_what_was_measured(self):
        milliseconds, joules = self.run_workload()
        self.assertAlmostEqual(milliseconds, 7.88, delta=0.01)
        self.assertAlmostEqual(joules, 1.15, delta=0.02)

    def test_noise_and_drift(self):
        self.assertNotEqual(self.run_workload("--step-noise", "5"), self.run_workload())
        self.assertEqual(self.run_workload("--step-noise", "5")[0],
                         self.run_workload("--step-noise", "5")[0])
        self.assertNotEqual(self.run_workload("--step-noise", "5", "--seed", "2")[0],
                            self.run_workload("--step-noise", "5")[0])
        noisy, _ = self.run_workload("--step-noise", "2", steps=400)
        self.assertAlmostEqual(noisy, 7.88, delta=0.03)  # 2 % / sqrt(400) is 0.008 ms
        # after 1.6 s, in the middle, a step is 1.6 / 3600 * 1000 % longer
        drifting, _ = self.run_workload("--drift", "1000", steps=400)
        self.assertAlmostEqual(drifting / 7.881, 1.0044, delta=0.0005)

    def test_the_workload_runs_on_the_first_visible_gpu(self):
        energies = "for i in 0 1; do nvidia-smi -i $i --query-compute-apps=pid --format=csv,noheader; echo; done"
        out = self.emulate("--gpus", "2xA100-PCIe", "--workload", SMALL.decode(), "--", "sh", "-c",
                           f"CUDA_VISIBLE_DEVICES=1 {HARPE} emulate --steps 0 > /dev/null & job=$!; "
                           f"sleep 0.5; {energies}; kill $job; echo job $job")
        first, second, job = re.fullmatch(r"(\d*)\n+(\d*)\n+job (\d+)\n", out).groups()
        self.assertEqual((first, second), ("", job))

    def test_phases_take_turns(self):
        names = f"{SMALL.decode()},qwen2-1.5b-bf16-b1-s128"
        # 1 s of the first has 127 steps, and 1 s of the second 38
        milliseconds, _ = self.run_workload("--phase", "1", name=names, steps=330)
        self.assertAlmostEqual(milliseconds, 4e3 / 330, delta=0.2)
        self.assertIn("--workload list", self.emulate("--workload", names + ",x", code=2))

    def test_steps_can_be_printed(self):
        out = self.emulate("--workload", SMALL.decode(), "--steps", "3", "--print-steps")
        self.assertTrue(out.startswith("step 1\nstep 2\nstep 3\n"), out)

    def test_a_command_runs_the_workload_of_its_emulation(self):
        out = self.emulate("--gpus", "A100-PCIe", "--time-scale", "10", "--workload", SMALL.decode(), "--",
                           "sh", "-c", f"nvidia-smi -lgc 210,810 > /dev/null; {HARPE} emulate --steps 50")
        joules = float(LINE.fullmatch(out).group(4))
        self.assertAlmostEqual(joules, 0.73, delta=0.02)  # at 1410 MHz: 1.15

    def test_the_power_limit_optimizer_sees_the_steps(self):
        out = self.emulate("--gpus", "A100-PCIe", "--time-scale", "20", "--workload", LARGE.decode(), "--",
                           "sh", "-c", f"exec 2>&1; {HARPE} power-limit run --warmup-steps 2 --profile-steps 5 -- "
                           f"{HARPE} emulate --steps 150")
        self.assertIn("150 iterations", out)
        self.assertRegex(out, r"(?m)^[ *]+250 +\d.*\n[ *]+225 +\d")
        self.assertRegex(out, r"Optimum: \d+ W")

    def test_wrong_usage_is_refused(self):
        self.assertIn("--workload list", self.emulate("--workload", "gpt2", code=2))
        self.assertIn("the command is missing", self.emulate("--steps", "3", code=2))
        for option, value in (("--steps", "-1"), ("--step-noise", "21"), ("--drift", "-91")):
            self.assertIn(value, self.emulate("--workload", SMALL.decode(), option, value, code=2))
