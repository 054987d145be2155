# SPDX-License-Identifier: Apache-2.0
"""Harpe measures, plans and controls the energy of large-model training. harpe.tune() and
harpe.step() tune the GPUs of any program.

It is a thin layer over libharpe. Importing it loads neither the library nor any framework; see
harpe.monitor, harpe.plan, harpe.optimizer and harpe.integrations.
"""
from typing import Any

from harpe._library import (HarpeError, InvalidArgumentError, NotFoundError, PermissionDeniedError,
                            UnavailableError, lib)

__all__ = ["HarpeError", "InvalidArgumentError", "NotFoundError", "PermissionDeniedError",
           "UnavailableError", "step", "tune", "version"]


def __getattr__(name: str) -> Any:
    """Returns `__version__`, for which the library must be loaded, and what harpe.tuning has."""
    if name in ("step", "tune"):
        from harpe import tuning
        return getattr(tuning, name)
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return version()


def version() -> str:
    """Returns the version of the loaded libharpe."""
    return str(lib.harpe_version().decode("ascii"))
