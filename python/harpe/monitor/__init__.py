# SPDX-License-Identifier: Apache-2.0
"""Measures time and energy of parts of a program (ZeusMonitor, in harpe.monitor.energy), and samples
the GPUs' power and temperature over time (PowerMonitor, TemperatureMonitor)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harpe.monitor.energy import EnergyMonitor, Measurement, ZeusMonitor

if TYPE_CHECKING:
    from harpe.monitor.power import PowerMonitor
    from harpe.monitor.temperature import TemperatureMonitor

__all__ = ["EnergyMonitor", "Measurement", "PowerMonitor", "TemperatureMonitor", "ZeusMonitor"]


def __getattr__(name: str) -> Any:
    if name not in ("PowerMonitor", "TemperatureMonitor"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    module = importlib.import_module(f"harpe.monitor.{name.replace('Monitor', '').lower()}")
    globals()[name] = getattr(module, name)
    return globals()[name]
