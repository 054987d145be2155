#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""examples/pipeline_loop.c as a reader runs it: a job of two processes on emulated GPUs, with a
real server, with both optimizers, and without its requirements."""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from server import HARPE, ServerTest

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
LOOP = BUILD / "examples" / "example_pipeline_loop"
LIMIT_S = 600


def plan_1f1b(ranks, microbatches):
    """Returns a plan with lower clocks on later stages."""
    def instructions(rank):
        forwards = backwards = 0
        while backwards < microbatches:
            if forwards < microbatches and forwards - backwards < ranks - rank:
                forwards += 1
                yield ("forward", 1200 - 15 * rank)
            else:
                backwards += 1
                yield ("backward", 1305 - 15 * rank)
    return [list(instructions(rank)) for rank in range(ranks)]


class PipelineLoop(ServerTest):
    def setUp(self):
        if not LOOP.exists():
            self.skipTest("built without examples")
        super().setUp()

    def run_ranks(self, ranks, *arguments, more="", time_scale=10):
        """Returns the output lines of the processes, which share one emulated machine."""
        command = [f"{LOOP} --rank {rank} --ranks {ranks} {' '.join(map(str, arguments))}"
                   for rank in range(ranks)]
        script = " & ".join(command) + " & wait" + more
        done = subprocess.run(
            [HARPE, "emulate", "--gpus", f"{ranks}xA100", "--time-scale", str(time_scale), "--",
             "sh", "-c", script], text=True, capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(done.stdout.splitlines()), done.stderr

    def test_a_job_of_two_processes_goes_through_rounds(self):
        server = self.start(plan=plan_1f1b(2, 4))
        # The controller is a process. If a busy machine wakes it late, several requests for clocks wait
        # for it, and it sets only the last of them. If the GPUs' time runs slower, fewer requests wait.
        for scale in (10, 1):
            lines, log = self.run_ranks(2, "--key", f"two{scale}", "--server",
                                        f"http://127.0.0.1:{server.port}", "--steps", 80,
                                        time_scale=scale)
            if all(int(line.replace(",", "").split()[-2]) > 50 for line in lines):
                break
        self.assertEqual(len(lines), 2, (lines, log))
        jobs = set()
        for rank, line in enumerate(lines):
            words = line.replace(",", "").split()
            self.assertEqual(words[1], f"{rank}:", line)
            jobs.add(words[3])
            self.assertGreaterEqual(int(words[5]), 2, (line, log))
            self.assertIn("80 steps of which 0 did not fit", line)
            self.assertGreater(int(words[-2]), 50, line)
        self.assertEqual(len(jobs), 1, lines)
        self.assertEqual(log, "")

    def test_both_optimizers_ride_in_one_set(self):
        server = self.start(plan=plan_1f1b(1, 4))
        lines, log = self.run_ranks(1, "--key", "both", "--server",
                                    f"http://127.0.0.1:{server.port}", "--steps", 80,
                                    "--power-limit", 1)
        self.assertRegex(lines[0], r"round [1-9].*power limit [1-4]00 W", log)

    def test_without_a_server_it_trains(self):
        lines, log = self.run_ranks(1, "--steps", 30, "--server", "http://127.0.0.1:9")
        self.assertRegex(lines[0], r"job \(none\), round -1, 30 steps of which 0 did not fit")
        self.assertEqual(log.count("\n"), 1, log)
        self.assertIn("no schedules for now, training continues unchanged", log)

    def test_without_gpus_it_trains(self):
        environment = dict(os.environ, HARPE_NVML_LIBRARY="/nowhere/libnvidia-ml.so.1",
                           HARPE_AMDSMI_LIBRARY="/nowhere/libamd_smi.so")
        done = subprocess.run([LOOP, "--steps", "3"], text=True, capture_output=True,
                              timeout=LIMIT_S, check=False, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not all optimizers run", done.stderr)


if __name__ == "__main__":
    unittest.main()
