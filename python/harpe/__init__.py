# SPDX-License-Identifier: Apache-2.0
"""Harpe: energy of large-model training, measured, planned and controlled.

A thin layer over libharpe. Importing it loads neither the library nor any framework; see
harpe.monitor, harpe.plan, harpe.optimizer and harpe.integrations.
"""
from harpe._library import (HarpeError, InvalidArgumentError, NotFoundError, PermissionDeniedError,
                            UnavailableError, lib)

__all__ = ["HarpeError", "InvalidArgumentError", "NotFoundError", "PermissionDeniedError",
           "UnavailableError", "version"]


def version() -> str:
    """The version of the loaded libharpe."""
    return str(lib.harpe_version().decode("ascii"))
