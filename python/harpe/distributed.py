# SPDX-License-Identifier: Apache-2.0
"""Communicates among the ranks of a job through the mechanism that the job already uses:
torch.distributed if it is initialised, MPI if the script has initialised mpi4py, and otherwise a
single process. This module imports and initialises nothing. All ranks must make the same calls in
the same order."""
from __future__ import annotations

import sys
from array import array
from typing import Any, List, Optional, Sequence

from harpe import _bindings as b
from harpe._library import InvalidArgumentError

__all__ = ["all_reduce", "broadcast", "rank", "world_size"]


def _torch() -> Any:
    """Returns torch.distributed if this process has initialised it, otherwise None."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _mpi() -> Any:
    """Returns mpi4py's MPI module while MPI runs in this process, otherwise None."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None


def rank() -> int:
    """Returns the number of this process in the job, from 0."""
    distributed, mpi = _torch(), _mpi()
    if distributed is not None:
        return int(distributed.get_rank())
    return int(mpi.COMM_WORLD.Get_rank()) if mpi is not None else 0


def world_size() -> int:
    """Returns the number of processes of the job."""
    distributed, mpi = _torch(), _mpi()
    if distributed is not None:
        return int(distributed.get_world_size())
    return int(mpi.COMM_WORLD.Get_size()) if mpi is not None else 1


def _torch_device(distributed: Any) -> Any:
    """Returns the device on which tensors must be. If NCCL is the only backend, this is the GPU."""
    torch = sys.modules["torch"]
    if distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def all_reduce(values: Sequence[float], operation: str) -> List[float]:
    """Combines lists of numbers over all ranks, element by element, as 64-bit floats. Returns the
    same list on every rank. `operation` is "sum" or "max"; any other value raises ValueError."""
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
    """Sends the bytes of the rank `root` to every rank. The argument of the other ranks is ignored
    and may be None."""
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
