# SPDX-License-Identifier: Apache-2.0
"""Faults of GPUs, end to end: training under the optimizer, in the example's loop and under `harpe
power-limit run`, always runs to its end. One line reports the fault, no wrong number is shown or
saved, and the limits are restored."""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kills

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
TIME_SCALE = 20
LIMITS = list(range(300, 149, -25))  # of the emulated V100
FOUND_MW = 231000
FAULTY_TRAINING = BUILD / "tests" / "faulty_training.so"

ROW = re.compile(r"^  ([ *]) +(\d+) +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+)(  chosen)?$", re.MULTILINE)
SAVING = re.compile(r"highest limit, \d+ W: ")

# Marks its steps and keeps GPU 0 busy, like the example's loop.
MARKED_TRAINING = kills.MARK + """
import ctypes, sys
work = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"]).harpe_emulator_work
work.argtypes = [ctypes.c_uint, ctypes.c_double, ctypes.c_double, ctypes.c_void_p]
print("training", flush=True)
for step in range(int(sys.argv[1])):
    mark()
    work(0, 0.05, 0.7, None)
print("trained", flush=True)
"""


class Training:
    """The output and the files of a training."""

    def __init__(self, code, out, err, profile, took_s):
        self.code, self.out, self.err = code, out, err
        self.took_s = took_s  # emulated
        self.profile = json.loads(profile.read_text()) if profile.exists() else None
        table = [row for row in ROW.findall(out + err)]
        self.rows = [tuple(float(value) for value in row[1:5]) for row in table]
        self.chosen = [int(row[1]) for row in table if row[0] == "*"]
        self.lines = [line for line in err.splitlines()
                      if not ROW.match(line) and not re.match(r" +limit \(W\)|Against|Optimum", line)]

    def __str__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}\n--- profile\n{self.profile}"


def on(*all_gpus):
    """Runs a test with each launcher on each machine, each time from the start."""
    def decorate(test):
        @functools.wraps(test)
        def run(self):
            for gpus in all_gpus:
                for launcher in self.launchers:
                    with self.subTest(gpus=gpus, launcher=launcher):
                        self.start_machine(gpus)
                        try:
                            test(self, launcher)
                        finally:
                            self.faults_file.unlink(missing_ok=True)
                            self.machine.close()
        return run
    return decorate


class Faults(unittest.TestCase):
    def setUp(self):
        if not (BUILD / "examples" / "example_power_limit_loop").exists():
            self.skipTest("built without examples")
        folder = tempfile.TemporaryDirectory(prefix="harpe-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.faults_file = self.folder / "faults"
        self.steps = 400
        self.launchers = {
            "loop": lambda profile: [BUILD / "examples" / "example_power_limit_loop", "1", "400", "0.05", profile],
            "run": lambda profile: [BUILD / "harpe", "power-limit", "run", "--profile", profile, "--",
                                    sys.executable, "-c", MARKED_TRAINING, str(self.steps)]}

    def start_machine(self, gpus):
        self.machine = kills.Machine(BUILD, gpus, TIME_SCALE)
        if "," not in gpus:
            self.machine.set_limit(0, FOUND_MW)
        self.found = self.machine.state()

    def train(self, launcher, faults="", **environment):
        profile = self.folder / "profile.json"
        profile.unlink(missing_ok=True)
        environment = dict(self.machine.environment, HARPE_EMULATOR_FAULTS=faults,
                           HARPE_EMULATOR_FAULTS_FILE=str(self.faults_file), **environment)
        begin_s = time.monotonic()
        done = subprocess.run(self.launchers[launcher](profile), env=environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=600)
        took_s = (time.monotonic() - begin_s) * TIME_SCALE
        return Training(done.returncode, done.stdout, done.stderr, profile, took_s)

    def train_until(self, launcher, fault, step=20):
        """The fault comes before that step with the second limit, of 51. The first step sets the
        limit, 10 let it settle, and the window is open during the others."""
        return self.train(launcher, HARPE_NVML_LIBRARY=str(FAULTY_TRAINING), FAULT=fault,
                          FAULT_LIMIT_MW=str(LIMITS[1] * 1000), FAULT_STEP=str(step))

    def guards(self):
        """Returns the guards of this test's cluster."""
        found = []
        name = f"HARPE_EMULATOR_CLUSTER={self.machine.environment['HARPE_EMULATOR_CLUSTER']}".encode()
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (b"--guard-process" in (folder / "cmdline").read_bytes().split(b"\0") and
                        name in (folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def check_guards_are_gone(self):
        end_s = time.monotonic() + kills.LIMIT_S
        while time.monotonic() < end_s:
            if not self.guards():
                return
            time.sleep(0.01)
        self.fail(f"guards are still there: {self.guards()}")

    def check_numbers(self, training):
        for limit_w, time_s, energy_j, cost_j in training.rows:
            self.assertIn(limit_w, LIMITS, training)
            # At least 40 steps of 0.05 s on any machine, between idle power and the limit.
            self.assertGreater(time_s, 1.999, training)
            self.assertTrue(40 * time_s < energy_j < 2 * limit_w * time_s, training)
            self.assertGreater(cost_j, 0, training)
        self.assertLess(sum(row[1] for row in training.rows), training.took_s, training)

    def check_stopped(self, training, *says):
        """Checks that training ran to the end, with one line that contains all of `says`, and
        without invented numbers."""
        self.assertEqual(training.code, 0, training)
        self.assertIn("train", training.out)
        self.assertEqual(len(training.lines), 1, training)
        for text in says:
            self.assertIn(text, training.lines[0])
        self.assertIsNone(training.profile, training)
        self.assertEqual(training.chosen, [], training)
        self.assertNotRegex(training.out + training.err, SAVING)
        self.check_numbers(training)

    def check_done(self, training):
        self.assertEqual(training.code, 0, training)
        self.assertEqual(training.lines, [], training)
        self.assertEqual([row[0] for row in training.rows], LIMITS, training)
        self.assertEqual(len(training.chosen), 1, training)
        self.check_numbers(training)
        saved = [(one["power_limit"], one["time"], one["energy"]) for one in training.profile["measurements"]]
        for row, one in zip(training.rows, saved):
            self.assertEqual(row[0], one[0])
            self.assertAlmostEqual(row[1], one[1], 2)
            self.assertAlmostEqual(row[2], one[2], 0)

    def check_restored(self):
        self.assertIsNotNone(self.machine.wait_until(self.found, kills.LIMIT_S), self.machine.state())
        self.check_guards_are_gone()

    # ---- No fault, and faults from the start

    @on("1xV100", "2xV100")
    def test_without_faults_everything_is_measured(self, launcher):
        self.check_done(self.train(launcher))
        self.check_restored()

    @on("1xV100", "2xV100")
    def test_no_permission_from_the_start(self, launcher):
        training = self.train(launcher, "no_permission")
        self.check_stopped(training, "GPU 0 (Tesla V100", "NVML_ERROR_NO_PERMISSION", "run as root")
        self.assertEqual(training.rows, [])
        self.check_restored()

    @on("1xV100")
    def test_power_limits_that_are_not_supported(self, launcher):
        training = self.train(launcher, "not_supported=power_limit")
        self.check_stopped(training, "GPU 0 (Tesla V100", "NVML_ERROR_NOT_SUPPORTED", "cannot do it")
        self.assertEqual(training.rows, [])
        self.check_restored()

    @on("2xV100")
    def test_persistence_mode_that_is_not_supported_does_not_matter(self, launcher):
        self.check_done(self.train(launcher, "not_supported=persistence"))
        self.check_restored()

    @on("1xA100,1xV100", "2xV100,1xA40")
    def test_mixed_models(self, launcher):
        training = self.train(launcher)
        self.check_stopped(training, "not all one model", "Tesla V100", "NVIDIA A", "CUDA_VISIBLE_DEVICES")
        self.assertEqual(training.rows, [])
        self.check_restored()

    @on("1xV100", "2xV100")
    def test_limits_above_the_enforced_limit_are_one(self, launcher):
        training = self.train(launcher, "enforced_limit=210")
        self.assertEqual(training.code, 0, training)
        self.assertEqual(len(training.lines), 1, training)
        self.assertIn("GPU 0 is limited to 210 W", training.lines[0])
        self.assertEqual([row[0] for row in training.rows], [210, 200, 175, 150], training)
        self.assertEqual([one["power_limit"] for one in training.profile["measurements"]], [210, 200, 175, 150])
        self.assertRegex(training.out + training.err, "highest limit, 210 W: ")
        self.check_restored()

    @on("1xV100", "2xV100")
    def test_limits_without_effect(self, launcher):
        for floor_w, measured in ((230, 3), (1000, 1)):
            self.machine.set_limit(0, min(floor_w, 300) * 1000)
            self.found = self.machine.state()
            training = self.train(launcher, f"limit_floor={floor_w}")
            self.check_stopped(training, "GPU 0 (Tesla V100", f"accepted a power limit of {LIMITS[measured]} W",
                               f"the limit is {min(floor_w, 300)} W")
            self.assertEqual([row[0] for row in training.rows], LIMITS[:measured])
            self.check_restored()

    # ---- Faults in the middle

    @on("1xV100", "2xV100")
    def test_a_limit_that_comes_down_in_mid_window(self, launcher):
        training = self.train_until(launcher, "enforced_limit=260")
        self.check_stopped(training, "GPU 0: its power limit was set to 275 W, but only 260 W are in force")
        self.assertEqual([row[0] for row in training.rows], LIMITS[:1])
        self.check_restored()

    @on("1xV100", "2xV100")
    def test_permission_that_is_taken_away_and_given_back(self, launcher):
        training = self.train_until(launcher, "no_permission")
        self.check_stopped(training, "GPU 0 (Tesla V100", "NVML_ERROR_NO_PERMISSION", "run as root",
                           "not all limits could be restored yet")
        self.assertEqual(len(training.rows), 2)
        self.assertNotEqual(self.machine.state(), self.found)
        self.faults_file.unlink()  # the guard has not given up
        self.check_restored()

    @on("1xV100", "3xV100")
    def test_a_gpu_that_is_lost_in_mid_window(self, launcher):
        lost = len(self.found) - 1
        training = self.train_until(launcher, f"lost_after=25@{lost}")
        self.check_stopped(training, f"GPU {lost} (Tesla V100", "NVML_ERROR_GPU_IS_LOST", "reset")
        self.check_guards_are_gone()  # the guard does not wait for a lost GPU
        # The others are restored. A lost GPU cannot even be read.
        limits = [self.machine.limit(gpu) for gpu in range(lost)]
        self.assertEqual(limits, [limit for limit, _ in self.found[:lost]])

    @on("1xV100", "2xV100")
    def test_an_energy_counter_that_restarts_in_mid_window(self, launcher):
        # Early in the window, the counter soon passes its first value again: the difference looks
        # right but is wrong.
        for step in (14, 30, 49):
            training = self.train_until(launcher, "counter_restart_after=0", step)
            self.check_stopped(training, "GPU 0", "energy counter ran backwards", "driver was reloaded",
                               "measure again")
            self.check_restored()
            self.faults_file.unlink()

    @on("1xV100", "2xV100")
    def test_set_calls_of_200_ms_are_in_no_measurement(self, launcher):
        self.steps = 2000  # `run` skips the steps during a set call
        training = self.train(launcher, f"slow_set={200 * TIME_SCALE}")
        self.check_done(training)
        self.check_restored()
        # All windows and all set calls fit, and so do the other steps, one in five.
        sets_s = 0.2 * TIME_SCALE * len(self.found) * len(LIMITS)
        windows_s = sum(row[1] for row in training.rows)
        self.assertLess(windows_s + sets_s + 0.5 * len(LIMITS), training.took_s, training)


if __name__ == "__main__":
    unittest.main()
