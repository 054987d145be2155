# SPDX-License-Identifier: Apache-2.0
"""examples/python/pipeline_parallel.py, run as its users run it: several processes with gloo, on
emulated GPUs, with a real server. Needs PyTorch."""
import importlib.util
import os
import re
import subprocess
import sys
import unittest

import training
import world

EXAMPLE = world.SOURCE / "examples" / "python" / "pipeline_parallel.py"
LIMIT_S = 600
ATTEMPTS = 6


def step_1f1b(stage, stages, microbatches):
    forwards = backwards = 0
    while backwards < microbatches:
        if forwards < microbatches and forwards - backwards < stages - stage:
            forwards += 1
            yield "forward"
        else:
            backwards += 1
            yield "backward"


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class PipelineParallel(training.TrainingTest):
    gpus = "4xA100"

    def serve_plan(self, stages, scheduler):
        plan = [[(name, 1200 - 15 * stage) for name in step_1f1b(stage, stages, 4)]
                for stage in range(stages)]
        started = self.start(plan=plan, scheduler=scheduler)
        return f"http://127.0.0.1:{started.port}"

    def run_ranks(self, count, *arguments):
        """Starts the processes as torchrun does. Returns the line of each."""
        port = world.reserve_port(self)
        processes = [
            subprocess.Popen([sys.executable, EXAMPLE, *map(str, arguments)], text=True,
                             env=dict(os.environ, OMP_NUM_THREADS="1", RANK=str(rank),
                                      LOCAL_RANK=str(rank), WORLD_SIZE=str(count),
                                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for rank in range(count)]
        lines = []
        for process in processes:
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            finally:
                process.kill()
            self.assertEqual(process.returncode, 0, err)
            self.assertNotIn("Traceback", err)
            lines += [line for line in out.splitlines() if line.startswith("rank ")]
        return sorted(lines)

    def train(self, count, steps, *arguments):
        """Returns the lines of the ranks. The example never waits for the server, so on a busy machine
        a short training may end before its first round; then a longer one is tried."""
        for attempt in range(ATTEMPTS):
            lines = self.run_ranks(count, *arguments, "--steps", steps << attempt)
            if all(re.search(r"round [1-9].* clock set [1-9]", line) for line in lines):
                break
        self.assert_trained(lines, count, steps << attempt)
        return lines

    def assert_trained(self, lines, count, steps):
        self.assertEqual(len(lines), count, lines)
        for line in lines:
            self.assertRegex(line, rf"round [1-9]\d*, {steps} steps of which 0 did not fit")
            self.assertGreater(int(re.search(r"clock set (\d+) times", line)[1]), 0, line)
        self.assertEqual(len({line.split()[3] for line in lines}), 1, lines)
        for gpu in range(count):
            self.assert_clocks_are_back(gpu)

    def test_stages_run_the_plan_round_after_round(self):
        url = self.serve_plan(2, "PointSolution")
        lines = self.train(2, 300, "--server", url, "--stages", 2)
        self.assertLess(float(lines[1].split("loss ")[1]), 0.01)

    def test_replicas_share_the_plan_of_their_stage(self):
        url = self.serve_plan(2, "PointSolution3D")
        lines = self.train(4, 200, "--server", url, "--stages", 2)
        self.assertIn("+dp2+pp2+tp1+", lines[0])
        losses = {line.split("loss ")[1] for line in lines if "loss " in line}
        self.assertEqual(len(losses), 1, "replicas drift apart")

    def test_it_trains_the_same_without_a_server(self):
        lines = self.run_ranks(2, "--server", "http://127.0.0.1:9", "--steps", 20)
        for line in lines:
            self.assertIn("job , round -1, 20 steps of which 0 did not fit", line)
