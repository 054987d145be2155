# SPDX-License-Identifier: Apache-2.0
"""The cells of docs/notebooks.md in the kernel of a notebook, with the real Trainer of transformers on
an emulated GPU. An interrupt ends the first training while a lower power limit is tried."""
import importlib.util
import re
import unittest

import jobs
import world

NEEDED = ("torch", "transformers", "accelerate", "nbclient", "nbformat", "ipykernel")
WHY_NOT = next((f"{name} is not installed" for name in NEEDED
                if importlib.util.find_spec(name) is None), "")

# What the page calls the reader's own: a model, data and the loop's objects.
PREPARATION = f"""
import sys
sys.path[:0] = [{str(world.SOURCE / "tests" / "frameworks")!r}]
import functools, os, signal
import torch
from hugging_face_job import Gpu, Sentences, new_model
from transformers import TrainingArguments, TrainerCallback
import harpe.integrations.accelerate
import harpe.integrations.transformers
from harpe.device import get_gpus
from accelerate import Accelerator

model = new_model(Gpu(0, 1))
train_set, eval_set = Sentences(64), Sentences(8)
arguments = TrainingArguments("out", report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=4,
                              per_device_train_batch_size=1, num_train_epochs=1)
batches = [{{name: value[None] for name, value in eval_set[0].items()}}]
accelerator = Accelerator()
model_of_loop, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.01),
    torch.utils.data.DataLoader(train_set, batch_size=1))

def train_step(batch):
    with accelerator.accumulate(model_of_loop):
        accelerator.backward(model_of_loop(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
    seen.append(limit_w())

def limit_w():
    return get_gpus().get_power_management_limit(0) // 1000

def fast(kind):
    return functools.partial(kind, wait_steps=0, warmup_steps=1, profile_steps=2, pl_step=100)

for module, name in ((harpe.integrations.accelerate, "PowerLimit"),
                     (harpe.integrations.transformers, "PowerLimitCallback")):
    setattr(module, name, fast(getattr(module, name)))
seen = []
"""

# The reader presses the button that stops a cell.
INTERRUPT = """
class Stop(TrainerCallback):
    stops = True
    def on_step_end(self, *_, **__):
        seen.append(limit_w())
        if seen[-1] < 400 and Stop.stops:
            Stop.stops = False
            os.kill(os.getpid(), signal.SIGINT)
trainer.add_callback(Stop())
"""


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Notebook(jobs.JobTest):
    def run_cells(self, *cells):
        """Returns what each cell has printed, and the name of the exception that ended it."""
        import nbclient
        import nbformat
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
        nbclient.NotebookClient(notebook, timeout=jobs.training.LIMIT_S, allow_errors=True,
                                kernel_name="python3",
                                resources={"metadata": {"path": str(self.path)}}).execute()
        said = []
        for cell in notebook.cells:
            texts = [one.get("text") or one.get("data", {}).get("text/plain", "")
                     for one in cell.outputs]
            names = [one.ename for one in cell.outputs if one.output_type == "error"]
            said.append(("".join(texts), names[0] if names else None))
        return said

    def test_the_cells_of_the_page(self):
        page = (world.SOURCE / "docs" / "notebooks.md").read_text(encoding="utf-8")
        cell, trainer, evaluate, train, again, loop = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        show = "print(limit_w(), min(seen)); seen.clear()"
        said = self.run_cells(PREPARATION, cell, trainer + INTERRUPT, evaluate, train, show, again, show,
                              loop, show)
        self.assertEqual([name for _, name in said],
                         [None] * 4 + ["KeyboardInterrupt"] + [None] * 5, said)
        texts = [text for text, _ in said]
        time_s, energy_j = map(float, texts[1].split()[-2:])
        self.assertGreater(min(time_s, energy_j), 0)
        self.assertGreater(float(texts[3].split()[-1]), 0)
        self.assertIn("the training has ended with KeyboardInterrupt: the original power limits are "
                      "restored", texts[4])
        for place in (5, 7, 9):  # the limit is the original one, and a lower one was tried
            self.assertEqual(texts[place].split()[0], "400", texts)
            self.assertLess(int(texts[place].split()[1]), 400)
        self.assertIn("energy_j", texts[6])
        self.assertEqual(self.machine.limit(0), 400000)
