# SPDX-License-Identifier: Apache-2.0
"""The code of docs/tutorial-megatron.md and docs/tutorial-hugging-face.md, run unchanged in a
script of the framework: with a real server and emulated GPUs, on stand-ins for the frameworks
(frameworks.py, and a Trainer that contains only its loop)."""
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
    def modules(self):
        """The values that Megatron and PyTorch report for a single rank."""
        state = mock.MagicMock()
        torch = mock.MagicMock()
        for name in ("pipeline_model_parallel", "data_parallel", "tensor_model_parallel"):
            getattr(state, f"get_{name}_rank").return_value = 0
            getattr(state, f"get_{name}_world_size").return_value = 1
        torch.distributed.get_rank.return_value = torch.cuda.current_device.return_value = 0
        torch.distributed.get_world_size.return_value = 1
        core = types.SimpleNamespace(parallel_state=state)
        return {"torch": torch, "megatron": types.SimpleNamespace(core=core),
                "megatron.core": core, "megatron.core.parallel_state": state}

    def test_its_lines_make_a_job_that_goes_on(self):
        (code,) = blocks("tutorial-megatron.md", "megatron")
        url = self.serve(names=["forward", "backward"] * 2)
        timers = frameworks.MegatronTimers(log_level=0)
        script = {"get_timers": lambda: timers}
        with mock.patch.dict(sys.modules, self.modules()):
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


class Trainer:
    """Makes the calls of a transformers Trainer that reach a callback, in their order."""

    def __init__(self, steps):
        self.steps, self.callbacks = steps, []

    def add_callback(self, callback):
        self.callbacks.append(callback)

    def train(self):
        def call(name):
            for one in self.callbacks:
                getattr(one, name)(mock.Mock(), mock.Mock(), mock.Mock())
        call("on_train_begin")
        call("on_epoch_begin")
        for _ in range(self.steps):
            call("on_step_begin")
            time.sleep(0.0005)
            call("on_step_end")
        call("on_epoch_end")
        call("on_train_end")


class HuggingFace(unittest.TestCase):
    def test_its_lines_find_an_optimum(self):
        machine = world.machine("1xV100", 200)
        self.addCleanup(machine.close)
        found = machine.state()
        before = os.getcwd()
        os.chdir(folder(self.addCleanup))
        self.addCleanup(os.chdir, before)
        lines = []
        script = {"trainer": Trainer(420), "print": lines.append}
        for code in blocks("tutorial-hugging-face.md", "hugging face"):
            exec(code, script)  # pylint: disable=exec-used
        self.assertEqual(len(lines), 8)  # 300, 275 ... 150 W and the optimum
        self.assertRegex(lines[-1], r"^optimum: \d+ W$")
        self.assertTrue(os.path.exists("power_limits.json"))
        self.assertEqual(machine.state(), found)
