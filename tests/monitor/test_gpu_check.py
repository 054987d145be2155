# SPDX-License-Identifier: Apache-2.0
"""bench/gpu_check on emulated GPUs and without any GPU: it measures, prints, and changes nothing.
The driver library that bench/gpu_training uses refuses every change. HARPE names the program under
test, HARPE_BINARY_DIR its build."""
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from program import HARPE, SOURCE, ProgramTest, environment, json  # noqa: E402

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


# Loads the driver library argv[1] and the real one. Changes through the first one, and prints its
# answers and the power limit after them.
CHANGES = """
import ctypes, sys
refusing, real = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libnvidia-ml.so.1")
gpu, limit = ctypes.c_void_p(), ctypes.c_uint()
assert refusing.nvmlInit_v2() == 0 and real.nvmlInit_v2() == 0
assert refusing.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)) == 0
answers = [refusing.nvmlDeviceSetPowerManagementLimit(gpu, 150000),
           refusing.nvmlDeviceSetGpuLockedClocks(gpu, 900, 900),
           refusing.nvmlDeviceSetPersistenceMode(gpu, 1)]
assert real.nvmlDeviceGetPowerManagementLimit(gpu, ctypes.byref(limit)) == 0
print(answers, limit.value)
"""


class GpuTraining(ProgramTest):
    def refusing_library(self):
        """Makes it with the commands of docs/gpu.md."""
        empty, made = self.path / "libnvidia-ml.so.1", self.path / "refuse.so"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-shared", "-x", "c", os.devnull,
                        "-Wl,-soname,libnvidia-ml.so.1", "-o", empty], check=True)
        subprocess.run([compiler, "-shared", "-fPIC", SOURCE / "bench" / "gpu_refuse.c",
                        "-Wl,--no-as-needed", empty, "-o", made], check=True)
        empty.unlink()
        return made

    def test_every_change_is_refused_and_reads_go_through(self):
        done = subprocess.run([HARPE, "emulate", "--gpus", "1xA100", "--", sys.executable, "-c",
                               CHANGES, self.refusing_library()], env=environment(), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
        self.assertEqual((done.returncode, done.stdout), (0, "[4, 4, 4] 400000\n"), done)

    def test_all_changes_that_harpe_knows_are_refused(self):
        library = (SOURCE / "bench" / "gpu_refuse.c").read_text()
        refused = set(re.findall(r"REFUSE\((\w+)\)", library))
        known = set()
        for path in (SOURCE / "src" / "gpu").glob("*nvml*.c"):
            known |= set(re.findall(r'"(nvmlDevice(?:Set|Reset|Clear)\w+)"', path.read_text()))
        self.assertGreater(len(known), 4)
        self.assertEqual(known - refused, set())

    def test_without_pytorch_one_line_and_success(self):
        done = subprocess.run([sys.executable, "-S", SOURCE / "bench" / "gpu_training", "--refuse",
                               "none.so"], env=environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertRegex(done.stdout, r"^gpu-training: skipped: .*\n$")
