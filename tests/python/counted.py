# SPDX-License-Identifier: Apache-2.0
"""The common part of the tests of what the hook of `harpe tune` counts: this process has the step memory."""
import os
import pathlib
import subprocess
import sys
import unittest

import world
from fixtures import folder
from step_memory import StepMemory

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 600
LOOPS = HERE / "torch_loops.py"
HOOK = world.SOURCE / "python" / "harpe" / "_run"
STEPS = 20


class CountedTest(unittest.TestCase):
    """Programs that run as under `harpe tune`, whose step memory this process has."""

    def setUp(self):
        self.memory = StepMemory()
        self.addCleanup(self.memory.close)
        self.path = folder(self.addCleanup)
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in ("HARPE_LIBRARY", "RANK") and not name.startswith("HARPE_RUN")}
        self.environment.update(HARPE_STEP_MEMORY=self.memory.name(), HARPE_TUNE="1", PYTHONPATH=str(HOOK),
                                OMP_NUM_THREADS="1")

    def run_python(self, *arguments, **environment):
        """Returns what the program has written to standard error."""
        done = subprocess.run([sys.executable, "-W", "ignore", *map(str, arguments)], text=True, timeout=LIMIT_S,
                              env=dict(self.environment, **environment), cwd=self.path, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def check(self, name, steps, source, extra=0):
        """Runs a loop. `extra`: counts of less good sources, before the first of this one."""
        self.assertNotIn("harpe", self.run_python(LOOPS, name))
        self.assertEqual((self.memory.steps, self.memory.source), (steps + extra, source))

    def run_ranks(self, name, count):
        for _, said in world.run_ranks(self, count, [sys.executable, "-W", "ignore", LOOPS, name],
                                       self.environment, cwd=self.path):
            self.assertNotIn("harpe", said)
