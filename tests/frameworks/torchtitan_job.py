# SPDX-License-Identifier: Apache-2.0
"""One rank of a small job that trains with torchtitan's own Trainer on CPUs: its Llama 3 for
debugging, pipeline stages and FSDP, gloo, and Harpe on an emulated GPU. Started by
test_torchtitan.py; prints one line of JSON. What is replaced of torchtitan and PyTorch is in
on_cpu()."""
import contextlib
import json
import os
import sys
import types
from unittest import mock

import job_process
import torch
from torch.distributed.fsdp import FSDPModule

from harpe.integrations import torch_pipelining as harpe_pipelining


@contextlib.contextmanager
def on_cpu():
    """torchtitan trains on the device that PyTorch has found, or else on "cuda". Makes this device
    the CPU, and adds the parts of torch.cuda that torchtitan's metrics read and torch.cpu lacks."""
    replaced = {"current_device": lambda: 0, "get_device_name": lambda *_: "CPU",
                "get_device_properties": lambda *_: types.SimpleNamespace(total_memory=1 << 30),
                "memory_stats": lambda *_: {}, "reset_peak_memory_stats": lambda *_: None,
                "empty_cache": lambda: None}
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch._utils, "_get_available_device_type",
                                              lambda: "cpu"))
        for name, function in replaced.items():
            stack.enter_context(mock.patch.object(torch.cpu, name, function, create=True))
        yield


def trainer_for(settings):
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.llama3.config_registry import llama3_debugmodel
    config = llama3_debugmodel()
    for layer in config.model_spec.model.layers:  # FlexAttention has no backward on CPUs
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    config.hf_assets_path = settings["tokenizer"]
    config.dataloader.dataset_path = settings["data"]
    config.dump_folder = settings["folder"]
    config.training.local_batch_size = settings["microbatches"]
    config.training.seq_len, config.training.steps = 16, settings["steps"]
    config.training.disable_cuda_graphs = True  # torchtitan refuses them in a pipeline
    config.parallelism.pipeline_parallel_degree = settings["ranks"]
    config.parallelism.pipeline_parallel_schedule = settings["schedule"]
    config.checkpoint.enable = config.validator.enable = False
    trainer = config.build()
    for part in trainer.model_parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):  # gloo has no scaled sums
                module.set_force_sum_reduction_for_comms(True)
    return trainer


def main():
    settings, rank = json.loads(sys.argv[1]), int(os.environ["RANK"])
    steps, losses = [], []
    with on_cpu():
        trainer = trainer_for(settings)
        schedule = trainer.pp_schedule
        before = set(vars(schedule))
        # torchtitan's device is cpu:0 on every rank.
        with harpe_pipelining.install(schedule, server_url=settings["url"], device_id=rank,
                                      device_mesh=trainer.parallel_dims.get_mesh("batch"),
                                      iterations=2, warmup_iterations=0) as one:
            one.optimizer.wait_for_round(0, job_process.LIMIT_S)
            events = []
            job_process.record(one.optimizer, events)
            job_process.wait_for_clocks(one.optimizer, job_process.Gpu(rank),
                                        settings["clocks"][rank * settings["ranks"]
                                                           // settings["world_size"]])
            train_step = trainer.pp_forward_backward_step

            def step(**named):
                losses.append(float(train_step(**named)))
                steps.append(events[:])
                events.clear()
                return torch.tensor(losses[-1])

            trainer.pp_forward_backward_step = step
            trainer.train()
            status = one.optimizer.status()
        left = sorted(set(vars(schedule)) - before)
    print(json.dumps({"rank": rank, "first": steps[0], "steps": len(steps), "losses": losses,
                      "all_the_same": all(step == steps[0] for step in steps), "left": left,
                      "misfits": status.misfits, "round": status.round}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
