# SPDX-License-Identifier: Apache-2.0
"""examples/python/pipeline_parallel.py, run as its users run it: several processes with gloo, on
emulated GPUs, with a real server. Needs PyTorch."""
import importlib.util
import re
import sys
import unittest

import training
from frameworks import order_1f1b
import world

EXAMPLE = world.SOURCE / "examples" / "python" / "pipeline_parallel.py"
ATTEMPTS = 6


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class PipelineParallel(training.TrainingTest):
    gpus = "4xA100"

    def serve_plan(self, stages, scheduler):
        names = {"F": "forward", "B": "backward"}
        plan = [[(names[kind], 1200 - 15 * stage) for kind, _ in order_1f1b(stage, stages, 4)]
                for stage in range(stages)]
        started = self.start(plan=plan, scheduler=scheduler)
        return f"http://127.0.0.1:{started.port}"

    def run_ranks(self, count, *arguments):
        """Returns the line of each rank."""
        lines = []
        for out, err in world.run_ranks(self, count, [sys.executable, EXAMPLE, *arguments]):
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
