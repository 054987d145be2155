# SPDX-License-Identifier: Apache-2.0
"""Solves a pipeline's profile with lowtime, the published solver, in the way that its documentation
shows: 1F1B, one option for each row of the profile, one result for each step of its algorithm. Runs
in a Python that has lowtime. Prints one JSON object: the processor time and wall time of the
solver, its own prediction for each step, and what the plan of the step takes by the profile.
bench/bench.py starts it; tests/frameworks/test_lowtime.py imports it."""
import argparse
import bisect
import csv
import json
import time

import networkx
from lowtime.cost_model import CostModel, ExponentialModel
from lowtime.graph_utils import DependencyResolver, add_sink_node, add_source_node
from lowtime.operation import CandidateExecutionOptions, ExecutionOption, OperationSpec
from lowtime.perseus.instruction import (Backward, Forward, Instruction, backward_dep, forward_dep)
from lowtime.perseus.schedule import Synchronous1F1B
from lowtime.solver import PhillipsDessouky

KINDS = {"forward": Forward, "backward": Backward}


class HullModel(CostModel):
    """The lower convex hull of the options, linear between its corners."""

    def __init__(self, options):
        points = sorted((one.quant_time, one.cost) for one in options.options)
        self.hull = []
        for point in points:
            while len(self.hull) > 1 and self.is_above(*self.hull[-2:], point):
                self.hull.pop()
            self.hull.append(point)

    @staticmethod
    def is_above(first, middle, last):
        """Tells whether the middle point is on or above the line from the first to the last."""
        return ((middle[1] - first[1]) * (last[0] - first[0]) >=
                (last[1] - first[1]) * (middle[0] - first[0]))

    def __call__(self, quant_time):
        at = min(max(bisect.bisect_left(self.hull, (quant_time,)), 1), len(self.hull) - 1)
        if len(self.hull) == 1:
            return self.hull[0][1]
        (left, low), (right, high) = self.hull[at - 1], self.hull[at]
        return low + (high - low) * (quant_time - left) / (right - left)


def read_profile(path):
    """Returns {(stage, instruction): {MHz: (s, J)}}."""
    profile = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            options = profile.setdefault((int(row["stage"]), row["instruction"]), {})
            options[int(row["frequency"])] = float(row["time"]), float(row["energy"])
    return profile


def specifications(profile, blocking_w, unit_s, model):
    """Returns lowtime's description of each instruction. Its costs are the energies less the
    blocking power."""
    specs = {}
    for key, rows in profile.items():
        options = CandidateExecutionOptions(options=[
            ExecutionOption(real_time=s, unit_time=unit_s, cost=joules - blocking_w * s, knob=mhz)
            for mhz, (s, joules) in rows.items()])
        specs[key] = OperationSpec(options=options, cost_model=model(options))
    return specs


def make_graph(specs, stages, microbatches):
    """Returns the graph of one iteration, and its instructions in the order of each stage."""
    graph, orders = networkx.DiGraph(), []
    for stage in range(stages):
        schedule = Synchronous1F1B(
            num_stages=stages, num_micro_batches=microbatches, stage_id=stage,
            operation_spec_map={kind: specs[stage, name] for name, kind in KINDS.items()})
        orders.append(list(schedule))
    nodes = [one for order in orders for one in order]
    numbers = {id(one): number for number, one in enumerate(nodes)}
    for number, one in enumerate(nodes):
        graph.add_node(number, op=one)
    for order in orders:
        for before, after in zip(order, order[1:]):
            graph.add_edge(numbers[id(before)], numbers[id(after)])
    resolver = DependencyResolver(dependency_rules=[forward_dep, backward_dep],
                                  node_type=Instruction)
    for before in nodes:
        for after in nodes:
            if resolver.is_dependent(before, after):
                graph.add_edge(numbers[id(before)], numbers[id(after)])
    add_source_node(graph, "source")
    add_sink_node(graph, "sink")
    graph.graph.update(source_node="source", sink_node="sink")
    return graph, nodes


def makespan(order, before, durations):
    """Returns the time of the longest path. `order` is a topological order."""
    ends = {}
    for number in order:
        ends[number] = durations[number] + max((ends[one] for one in before[number]), default=0)
    return max(ends.values())


class Evaluation:
    """Computes what a plan takes: by the durations that lowtime predicts, and by the profile."""

    def __init__(self, graph, nodes, profile, stages, blocking_w):
        self.nodes, self.profile, self.stages, self.blocking_w = nodes, profile, stages, blocking_w
        self.order = [one for one in networkx.topological_sort(graph) if isinstance(one, int)]
        self.before = {one: [other for other in graph.predecessors(one) if isinstance(other, int)]
                       for one in self.order}

    def total_j(self, time_s, costs):
        return sum(costs) + self.blocking_w * self.stages * time_s

    def predicted(self, unit_s):
        units = makespan(self.order, self.before, [one.duration for one in self.nodes])
        return units * unit_s, self.total_j(units * unit_s, (one.get_cost() for one in self.nodes))

    def by_profile(self):
        rows = [self.profile[one.stage_id, type(one).__name__.lower()][one.assigned_knob]
                for one in self.nodes]
        time_s = makespan(self.order, self.before, [s for s, _ in rows])
        return time_s, self.total_j(time_s, (j - self.blocking_w * s for s, j in rows))


def clocks(nodes, stages):
    """Returns the plan as Harpe's plan files have it: for each stage (instruction, MHz)."""
    return [[(type(one).__name__.lower(), one.assigned_knob) for one in nodes
             if one.stage_id == stage] for stage in range(stages)]


def solve(profile, stages, microbatches, blocking_w, unit_s=0.001, model="exponential",
          has_plans=True, keep=0):
    """Returns what lowtime finds, and how long it takes. Without `has_plans`, only the times.
    `keep`: every how many steps the clocks are returned."""
    began = time.perf_counter(), time.process_time()
    specs = specifications(profile, blocking_w, unit_s,
                           ExponentialModel if model == "exponential" else HullModel)
    graph, nodes = make_graph(specs, stages, microbatches)
    found = {"steps": 0, "build_s": time.perf_counter() - began[0],
             "build_cpu_s": time.process_time() - began[1], "solve_s": 0, "solve_cpu_s": 0,
             "predicted": [], "real": [], "kept": {}}
    evaluation = Evaluation(graph, nodes, profile, stages, blocking_w)
    results = iter(PhillipsDessouky(graph).run())
    while True:
        began = time.perf_counter(), time.process_time()
        is_over = next(results, None) is None
        found["solve_s"] += time.perf_counter() - began[0]
        found["solve_cpu_s"] += time.process_time() - began[1]
        if is_over:
            break
        if has_plans:
            found["predicted"].append(evaluation.predicted(unit_s))
            found["real"].append(evaluation.by_profile())
        if keep and found["steps"] % keep == 0:
            found["kept"][found["steps"]] = clocks(nodes, stages)
        found["steps"] += 1
    found["curves"] = {key: [(units, float(spec.cost_model(units))) for units in range(
        min(one.quant_time for one in spec.options.options),
        max(one.quant_time for one in spec.options.options) + 1)] for key, spec in specs.items()}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile")
    parser.add_argument("--stages", type=int, required=True)
    parser.add_argument("--microbatches", type=int, required=True)
    parser.add_argument("--blocking", type=float, required=True, help="W")
    parser.add_argument("--unit", type=float, default=0.001, help="lowtime's step in s")
    parser.add_argument("--no-plans", action="store_true", help="measure only the time")
    chosen = parser.parse_args()
    found = solve(read_profile(chosen.profile), chosen.stages, chosen.microbatches,
                  chosen.blocking, chosen.unit, has_plans=not chosen.no_plans)
    del found["curves"], found["kept"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
