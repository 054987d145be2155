# SPDX-License-Identifier: Apache-2.0
"""Ranks of a job, through what the job already uses: torch.distributed when it is initialised, MPI
when the script has initialised mpi4py, and a single process otherwise. Nothing is imported or
initialised here. All ranks must make the same calls in the same order."""
from __future__ import annotations

import sys
from array import array
from typing import Any, List, Optional, Sequence

from harpe import _bindings as b
from harpe._library import InvalidArgumentError

__all__ = ["all_reduce", "broadcast", "rank", "world_size"]


def _torch() -> Any:
    """torch.distributed when this process has initialised it."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _mpi() -> Any:
    """mpi4py's MPI module while MPI runs in this process."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None


def rank() -> int:
    """This process's number in the job, from 0."""
    distributed, mpi = _torch(), _mpi()
    if distributed is not None:
        return int(distributed.get_rank())
    return int(mpi.COMM_WORLD.Get_rank()) if mpi is not None else 0


def world_size() -> int:
    """How many processes the job has."""
    distributed, mpi = _torch(), _mpi()
    if distributed is not None:
        return int(distributed.get_world_size())
    return int(mpi.COMM_WORLD.Get_size()) if mpi is not None else 1


def _torch_device(distributed: Any) -> Any:
    """Where tensors must lie: NCCL alone speaks only of the GPU's memory."""
    torch = sys.modules["torch"]
    if distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def all_reduce(values: Sequence[float], operation: str) -> List[float]:
    """Combines numbers over all ranks, place by place, as 64-bit floats, and returns the same list
    on every rank. `operation` is "sum" or "max"; ValueError for another."""
    if operation not in ("sum", "max"):
        raise InvalidArgumentError(f"all_reduce: operation must be \"sum\" or \"max\", not "
                                   f"{operation!r}", b.HARPE_INVALID_ARGUMENT)
    distributed, mpi = _torch(), _mpi()
    if distributed is not None:
        torch = sys.modules["torch"]
        tensor = torch.tensor(list(values), dtype=torch.float64, device=_torch_device(distributed))
        reduce = distributed.ReduceOp.SUM if operation == "sum" else distributed.ReduceOp.MAX
        distributed.all_reduce(tensor, op=reduce)
        return [float(value) for value in tensor.tolist()]
    numbers = array("d", values)
    if mpi is not None:
        reduce = mpi.SUM if operation == "sum" else mpi.MAX
        mpi.COMM_WORLD.Allreduce(mpi.IN_PLACE, numbers, op=reduce)
    return numbers.tolist()


def broadcast(data: Optional[bytes], root: int = 0) -> bytes:
    """Hands the bytes of the rank `root` to every rank; what the others pass is not looked at (None
    will do)."""
    distributed, mpi = _torch(), _mpi()
    if distributed is None and mpi is None:
        return bytes(data or b"")
    if mpi is not None and distributed is None:
        return bytes(mpi.COMM_WORLD.bcast(data, root=root))
    torch = sys.modules["torch"]
    device = _torch_device(distributed)
    is_root = distributed.get_rank() == root
    length = torch.tensor([len(data or b"") if is_root else 0], device=device)
    distributed.broadcast(length, src=root)
    content = torch.tensor(list(data or b""), dtype=torch.uint8, device=device) if is_root else \
        torch.empty(int(length.item()), dtype=torch.uint8, device=device)
    if content.numel() > 0:
        distributed.broadcast(content, src=root)
    return bytes(content.tolist())
