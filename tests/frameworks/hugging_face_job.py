# SPDX-License-Identifier: Apache-2.0
"""One rank of small jobs that train with the Trainer of Hugging Face transformers and with
accelerate: a GPT-2 of one layer, made from a configuration, on CPUs (gloo). Its forward makes an
emulated GPU busy. Started by test_hugging_face.py; prints one line of JSON."""
import json
import os
import pathlib
import sys

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process
from energy_account import EVALUATION_S, LENGTH, TRAINING_S, Account, Gpu, Lines
from transformers import (GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments)

from harpe.integrations.accelerate import EnergyMeter, PowerLimit
from harpe.integrations.transformers import EnergyCallback


class Busy(GPT2LMHeadModel):
    """Makes this rank's GPU busy in each forward."""

    gpu = None

    def forward(self, input_ids=None, labels=None, **named):
        if self.gpu is not None:
            self.gpu.work(TRAINING_S if self.training else EVALUATION_S)
        return super().forward(input_ids=input_ids, labels=labels, **named)


def new_model(gpu):
    torch.manual_seed(0)
    model = Busy(GPT2Config(n_layer=1, n_embd=16, n_head=1, vocab_size=32, n_positions=LENGTH,
                            bos_token_id=0, eos_token_id=0))
    model.gpu = gpu
    return model


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count, broken_at=None):
        self.count, self.broken_at = count, broken_at

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == self.broken_at:
            raise RuntimeError("this sentence is broken")
        words = torch.randint(0, 32, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


class Reporter(TrainerCallback):
    """Stands where the Trainer's own reporters stand: before the callbacks of the script."""

    def __init__(self):
        self.seen = []

    def on_log(self, args, state, control, logs=None, **_):
        self.seen.append(dict(logs))


class AccountedTrainer(Trainer):
    account = None

    def evaluation_loop(self, *arguments, **named):
        if self.account is None:
            return super().evaluation_loop(*arguments, **named)
        with self.account.evaluation_loop():
            return super().evaluation_loop(*arguments, **named)


def new_trainer(settings, gpu, callbacks, broken_at=None, **more):
    arguments = dict(
        output_dir=settings["folder"], use_cpu=True, report_to=[], disable_tqdm=True, seed=1,
        per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=2,
        num_train_epochs=2, save_strategy="no", include_num_input_tokens_seen=True,
        ddp_backend="gloo" if settings["world_size"] > 1 else None)
    arguments.update(more)
    return AccountedTrainer(
        model=new_model(gpu), train_dataset=Sentences(24, broken_at), eval_dataset=Sentences(8),
        callbacks=callbacks, args=TrainingArguments(**arguments))


def trainer_job(settings, gpu):
    """Two epochs, with evaluations and a checkpoint; then it goes on from the checkpoint; then an
    exception ends a training, and the next one begins anew."""
    world_size = settings["world_size"]
    energy, reporter = EnergyCallback(), Reporter()
    account = Account(gpu, energy._meter)
    trainer = new_trainer(settings, gpu, [reporter, energy], eval_strategy="steps", eval_steps=3,
                          save_strategy="steps", save_steps=4)
    trainer.account = account
    before = gpu.energy_j()
    returned = trainer.train()
    found = {"all_j": gpu.energy_j() - before, "account": account.found(),
             "history": trainer.state.log_history, "reported": reporter.seen,
             "returned": returned.metrics, "totals": energy.totals.saved(),
             "steps": trainer.state.global_step}
    path = os.path.join(settings["folder"], "checkpoint-4")
    with open(os.path.join(path, "trainer_state.json"), encoding="utf-8") as file:
        found["checkpoint"] = json.load(file)["stateful_callbacks"]["EnergyCallback"]

    for restores in (False, True):
        again = new_trainer(settings, gpu, [EnergyCallback()],
                            restore_callback_states_from_checkpoint=restores)
        returned = again.train(resume_from_checkpoint=path)
        found[f"resumed {restores}"] = {"history": again.state.log_history[-2:],
                                        "returned": returned.metrics}

    energy = EnergyCallback()
    if world_size == 1:  # a sentence breaks one rank only, and the others would wait for it
        try:
            new_trainer(settings, gpu, [energy], broken_at=9).train()
        except RuntimeError as error:
            found["exception"] = str(error)
    after = new_trainer(settings, gpu, [energy], max_steps=2, gradient_accumulation_steps=1,
                        include_num_input_tokens_seen=False)
    found["after"] = {"returned": after.train().metrics, "history": after.state.log_history}
    return found


class Tracker(GeneralTracker):
    """Keeps what the Accelerator logs."""

    name, requires_logging_directory = "kept", False
    main_process_only = True

    def __init__(self):
        super().__init__()
        self.kept = []

    @property
    def tracker(self):
        return self.kept

    @on_main_process
    def store_init_configuration(self, values):
        pass

    @on_main_process
    def log(self, values, step=None, **_):
        self.kept.append(dict(values, step=step))


class Loop:
    """A loop of a user of accelerate."""

    def __init__(self, accelerator, gpu):
        self.accelerator = accelerator
        model = new_model(gpu)
        loader = torch.utils.data.DataLoader(Sentences(100), batch_size=2)
        self.model, self.optimizer, self.loader = accelerator.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.01), loader)

    def train(self, steps, energy, limit):
        for step, batch in zip(range(steps), self.loader):
            with self.accelerator.accumulate(self.model):
                loss = self.model(**batch).loss
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.optimizer.zero_grad()
            energy.count(batch)
            limit.step()
            if step % 2 == 1:
                energy.log({"loss": loss.item()}, step=step)
                self.model.eval()
                with energy.evaluation(), torch.no_grad():
                    self.model(**batch)
                self.model.train()
        limit.end_epoch()


def accelerate_job(settings, gpu):
    tracker = Tracker()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, log_with=tracker)
    accelerator.init_trackers("test")
    loop = Loop(accelerator, gpu)
    with EnergyMeter(accelerator) as energy, \
            PowerLimit(accelerator, wait_steps=0, warmup_steps=0, profile_steps=1,
                       pl_step=300) as limit:
        loop.train(12, energy, limit)
        path = os.path.join(settings["folder"], "accelerate")
        accelerator.save_state(path)
        saved = energy.totals.saved()
        measurements = [[one.power_limit, one.energy, one.time]
                        for one in limit.optimizer.measurements]
        loop.train(2, energy, limit)
        dropped = energy.totals.saved()
        accelerator.load_state(path)
        loaded = energy.totals.saved()
        loop.train(2, energy, limit)
    return {"kept": tracker.kept, "saved": saved, "dropped": dropped, "loaded": loaded,
            "last": energy.totals.saved(), "measurements": measurements}


def lost_job(settings):
    """The GPU is lost while it trains."""
    energy, gpu = EnergyCallback(), Gpu(0, 1)

    class Busy(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            gpu.try_to_work(TRAINING_S)
            if state.global_step == 5:
                pathlib.Path(settings["faults"]).write_text("lost_after=0@0")

    trainer = new_trainer(settings, None, [energy, Busy()], logging_steps=1)
    metrics = trainer.train().metrics
    return {"metrics": metrics, "steps": trainer.state.global_step,
            "expected_steps": trainer.state.max_steps, "history": trainer.state.log_history}


def faulty_job(settings):
    """Without a GPU the training goes on. Checkpoints that were made without Harpe are
    continued."""
    new_trainer(settings, None, [], max_steps=2, save_strategy="steps", save_steps=2).train()
    trainer = new_trainer(settings, None, [EnergyCallback()], save_strategy="steps", save_steps=4)
    metrics = trainer.train(
        resume_from_checkpoint=os.path.join(settings["folder"], "checkpoint-2")).metrics
    accelerator = Accelerator(cpu=True)
    path = os.path.join(settings["folder"], "without")
    accelerator.save_state(path)
    with EnergyMeter(accelerator) as energy, PowerLimit(accelerator) as limit:
        limit.step()
        accelerator.load_state(path)
        accelerator.save_state(path)
        return {"metrics": metrics, "history": trainer.state.log_history,
                "accelerate": energy.log({"loss": 1.0}), "optimizer": limit.optimizer}


def main():
    settings, lines = json.loads(sys.argv[1]), Lines()
    if settings["job"] in ("faulty", "lost"):
        found = {"faulty": faulty_job, "lost": lost_job}[settings["job"]](settings)
    else:
        gpu = Gpu(int(os.environ["LOCAL_RANK"]), settings["world_size"])
        jobs = {"trainer": trainer_job, "accelerate": accelerate_job}
        found = jobs[settings["job"]](settings, gpu)
    print(json.dumps(dict(found, lines=lines.lines)))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
