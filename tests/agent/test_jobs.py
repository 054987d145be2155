# SPDX-License-Identifier: Apache-2.0
"""Kills all processes of some jobs at once, as bench/kill_jobs does: the GPU is always restored."""
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import job_kills

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()


class Jobs(unittest.TestCase):
    def test_every_gpu_is_restored(self):
        with tempfile.TemporaryDirectory(prefix="harpe-agent-test-") as path:
            world = job_kills.World(BUILD, path)
            try:
                outcome = job_kills.kill_many(world, 20, 1, float("inf"))
            finally:
                status = world.close()
            self.assertEqual(outcome.failures(), 0, outcome)
            self.assertEqual(len(outcome.kinds), 5, outcome)
            self.assertEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
