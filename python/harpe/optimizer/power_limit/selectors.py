# SPDX-License-Identifier: Apache-2.0
"""Selectors choose among the measured power limits: the four selectors of libharpe, and the base
class for selectors of a user."""
from __future__ import annotations

import abc
import ctypes as C
from typing import Any, Callable, List, Sequence

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, call, lib
from harpe.optimizer.power_limit.states import PowerLimitMeasurement

__all__ = ["Energy", "MaxSlowdownConstraint", "OptimumSelector", "Time", "ZeusCost"]


class OptimumSelector(abc.ABC):
    """Chooses the optimum. Derive a class from it to choose by your own rule."""

    @abc.abstractmethod
    def select(self, measurements: List[PowerLimitMeasurement]) -> int:
        """Returns the power limit in W of one of the measurements, which are in order of falling
        limits. An exception reaches the training loop after the original limits of the GPUs are
        restored."""


class _LibrarySelector(OptimumSelector):
    """A selector of libharpe. Of two equally good limits it chooses the higher one."""

    @abc.abstractmethod
    def _make(self) -> Any:
        """Returns a new harpe_power_limit_selector."""

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
        selector.parameters = parameters_c  # C refers to it while the selector is in use
        return selector


class Energy(_LibrarySelector):
    """Chooses the limit with the least energy."""

    def _make(self) -> Any:
        return lib.harpe_selector_energy()


class Time(_LibrarySelector):
    """Chooses the limit with the least time."""

    def _make(self) -> Any:
        return lib.harpe_selector_time()


class ZeusCost(_LibrarySelector):
    """Chooses the limit with the least cost: eta_knob * energy + (1 - eta_knob) * highest measured
    limit * world_size * time, in J."""

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
    """Chooses the lowest limit under which training takes at most `factor` times as long as under
    the highest limit."""

    def __init__(self, factor: float) -> None:
        """factor: at least 1.0, such as 1.1 for ten percent slower. Any other value raises
        ValueError."""
        self.factor = factor
        self._make()

    def _make(self) -> Any:
        return self._with_parameters(lib.harpe_selector_max_slowdown, maximum_slowdown=self.factor)


def index_of(power_limit: int, measurements: Sequence[PowerLimitMeasurement]) -> int:
    """Returns the index of the limit that a selector chose. Raises ValueError if that limit was not
    measured."""
    for index, one in enumerate(measurements):
        if one.power_limit == power_limit:
            return index
    measured = ", ".join(str(one.power_limit) for one in measurements)
    raise InvalidArgumentError(f"the optimum selector returned {power_limit!r}, which is none of "
                               f"the measured power limits: {measured} W", b.HARPE_INVALID_ARGUMENT)
