# SPDX-License-Identifier: Apache-2.0
"""One process of a job that trains a pipeline of two stages, twice, with the published Zeus's
PipelineFrequencyOptimizer, unchanged. Ranks 0 and 1 are replicas of the first stage, 2 and 3 of the
second. PyTorch without CUDA lacks what the optimizer calls before each instruction; these calls
(torch.cuda.is_available, set_device, synchronize) are replaced. The rest is real: gloo, the
training, Zeus's process that sets the clocks. Prints the clock of the rank's GPU at each
instruction."""
import json
import os
import sys
import time

import pynvml
import torch
import torch.distributed as dist

torch.cuda.is_available = lambda: True
torch.cuda.set_device = lambda device: None
torch.cuda.synchronize = lambda device=None: None
from zeus.optimizer.pipeline_frequency import PipelineFrequencyOptimizer  # noqa: E402

WIDTH, BATCH, LIMIT_S = 8, 4, 300


class Stage:
    """One stage of 1F1B, with gradients averaged over the replicas."""

    def __init__(self, stage, replica, microbatches, optimizer, clock):
        torch.manual_seed(stage)
        self.stage, self.replica, self.microbatches = stage, replica, microbatches
        self.optimizer, self.clock = optimizer, clock
        self.layer = torch.nn.Linear(WIDTH, WIDTH if stage == 0 else 1)
        self.peer = replica + 2 * (1 - stage)
        self.group = [dist.new_group([0, 1]), dist.new_group([2, 3])][stage]

    def instruction(self, name, work):
        """Runs one instruction, and returns (its name, the GPU's clock in it)."""
        self.optimizer.on_instruction_begin(name)
        mhz = self.clock()
        work()
        self.optimizer.on_instruction_end(name)
        return name, mhz

    def forward(self):
        inputs = torch.randn(BATCH, WIDTH, generator=self.data)
        if self.stage == 0:
            self.kept.append((None, self.layer(inputs)))
            self.sent.append(dist.isend(self.kept[-1][1].detach(), self.peer))
            return
        received = torch.empty(BATCH, WIDTH)
        dist.recv(received, self.peer)
        received.requires_grad_()
        loss = ((self.layer(received) - 1) ** 2).mean() / self.microbatches
        self.loss += float(loss.detach())
        self.kept.append((received, loss))

    def backward(self):
        received, output = self.kept.pop(0)
        if self.stage == 1:
            output.backward()
            self.sent.append(dist.isend(received.grad, self.peer))
            return
        gradient = torch.empty(BATCH, WIDTH)
        dist.recv(gradient, self.peer)
        output.backward(gradient)

    def step(self):
        """Returns what the instructions of one iteration return, and the loss."""
        self.kept, self.sent, self.loss = [], [], 0.0
        self.data = torch.Generator().manual_seed(self.replica)
        warm_up = 1 - self.stage
        self.optimizer.on_step_begin()
        order = ["forward"] * warm_up
        order += ["forward", "backward"] * (self.microbatches - warm_up) + ["backward"] * warm_up
        ran = [self.instruction(name, getattr(self, name)) for name in order]
        self.optimizer.on_step_end()
        for one in self.sent:
            one.wait()
        for one in self.layer.parameters():
            dist.all_reduce(one.grad, group=self.group)
            one.data -= 0.02 * one.grad
            one.grad = None
        return ran, self.loss


def clock_of(gpu, schedule):
    """Returns a function that waits until the GPU has the next clock of the schedule, because Zeus
    sets clocks in another process, and then returns the GPU's clock."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    position = [0]

    def clock():
        expected = schedule[position[0] % len(schedule)][1]
        position[0] += 1
        end = time.monotonic() + LIMIT_S
        while True:
            mhz = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            if mhz == expected or time.monotonic() > end:
                return mhz
            time.sleep(0.001)
    return clock


def main():
    settings, rank = json.loads(sys.argv[1]), int(os.environ["RANK"])
    dist.init_process_group("gloo")
    replica, stage = rank % 2, rank // 2
    optimizer = PipelineFrequencyOptimizer(
        rank=rank, dp_rank=replica, pp_rank=stage, tp_rank=0, device_id=rank, dp_degree=2,
        pp_degree=2, tp_degree=1, world_size=4, server_url=settings["url"], job_metadata="real")
    one = Stage(stage, replica, settings["microbatches"], optimizer,
                clock_of(rank, optimizer.freq_schedule))
    steps = [one.step() for _ in range(settings["steps"])]
    dist.barrier()
    print(json.dumps({"rank": rank, "job": optimizer.job_id, "losses": [loss for _, loss in steps],
                      "ran": [ran for ran, _ in steps]}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
