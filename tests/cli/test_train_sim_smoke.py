# SPDX-License-Identifier: Apache-2.0
"""One short journey of `harpe train-sim` with real processes: two ranks, their controllers and a
server run a plan, one line says what it saves, and nothing is left. test_train_sim.py has the rest."""
import re

from program import unittest
from train_sim import Simulation


class Smoke(Simulation):
    def test_a_job_runs_a_plan_and_leaves_nothing(self):
        self.sim("--offline", "--pp", 2, "--num-mbs", 2, "--steps", 2, "--time-scale", 20)
        out, _ = self.finish()
        self.assertEqual(len(re.findall("^  The plan saves .* % of the energy", out, re.MULTILINE)), 1, out)


if __name__ == "__main__":
    unittest.main()
