# SPDX-License-Identifier: Apache-2.0
"""A script as the documentation of torch.distributed.pipelining shows them: linear layers in
stages, 1F1B, gloo. It names nothing of Harpe. It trains until the file that its argument names
exists.

    torchrun --nproc-per-node 2 pipeline.py FILE
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, MICROBATCHES = 8, 4


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    module = torch.nn.Linear(WIDTH, WIDTH)
    stage = PipelineStage(module, rank, world_size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    inputs, target = torch.ones(MICROBATCHES, WIDTH), torch.zeros(MICROBATCHES, WIDTH)
    first = last = None
    is_over = torch.zeros(1)
    while not is_over:
        losses = []
        if rank == 0:
            schedule.step(inputs)
        elif rank == world_size - 1:
            schedule.step(target=target, losses=losses)
            last = float(sum(losses))
            first = last if first is None else first
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        is_over.fill_(os.path.exists(sys.argv[1]))
        dist.all_reduce(is_over, dist.ReduceOp.MIN)
    if rank == world_size - 1:
        print(f"the loss fell: {last < first}")
    dist.destroy_process_group()


main()
