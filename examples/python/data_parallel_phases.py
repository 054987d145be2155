#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training without a pipeline under the pipeline frequency optimizer: each phase of a
step is an instruction, and runs at a clock of its own. There is one process for each GPU. Numbers
mark the lines that a loop needs for Harpe.

    harpe serve --scheduler-args \
        '{"num_microbatches": 1, "epilogue": ["reduce", "optimizer"], "slowdown": 1.03}' &
    torchrun --nproc-per-node 2 data_parallel_phases.py
    harpe emulate --gpus 2xA100 -- torchrun --nproc-per-node 2 data_parallel_phases.py

With --emulated no PyTorch is needed: each phase keeps an emulated GPU busy for some time.

    harpe emulate --gpus 1xA100 -- python3 data_parallel_phases.py --emulated
"""
import argparse
import ctypes
import logging
import os

from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer  # 1

WIDTH, BATCH = 64, 32


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="http://127.0.0.1:7787")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--emulated", action="store_true", help="run on an emulated GPU")
    parser.add_argument("--key", default="phases", help="the key of an emulated job")
    return parser.parse_args()


class Training:
    """A replica of a small model, with the phases of a step."""

    def __init__(self, local_rank):
        import torch
        self.torch = torch
        with_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", local_rank) if with_gpu else torch.device("cpu")
        if with_gpu:
            torch.cuda.set_device(self.device)
        torch.distributed.init_process_group("nccl" if with_gpu else "gloo")
        # The host runs ahead of the GPU, so instructions begin and end when the stream does.
        self.mark = "stream" if with_gpu else "host"
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(),
                                         torch.nn.Linear(WIDTH, 1)).to(self.device)
        self.sgd = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def forward(self):
        x = self.torch.randn(BATCH, WIDTH, device=self.device)
        y = x.sum(dim=1, keepdim=True)
        self.loss = self.torch.nn.functional.mse_loss(self.model(x), y)

    def backward(self):
        self.sgd.zero_grad()
        self.loss.backward()

    def reduce(self):
        for parameter in self.model.parameters():
            self.torch.distributed.all_reduce(parameter.grad)
            parameter.grad /= self.torch.distributed.get_world_size()

    def optimizer(self):
        self.sgd.step()

    def end(self):
        self.torch.distributed.barrier()
        self.torch.distributed.destroy_process_group()


class Emulated:
    """The same phases as work of an emulated GPU. The first number is the time of a phase at the
    highest clock, in s. The second number is the share of this time that follows the clock: none
    while the GPU waits for the network."""

    mark = "host"
    WORK = {"forward": (0.02, 0.9), "backward": (0.04, 0.9), "reduce": (0.03, 0.0),
            "optimizer": (0.01, 0.1)}

    def __init__(self, local_rank):
        self.gpu = local_rank
        self.nvml = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])  # harpe emulate sets it
        self.nvml.harpe_emulator_work.argtypes = (ctypes.c_uint, ctypes.c_double, ctypes.c_double,
                                                  ctypes.c_void_p)
        if self.nvml.nvmlInit_v2():
            raise SystemExit("the emulator cannot be used")

    def __getattr__(self, phase):
        return lambda: self.nvml.harpe_emulator_work(self.gpu, *self.WORK[phase], None)

    def end(self):
        pass


def main():
    arguments = parse_arguments()
    logging.basicConfig(level=logging.INFO)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    training = (Emulated if arguments.emulated else Training)(local_rank)

    optimizer = PipelineFrequencyOptimizer(  # 2: after init_process_group; one stage
        rank=rank, dp_rank=rank, pp_rank=0, tp_rank=0, device_id=local_rank, dp_degree=world_size,
        pp_degree=1, tp_degree=1, world_size=world_size, server_url=arguments.server,
        job_key=arguments.key if arguments.emulated else None, mark=training.mark)

    def run(phase):
        optimizer.on_instruction_begin(phase)  # 4
        getattr(training, phase)()
        optimizer.on_instruction_end(phase)

    for _ in range(arguments.steps):
        optimizer.on_step_begin()  # 3
        run("forward")
        run("backward")
        run("reduce")
        run("optimizer")
        optimizer.on_step_end()  # 5

    seen = optimizer.status()
    print(f"rank {rank}: job {seen.job_id}, round {seen.round}, {seen.steps} steps of which "
          f"{seen.misfits} did not fit, clock set {seen.clock_writes} times", flush=True)
    optimizer.close()  # 6
    training.end()


main()
