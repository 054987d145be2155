#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch training loop under the power limit optimizer. The lines that a script adds are marked.
It trains on a GPU if there is one, and otherwise on the CPU.

    python3 power_limit_loop.py [EPOCHS [STEPS]]
    harpe emulate --gpus 1xV100 --time-scale 100 -- python3 power_limit_loop.py     (no GPU needed)
"""
import sys

import torch

from harpe.monitor import ZeusMonitor                                            # added
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer, MaxSlowdownConstraint  # added


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    model.to(device)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)

    monitor = ZeusMonitor(gpu_indices=[0])                                       # added
    # The least power with which training takes at most 10 % longer.
    optimizer = GlobalPowerLimitOptimizer(monitor, MaxSlowdownConstraint(1.1))   # added

    monitor.begin_window("training")                                             # added, optional
    for epoch in range(epochs):
        optimizer.on_epoch_begin()                                               # added
        for _ in range(steps):
            optimizer.on_step_begin()                                            # added
            x = torch.randn(128, 64, device=device)
            loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            optimizer.on_step_end()                                              # added
        optimizer.on_epoch_end()                                                 # added
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    training = monitor.end_window("training")

    print(f"{training.time:.1f} s, {training.total_energy:.0f} J")
    for one in optimizer.measurements:
        chosen = "  chosen" if one.power_limit == optimizer.optimal_power_limit else ""
        print(f"{one.power_limit:5} W  {one.time:8.3f} s  {one.energy:10.1f} J{chosen}")
    # not needed if the process ends here
    optimizer.close()


main()
