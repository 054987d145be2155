# SPDX-License-Identifier: Apache-2.0
"""The pipeline frequency optimizer under its older name: the modules and names that Zeus had below
zeus.optimizer.perseus. New programs import harpe.optimizer.pipeline_frequency."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harpe.optimizer.perseus.optimizer import PerseusOptimizer

__all__ = ["PerseusOptimizer"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harpe.optimizer.perseus import optimizer
    return optimizer.PerseusOptimizer
