# SPDX-License-Identifier: Apache-2.0
"""What the hook of `harpe tune` counts in programs of the newest frameworks that name nothing of Harpe."""
import importlib.metadata
import importlib.util
import json
import unittest

import jobs
import world
from counted import LOOPS, STEPS, CountedTest
from fixtures import needs

SCRIPTS = jobs.HERE / "scripts"


def needs_newer_gloo():
    """Skips a test whose training stands still with PyTorch 2.5 on CPUs, or is not possible."""
    found = importlib.util.find_spec("torch") and importlib.metadata.version("torch").split(".")
    return unittest.skipIf(found and tuple(map(int, found[:2])) < (2, 6), "sharding on CPUs needs PyTorch 2.6")


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

    @needs_newer_gloo()
    def test_fsdp(self):
        self.assertIn(self.torchrun("fsdp") - STEPS, (0, 0.5, 1))

    @needs_newer_gloo()
    def test_fsdp2(self):
        self.assertIn(self.torchrun("fsdp2") - STEPS, (0, 0.5, 1))

    @needs_newer_gloo()
    def test_an_optimizer_in_an_optimizer_counts_twice(self):
        self.assertIn(self.torchrun("sharded_optimizer") - 2 * STEPS, (0, 0.5, 1))

    def test_updates_in_the_backward_count_for_each_parameter(self):
        self.check("in_the_backward", 4 * STEPS, "updates", extra=1)

    def test_compiled_models(self):
        self.check("compiled", STEPS, "forwards")
        self.check("compiled_in_place", 2 * STEPS, "forwards")

    def test_what_a_program_saves_and_traces_is_unchanged(self):
        self.check("saved", STEPS, "updates", extra=1)

    @needs("cloudpickle")
    def test_a_class_that_goes_to_another_process(self):
        self.check("taken_along", 1, "forwards")

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


# A script with two lines of Harpe. It prints what the tuning has counted, and whether it holds the GPUs.
CALLBACK = """
import json, sys
sys.argv[1:] = [{folder!r}]
import {package}
from harpe.integrations.{name} import PowerLimitCallback
callback = PowerLimitCallback(knob="clock", dry_run=True)
{add}
exec(open({script!r}).read())
print(json.dumps([callback.tuning.report().work, callback.optimizer, callback.tuning._session.tuning]))
"""


@needs("torch")
class Callbacks(jobs.JobTest):
    def work_of(self, name, package, script, add):
        text = CALLBACK.format(folder=str(self.path / "out"), name=name, package=package, add=add,
                               script=str(SCRIPTS / script))
        done = world.python(text)
        self.assertEqual(done.returncode, 0, done.stderr)
        work, optimizer, tuning = json.loads(done.stdout.splitlines()[-1])
        self.assertIsNone(optimizer)
        self.assertIsNone(tuning)
        return work

    @needs("transformers", "accelerate")
    def test_transformers(self):
        self.assertIn(self.work_of("transformers", "transformers", "trainer.py", """
make = transformers.Trainer.__init__
def with_callback(*arguments, **named):
    make(*arguments, callbacks=[callback], **named)
transformers.Trainer.__init__ = with_callback
"""), range(158, 163))

    @needs("lightning")
    def test_lightning(self):
        self.assertIn(self.work_of("lightning", "lightning", "fit.py", """
make = lightning.Trainer.__init__
def with_callback(*arguments, **named):
    make(*arguments, callbacks=[callback], **named)
lightning.Trainer.__init__ = with_callback
"""), range(14, 18))
