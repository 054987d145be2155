# SPDX-License-Identifier: Apache-2.0
"""The code of docs/tutorial-megatron.md and docs/tutorial-hugging-face.md, run unchanged in a
script of the framework: with a real server and emulated GPUs, on stand-ins for the frameworks
(frameworks.py)."""
import functools
import os
import re
import sys
import time
import types
import unittest
from unittest import mock

import frameworks
import training
import world
from fixtures import folder


def blocks(document, mark):
    text = (world.SOURCE / "docs" / document).read_text(encoding="utf-8")
    found = re.findall(rf"<!-- {mark} -->\n```python\n(.*?)```", text, re.S)
    assert found, f"{document} has lost its marks"
    return found


class Megatron(training.TrainingTest):
    def test_its_lines_make_a_job_that_goes_on(self):
        (code,) = blocks("tutorial-megatron.md", "megatron")
        url = self.serve(names=["forward", "backward"] * 2)
        timers = frameworks.MegatronTimers(log_level=0)
        script = {"get_timers": lambda: timers}
        with mock.patch.dict(sys.modules, frameworks.megatron_modules()):
            exec(code.replace("http://head-node:7787", url), script)  # pylint: disable=exec-used
            for stage in range(2):  # virtual stages
                script["train_valid_test_datasets_provider"]([4, 0, 0], vp_stage=stage)
        one = script["harpe_megatron"].install(timers)
        self.addCleanup(one.uninstall)
        config = types.SimpleNamespace(timers=timers)
        optimizer = one.optimizer
        optimizer.wait_for_round(0, training.LIMIT_S)
        self.wait_until(lambda: optimizer.status().round >= 1, "no rounds",
                        lambda: frameworks.megatron_step(config, 0, 1, 2))
        self.assertEqual(optimizer.status().misfits, 0)


class HuggingFace(unittest.TestCase):
    def test_its_lines_find_an_optimum(self):
        machine = world.machine("1xV100", 200)
        self.addCleanup(machine.close)
        found = machine.state()
        before = os.getcwd()
        os.chdir(folder(self.addCleanup))
        self.addCleanup(os.chdir, before)
        lines = []
        trainer = frameworks.Trainer([], lambda: time.sleep(0.0005))
        trainer.add_callback = trainer.callbacks.append
        trainer.train = functools.partial(trainer.train, epochs=1, steps=420)
        script = {"trainer": trainer, "print": lines.append}
        for code in blocks("tutorial-hugging-face.md", "hugging face"):
            exec(code, script)  # pylint: disable=exec-used
        self.assertEqual(len(lines), 8)  # 300, 275 ... 150 W and the optimum
        self.assertRegex(lines[-1], r"^optimum: \d+ W$")
        self.assertTrue(os.path.exists("power_limits.json"))
        self.assertEqual(machine.state(), found)
