#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`harpe plan --effort` and `--threads` from the outside: the mean gap falls, bad values are
refused, and Ctrl-C ends the improvement but keeps the plans. A terminal shows when to interrupt."""
import errno
import os
import pty
import re
import select
import signal
import subprocess
import time
import unittest

from program import HARPE, ProgramTest, environment, rows


class Terminal:
    """The program with a terminal as its stderr."""

    def __init__(self, directory, *arguments):
        self.controller, terminal = pty.openpty()
        self.shown = ""
        self.is_open = True
        self.process = subprocess.Popen(
            [HARPE, *map(str, arguments)], cwd=directory, env=environment(TERM="xterm"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal, text=True)
        os.close(terminal)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        if self.is_open:
            os.close(self.controller)

    def read(self, seconds):
        """Reads what the program shows next. Returns false after its end."""
        if not select.select([self.controller], [], [], seconds)[0]:
            return True
        try:
            shown = os.read(self.controller, 65536).decode()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        self.shown += shown
        return shown != ""

    def wait_for(self, pattern):
        end = time.monotonic() + 300
        while not re.search(pattern, self.shown):
            if not self.read(1) or time.monotonic() > end:
                raise AssertionError(f"never shown: {pattern!r}; shown: {self.shown!r}")

    def finish(self):
        while self.read(300):
            pass
        out = self.process.stdout.read()
        os.close(self.controller)
        self.is_open = False
        return self.process.wait(timeout=300), out


class Effort(ProgramTest):
    def setUp(self):
        super().setUp()
        self.profile("profile.csv", 6, "--noise", "0.02")
        self.flags = ["plan", "--inst-profile", "profile.csv", "--num-mbs", 16, "--p2p-power", 60,
                      "--no-pictures"]

    def start(self, *arguments):
        terminal = Terminal(self.path, *arguments)
        self.addCleanup(terminal.kill)
        return terminal

    def gaps(self, directory):
        return [float(row["gap_percent"]) for row in rows(self.path / directory / "frontier.csv")]

    def test_the_effort_ends_when_all_plans_are_proven(self):
        self.profile("small.csv", 3, "--noise", "0.02")
        flags = ["plan", "--inst-profile", "small.csv", "--num-mbs", 3, "--p2p-power", 60,
                 "--no-pictures", "--plans", 8]
        self.succeed(*flags, "--output-dir", "before")
        result = self.succeed(*flags, "--effort", 100000, "--verify", "--json",
                              "--output-dir", "after").json()
        self.assertEqual(result["arguments"]["effort_s"], 100000)
        self.assertGreater(max(self.gaps("before")), 0.01)
        self.assertLess(max(self.gaps("after")), 1e-4)
        self.assertGreaterEqual(min(self.gaps("after")), 0)

    def test_threads_do_not_change_the_plans(self):
        for threads in (1, 3, 4096):
            self.succeed(*self.flags, "--plans", 6, "--threads", threads, "--output-dir",
                         f"plans{threads}")
            plans = sorted((self.path / "plans1").glob("freqs_pipeline_*"))
            self.assertGreater(len(plans), 3)
            for path in plans:
                self.assertEqual((self.path / f"plans{threads}" / path.name).read_bytes(),
                                 path.read_bytes())

    def test_bad_values(self):
        for flag, value in [("--effort", "-1"), ("--effort", "nan"), ("--effort", "inf"),
                            ("--effort", "1e7"), ("--effort", "ten"), ("--effort", ""),
                            ("--effort", "1s"), ("--threads", "0"), ("--threads", "-2"),
                            ("--threads", "1.5"), ("--threads", "4097"), ("--threads", "x")]:
            self.refuse(2, flag, *self.flags, f"{flag}={value}", "--output-dir", "plans")

    def test_ctrl_c_keeps_what_was_improved(self):
        terminal = self.start(*self.flags, "--plans", 8, "--effort", 100000,
                            "--output-dir", "plans")
        terminal.wait_for("(improving|bounding), mean gap")
        terminal.process.send_signal(signal.SIGINT)
        code, out = terminal.finish()
        self.assertEqual(code, 0, terminal.shown)
        self.assertIn("the improvement was ended by Ctrl-C; its result is kept", terminal.shown)
        self.assertIn("plans", out)
        self.assertTrue((self.path / "plans" / "plan.json").is_file())
        self.assertGreater(len(self.gaps("plans")), 3)
        self.succeed("choose", "plans", "--min-energy")

    def test_termination_writes_nothing(self):
        before = self.files()
        terminal = self.start(*self.flags, "--plans", 8, "--effort", 100000,
                            "--output-dir", "plans")
        terminal.wait_for("(improving|bounding), mean gap")
        terminal.process.send_signal(signal.SIGTERM)
        code, out = terminal.finish()
        self.assertEqual(code, 143, terminal.shown)
        self.assertIn("interrupted by SIGTERM; nothing was written", terminal.shown)
        self.assertEqual(out, "")
        self.assertEqual(self.files(), before)

    def test_no_time_gets_a_worse_plan(self):
        self.profile("noisy.csv", 3, "--noise", "0.15", "--seed", 5)
        for more in ([], ["--switch-energy", 2], ["--min-dwell", 0.2]):
            with self.subTest(more=more):
                flags = ["plan", "--inst-profile", "noisy.csv", "--num-mbs", 7, "--p2p-power", 20,
                         "--no-pictures", "--plans", 20, "--force", *more]
                self.succeed(*flags, "--output-dir", "before")
                self.succeed(*flags, "--effort", 1, "--output-dir", "after")
                before, after = [[(float(row["time_s"]), float(row["energy_j"]))
                                  for row in rows(self.path / name / "frontier.csv")]
                                 for name in ("before", "after")]
                for time_s, energy_j in before:
                    best = min(j for s, j in after if s <= time_s * (1 + 1e-9))
                    self.assertLessEqual(best, energy_j * (1 + 1e-9), time_s)

    def test_ctrl_c_before_the_improvement_writes_nothing(self):
        self.profile("big.csv", 16, "--noise", "0.02")
        before = self.files()
        terminal = self.start("plan", "--inst-profile", "big.csv", "--num-mbs", 400,
                            "--p2p-power", 84, "--output-dir", "plans", "--effort", 100000)
        terminal.wait_for("solving|planning")
        terminal.process.send_signal(signal.SIGINT)
        code, out = terminal.finish()
        self.assertEqual(code, 130, terminal.shown)
        self.assertIn("interrupted by SIGINT; nothing was written", terminal.shown)
        self.assertEqual(out, "")
        self.assertEqual(self.files(), before)


if __name__ == "__main__":
    unittest.main()
