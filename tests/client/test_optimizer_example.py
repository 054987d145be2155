#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""examples/pipeline_loop.c as a reader runs it: a job of two processes on emulated GPUs, with a
real server, with both optimizers, and without its requirements."""
import os
import pathlib
import re
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "server"))
sys.path.append(str(TESTS))
from attempts import attempt
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

    def run_until(self, is_complete, ranks, *arguments):
        """Runs a training until is_complete(lines, log). A training ends after its last step,
        whatever its optimizer has done by then. On a busy machine the optimizer's thread and the
        controller's process may run late. If the GPUs' time runs slower, they have more time."""
        return attempt(lambda scale: self.run_ranks(ranks, "--key", f"scale{scale}", *arguments,
                                                    time_scale=scale),
                       lambda result: is_complete(*result), (10, 1))

    @staticmethod
    def told(log):
        """Returns the lines of the log, without those of a busy machine: the end waits for the
        controller for 3 s."""
        return [line for line in log.splitlines()
                if "the frequency controller has not reported in 3 s" not in line]

    def test_a_job_of_two_processes_goes_through_rounds(self):
        server = self.start(plan=plan_1f1b(2, 4))

        def is_complete(lines, _):
            words = [line.replace(",", "").split() for line in lines]
            return all(int(line[5]) >= 2 and int(line[-2]) > 50 for line in words)
        lines, log = self.run_until(is_complete, 2, "--server",
                                    f"http://127.0.0.1:{server.port}", "--steps", 80)
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
        self.assertEqual(self.told(log), [])

    def test_both_optimizers_ride_in_one_set(self):
        server = self.start(plan=plan_1f1b(1, 4))
        expected = r"round [1-9].*power limit [1-4]00 W"
        lines, log = self.run_until(lambda lines, _: re.search(expected, lines[0]), 1, "--server",
                                    f"http://127.0.0.1:{server.port}", "--steps", 80,
                                    "--power-limit", 1)
        self.assertRegex(lines[0], expected, log)

    def test_without_a_server_it_trains(self):
        lines, log = self.run_until(lambda _, log: self.told(log), 1, "--steps", 30, "--server",
                                    "http://127.0.0.1:9")
        self.assertRegex(lines[0], r"job \(none\), round -1, 30 steps of which 0 did not fit")
        self.assertEqual(len(self.told(log)), 1, log)
        self.assertIn("no schedules for now, training continues unchanged", log)

    def test_without_gpus_it_trains(self):
        environment = dict(os.environ, HARPE_NVML_LIBRARY="/nowhere/libnvidia-ml.so.1",
                           HARPE_AMDSMI_LIBRARY="/nowhere/libamd_smi.so")
        done = subprocess.run([LOOP, "--steps", "3"], text=True, capture_output=True,
                              timeout=LIMIT_S, check=False, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not all optimizers run", done.stderr)
