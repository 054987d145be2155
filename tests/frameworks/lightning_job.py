# SPDX-License-Identifier: Apache-2.0
"""One rank of a small job that trains with Lightning on CPUs (gloo). Each training and validation
step makes an emulated GPU busy. Started by test_lightning.py; prints one line of JSON."""
import csv
import json
import os
import pathlib
import sys

import lightning
import torch
from energy_account import EVALUATION_S, LENGTH, TRAINING_S, Account, Gpu, Lines
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from harpe.integrations.lightning import EnergyCallback, PowerLimitCallback


class Data(torch.utils.data.Dataset):
    def __init__(self, count, with_tokens):
        self.count, self.with_tokens = count, with_tokens

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        if self.with_tokens:
            return {"input_ids": torch.randint(0, 32, (LENGTH,), generator=generator)}
        return torch.rand(LENGTH, generator=generator), index


class Model(lightning.LightningModule):
    def __init__(self, ranks, gpu, with_tokens, broken_at=None):
        super().__init__()
        self.ranks, self.gpu = ranks, gpu
        self.with_tokens, self.broken_at = with_tokens, broken_at
        self.layer = torch.nn.Linear(LENGTH, 1)

    def _loss(self, batch, work_s):
        if self.gpu is not None:
            self.gpu.work(work_s)
        inputs = batch["input_ids"].float() if self.with_tokens else batch[0]
        return self.layer(inputs).square().mean()

    def training_step(self, batch, batch_idx):
        if batch_idx == self.broken_at:
            raise RuntimeError("this batch is broken")
        loss = self._loss(batch, TRAINING_S)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch, EVALUATION_S))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.001)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(Data(24 * self.ranks, self.with_tokens), batch_size=2)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(Data(4 * self.ranks, self.with_tokens), batch_size=2)


class Loops(Callback):
    """Accounts for the loops of validations. It stands behind the measuring callback, which has
    begun to measure the validation before and ends after it."""

    def __init__(self, account):
        self.account, self.open = account, None

    def on_validation_epoch_start(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.open = self.account.evaluation_loop()
            self.open.__enter__()

    def on_validation_epoch_end(self, trainer, pl_module):
        if self.open is not None:
            self.open.__exit__(None, None, None)
            self.open = None


def new_trainer(settings, callbacks, name, **more):
    arguments = dict(
        accelerator="cpu", devices=1, max_epochs=2, accumulate_grad_batches=2, log_every_n_steps=2,
        logger=CSVLogger(settings["folder"], name=name, version=0), callbacks=callbacks,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    if settings["world_size"] > 1:
        arguments.update(strategy="ddp", devices=settings["world_size"])
    return lightning.Trainer(**dict(arguments, **more))


def rows(trainer):
    """Returns what the logger has written."""
    path = pathlib.Path(trainer.logger.log_dir, "metrics.csv")
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items() if value}
                for row in csv.DictReader(file)]


def job(settings, gpu):
    energy = EnergyCallback()
    account = Account(gpu, energy._meter)
    checkpoint = ModelCheckpoint(settings["folder"], filename="{step}", every_n_train_steps=4,
                                 save_top_k=-1)
    trainer = new_trainer(settings, [energy, Loops(account), checkpoint], "first",
                          enable_checkpointing=True, val_check_interval=6)
    before = gpu.energy_j()
    trainer.fit(Model(settings["world_size"], gpu, with_tokens=True))
    trainer.strategy.barrier()
    found = {"all_j": gpu.energy_j() - before, "account": account.found(),
             "totals": energy.totals.saved(), "rows": rows(trainer), "steps": trainer.global_step}
    path = os.path.join(settings["folder"], "step=4.ckpt")
    states = torch.load(path, weights_only=False)["callbacks"]
    found["checkpoint"] = next(state for key, state in states.items() if "EnergyCallback" in key)

    energy = EnergyCallback()
    trainer = new_trainer(settings, [energy], "second", limit_val_batches=0)
    trainer.fit(Model(settings["world_size"], gpu, with_tokens=True), ckpt_path=path)
    trainer.strategy.barrier()
    found["resumed"] = {"totals": energy.totals.saved(), "rows": rows(trainer),
                        "steps": trainer.global_step}

    energy = EnergyCallback()
    limit = PowerLimitCallback(wait_steps=0, warmup_steps=0, profile_steps=2, pl_step=300)
    if settings["world_size"] == 1:  # the other ranks would wait for the broken one
        trainer = new_trainer(settings, [energy, limit], "broken")
        try:
            trainer.fit(Model(settings["world_size"], gpu, with_tokens=False, broken_at=3))
        except RuntimeError as error:
            found["exception"] = str(error)
    trainer = new_trainer(settings, [energy, limit], "after", accumulate_grad_batches=1)
    trainer.fit(Model(settings["world_size"], gpu, with_tokens=False))
    trainer.strategy.barrier()
    found["after"] = {"rows": rows(trainer), "totals": energy.totals.saved()}
    found["measurements"] = [[one.power_limit, one.energy, one.time]
                             for one in limit.optimizer.measurements]
    return found


def faulty_job(settings):
    """Without a GPU: the training goes on."""
    limit = PowerLimitCallback()
    trainer = new_trainer(settings, [EnergyCallback(), limit], "faulty")
    trainer.fit(Model(settings["world_size"], None, with_tokens=True))
    return {"rows": rows(trainer), "steps": trainer.global_step, "optimizer": limit.optimizer}


def main():
    settings, lines = json.loads(sys.argv[1]), Lines()
    if settings["job"] == "faulty":
        found = faulty_job(settings)
    else:
        found = job(settings, Gpu(int(os.environ["LOCAL_RANK"]), settings["world_size"]))
    print(json.dumps(dict(found, lines=lines.lines)))


if __name__ == "__main__":
    main()
