# SPDX-License-Identifier: Apache-2.0
"""One rank of a job with a pipeline of two stages and two ranks in each stage, with real process
groups on CPUs (gloo): data parallel with FSDP, tensor parallel, or context parallel. Started by
test_torch_pipelining.py; prints one line of JSON."""
import json
import os
import sys

import job_process
import torch
import torch_pipelining_job
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh

from harpe.integrations import torch_pipelining as harpe_pipelining

WIDTH, BATCH, MICROBATCHES = 8, 4, 2


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def prepared(part, second, mesh):
    """Distributes the part over the mesh's second dimension."""
    if second == "dp_shard":
        from torch.distributed.fsdp import fully_shard
        return fully_shard(part, mesh=mesh[second])
    if second == "tp":
        from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                       parallelize_module)
        return parallelize_module(part, mesh["tp"],
                                  {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return part


def run(case, settings, rank):
    names = ("pp", case["second"])
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
    torch.manual_seed(mesh["pp"].get_local_rank())
    index = mesh["pp"].get_local_rank()
    part = prepared(Part(), case["second"], mesh)
    x = torch.zeros(BATCH, WIDTH)
    stage = pipelining.PipelineStage(part, index, 2, torch.device("cpu"), input_args=(x,),
                                     group=mesh.get_group("pp"))
    schedule = pipelining.Schedule1F1B(
        stage, MICROBATCHES, lambda output, target: (output - target).square().mean())
    given = {"device_mesh": mesh} if case["gives_mesh"] else {}
    one = harpe_pipelining.install(schedule, server_url=settings["url"], job_key=case["name"],
                                   device_id=rank, iterations=1, warmup_iterations=0, **given)
    optimizer, events, losses = one.optimizer, [], []
    optimizer.wait_for_round(0, 300)
    job_process.record(optimizer, events)
    weights = torch.optim.SGD(part.parameters(), lr=0.1)
    x = torch.linspace(-1, 1, BATCH * MICROBATCHES * WIDTH).reshape(-1, WIDTH)
    for _ in range(4):
        found = []
        schedule.step(*([x] if index == 0 else []), target=x.flip(0), losses=found)
        weights.step()
        weights.zero_grad()
        losses += [float(sum(found))] if found else []
    status = optimizer.status()
    one.uninstall()
    begin = "instruction_begin "
    return {"ranks": [optimizer.rank, optimizer.pp_rank, optimizer.dp_rank, optimizer.tp_rank],
            "names": [event[len(begin):] for event in events if event.startswith(begin)],
            "misfits": status.misfits, "losses": losses}


def main():
    settings, rank = json.loads(sys.argv[1]), int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", rank=rank, world_size=4)
    if torch_pipelining_job.TORCH_2_5:
        torch_pipelining_job.keep_all_messages()
    results = [run(case, settings, rank) for case in settings["cases"]]
    print(json.dumps(results))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
