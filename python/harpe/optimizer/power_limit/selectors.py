# SPDX-License-Identifier: Apache-2.0
"""Who chooses among measured power limits: the four selectors of libharpe, and the class that a
user's own derives from."""
from __future__ import annotations

import abc
import ctypes as C
from dataclasses import dataclass
from typing import Any, Callable, List, Sequence

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, call, lib

__all__ = ["Energy", "MaxSlowdownConstraint", "OptimumSelector", "PowerLimitMeasurement", "Time",
           "ZeusCost"]


@dataclass
class PowerLimitMeasurement:
    """What training under one power limit took, for all GPUs and ranks of the job.

    power_limit: W.
    energy: J, summed.
    time: s, of the slowest.
    """

    power_limit: int
    energy: float
    time: float


class OptimumSelector(abc.ABC):
    """Chooses the optimum. Derive from it to choose by a rule of your own."""

    @abc.abstractmethod
    def select(self, measurements: List[PowerLimitMeasurement]) -> int:
        """Returns the power limit in W of one of the measurements, which come highest limit first.
        What it raises reaches the training loop, after the GPUs' limits were put back."""


class _LibrarySelector(OptimumSelector):
    """One of libharpe's. Ties go to the higher limit."""

    @abc.abstractmethod
    def _make(self) -> Any:
        """A new harpe_power_limit_selector."""

    def select(self, measurements: List[PowerLimitMeasurement]) -> int:
        """Returns the chosen power limit in W. Raises ValueError when there is no measurement."""
        selector = self._make()
        count = len(measurements)
        array = (b.harpe_power_limit_measurement * count)(
            *[b.harpe_power_limit_measurement(one.power_limit, one.energy, one.time)
              for one in measurements])
        choice = int(selector.select(selector.user, array, count))
        if choice < 0:
            raise InvalidArgumentError(f"{type(self).__name__}: no power limit can be chosen from "
                                       f"{count} measurements", b.HARPE_INVALID_ARGUMENT)
        return measurements[choice].power_limit

    @staticmethod
    def _with_parameters(function: Callable[..., int], **parameters: Any) -> Any:
        parameters_c = b.harpe_selector_parameters(**parameters)
        selector = b.harpe_power_limit_selector()
        call(function, C.byref(parameters_c), C.byref(selector))
        selector.parameters = parameters_c  # C refers to it as long as the selector is used
        return selector


class Energy(_LibrarySelector):
    """The limit with the least energy."""

    def _make(self) -> Any:
        return lib.harpe_selector_energy()


class Time(_LibrarySelector):
    """The limit with the least time."""

    def _make(self) -> Any:
        return lib.harpe_selector_time()


class ZeusCost(_LibrarySelector):
    """The limit with the least cost: eta_knob * energy + (1 - eta_knob) * highest measured limit *
    world_size * time, in J."""

    def __init__(self, eta_knob: float, world_size: int = 1) -> None:
        """eta_knob: from 0 (only time counts) to 1 (only energy counts).
        world_size: number of GPUs in the job. Raises ValueError for values outside of these."""
        self.eta_knob = eta_knob
        self.world_size = world_size
        self._make()

    def _make(self) -> Any:
        return self._with_parameters(lib.harpe_selector_zeus_cost, eta=self.eta_knob,
                                     world_size=self.world_size)


class MaxSlowdownConstraint(_LibrarySelector):
    """The lowest limit that takes at most `factor` times as long as the highest limit."""

    def __init__(self, factor: float) -> None:
        """factor: from 1.0 on, such as 1.1 for ten percent slower; otherwise a ValueError."""
        self.factor = factor
        self._make()

    def _make(self) -> Any:
        return self._with_parameters(lib.harpe_selector_max_slowdown, maximum_slowdown=self.factor)


def index_of(power_limit: int, measurements: Sequence[PowerLimitMeasurement]) -> int:
    """The place of the limit that a selector chose. ValueError when it was not measured."""
    for index, one in enumerate(measurements):
        if one.power_limit == power_limit:
            return index
    measured = ", ".join(str(one.power_limit) for one in measurements)
    raise InvalidArgumentError(f"the optimum selector returned {power_limit!r}, which is none of "
                               f"the measured power limits: {measured} W", b.HARPE_INVALID_ARGUMENT)
