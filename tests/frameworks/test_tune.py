# SPDX-License-Identifier: Apache-2.0
"""What the hook of `harpe tune` counts in programs of the newest frameworks that name nothing of Harpe."""
import importlib.util
import unittest

import jobs
import world
from counted import LOOPS, STEPS, CountedTest

SCRIPTS = jobs.HERE / "scripts"


def needs(*names):
    """Skips a test if one of these packages is not installed."""
    missing = next((name for name in names if importlib.util.find_spec(name) is None), None)
    return unittest.skipIf(missing, f"{missing} is not installed")


@needs("torch")
class Tune(CountedTest):
    def torchrun(self, name):
        """Two ranks, behind a launcher that closes descriptors. Returns the counts of one."""
        said = self.run_python("-m", "torch.distributed.run", "--master-addr", "127.0.0.1", "--master-port",
                               world.reserve_port(self), "--nproc-per-node", 2, LOOPS, name)
        self.assertNotIn("harpe", said)
        self.assertEqual(self.memory.source, "updates")
        return self.memory.steps / 2

    def test_ddp(self):
        self.assertIn(self.torchrun("ddp") - STEPS, (0, 0.5, 1))

    def test_fsdp(self):
        self.assertIn(self.torchrun("fsdp") - STEPS, (0, 0.5, 1))

    def test_fsdp2(self):
        self.assertIn(self.torchrun("fsdp2") - STEPS, (0, 0.5, 1))

    def test_an_optimizer_in_an_optimizer_counts_twice(self):
        self.assertIn(self.torchrun("sharded_optimizer") - 2 * STEPS, (0, 0.5, 1))

    def test_updates_in_the_backward_count_for_each_parameter(self):
        self.check("in_the_backward", 4 * STEPS, "updates", extra=1)

    def test_compiled_models(self):
        self.check("compiled", STEPS, "forwards")
        self.check("compiled_in_place", 2 * STEPS, "forwards")

    def test_what_a_program_saves_and_traces_is_unchanged(self):
        self.check("saved", STEPS, "updates", extra=1)

    @needs("transformers", "accelerate")
    def test_a_trainer_of_transformers(self):
        self.assertNotIn("harpe", self.run_python(SCRIPTS / "trainer.py", self.path / "out"))
        self.assertEqual(self.memory.source, "updates")
        self.assertIn(self.memory.steps - 160, (1, 2))  # batches before the first update

    @needs("lightning")
    def test_a_trainer_of_lightning(self):
        self.assertNotIn("harpe", self.run_python(SCRIPTS / "fit.py", self.path))
        self.assertEqual(self.memory.source, "updates")
        self.assertIn(self.memory.steps - 16, range(4))


if __name__ == "__main__":
    unittest.main()
