#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pipeline-parallel training loop (1F1B) under the pipeline frequency optimizer. There is one
process for each GPU, and each has a stage of the model. If there are more processes than stages,
the others run replicas of the whole pipeline. Numbers mark the lines that a loop needs for Harpe.

    harpe serve --scheduler-args '{"solution_path": "plan.py"}' &
    torchrun --nproc-per-node 4 pipeline_parallel.py --stages 4
    harpe emulate --gpus 4xA100 -- torchrun --nproc-per-node 4 pipeline_parallel.py --stages 4

The plan has one list for each rank. For several replicas, use --scheduler PointSolution3D, with
which the server reads a plan with one list for each stage.
"""
import argparse
import logging
import os

import torch
from torch import distributed
from torch.distributed import P2POp, irecv, isend

from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer  # 1

WIDTH, MICROBATCH = 64, 32


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="http://127.0.0.1:7787")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


class Stage:
    """A stage of the model, and its communication with the stages before and after it."""

    def __init__(self, rank, stages, device):
        self.index, self.device = rank % stages, device
        self.is_first, self.is_last = self.index == 0, self.index == stages - 1
        self.before, self.after = rank - 1, rank + 1
        torch.manual_seed(self.index)
        self.model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).to(device)
        self.waiting = []  # forwards whose backward has not run yet: (input, output)
        self.losses = []

    def exchange(self, *operations):
        """Sends and receives at the same time, so that two neighbours never wait for each other's
        receive."""
        if operations:
            for request in distributed.batch_isend_irecv(list(operations)):
                request.wait()

    def buffer(self):
        return torch.empty(MICROBATCH, WIDTH, device=self.device)

    def send_forward(self, output):
        return [] if self.is_last else [P2POp(isend, output.detach(), self.after)]

    def receive_forward(self, buffer):
        return [] if self.is_first else [P2POp(irecv, buffer, self.before)]

    def send_backward(self, gradient):
        return [] if self.is_first else [P2POp(isend, gradient, self.before)]

    def receive_backward(self, buffer):
        return [] if self.is_last else [P2POp(irecv, buffer, self.after)]

    def forward(self, received):
        x = torch.ones(MICROBATCH, WIDTH, device=self.device) if self.is_first else received
        x.requires_grad_(not self.is_first)
        output = self.model(x)
        if self.is_last:
            output = torch.nn.functional.mse_loss(output, torch.zeros_like(output))
            self.losses.append(output.detach())
        self.waiting.append((x, output))
        return output

    def backward(self, gradient):
        x, output = self.waiting.pop(0)
        output.backward(None if self.is_last else gradient)
        return x.grad


def train_step(stage, stages, microbatches, callback):
    """Runs one forward and backward pipeline in 1F1B order."""

    def forward(received):
        callback.on_instruction_begin("forward")  # 4
        output = stage.forward(received)
        callback.on_instruction_end("forward")
        return output

    def backward(received):
        callback.on_instruction_begin("backward")
        gradient = stage.backward(received)
        callback.on_instruction_end("backward")
        return gradient

    ahead = min(stages - 1 - stage.index, microbatches)
    for _ in range(ahead):
        received = stage.buffer()
        stage.exchange(*stage.receive_forward(received))
        stage.exchange(*stage.send_forward(forward(received)))
    received = stage.buffer()
    if ahead < microbatches:
        stage.exchange(*stage.receive_forward(received))
    for left in reversed(range(microbatches - ahead)):
        output, gradient = forward(received), stage.buffer()
        stage.exchange(*stage.send_forward(output), *stage.receive_backward(gradient))
        sent, received = backward(gradient), stage.buffer()
        stage.exchange(*stage.send_backward(sent),
                       *(stage.receive_forward(received) if left > 0 else []))
    for _ in range(ahead):
        gradient = stage.buffer()
        stage.exchange(*stage.receive_backward(gradient))
        stage.exchange(*stage.send_backward(backward(gradient)))


def replica_group(rank, stages, world_size):
    """Returns the ranks that hold the same stage. Every rank takes part in creating every group."""
    groups = [distributed.new_group(list(range(stage, world_size, stages)))
              for stage in range(stages)]
    return groups[rank % stages]


def average_gradients(model, group, replicas):
    if replicas > 1:
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad, group=group)
            parameter.grad /= replicas


def main():
    arguments = parse_arguments()
    logging.basicConfig(level=logging.INFO)
    local_rank, with_gpu = int(os.environ["LOCAL_RANK"]), torch.cuda.is_available()
    if with_gpu:
        torch.cuda.set_device(local_rank)
    distributed.init_process_group("nccl" if with_gpu else "gloo")
    rank, world_size, stages = (distributed.get_rank(), distributed.get_world_size(),
                                arguments.stages)
    replicas = world_size // stages
    group = replica_group(rank, stages, world_size)
    stage = Stage(rank, stages, torch.device("cuda", local_rank) if with_gpu else "cpu")
    sgd = torch.optim.SGD(stage.model.parameters(), lr=0.1)

    optimizer = PipelineFrequencyOptimizer(  # 2: after init_process_group
        rank=rank, dp_rank=rank // stages, pp_rank=rank % stages, tp_rank=0, device_id=local_rank,
        dp_degree=replicas, pp_degree=stages, tp_degree=1, world_size=world_size,
        server_url=arguments.server)

    for _ in range(arguments.steps):
        stage.losses.clear()
        optimizer.on_step_begin()  # 3
        train_step(stage, stages, arguments.microbatches, optimizer)
        optimizer.on_step_end()  # 5
        average_gradients(stage.model, group, replicas)
        sgd.step()
        sgd.zero_grad()

    seen = optimizer.status()
    loss = f", loss {float(sum(stage.losses)) / len(stage.losses):.6f}" if stage.losses else ""
    print(f"rank {rank}: job {seen.job_id}, round {seen.round}, {seen.steps} steps of which "
          f"{seen.misfits} did not fit, clock set {seen.clock_writes} times{loss}", flush=True)
    optimizer.close()  # 6
    distributed.barrier()
    distributed.destroy_process_group()


main()
