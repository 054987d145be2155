# SPDX-License-Identifier: Apache-2.0
"""bench/gpu_check on emulated GPUs and without any GPU: it measures, prints, and changes nothing.
HARPE names the program under test, HARPE_BINARY_DIR its build."""
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from program import HARPE, SOURCE, ProgramTest, environment, json, unittest  # noqa: E402

SCRIPT = SOURCE / "bench" / "gpu_check"
BUILD = os.environ.get("HARPE_BINARY_DIR", SOURCE / "build" / "release")


def module():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
    found = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(found)
    return found


class GpuCheck(ProgramTest):
    def check(self, *words, before=(), **changes):
        variables = environment(PYTHONDONTWRITEBYTECODE="1", **changes)
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        done = subprocess.run([*before, sys.executable, SCRIPT, "--build", str(BUILD),
                               "--seconds", "0.3", *words], cwd=self.path, env=variables,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def test_without_a_driver_one_line_and_success(self):
        out = self.check(HARPE_NVML_LIBRARY="/nonexistent.so")
        self.assertRegex(out, r"^gpu-check: skipped: no NVIDIA driver here .*\n$")

    def test_emulated_gpus_are_measured(self):
        for _ in range(10):
            out = self.check("--emulated", "--json", "found.json", "--markdown", "found.md")
            found = json.loads((self.path / "found.json").read_text())
            loop = found["windows around a load of GPU 0"]
            between_j = abs(loop["Harpe's window (J)"] - loop["counter (J)"])
            counter = found["GPU 0, energy counter"]
            # One step of the counter, 20 J under load, may fall between the two readings. More
            # steps are possible only if the machine delayed the reading for that long. A delay may
            # also leave time for only one move.
            if between_j < 25 and counter["moves"] > 1:
                break
        self.assertLess(between_j, 25)
        self.assertGreater(loop["Harpe's window (J)"], 10)
        self.assertGreater(counter["moves"], 1)
        for name in ("lowest", "highest"):  # 62 W for 50 ms, or for a multiple of it
            steps = counter["mJ a move"][name] / 3100
            self.assertGreater(steps, 0.9)
            self.assertAlmostEqual(steps, round(steps), delta=0.01)
        self.assertGreater(counter["W by the counter"], 0)
        self.assertEqual(found["settings, before and after"], {"GPU 0": "unchanged"})
        self.assertIn("us a window", found["windows, bench_window"]["Harpe itself"])
        self.assertIn("NVIDIA A100", out)
        self.assertIn("| a read, p99 (us) |", (self.path / "found.md").read_text())

    def test_gpus_that_can_little_are_told_and_no_failure(self):
        missing = "energy,average_power,instant_power,supported_clocks,reasons,power_limit"
        faults = ",".join("not_supported=" + what for what in missing.split(","))
        out = self.check(before=(HARPE, "emulate", "--gpus", "1xA100,1xV100", "--faults", faults,
                                 "--"))
        self.assertRegex(out, r"GPU 1, energy counter\n  energy counter +none: ")
        self.assertIn("not told: ", out)

    def test_nothing_but_reading_is_called(self):
        script = module()
        names = set(re.findall(r"nvml[A-Z]\w+", SCRIPT.read_text()))
        self.assertGreater(len(names), 20)
        for name in names:
            self.assertRegex(name, script.READ_ONLY)
        for name in ("nvmlDeviceSetPowerManagementLimit", "nvmlDeviceResetGpuLockedClocks",
                     "nvmlDeviceClearEccErrorCounts"):
            self.assertRaises(AssertionError, script.Nvml.function, None, name)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
