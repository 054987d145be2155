# SPDX-License-Identifier: Apache-2.0
"""The common part of the scripts that the processes of a job run (jobs.py starts them)."""
import torch


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
