# SPDX-License-Identifier: Apache-2.0
"""The common part of the scripts that the processes of a job run (jobs.py starts them)."""
import ctypes
import os
import time

import torch

LIMIT_S = int(os.environ.get("HARPE_TEST_LIMIT_S", "300"))


def everywhere(condition):
    """Tells whether the condition is true on all ranks. All ranks must call it."""
    tensor = torch.tensor([int(condition)])
    torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MIN)
    return bool(tensor)


def record(optimizer, events):
    """Appends to `events` what the optimizer is told, in the order in which it is told: step_begin,
    "instruction_begin forward" ..."""
    def recorded(name, method):
        def call(*arguments):
            events.append(" ".join((name, *arguments)))
            return method(*arguments)
        return call

    for name in ("step_begin", "step_end", "instruction_begin", "instruction_end"):
        setattr(optimizer, f"on_{name}", recorded(name, getattr(optimizer, f"on_{name}")))


class Gpu:
    """The clock of one GPU, as NVML tells it."""

    def __init__(self, index):
        self.index, self.handle = index, ctypes.c_void_p()
        self.nvml = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])
        assert self.nvml.nvmlInit_v2() == 0
        assert self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.handle)) == 0

    def clock(self):
        mhz = ctypes.c_uint()
        assert self.nvml.nvmlDeviceGetClockInfo(self.handle, 0, ctypes.byref(mhz)) == 0
        return mhz.value

    def wait_for(self, mhz):
        """Waits until this is the clock."""
        end = time.monotonic() + LIMIT_S
        while self.clock() != mhz:
            if time.monotonic() > end:
                raise TimeoutError(f"GPU {self.index} has {self.clock()} MHz instead of {mhz}")
            time.sleep(0.001)


def wait_for_clocks(optimizer, gpu, clocks):
    """Makes the next instructions, as many as there are clocks, begin only when the GPU has their
    clock."""
    begin, left = optimizer.on_instruction_begin, list(clocks)

    def begun(name):
        begin(name)
        if left:
            gpu.wait_for(left.pop(0))

    optimizer.on_instruction_begin = begun
