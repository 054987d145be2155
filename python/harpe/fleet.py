# SPDX-License-Identifier: Apache-2.0
"""Many jobs under one power budget.

    import harpe.fleet
    split = harpe.fleet.solve({
        "jobs": [{"name": "a", "weight": 8.0, "plans": [{"time": 1.0, "power": 4200.0},
                                                        {"time": 1.1, "power": 3600.0}]},
                 {"name": "b", "weight": 8.0, "plans": [{"time": 2.0, "power": 4000.0},
                                                        {"time": 2.1, "power": 3300.0}]}],
        "budgets": [{"watts": 7600.0}]})
    split.jobs["b"].plan

`solve` takes what the file of `harpe fleet solve` contains (harpe-fleet(5)). A `Fleet` keeps its
solution: after a change of one job or budget, `Fleet.solve` looks again only at what changed. Times
are in s, powers in W. A `Fleet` may be used by one thread at a time."""
from __future__ import annotations

import ctypes as C
import dataclasses
import json
import os
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, NotFoundError, call, encoded, lib, utf8
from harpe.plan import _Handle

__all__ = ["Budget", "Choice", "Fleet", "Split", "solve"]


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the split chose for one job."""
    plan: int  #: index into the job's plans
    time: float
    power_w: float
    slowdown: float  #: time divided by the time of the fastest plan
    gain_per_w: float  #: how much the objective falls for the first watts beyond this plan
    price_per_w: float  #: sum of the prices of the budgets around the job


@dataclasses.dataclass(frozen=True)
class Budget:
    """The state of one group's budget. None: the group has no budget."""
    budget_w: Optional[float]
    limit_w: Optional[float]  #: what the jobs may draw, without margin and overhead
    power_w: float
    least_w: float  #: what the jobs draw at least, with the slowdowns that they accept
    missing_w: float  #: by how much the budget is too small
    price_per_w: float


@dataclasses.dataclass(frozen=True)
class Split:
    """A solution. `budgets` has the key None for the whole fleet."""
    jobs: Dict[str, Choice]
    budgets: Dict[Optional[str], Budget]
    power_w: float
    weighted_slowdown: float
    objective: float
    lower_bound: float  #: no split within the budgets has a lower objective
    optimal: bool
    feasible: bool


def _number(value: Any) -> Any:
    """Converts a number that the json module does not know, such as one of NumPy."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} is not a number")


def _name(kind: str, name: str) -> bytes:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{kind} {name!r}: a text is expected")
    return utf8(name, "surrogateescape")


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _choice(handle: Any, job: int) -> Choice:
    made = b.harpe_fleet_choice()
    call(lib.harpe_fleet_choice_of, handle, job, C.byref(made))
    return Choice(made.plan, made.time_s, made.power_w, made.slowdown, made.gain_per_w,
                  made.price_per_w)


def _use(handle: Any, group: int) -> Budget:
    made = b.harpe_fleet_use()
    call(lib.harpe_fleet_use_of, handle, group, C.byref(made))
    has_budget = made.budget_w >= 0
    return Budget(made.budget_w if has_budget else None, made.limit_w if has_budget else None,
                  made.power_w, made.least_w, made.missing_w, made.price_per_w)


def _solve(handle: Any, jobs: Iterable[Tuple[str, int]]) -> Split:
    split = b.harpe_fleet_split()
    call(lib.harpe_fleet_solve, handle, C.byref(split))
    budgets: Dict[Optional[str], Budget] = {}
    for group in range(lib.harpe_fleet_group_count(handle)):
        name = _decoded(lib.harpe_fleet_group_name(handle, group))
        budgets[name or None] = _use(handle, group)
    return Split({name: _choice(handle, job) for name, job in jobs}, budgets, split.power_w,
                 split.weighted_slowdown, split.objective, split.lower_bound,
                 bool(split.is_optimal), bool(split.is_feasible))


def _description(name: str, plans: Iterable[Any], weight: float, max_slowdown: Optional[float],
                 group: int) -> b.harpe_fleet_job:
    """Converts a job. `plans` has pairs (time, power) or dicts as in the file."""
    pairs = []
    try:
        for plan in plans:
            time, power = (plan["time"], plan["power"]) if isinstance(plan, Mapping) else plan
            pairs.append((float(time), float(power)))
        numbers = float(weight), 0.0 if max_slowdown is None else float(max_slowdown)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidArgumentError(f"job {name!r}: {type(error).__name__}: {error}") from None
    if max_slowdown is not None and numbers[1] == 0:
        raise InvalidArgumentError(f"job {name!r}: max_slowdown must be 1 .. 1e9, or None")
    array = (b.harpe_fleet_plan * len(pairs))(*pairs)
    return b.harpe_fleet_job(name=_name("job", name), group=group, weight=numbers[0],
                             max_slowdown=numbers[1], plan_count=len(pairs), plans=array)


class Fleet:
    """A fleet whose jobs and budgets change. `None` names the whole fleet where a group is expected.

        fleet = harpe.fleet.Fleet()
        fleet.set_budget(None, 7600)
        fleet.set_job("a", [(1.0, 4200), (1.1, 3600)], weight=8)
        split = fleet.solve()"""

    def __init__(self) -> None:
        made = C.c_void_p()
        call(lib.harpe_fleet_new, C.byref(made))
        self._handle = _Handle(made, lib.harpe_fleet_free)
        self._jobs: Dict[str, int] = {}
        self._groups: Dict[Optional[str], int] = {None: 0}

    def _group(self, name: Optional[str]) -> int:
        try:
            return self._groups[name]
        except (KeyError, TypeError):
            raise NotFoundError(f"the fleet has no group {name!r}") from None

    def add_group(self, name: str, parent: Optional[str] = None) -> None:
        """Adds a group inside of another one. It has no budget yet."""
        text, made = _name("group", name), C.c_int()
        if name in self._groups:
            raise InvalidArgumentError(f"the fleet already has a group {name!r}")
        call(lib.harpe_fleet_add_group, self._handle.address, text,
             self._group(parent), C.byref(made))
        self._groups[name] = made.value

    def set_budget(self, group: Optional[str], watts: Optional[float], margin: float = 0.0,
                   overhead: float = 1.0) -> None:
        """Sets the budget of a group. `watts` None: it has none. The power of the jobs, times
        `overhead`, is at most watts * (1 - margin)."""
        if watts is not None and not watts >= 0:
            raise InvalidArgumentError(f"budget of {group or 'the whole fleet'}: the watts must be "
                                       "0 .. 1e12, or None")
        budget = b.harpe_fleet_budget(-1.0 if watts is None else float(watts), float(margin),
                                      float(overhead))
        call(lib.harpe_fleet_set_budget, self._handle.address, self._group(group), C.byref(budget))

    def set_price(self, energy_per_kwh: float = 0.0, carbon_g_per_kwh: float = 0.0,
                  carbon_per_kg: float = 0.0, value_per_s: float = 1.0) -> None:
        """Sets the price of energy and carbon, and what a second of a job of weight 1 is worth.
        The price of energy may be negative. Where energy and carbon cost nothing, the objective is
        value_per_s times the weighted slowdown."""
        price = b.harpe_fleet_price(float(energy_per_kwh), float(carbon_g_per_kwh),
                                    float(carbon_per_kg), float(value_per_s))
        call(lib.harpe_fleet_set_price, self._handle.address, C.byref(price))

    def set_job(self, name: str, plans: Iterable[Any], weight: float = 1.0,
                max_slowdown: Optional[float] = None, group: Optional[str] = None) -> None:
        """Adds a job, or replaces the job of this name. `plans` has pairs (time, power), or dicts
        with these keys, fastest first. A load that cannot be steered has one plan."""
        job = _description(name, plans, weight, max_slowdown, self._group(group))
        if name in self._jobs:
            call(lib.harpe_fleet_update, self._handle.address, self._jobs[name], C.byref(job))
            return
        made = C.c_int()
        call(lib.harpe_fleet_add, self._handle.address, C.byref(job), C.byref(made))
        self._jobs[name] = made.value

    def remove_job(self, name: str) -> None:
        """Removes a job. Raises NotFoundError if the fleet has no job of this name."""
        if name not in self._jobs:
            raise NotFoundError(f"the fleet has no job {name!r}")
        call(lib.harpe_fleet_remove, self._handle.address, self._jobs[name])
        del self._jobs[name]

    def solve(self) -> Split:
        """Returns the split. After a change, it looks again only at the groups that contain it."""
        return _solve(self._handle.address, self._jobs.items())

    def verify(self) -> None:
        """Checks the last split with separate code. Raises `HarpeError` if it is wrong."""
        call(lib.harpe_fleet_verify, self._handle.address)


def solve(fleet: Union[Mapping[str, Any], str, os.PathLike[str]], at: float = 0.0) -> Split:
    """Splits the budgets of a fleet at the moment `at`. `fleet` is a path, or a dict with the
    contents of such a file. Budgets that cannot hold are not an error: see `Split.feasible` and
    `Budget.missing_w`."""
    made = C.c_void_p()
    if isinstance(fleet, (str, os.PathLike)):
        call(lib.harpe_fleet_read_json, encoded(fleet), float(at), C.byref(made))
    elif isinstance(fleet, Mapping):
        try:
            text = utf8(json.dumps(fleet, allow_nan=False, default=_number))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"fleet: {error}") from None
        call(lib.harpe_fleet_parse_json, text, len(text), b"fleet", float(at), C.byref(made))
    else:
        raise InvalidArgumentError(f"fleet: a path or a dict is expected, not "
                                   f"{type(fleet).__name__}")
    handle = _Handle(made, lib.harpe_fleet_free)
    names = ((lib.harpe_fleet_job_name(handle.address, job), job)
             for job in range(lib.harpe_fleet_job_end(handle.address)))
    return _solve(handle.address, [(_decoded(name), job) for name, job in names if name])
