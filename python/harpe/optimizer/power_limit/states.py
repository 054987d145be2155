# SPDX-License-Identifier: Apache-2.0
"""The measurements of a power limit optimizer, and the states of its state machine."""
from __future__ import annotations

from typing import Any, Iterator, List, Tuple

from harpe.optimizer.pipeline_frequency._model import Model

__all__ = ["Done", "PowerLimitMeasurement", "PowerLimitMeasurementList", "Profiling", "Ready",
           "Warmup"]


class PowerLimitMeasurement(Model):
    """The time and energy of training under one power limit, for all GPUs and ranks of the job. All
    are above 0, otherwise ValidationError is raised.

    Attributes:
        power_limit: W.
        energy: J, summed.
        time: s, of the slowest.
    """

    power_limit: int
    energy: float
    time: float

    _minimum = {"power_limit": 1}

    def __init__(self, *values: Any, **named: Any) -> None:
        if len(values) > len(self._kinds()):
            raise TypeError(f"a PowerLimitMeasurement has {len(self._kinds())} values")
        super().__init__(**dict(zip(self._kinds(), values)), **named)

    def _complaints(self) -> Iterator[Tuple[str, str]]:
        for name in ("energy", "time"):
            if not getattr(self, name) > 0:
                yield name, "ensure this value is greater than 0"


class PowerLimitMeasurementList(Model):
    """The measurements in the file `profile_path`: parse_file() reads it, json() makes its
    content."""

    measurements: List[PowerLimitMeasurement]


class Ready(Model):
    """The GPUs have the highest limit.

    Attributes:
        next_power_limit: The limit that is tried next, in mW.
        steps: Number of on_step_begin until then.
    """

    next_power_limit: int
    steps: int

    _minimum = {"next_power_limit": 1, "steps": 1}


class _Trial(Model):
    current_power_limit: int
    steps: int

    _minimum = {"current_power_limit": 1, "steps": 1}


class Warmup(_Trial):
    """The GPUs have a limit that will be measured. The end of an epoch leads back to Ready.

    Attributes:
        current_power_limit: That limit, in mW.
        steps: Number of on_step_begin until the measurement begins.
    """



class Profiling(_Trial):
    """The limit is measured.

    Attributes:
        current_power_limit: That limit, in mW.
        steps: Number of on_step_begin until the measurement ends.
    """


class Done(Model):
    """The GPUs have the best limit.

    Attributes:
        optimal_power_limit: That limit, in mW.
    """

    optimal_power_limit: int

    _minimum = {"optimal_power_limit": 1}
