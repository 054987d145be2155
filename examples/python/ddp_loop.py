#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs DistributedDataParallel under the power limit optimizer: one process for each GPU. All ranks
make the same decision, from the energy of all GPUs together and the time of the slowest rank.

    torchrun --nproc-per-node 2 ddp_loop.py [EPOCHS [STEPS]]
    harpe emulate --gpus 2xV100 --time-scale 100 -- torchrun --nproc-per-node 2 ddp_loop.py
"""
import os
import sys

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    local_rank = int(os.environ["LOCAL_RANK"])
    with_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if with_gpu else torch.device("cpu")
    if with_gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if with_gpu else "gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 1).to(device))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)

    # Runs after init_process_group. Each rank uses its own GPU.
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(gpu_indices=[local_rank]))

    for _ in range(epochs):
        for _ in range(steps):
            optimizer.on_step_begin()
            x = torch.randn(128, 64, device=device)
            loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        optimizer.on_epoch_end()
    print(f"rank {distributed.get_rank()}: {optimizer.optimal_power_limit} W of "
          f"{[one.power_limit for one in optimizer.measurements]}", flush=True)
    optimizer.close()
    distributed.destroy_process_group()


main()
