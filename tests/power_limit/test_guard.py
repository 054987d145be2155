# SPDX-License-Identifier: Apache-2.0
"""The guard on emulated GPUs, as far as it needs real processes: sessions, descriptors, libraries, and
the commands that restore what nobody else can. test_guard.c kills trainers and guards."""
import contextlib
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
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import kills
from process_groups import end_group
from record_locks import keep_apart, locked

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
FOLDER = tempfile.TemporaryDirectory(prefix="harpe-test-")
kills.NOTES = keep_apart(BUILD, FOLDER.name)

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

# Options name the driver library and the GPUs; the environment names others.
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

    def setUp(self):
        self.addCleanup(self.check_nothing_is_left)

    def check_nothing_is_left(self):
        # A guard checks the limit for a moment after it has restored it. The next test begins only
        # after the guard has ended.
        self.assertIsNotNone(self.machine.wait_for(lambda: not self.machine.notes(), 60), self.machine.notes())

    def guards_of(self, process):
        """Returns the guard processes that hold the trainer's pidfd."""
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
        process = self.start()
        return found, process

    def start(self, *command):
        """A trainer that has changed its GPUs. It ends with its test, however that ends."""
        if command:
            process = subprocess.Popen([BUILD / "harpe", *command], env=self.machine.environment,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        else:
            process = self.machine.start(slow_set=False)
        self.addCleanup(end_group, process)
        self.assertEqual(process.stdout.readline(), b"started\n" if command else b"training\n")
        return process

    def wait_gone(self, pid):
        end_s = time.monotonic() + kills.LIMIT_S
        while time.monotonic() < end_s:
            if not pathlib.Path(f"/proc/{pid}").exists():
                return
            time.sleep(0.01)
        self.fail(f"guard {pid} is still there")

    def test_a_guard_is_alone_and_outlives_signals_to_the_group(self):
        found, process = self.started()
        guards = self.guards_of(process)
        self.assertEqual(len(guards), 1)
        guard = guards[0]
        self.assertNotEqual(os.getsid(guard), os.getsid(process.pid))
        links = {os.readlink(link) for link in pathlib.Path(f"/proc/{guard}/fd").iterdir()
                 if int(link.name) < 3}
        self.assertEqual(links, {"/dev/null"})
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(guard, number)
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), -signal.SIGINT)
        process.stdout.close()
        self.assertIsNotNone(self.machine.wait_until(found, kills.LIMIT_S))
        self.wait_gone(guard)

    def test_a_child_that_keeps_descriptors_does_not_hide_the_death(self):
        # Like workers of a data loader: forked, not executed, and living longer than the trainer.
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

    # ---- The guard's end

    def another_guard(self, process, old):
        """Returns the guard that has replaced `old`, as soon as it is ready."""
        new = []

        def is_there():
            new[:] = [guard for guard in self.guards_of(process) if guard != old]
            return len(new) == 1
        self.assertIsNotNone(self.machine.wait_for(is_there, 60))
        # It is ready after it has written its record: it has the lock again, and the trainer's
        # socket.
        self.assertIsNotNone(self.machine.wait_for(lambda: self.locks_of(new[0]) == len(self.machine.handles), 60))
        return new[0]

    @staticmethod
    def locks_of(process):
        count = 0
        for link in pathlib.Path(f"/proc/{process}/fd").iterdir():
            try:
                count += os.readlink(link).endswith(".lock")
            except OSError:
                pass
        return count

    def harpe(self, *arguments):
        return subprocess.run([BUILD / "harpe", *arguments], env=self.machine.environment, text=True,
                              capture_output=True, timeout=120)

    def changed(self):
        self.machine.set_limit(0, 231000)
        self.machine.set_limit(1, 300000)
        found, process = self.started()
        self.assertIsNotNone(self.machine.wait_for(lambda: self.machine.state() != found, 60))
        return found, process

    def kill_both(self, process):
        guard, = self.guards_of(process)
        for one in (guard, process.pid):
            os.kill(one, signal.SIGSTOP)
        os.kill(guard, signal.SIGKILL)
        end_group(process)
        self.wait_gone(guard)

    def test_what_is_found_is_on_disk_while_it_is_changed_and_only_then(self):
        found, process = self.changed()
        texts = [path.read_text() for path in self.machine.notes() if path.suffix == ".power"]
        self.assertEqual(len(texts), 2)
        self.assertEqual(sum("\npower_limit_mw 231000\n" in text for text in texts), 1, texts)
        for text in texts:
            self.assertIn("\npersistence 0\n", text)
            self.assertIn(f"\ntrainer {process.pid}\n", text)
        end_group(process)
        self.assertIsNotNone(self.machine.wait_until(found, kills.LIMIT_S))
        self.assertIsNotNone(self.machine.wait_for(lambda: not self.machine.notes(), kills.LIMIT_S))

    def test_a_runner_replaces_its_guard(self):
        found = self.machine.state()
        process = self.start("power-limit", "run", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertNotEqual(self.machine.state(), found)
        guard, = self.guards_of(process)
        os.kill(guard, signal.SIGKILL)
        self.another_guard(process, guard)
        end_group(process)
        self.assertIsNotNone(self.machine.wait_until(found, kills.LIMIT_S))

    def test_both_killed_and_restored_by_hand(self):
        found, process = self.changed()
        self.kill_both(process)
        self.assertNotEqual(self.machine.state(), found)
        result = self.harpe("gpus", "--restore")
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("put back: power limit 231 W, persistence mode off", result.stdout)
        self.assertEqual(self.machine.state(), found)
        self.assertEqual(self.machine.notes(), [])

    def restore_while_locked(self):
        """A killed process keeps its locks for a moment. This process has the lock in its place.
        Returns what the command says, its exit status, and how long it may have seen the lock."""
        with contextlib.ExitStack() as locks:
            for note in self.machine.notes():
                if note.suffix == ".power":
                    locks.enter_context(locked(note))
            begin = time.monotonic()
            restoring = subprocess.Popen([BUILD / "harpe", "gpus", "--restore"],
                                         env=self.machine.environment, stdout=subprocess.PIPE, text=True)
            time.sleep(2)
        locked_s = time.monotonic() - begin
        said, _ = restoring.communicate()
        return said, restoring.returncode, locked_s

    def test_restoring_waits_for_a_guard_that_is_still_ending(self):
        for _ in range(20):
            found, process = self.changed()
            self.kill_both(process)
            said, code, locked_s = self.restore_while_locked()
            if locked_s < 4:  # the command waits for 5 s
                break
            self.harpe("gpus", "--restore")
        self.assertEqual(code, 0, said)
        self.assertIn("put back: power limit 231 W", said)
        self.assertEqual(self.machine.state(), found)
        self.assertEqual(self.machine.notes(), [])

    def test_both_killed_and_the_next_start_changes_nothing_else(self):
        found, process = self.changed()
        self.kill_both(process)
        result = self.harpe("power-limit", "run", "--", "true")
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(self.machine.state(), found)
        self.assertIsNotNone(self.machine.wait_for(lambda: not self.machine.notes(), kills.LIMIT_S))

    def test_without_a_guard_the_next_start_puts_back(self):
        found = self.machine.state()
        process = self.start("power-limit", "run", "--no-guard", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertNotEqual(self.machine.state(), found)
        self.assertEqual(self.guards_of(process), [])
        end_group(process)
        self.assertNotEqual(self.machine.state(), found)
        self.assertIn("put back:", self.harpe("gpus", "--restore").stdout)
        self.assertEqual(self.machine.state(), found)

    def test_a_trainer_without_its_guard_leaves_no_record(self):
        found = self.machine.state()
        process = self.start("power-limit", "run", "--", "sh", "-c", "echo started; read line")
        guard, = self.guards_of(process)
        os.kill(guard, signal.SIGSTOP)  # receives nothing
        process.stdin.close()
        process.wait()
        self.assertEqual(self.machine.state(), found)
        os.kill(guard, signal.SIGKILL)
        self.wait_gone(guard)
        # The record of the guard that received nothing still has the original settings.
        self.assertEqual(self.harpe("gpus", "--restore").returncode, 0)
        self.assertEqual(self.machine.state(), found)
        self.assertEqual(self.machine.notes(), [])

    # ---- The trainer's own end

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
