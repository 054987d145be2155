# SPDX-License-Identifier: Apache-2.0
"""The examples of examples/python that train under the power limit optimizer, run as their users
run them, on emulated GPUs. Needs PyTorch. An example is skipped with a line if a requirement is
missing."""
import importlib.util
import os
import subprocess
import sys
import unittest

import world

EXAMPLES = world.SOURCE / "examples" / "python"
TORCH = unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")


class Examples(world.MachineTest):
    gpus, time_scale = "2xV100", 100

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.machine.set_limit(0, 231000)
        cls.found = cls.machine.state()

    def run_example(self, name, *arguments):
        done = subprocess.run([sys.executable, EXAMPLES / name, *map(str, arguments)], text=True, timeout=900,
                              env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, check=False)
        self.assertEqual(self.machine.state(), self.found)
        return done.returncode, done.stdout, done.stderr

    @TORCH
    def test_a_loop_finds_its_optimum_and_puts_limits_back(self):
        code, out, err = self.run_example("power_limit_loop.py", 1, 420)
        self.assertEqual(code, 0, err)
        self.assertIn("  300 W ", out)
        self.assertIn("  150 W ", out)
        self.assertEqual(out.count("chosen"), 1)

    @TORCH
    def test_ddp_ranks_decide_together(self):
        said = []
        for rank, (out, _) in enumerate(world.run_ranks(
                self, 2, [sys.executable, EXAMPLES / "ddp_loop.py", 1, 420])):
            self.assertIn(f"rank {rank}: ", out)
            said.append(out.split(": ")[1])
        self.assertEqual(said[0], said[1])
        self.assertEqual(self.machine.state(), self.found)
        self.assertIn("W of [300, 275, 250, 225, 200, 175, 150]", said[0])

    def test_the_trainer_runs_or_says_what_is_missing(self):
        code, out, err = self.run_example("hf_trainer.py", 420)
        if all(importlib.util.find_spec(name) for name in ("torch", "transformers", "accelerate")):
            self.assertEqual(code, 0, err)
            self.assertRegex(out, "optimum: [0-9]+ W")
        else:
            self.assertEqual(code, 1, err)
            self.assertRegex(err, "^hf_trainer.py: No module named .*needs torch, transformers")
            self.skipTest(err.strip())
