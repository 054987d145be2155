#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`harpe emulate`, tested from the outside: the environment of its command, its exit status, and
that the emulated GPUs are removed afterwards however it ends."""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

from nvml_client import HARPE, LIMIT_S, PRELOAD

MEMORY = f"/dev/shm/harpe-emulator-{os.getuid()}-"


class EmulateTest(unittest.TestCase):
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("HARPE_", "LD_PRELOAD"))}

    def emulate(self, *arguments, cwd=None):
        return subprocess.run([HARPE, "emulate", *arguments], capture_output=True, text=True,
                              env=self.environment, cwd=cwd, check=False)

    def begin(self, *arguments):
        """A running `harpe emulate` whose command has printed 'ready'."""
        process = subprocess.Popen([HARPE, "emulate", *arguments], stdout=subprocess.PIPE,
                                   text=True, env=self.environment, start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def test_emulate_gives_a_command_gpus_and_takes_them_away(self):
        program = ("import ctypes, os\n"
                   "nvml = ctypes.CDLL('libnvidia-ml.so.1'); count = ctypes.c_uint()\n"
                   "nvml.nvmlInit_v2(); nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))\n"
                   "print(count.value, os.environ['HARPE_EMULATOR_CLUSTER'])")
        if PRELOAD:
            program = "import os; print(3, os.environ['HARPE_EMULATOR_CLUSTER'])"
        result = self.emulate("--gpus", "2xA100,V100", "--", sys.executable, "-c", program)
        self.assertEqual(result.returncode, 0, result.stderr)
        count, cluster = result.stdout.split()
        self.assertEqual(count, "3")
        self.assertFalse(os.path.exists(MEMORY + cluster))

    def test_emulate_has_the_commands_exit_status(self):
        self.assertEqual(self.emulate("--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.emulate("sh", "-c", "kill -TERM $$").returncode, 128 + 15)
        self.assertEqual(self.emulate("--", "/no/such/command").returncode, 127)
        self.assertEqual(self.emulate("--gpus", "4xB300", "--", "true").returncode, 2)
        self.assertEqual(self.emulate("--faults", "nonsense", "--", "true").returncode, 2)
        self.assertEqual(self.emulate().returncode, 2)

    def test_emulate_refuses_a_profile_that_cannot_be_followed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "profile.csv")
            head = "stage,instruction,frequency,time,energy\n0,forward,1410,0.05,20\n"
            for text, words in ((None, ["No such file"]), ("x,y\n1,2\n", [":1:", "missing columns"]),
                                (head + "0,forward,1200,fast,18\n", [":3:", "fast"]),
                                (head + "0,forward,1410,0.5,35\n", [":3:", "line 2"])):
                with self.subTest(text):
                    if text:
                        with open(path, "w", encoding="ascii") as file:
                            file.write(text)
                    result = self.emulate("--profile", path, "--", "echo", "ran")
                    self.assertNotEqual(result.returncode, 0)
                    self.assertEqual(result.stdout, "")
                    self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                    for word in (path, *words):
                        self.assertIn(word, result.stderr)
            with open(path, "w", encoding="ascii") as file:
                file.write(head + "0,forward,1200,0.055,18\n0,forward,1200,0.0551,18.01\n")
            self.assertEqual(self.emulate("--profile", path, "--", "true").returncode, 0)
            # The command may change its directory.
            result = self.emulate("--profile", "profile.csv", "--faults-file", "later", "--", "sh", "-c", "cd /; "
                                  "echo $HARPE_EMULATOR_PROFILE $HARPE_EMULATOR_FAULTS_FILE", cwd=folder)
            self.assertEqual(result.stdout.split(), [path, os.path.join(folder, "later")], result.stderr)

    def test_emulate_passes_signals_on(self):
        process = self.begin("--", "sh", "-c", "trap 'echo got; exit 3' TERM; echo ready; "
                             "while :; do sleep 0.05; done")
        process.terminate()
        self.assertEqual(process.communicate(timeout=LIMIT_S)[0], "got\n")
        self.assertEqual(process.returncode, 3)

    def test_a_signal_leaves_no_gpus_behind(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process = self.begin("--", "sh", "-c", "echo ready; exec sleep 600")
            memory = MEMORY + f"emulate-{process.pid}"
            self.assertTrue(os.path.exists(memory))
            process.send_signal(number)
            self.assertIn(process.wait(timeout=LIMIT_S), (128 + number, -number))
            self.assertFalse(os.path.exists(memory))

    def test_gpus_go_although_a_part_of_the_command_lives_on(self):
        result = self.emulate("--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $PPID $!")
        emulate, living = map(int, result.stdout.split())
        os.kill(living, signal.SIGKILL)  # it still existed
        self.assertFalse(os.path.exists(MEMORY + f"emulate-{emulate}"))

    def test_what_a_killed_emulate_left_goes_with_the_next(self):
        process = self.begin("--", "sh", "-c", "echo ready; exec sleep 600")
        memory = MEMORY + f"emulate-{process.pid}"
        living = self.begin("--", "sh", "-c", "echo ready; exec sleep 600")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.assertEqual(self.emulate("--", "true").returncode, 0)
        self.assertFalse(os.path.exists(memory))
        self.assertTrue(os.path.exists(MEMORY + f"emulate-{living.pid}"))  # the cluster is in use
        living.terminate()
        living.wait()

    def test_a_cluster_with_a_name_stays_while_others_use_it(self):
        name = f"test-named-{os.getpid()}"
        first = self.begin("-c", name, "--", "sh", "-c", "echo ready; exec sleep 600")
        self.assertEqual(self.emulate("-c", name, "--", "true").returncode, 0)
        self.assertTrue(os.path.exists(MEMORY + name))
        first.terminate()
        first.wait()
        self.assertFalse(os.path.exists(MEMORY + name))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup ignores this
    unittest.main()
