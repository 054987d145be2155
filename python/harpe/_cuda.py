# SPDX-License-Identifier: Apache-2.0
"""Knows GPUs as a framework sees them: waits until they have finished the framework's work, and
finds the stream that the framework uses. A framework that the process has not imported, or that has
not used a GPU yet, has started no work. This module never imports a framework, and initialises it
only to find its stream."""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Optional, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError

Synchronizer = Callable[[List[int]], Any]


def _torch(gpu_indices: List[int]) -> None:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        for gpu in gpu_indices:
            cuda.synchronize(gpu)


def _jax(gpu_indices: List[int]) -> None:
    jax = sys.modules.get("jax")
    if jax is None:
        return
    try:
        gpus = jax.local_devices(backend="gpu")
    except RuntimeError:  # this JAX supports CPUs only
        gpus = []
    # JAX has no call that waits for a device. This value is computed after all earlier work.
    devices = [gpus[gpu] for gpu in gpu_indices if gpu < len(gpus)]
    devices.append(jax.local_devices(backend="cpu")[0])
    jax.block_until_ready([jax.device_put(0.0, device) + 0 for device in devices])


def _cupy(gpu_indices: List[int]) -> None:
    cuda = getattr(sys.modules.get("cupy"), "cuda", None)
    if cuda is not None:
        for gpu in gpu_indices:
            cuda.Device(gpu).synchronize()


_FRAMEWORKS: Dict[str, Synchronizer] = {"torch": _torch, "jax": _jax, "cupy": _cupy}


def synchronizer(of_what: Union[str, Synchronizer, None]) -> Optional[Synchronizer]:
    """Returns a function that waits for the GPUs with the given indices. `of_what` is "torch",
    "jax", "cupy", a callable that waits itself, or None for no waiting. Raises ValueError for
    anything else."""
    if of_what is None or callable(of_what):
        return of_what
    try:
        return _FRAMEWORKS[of_what]
    except (KeyError, TypeError):
        raise InvalidArgumentError(
            "sync_execution_with: expected \"torch\", \"jax\", \"cupy\", a callable or None, not "
            f"{of_what!r}", b.HARPE_INVALID_ARGUMENT) from None


def stream_address(stream: Any, device: int) -> Optional[int]:
    """Returns the address of a CUDA stream (CUstream; 0 is the default stream). `stream` is a
    number, a stream of PyTorch or CuPy, or None for PyTorch's current stream on this device.
    Returns None if the process has no PyTorch with CUDA. Raises TypeError for anything else."""
    if stream is None:
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_available():
            return None
        stream = cuda.current_stream(device)
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if isinstance(stream, bool) or not isinstance(stream, int):
        raise TypeError(f"stream: expected a CUDA stream or its address, not {stream!r}")
    return stream
