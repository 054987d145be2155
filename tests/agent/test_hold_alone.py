# SPDX-License-Identifier: Apache-2.0
"""`harpe agent hold` without an agent: a frequency controller and a power limit guard have the same
GPU, and each of them restores it. Whatever ends them in whatever order, the GPU gets the limit back
that it had before."""
import os
import signal
import subprocess
import unittest

from agents import DEFAULT_W, HIGHEST_MHZ, IDLE_MHZ, Machine, wait_until

FOUND_W, HELD_W = 300.0, 250.0
CONTROLLER, GUARD = "--controller-process", "--guard-process"


class HoldAlone(unittest.TestCase):
    def setUp(self):
        self.machine = Machine("1xA100")
        self.addCleanup(self.machine.close)
        self.jobs = []
        self.addCleanup(lambda: [self.kill(job) for job in self.jobs])
        self.set_limit(FOUND_W)

    def set_limit(self, limit_w):
        smi = self.machine.build / "emulator" / "bin" / "nvidia-smi"
        subprocess.run([smi, "-pl", str(limit_w)], env=self.machine.environment, check=True, capture_output=True)

    def hold(self, *flags):
        job = self.machine.start("agent", "hold", *flags, "--", "sh", "-c", "echo runs; exec sleep 1000",
                                 stdout=subprocess.PIPE)
        self.jobs.append(job)
        self.assertEqual(job.stdout.readline(), "runs\n")
        return job

    def kill(self, job, number=signal.SIGKILL):
        if job.returncode is None:
            os.killpg(job.pid, number)
            job.wait()
            job.stdout.close()

    def helper(self, word):
        found = self.machine.processes(word)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def wait(self, reached):
        self.assertIsNotNone(wait_until(reached), (self.machine.query("power.limit", "clocks.gr"),
                                                   self.machine.helpers()))

    def wait_restored(self):
        self.wait(lambda: not self.machine.helpers())
        self.assertEqual((self.machine.limits(), self.machine.clocks()), ([FOUND_W], [IDLE_MHZ]))

    def end_last(self, word, kill, early):
        """Calls kill() while the helper process cannot run, and lets it run when early() is true."""
        late = self.helper(word)
        os.kill(late, signal.SIGSTOP)
        try:
            kill()
            self.wait(early)
        finally:
            os.kill(late, signal.SIGCONT)

    def test_both_in_one_job(self):
        for last in (CONTROLLER, GUARD):
            with self.subTest(last=last):
                job = self.hold("--clock", 900, "--power-limit", int(HELD_W))
                self.assertEqual((self.machine.limits(), self.machine.clocks()), ([HELD_W], [900]))
                self.end_last(last, lambda job=job: self.kill(job), lambda: len(self.machine.helpers()) == 1)
                self.wait_restored()

    def test_limit_after_clock(self):
        """The controller has set the default limit before the guard starts."""
        clock = self.hold("--clock", 900)
        self.assertEqual(self.machine.limits(), [float(DEFAULT_W)])
        limit = self.hold("--power-limit", int(HELD_W))
        self.assertEqual(self.machine.limits(), [HELD_W])
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(signal=number):
                self.kill(limit, number)
                self.wait(lambda: not self.machine.processes(GUARD))
                self.assertEqual(self.machine.limits(), [float(DEFAULT_W)])  # the controller still wants it
                limit = self.hold("--power-limit", int(HELD_W))
        self.kill(clock)
        self.wait(lambda: not self.machine.processes(CONTROLLER))
        self.assertEqual(self.machine.clocks(), [IDLE_MHZ])
        self.kill(limit)
        self.wait_restored()

    def test_limit_after_clock_and_an_ordinary_end(self):
        clock = self.hold("--clock", HIGHEST_MHZ)
        limit = self.hold("--power-limit", int(HELD_W))
        self.kill(clock, signal.SIGTERM)
        self.wait(lambda: not self.machine.processes(CONTROLLER))
        self.kill(limit, signal.SIGTERM)
        self.wait_restored()

    def test_kills_at_once(self):
        # The guard ends only after the controller has.
        for last, early in ((CONTROLLER, lambda: self.machine.limits() == [float(DEFAULT_W)]),
                            (GUARD, lambda: not self.machine.processes(CONTROLLER))):
            with self.subTest(last=last):
                clock = self.hold("--clock", 900)
                limit = self.hold("--power-limit", int(HELD_W))
                self.end_last(last, lambda jobs=(clock, limit): [self.kill(job) for job in jobs], early)
                self.wait_restored()

    def test_guard_that_is_replaced(self):
        clock = self.hold("--clock", 900)
        limit = self.hold("--power-limit", int(HELD_W))
        first = self.helper(GUARD)
        os.kill(first, signal.SIGKILL)
        self.wait(lambda: first not in self.machine.processes(GUARD) and self.machine.processes(GUARD))
        self.kill(clock)
        self.kill(limit)
        self.wait_restored()
