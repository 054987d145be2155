# SPDX-License-Identifier: Apache-2.0
"""Runs bench/agent_fuzz for a short time: random requests, kills and faults around a node agent."""
import os
import pathlib
import subprocess
import sys
import unittest

FUZZ = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "agent_fuzz"


class Fuzz(unittest.TestCase):
    def test_sample(self):
        for seed in (1, 2):
            with self.subTest(seed=seed):
                done = subprocess.run([sys.executable, FUZZ, "--seconds", "10", "--seed", str(seed)],
                                      env=os.environ, text=True, capture_output=True, timeout=600, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("passed", done.stdout)
