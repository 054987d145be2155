# SPDX-License-Identifier: Apache-2.0
"""The guard on emulated GPUs: limits come back however the trainer ends, and only then."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kills

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()

FORKING_TRAINER = """
import ctypes, os, sys, time
harpe = ctypes.CDLL(sys.argv[1])
harpe.harpe_power_limit_gpus_device.restype = ctypes.c_void_p
gpus, device, optimizer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert harpe.harpe_gpus_open(None, ctypes.byref(gpus), None) == 0
assert harpe.harpe_power_limit_gpus_new(gpus, True, ctypes.byref(device), None) == 0
functions = ctypes.c_void_p(harpe.harpe_power_limit_gpus_device(device))
assert harpe.harpe_power_limit_optimizer_new(functions, None, ctypes.byref(optimizer), None) == 0
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""

# The driver library and the GPUs come through options; the environment says something else.
OPTIONS_TRAINER = """
import ctypes, sys, time
library, driver, visible = sys.argv[1:]
harpe = ctypes.CDLL(library)
class Options(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("library_path", "visible_devices", "device_order")] + \
               [(name, ctypes.c_void_p) for name in ("log_write", "log_user")]
harpe.harpe_power_limit_gpus_device.restype = ctypes.c_void_p
options = Options(driver.encode(), visible.encode())
gpus, device, optimizer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert harpe.harpe_gpus_open(ctypes.byref(options), ctypes.byref(gpus), None) == 0
error = ctypes.create_string_buffer(4096)
if harpe.harpe_power_limit_gpus_new(gpus, True, ctypes.byref(device), error) != 0:
    sys.exit(repr(error.raw))
functions = ctypes.c_void_p(harpe.harpe_power_limit_gpus_device(device))
assert harpe.harpe_power_limit_optimizer_new(functions, None, ctypes.byref(optimizer), None) == 0
print("optimizing", flush=True)
time.sleep(600)
"""


class Guard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (BUILD / "examples" / "example_power_limit_loop").exists():
            raise unittest.SkipTest("built without examples")
        cls.machine = kills.Machine(BUILD)

    @classmethod
    def tearDownClass(cls):
        cls.machine.close()

    def guards_of(self, process):
        """Guard processes that hold the trainer's pidfd."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                trainer = (folder / "fdinfo" / "4").read_text()
            except OSError:
                continue
            if b"--guard-process" in words and f"Pid:\t{process.pid}\n" in trainer:
                found.append(int(folder.name))
        return found

    def started(self):
        found = self.machine.state()
        process = self.machine.start(slow_set=False)
        self.assertEqual(process.stdout.readline(), b"training\n")
        return found, process

    def wait_gone(self, pid):
        end_s = time.monotonic() + kills.LIMIT_S
        while time.monotonic() < end_s:
            if not pathlib.Path(f"/proc/{pid}").exists():
                return
            time.sleep(0.01)
        self.fail(f"guard {pid} is still there")

    def test_20_kills_at_random_moments(self):
        outcome = kills.kill_many(self.machine, 20, seed=int(time.time()), within_s=kills.LIMIT_S)
        print(outcome, file=sys.stderr)
        self.assertEqual(outcome.failures, 0, outcome)
        self.assertGreater(outcome.changed, 5, outcome)

    def test_a_guard_is_alone_and_outlives_signals_to_the_group(self):
        found, process = self.started()
        guards = self.guards_of(process)
        self.assertEqual(len(guards), 1)
        guard = guards[0]
        self.assertNotEqual(os.getsid(guard), os.getsid(process.pid))
        links = {os.readlink(link) for link in pathlib.Path(f"/proc/{guard}/fd").iterdir()
                 if int(link.name) < 3}
        self.assertEqual(links, {"/dev/null"})
        os.kill(guard, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), -signal.SIGINT)
        process.stdout.close()
        self.assertIsNotNone(self.machine.wait_until(found, kills.LIMIT_S))
        self.wait_gone(guard)

    def test_a_child_that_keeps_descriptors_does_not_hide_the_death(self):
        # As data loader workers do: forked, not executed, alive for longer than the trainer.
        self.machine.set_limit(0, 231000)
        found = self.machine.state()
        with subprocess.Popen([sys.executable, "-c", FORKING_TRAINER, BUILD / "libharpe.so"],
                              env=self.machine.environment, stdout=subprocess.PIPE) as process:
            child = int(process.stdout.readline())
            try:
                self.assertNotEqual(self.machine.state(), found)
                process.kill()
                process.wait()
                self.assertIsNotNone(self.machine.wait_until(found, kills.LIMIT_S))
                os.kill(child, 0)  # it still holds the trainer's end of the socket
            finally:
                os.kill(child, signal.SIGKILL)

    def test_the_guard_opens_the_library_and_the_gpus_that_options_named(self):
        found = [self.machine.state()[0], (231000, 0)]
        self.machine.set_limit(1, found[1][0])
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            driver = pathlib.Path(folder, "driver.so")
            shutil.copy(self.machine.environment["HARPE_NVML_LIBRARY"], driver)
            environment = dict(self.machine.environment, CUDA_VISIBLE_DEVICES="0")
            for wrong_library in ("/nowhere/libnvidia-ml.so.1", None):
                environment.pop("HARPE_NVML_LIBRARY", None)
                if wrong_library:
                    environment["HARPE_NVML_LIBRARY"] = wrong_library
                with subprocess.Popen([sys.executable, "-c", OPTIONS_TRAINER, BUILD / "libharpe.so", driver, "1"],
                                      env=environment, stdout=subprocess.PIPE) as process:
                    self.assertEqual(process.stdout.readline(), b"optimizing\n")
                    self.assertEqual(self.machine.state(), [found[0], (300000, 1)])
                    guard, = self.guards_of(process)
                    self.assertIn(str(driver), pathlib.Path(f"/proc/{guard}/maps").read_text())
                    process.kill()
                self.assertIsNotNone(self.machine.wait_until(found, kills.LIMIT_S))
                self.wait_gone(guard)

    def test_a_clean_end_restores_and_dismisses_the_guard(self):
        found = self.machine.state()
        program = BUILD / "examples" / "example_power_limit_loop"
        result = subprocess.run([program, "1", "400", "0.05"], env=self.machine.environment, text=True,
                                capture_output=True)
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("  chosen\n", result.stdout)
        self.assertEqual(self.machine.state(), found)

    def test_without_a_guard_program_nothing_is_changed(self):
        found = self.machine.state()
        for program in ("/nowhere/harpe", "/bin/false"):
            result = subprocess.run([BUILD / "examples" / "example_power_limit_loop", "1", "10"],
                                    text=True, capture_output=True,
                                    env=dict(self.machine.environment, HARPE_PROGRAM=program))
            self.assertEqual(result.returncode, 0, result)
            self.assertEqual(result.stdout, "training\n")
            self.assertEqual(result.stderr.count("\n"), 1, result)
            self.assertIn("HARPE_PROGRAM", result.stderr)
            self.assertEqual(self.machine.state(), found)


unittest.main()
