# SPDX-License-Identifier: Apache-2.0
"""Planning of any graph of activities, not only of pipelines.

    import harpe.graph
    frontier = harpe.graph.solve({
        "resources": [{"name": "gpu0", "blocking_power": 70.0}],
        "activities": [{"name": "f0", "resource": "gpu0",
                        "options": [{"time": 0.050, "energy": 20.0, "frequency": 1410},
                                    {"time": 0.066, "energy": 14.6, "frequency": 990}]},
                       {"name": "send", "time": 0.002, "after": ["f0"]}]})
    frontier.choose(max_slowdown=1.05).activities["f0"].frequency

Times are in s, energies in J, powers in W, frequencies in MHz. All results are plain Python data;
the objects of this module free the memory of the C library when they are freed. Any thread may use
the objects."""
from __future__ import annotations

import array
import ctypes as C
import dataclasses
import json
import os
from typing import (Any, Dict, Hashable, Iterator, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple, Union)

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, NotFoundError, call, encoded, lib, utf8
from harpe.plan import (_COST_MODELS, _SLACK, Path, Problem, Progress, Vertex, _bound_at, _count,
                        _File, _Handle, _kept, _plain, _request, _threads, _vertices, _Watch)

__all__ = ["Frontier", "Plan", "Run", "export", "solve"]

_MEMBERS = ("resource", "options", "time", "energy", "release", "deadline")
_EDGE_MEMBERS = ("lag",)


# ---- Input ----

def _number(value: Any) -> Any:
    """Converts a number that the json module does not know, such as one of NumPy."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} is not a number")


def _json(kind: str, item: Any) -> str:
    """Returns one activity or resource as JSON. The error names it."""
    try:
        return json.dumps(item, allow_nan=False, default=_number)
    except (TypeError, ValueError) as error:
        name = item.get("name") if isinstance(item, Mapping) else item
        raise InvalidArgumentError(f"{kind} {name!r}: {error}") from None


def _text_of(graph: Mapping[str, Any]) -> str:
    """Returns a graph as JSON. Items are converted one by one, so that errors can name them."""
    parts = []
    for key, value in graph.items():
        if key in ("resources", "activities") and isinstance(value, (list, tuple)):
            kind = "resource" if key == "resources" else "activity"
            items = ",\n".join(_json(kind, item) for item in value)
            parts.append(f"{json.dumps(key)}: [{items}]")
        else:
            parts.append(f"{json.dumps(str(key))}: {_json('member', value)}")
    return "{" + ",\n".join(parts) + "}"


def _operation_members(operation: Any) -> Dict[str, Any]:
    """Returns the members of an activity for an operation of lowtime. A dummy takes no time."""
    if operation.is_dummy:
        return {"time": 0}
    options = []
    for option in operation.spec.options.options:
        made = {"time": option.real_time, "energy": option.cost}
        knob = option.knob
        if isinstance(knob, (int, float)) and not isinstance(knob, bool) and knob > 0:
            made["frequency"] = knob
        options.append(made)
    return {"options": options}


def _resources_of(resources: Any) -> Any:
    """Returns the list of resources. A dict has names as keys and blocking powers as values."""
    if isinstance(resources, Mapping):
        return [{"name": name, "blocking_power": power} for name, power in resources.items()]
    return resources


def _unknown(where: str, given: Any, known: Tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise InvalidArgumentError(f"{where}: the attribute {key!r} is none of "
                                       f"{', '.join(known)}")


def _graph_of_dag(dag: Any, attr_name: Optional[str]) -> Tuple[Dict[str, Any], List[Hashable]]:
    """Returns the structure of a networkx.DiGraph, and its nodes in the order of activities."""
    if not dag.is_directed() or dag.is_multigraph():
        raise InvalidArgumentError("graph: a networkx.DiGraph is expected, which is directed and "
                                   "has one edge from a node to another")
    nodes: List[Hashable] = list(dag.nodes)
    names: Dict[str, Hashable] = {}
    for node in nodes:
        if str(node) in names:
            raise InvalidArgumentError(f"graph: the nodes {names[str(node)]!r} and {node!r} have "
                                       f"the same name '{node}'")
        names[str(node)] = node
    activities = []
    for node in nodes:
        given = dag.nodes[node]
        if attr_name is not None:
            if attr_name not in given:
                raise InvalidArgumentError(f"activity '{node}': it has no attribute {attr_name!r}")
            activity = _operation_members(given[attr_name])
        else:
            _unknown(f"activity '{node}'", given, _MEMBERS)
            activity = dict(given)
        after = []
        for before, _, edge in dag.in_edges(node, data=True):
            if attr_name is None:
                _unknown(f"edge from '{before}' to '{node}'", edge, _EDGE_MEMBERS)
            lag = edge.get("lag")
            after.append(str(before) if lag is None else {"name": str(before), "lag": lag})
        activities.append({"name": str(node), **activity, "after": after})
    return {"resources": _resources_of(dag.graph.get("resources", [])),
            "activities": activities}, nodes


def _parse(data: bytes) -> _Handle:
    made = C.c_void_p()
    call(lib.harpe_graph_parse_json, data, len(data), b"graph", C.byref(made))
    return _Handle(made, lib.harpe_graph_free)


def _read_file(path: Path) -> _Handle:
    made = C.c_void_p()
    call(lib.harpe_graph_read_json, encoded(path), C.byref(made))
    return _Handle(made, lib.harpe_graph_free)


def _read(graph: Any, resources: Any, attr_name: Optional[str]
          ) -> Tuple[_Handle, Union[Path, bytes], Optional[List[Hashable]]]:
    """Returns the graph, what makes it again in another process, and the nodes of a
    networkx.DiGraph."""
    is_path = isinstance(graph, (str, os.PathLike))
    if is_path and resources is not None:
        raise InvalidArgumentError("resources: a file has its own")
    if is_path:
        handle, kept = _read_file(graph), _kept(graph)
        return handle, kept.content if isinstance(kept, _File) else kept, None
    nodes = None
    if hasattr(graph, "in_edges") and hasattr(graph, "graph"):
        graph, nodes = _graph_of_dag(graph, attr_name)
    if not isinstance(graph, Mapping):
        raise InvalidArgumentError(f"graph: a path, a dict or a networkx.DiGraph is expected, not "
                                   f"{type(graph).__name__}")
    if resources is not None:
        graph = {**graph, "resources": _resources_of(resources)}
    text = utf8(_text_of(graph))
    return _parse(text), text, nodes


# ---- Results ----

class Run(NamedTuple):
    """How a plan runs one activity.

    `option` is an index into the activity's options, and `frequency` is that of the option; both are
    None if there is none. `start` is the earliest start in s, and `slack` is how much later the
    activity may start without a longer iteration."""

    option: Optional[int]
    frequency: Optional[float]
    start: float
    slack: float


class _Graph:
    """A graph with its problem. `source` is its JSON, or a file that can be read only once."""

    def __init__(self, handle: _Handle, source: Union[Path, bytes],
                 nodes: Optional[List[Hashable]], options: Dict[str, Any]) -> None:
        self._arguments = (source, nodes, options)
        count = lib.harpe_graph_activity_count(handle.address)
        self.names: List[Hashable] = nodes if nodes is not None else [
            lib.harpe_graph_activity_at(handle.address, index)[0].name.decode()
            for index in range(count)]
        self.resources = lib.harpe_graph_resource_count(handle.address)
        made = C.c_void_p()
        call(lib.harpe_problem_of_graph, handle.address,
             C.byref(b.harpe_problem_options(**options)), C.byref(made))
        self.problem = _Handle(made, lib.harpe_problem_free)
        self.instructions = lib.harpe_problem_instruction_count(made)
        handle.close()

    def __reduce__(self) -> Tuple[Any, ...]:
        return _made_again, self._arguments

    def __deepcopy__(self, _memo: Any) -> _Graph:
        return self  # it does not change

    def runs(self, mhz: array.array[int]) -> Dict[Hashable, Run]:
        made = (b.harpe_graph_run * len(self.names))()
        numbers = (C.c_int * len(mhz)).from_buffer(mhz)
        call(lib.harpe_graph_runs, self.problem.address, numbers, made)
        return {name: Run(run.option if run.option >= 0 else None,
                          _frequency(run.frequency_mhz), run.start_s, run.slack_s)
                for name, run in zip(self.names, made)}

    def plan(self, made: b.harpe_plan, lower_bound: float) -> Plan:
        mhz = array.array("i")
        mhz.frombytes(C.string_at(made.frequency_mhz, self.instructions * mhz.itemsize))
        return Plan(made.time_s, made.energy_j, lower_bound, made.compute_energy_j,
                    made.blocking_energy_j, self, mhz)


def _frequency(value: float) -> Optional[float]:
    if value == 0:
        return None
    return int(value) if value == int(value) else value


def _made_again(source: Union[Path, bytes], nodes: Optional[List[Hashable]],
                options: Dict[str, Any]) -> _Graph:
    handle = _parse(source) if isinstance(source, bytes) else _read_file(source)
    return _Graph(handle, source, nodes, options)


@dataclasses.dataclass(frozen=True)
class Plan:
    """An option for every activity, and the time and energy of one iteration with these options.

    Attributes:
        time: Time of one iteration, in s.
        energy: Energy of all activities and of the waiting of all resources, in J, and the overhead
            power for the whole iteration.
        lower_bound: The least energy of any plan that takes `time`, in J.
        compute_energy: Energy of the activities alone, in J.
        blocking_energy: Energy of waiting alone, in J.
    """

    time: float
    energy: float
    lower_bound: float
    compute_energy: float
    blocking_energy: float
    _graph: _Graph = dataclasses.field(repr=False, compare=False)
    _mhz: array.array[int] = dataclasses.field(repr=False, hash=False)

    @property
    def activities(self) -> Dict[Hashable, Run]:
        """Returns a Run for each activity, by its name; for a networkx.DiGraph by its node."""
        return self._graph.runs(self._mhz)

    def save(self, path: Path) -> None:
        """Writes the plan as JSON (harpe-graph(5)), as `harpe plan --graph` does."""
        runs = {str(name): {"option": run.option, "frequency": run.frequency, "start_s": run.start,
                            "slack_s": run.slack} for name, run in self.activities.items()}
        text = json.dumps({"time_s": self.time, "energy_j": self.energy,
                           "lower_bound_j": self.lower_bound, "activities": runs}, indent=1)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")


class Frontier:
    """The exact lower bound of energy over time, and plans close to it.

    Attributes:
        vertices: Corners (time, lower bound) of the bound, fastest first, in s and J.
        plans: The plans, fastest first. No plan is both faster and of less energy than another. If
            plans were made for a list of times: one plan for each time, in rising order of times.
        all_maximum: The plan in which every activity has the option of its highest frequency, or
            its fastest option if one of its options has no frequency. For comparison.
    """

    def __init__(self, graph: _Graph, frontier: _Handle, plan_set: _Handle) -> None:
        """Takes the results of solve(), which creates these objects."""
        self._graph = graph
        self.plans: List[Plan] = []
        for index in range(lib.harpe_plan_set_count(plan_set.address)):
            made = lib.harpe_plan_set_at(plan_set.address, index)[0]
            self.plans.append(graph.plan(made, made.lower_bound_j))
        plan_set.close()
        self.vertices = _vertices(frontier)
        made = b.harpe_plan()
        call(lib.harpe_plan_all_maximum, graph.problem.address, C.byref(made))
        self.all_maximum = graph.plan(made, self.bound_at(made.time_s))

    def __iter__(self) -> Iterator[Plan]:
        """Goes through the plans from the slowest to the fastest."""
        return reversed(self.plans)

    def bound_at(self, time: float) -> float:
        """Returns the energy in J that a plan of `time` s needs at least. It is infinite below the
        shortest possible time."""
        return _bound_at(self.vertices, time)

    def choose(self, *, max_slowdown: Optional[float] = None,
               max_time: Optional[float] = None) -> Plan:
        """Returns the plan of least energy within the limits.

        Args:
            max_slowdown: Largest iteration time, as a multiple of the time of all_maximum.
            max_time: Largest iteration time, in s.

        Raises:
            NotFoundError: No plan is within the limits.
        """
        limits = [limit for limit in (
            max_time, None if max_slowdown is None else max_slowdown * self.all_maximum.time)
            if limit is not None]
        kept = [plan for plan in self.plans if all(plan.time <= limit * _SLACK for limit in limits)]
        if not kept:
            raise NotFoundError(f"no plan takes at most {_plain(min(limits))} s; the fastest takes "
                                f"{_plain(self.plans[0].time)} s", b.HARPE_INFEASIBLE)
        return min(kept, key=lambda plan: plan.energy)

    def __repr__(self) -> str:
        return (f"<Frontier of {len(self._graph.names)} activities on {self._graph.resources} "
                f"resources: {_plain(self.vertices[0].time, 6)} to "
                f"{_plain(self.vertices[-1].time, 6)} s, {len(self.vertices)} vertices, "
                f"{len(self.plans)} plans>")


def solve(graph: Any, *, resources: Any = None, plans: Union[int, str, Sequence[float]] = 100,
          progress: Optional[Progress] = None, threads: int = 0,
          attr_name: Optional[str] = None, overhead_power: float = 0.0, cost_model: str = "hull", unit_time: float = 0.001,
          noise_factor: float = 0.95, memory_limit: int = 4 << 30) -> Frontier:
    """Solves the whole time-energy frontier of a graph and makes plans along it. Ctrl-C stops it.

    Args:
        graph: The path of a JSON file (harpe-graph(5)); or the same structure as a dict; or a
            networkx.DiGraph. A node of a DiGraph has the attributes of an activity: `options`, or
            `time` and perhaps `energy`, and perhaps `resource`, `release` and `deadline`. Its name
            is str(node). An edge may have the attribute `lag`. The attribute `resources` of the
            graph lists the resources.
        resources: The resources, if the graph does not list them: as in the file, or a dict of
            names and blocking powers.
        plans: Approximate number of plans; or "all": one for each vertex; or a list of iteration
            times: for each the plan of least energy that is not slower. With a number there are
            always plans for the shortest time, for the time of least energy, and for 0, 0.1, 0.2,
            0.5, 1, 2 and 5 % more time than the highest clocks. The others are spread evenly in
            time from there on. In a graph with deadlines all are spread evenly.
        progress: Function that is called with (phase, fraction), at most some hundred times a
            second. If it returns False, the work stops and raises HarpeError. An exception
            in it reaches the caller.
        threads: The most threads that make plans; 0: one for each core. The plans do not depend on
            it.
        attr_name: Attribute of a DiGraph's nodes that has an operation of lowtime, usually "op".
            The other attributes of the nodes are then ignored. A dummy operation takes no time.
        overhead_power: Power in W of all machines outside of the resources. It is paid for every
            second of an iteration. Energies and the bound then contain it.
        cost_model: "hull", or "exponential" with unit_time and noise_factor.
        memory_limit: The most memory that planning may need, in bytes.

    Raises:
        InvalidArgumentError: The graph is not valid. The message names the activity.
        NotFoundError: The file does not exist.
        HarpeError: `progress` has stopped the work, or the library has failed for another reason.
    """
    if cost_model not in _COST_MODELS:
        raise InvalidArgumentError(f"cost_model {cost_model!r} is none of "
                                   f"{', '.join(_COST_MODELS)}")
    request = _request(plans)
    request.threads = _threads(threads)
    handle, source, nodes = _read(graph, resources, attr_name)
    made = _Graph(handle, source, nodes, {
        "cost_model": _COST_MODELS[cost_model], "unit_time_s": unit_time,
        "noise_factor": noise_factor, "memory_limit_bytes": memory_limit,
        "overhead_power_w": overhead_power})
    frontier, plan_set = C.c_void_p(), C.c_void_p()
    with _Watch(progress) as watch:
        call(lib.harpe_plan_set_new, made.problem.address, C.byref(request), C.byref(watch.struct),
             C.byref(frontier), C.byref(plan_set))
        handles = (_Handle(frontier, lib.harpe_frontier_free, made.problem),
                   _Handle(plan_set, lib.harpe_plan_set_free, made.problem))
    return Frontier(made, *handles)


def export(problem: Problem, path: Path) -> None:
    """Writes the graph of a pipeline (harpe.plan.Problem) as JSON, whole or not at all. An existing
    file is replaced."""
    made = C.c_void_p()
    call(lib.harpe_graph_of_problem, problem._handle.address, C.byref(made))
    handle = _Handle(made, lib.harpe_graph_free)
    call(lib.harpe_graph_write_json, handle.address, encoded(path))
    handle.close()
