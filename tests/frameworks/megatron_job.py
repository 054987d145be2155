# SPDX-License-Identifier: Apache-2.0
"""One rank of a small job that trains with Megatron-Core's own schedules on CPUs: linear layers or
Megatron's GPTModel as pipeline stages, gloo, and Harpe on an emulated GPU. Started by
test_megatron.py; prints one line of JSON. What is replaced of Megatron and CUDA is in on_cpu()."""
import contextlib
import inspect
import json
import os
import sys
from unittest import mock

import job_process
import torch
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.timers import Timers
from megatron.core.transformer import TransformerConfig
from torch.overrides import TorchFunctionMode

from harpe.integrations import megatron as harpe_megatron

WIDTH, LENGTH, BATCH, WORDS = 8, 4, 1, 16


class _DeviceCpu(TorchFunctionMode):
    """Makes tensors on the CPU that Megatron wants on the device "cuda"."""

    def __torch_function__(self, function, kinds, arguments=(), named=None):
        named = dict(named or {})
        if function is torch.Tensor.cuda:  # older versions
            return arguments[0]
        if str(named.get("device")).startswith("cuda"):
            named["device"] = "cpu"
        return function(*arguments, **named)


@contextlib.contextmanager
def on_cpu():
    """Replaces what Megatron's timers, schedules and communication need of CUDA, and the state of a
    GPU's random numbers, of which its attention uses none here."""
    with mock.patch.object(torch.cuda, "current_device", lambda: torch.device("cpu")), \
            mock.patch.object(torch.cuda, "synchronize", lambda *_: None), \
            mock.patch.object(CudaRNGStatesTracker, "fork",
                              lambda *_, **__: contextlib.nullcontext()), _DeviceCpu():
        yield


class Stage(torch.nn.Module):
    """A pipeline stage with the attributes that Megatron's schedules use."""

    def __init__(self, config, index, chunk):
        super().__init__()
        torch.manual_seed(index)
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        self.config, self.vp_stage, self.model_type = config, chunk, ModelType.encoder_or_decoder
        self.input = None

    def set_input_tensor(self, tensors):
        self.input = tensors[0]

    def forward(self, data):
        return self.layer(data if self.input is None else self.input)


def gpt_stage(config, index, count, chunk):
    """Returns one of `count` stages of a GPT with one layer in each."""
    torch.manual_seed(index)
    named = {"vp_stage": chunk} if "vp_stage" in inspect.signature(GPTModel).parameters else {}
    return GPTModel(config, get_gpt_layer_local_spec(), WORDS, LENGTH, pre_process=index == 0,
                    post_process=index == count - 1, **named)


class Job:
    def __init__(self, rank, settings):
        self.rank, self.settings, self.events, self.losses = rank, settings, [], []
        ranks, chunks = settings["ranks"], settings["chunks"]
        torch.distributed.init_process_group("gloo", rank=rank, world_size=settings["world_size"])
        parallel_state.initialize_model_parallel(
            pipeline_model_parallel_size=ranks,
            virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None)
        # Between two ranks, batched sends of both directions cannot be told apart with gloo.
        self.config = TransformerConfig(
            num_layers=ranks * chunks, hidden_size=WIDTH, num_attention_heads=1,
            pipeline_model_parallel_size=ranks, pipeline_dtype=torch.float32,
            virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
            microbatch_group_size_per_vp_stage=settings["group"], batch_p2p_comm=False,
            use_cpu_initialization=True, hidden_dropout=0, attention_dropout=0)
        self.config.timers = Timers(settings["log_level"], "minmax")
        stage = parallel_state.get_pipeline_model_parallel_rank()
        self.chunks = [self._stage(chunk * ranks + stage, chunk if chunks > 1 else None)
                       for chunk in range(chunks)]
        self.optimizer = torch.optim.SGD([one for chunk in self.chunks
                                          for one in chunk.parameters()], lr=0.05)

    def _stage(self, index, chunk):
        if not self.settings["is_gpt"]:
            return Stage(self.config, index, chunk)
        return gpt_stage(self.config, index, self.config.num_layers, chunk)

    def _loss(self, output):
        self.events.append("loss")
        loss = output.mean() if self.settings["is_gpt"] else output.square().mean()
        return loss, {"loss": loss.detach()}

    def _forward(self, iterator, model):
        data = next(iterator)
        if not self.settings["is_gpt"]:
            return model(data), self._loss
        words = torch.arange(LENGTH).unsqueeze(0)
        mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).triu(1)
        return model(words, words, mask, labels=words + 1), self._loss

    def step(self, forward_only=False):
        """Runs one of Megatron's steps and the step of the optimizer."""
        count = self.settings["microbatches"]
        data = torch.linspace(-1, 1, LENGTH * BATCH * WIDTH).reshape(LENGTH, BATCH, WIDTH)
        reported = get_forward_backward_func()(
            forward_step_func=self._forward, data_iterator=[iter([data] * count)
                                                            for _ in self.chunks],
            model=self.chunks, num_microbatches=count, seq_length=LENGTH, micro_batch_size=BATCH,
            forward_only=forward_only)
        if forward_only:
            return
        self.optimizer.step()
        self.optimizer.zero_grad()
        if reported:
            self.losses.append(sum(float(one["loss"]) for one in reported) / count)

    def evaluate(self):
        """Megatron's training loop removes the timers during evaluation."""
        timers, self.config.timers = self.config.timers, None
        self.step(forward_only=True)
        self.config.timers = timers

    def take(self):
        events = self.events[:]
        self.events.clear()
        return events


def main():
    settings, rank = json.loads(sys.argv[1]), int(os.environ["RANK"])
    with on_cpu():
        job = Job(rank, settings)
        one = harpe_megatron.install(job.config, server_url=settings["url"], device_id=rank,
                                     iterations=2, warmup_iterations=0)
        optimizer = one.optimizer
        optimizer.wait_for_round(0, 300)
        job_process.record(optimizer, job.events)
        steps = []
        while not job_process.everywhere(os.path.exists(settings["until"])
                             and optimizer.status().round >= settings["rounds"]):
            job.step()
            steps.append(job.take())
            job.evaluate()
            evaluation = job.take()
        status = optimizer.status()
        one.uninstall()
        job.step()
    last = job.take()
    print(json.dumps({"rank": rank, "steps": len(steps), "first": steps[0],
                      "all_the_same": all(step == steps[0] for step in steps),
                      "evaluation": evaluation, "uninstalled": last, "round": status.round,
                      "misfits": status.misfits, "losses": [job.losses[0], job.losses[-1]]
                      if job.losses else [],
                      "timers": f"{type(job.config.timers).__module__}."
                                f"{type(job.config.timers).__qualname__}"}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
