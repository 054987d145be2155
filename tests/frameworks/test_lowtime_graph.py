# SPDX-License-Identifier: Apache-2.0
"""Solves graphs that were made for the published lowtime with harpe.graph.solve, unchanged, and
compares the results with every step of lowtime. The graphs are random. Needs a Python with lowtime;
without it the tests are skipped. `make check` does not run them."""
import copy
import pathlib
import random
import sys
import time
import unittest
import warnings

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import world  # noqa: E402, F401

import harpe.graph  # noqa: E402

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import networkx
        from lowtime.cost_model import ExponentialModel
        from lowtime.graph_utils import add_sink_node, add_source_node
        from lowtime.operation import (CandidateExecutionOptions, ExecutionOption, Operation,
                                       OperationSpec)
        from lowtime.solver import PhillipsDessouky
    WHY_NOT = None
except ImportError as error:
    WHY_NOT = f"lowtime cannot be imported: {error}"

UNIT_S = 0.001
BLOCKING_W = 70
EQUAL = 1e-9  # the relative difference of two sums in another order


def specification(choose):
    """Returns a plausible operation: a part of its time follows the clock, and its power is a
    constant plus the cube of the clock. The cost is the energy less that of waiting."""
    full_s, share = choose.uniform(0.02, 0.06), choose.uniform(0.5, 0.95)
    static_w, dynamic_w = choose.uniform(80, 120), choose.uniform(200, 350)
    options = []
    for mhz in range(1410, 900, -60):
        x = mhz / 1410
        time_s = full_s * (share / x + 1 - share)
        cost = time_s * (static_w + dynamic_w * x ** 3 - BLOCKING_W)
        options.append(ExecutionOption(real_time=time_s, unit_time=UNIT_S, cost=cost, knob=mhz))
    candidates = CandidateExecutionOptions(options=options)
    return OperationSpec(options=candidates, cost_model=ExponentialModel(candidates))


def random_dag(count, choose):
    dag = networkx.DiGraph()
    specifications = [specification(choose) for _ in range(6)]
    for node in range(count):
        dag.add_node(node, op=Operation(spec=choose.choice(specifications)))
    for node in range(1, count):
        before = range(max(0, node - 6), node)
        for other in choose.sample(before, min(len(before), choose.randint(1, 2))):
            dag.add_edge(other, node)
    add_source_node(dag, "source")
    add_sink_node(dag, "sink")
    dag.graph.update(source_node="source", sink_node="sink")
    return dag


def evaluate(dag, option_of):
    """Returns the time and the cost of an iteration. `option_of` has an option for each node."""
    ends = {}
    for node in networkx.topological_sort(dag):
        start = max((ends[before] for before in dag.predecessors(node)), default=0)
        ends[node] = start + (option_of[node].real_time if node in option_of else 0)
    return max(ends.values()), sum(option.cost for option in option_of.values())


def options_of_lowtime(dag):
    """Returns the option of each operation that lowtime has assigned."""
    chosen = {}
    for node, operation in dag.nodes(data="op"):
        if not operation.is_dummy:
            chosen[node] = next(option for option in operation.spec.options.options
                                if option.knob == operation.assigned_knob)
    return chosen


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Graph(unittest.TestCase):
    def compare(self, dag):
        """Returns the steps of lowtime, how often its plan beats Harpe's, by how much at most, and
        the times of both solvers in s."""
        original = copy.deepcopy(dag)
        steps, lowtime_s, began = [], 0.0, time.perf_counter()
        for _ in PhillipsDessouky(dag).run():
            lowtime_s += time.perf_counter() - began
            steps.append(evaluate(original, options_of_lowtime(dag)))
            began = time.perf_counter()
        began = time.perf_counter()
        harpe.graph.solve(original, attr_name="op", plans=1)
        harpe_s = time.perf_counter() - began
        frontier = harpe.graph.solve(original, attr_name="op",
                                     plans=[seconds * (1 + EQUAL) for seconds, _ in steps])
        beaten, most = 0, 0.0
        for seconds, cost in steps:
            self.assertLessEqual(frontier.bound_at(seconds * (1 + EQUAL)), cost * (1 + EQUAL))
            ours = frontier.choose(max_time=seconds * (1 + EQUAL)).energy
            beaten += ours > cost * (1 + EQUAL)
            most = max(most, ours / cost - 1)
        for plan in frontier.plans[::10]:
            chosen = {node: original.nodes[node]["op"].spec.options.options[run.option]
                      for node, run in plan.activities.items() if run.option is not None}
            seconds, cost = evaluate(original, chosen)
            self.assertAlmostEqual(plan.time, seconds, delta=EQUAL * seconds)
            self.assertAlmostEqual(plan.energy, cost, delta=EQUAL * cost)
            self.assertGreaterEqual(cost, frontier.bound_at(seconds) * (1 - EQUAL))
        return len(steps), beaten, most, lowtime_s, harpe_s

    def test_bound_is_never_above_lowtime(self):
        warnings.simplefilter("ignore")  # of the fit
        for count in (10, 40, 120):
            choose = random.Random(count)
            steps, beaten, most, lowtime_s, harpe_s = self.compare(random_dag(count, choose))
            self.assertGreater(steps, 20)
            print(f"{count} operations: lowtime {lowtime_s:.3f} s for {steps} steps, Harpe "
                  f"{1e3 * harpe_s:.1f} ms for the frontier and one plan; lowtime's plan is better "
                  f"at {beaten} times, by at most {100 * most:.3f} %", file=sys.stderr)

    def test_graph_stays_as_it_is(self):
        dag = random_dag(5, random.Random(1))
        before = {node: vars(operation).copy() for node, operation in dag.nodes(data="op")}
        harpe.graph.solve(dag, attr_name="op")
        self.assertEqual({node: vars(operation) for node, operation in dag.nodes(data="op")}, before)
