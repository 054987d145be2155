# SPDX-License-Identifier: Apache-2.0
"""harpe.graph compared with the program, and with an example computed by hand: every form of a
graph, results, limits, mistakes and interrupts. HARPE names the program. networkx is tested if it is
installed; without it, a class with the same methods stands in."""
import copy
import gc
import json
import math
import os
import pickle
import subprocess
import types
import unittest

import world
from fixtures import folder
import harpe
import harpe.graph
import harpe.plan
from harpe._library import lib

try:
    import networkx
except ImportError:
    networkx = None

HARPE = os.path.abspath(os.environ.get("HARPE", world.BUILD / "harpe"))

# gpu0 runs f0, gpu1 runs f1 after a message of 2 ms and a lag of 1 ms.
FAST, SLOW = {"time": 0.05, "energy": 20, "frequency": 1410}, {"time": 0.07, "energy": 14.0}
JOB = {"resources": [{"name": "gpu0", "blocking_power": 70}, {"name": "gpu1"}],
       "activities": [
           {"name": "f1", "resource": "gpu1", "options": [SLOW, FAST],
            "after": [{"name": "send", "lag": 0.001}]},
           {"name": "send", "time": 0.002, "after": ["f0"]},
           {"name": "f0", "resource": "gpu0", "options": [FAST, dict(SLOW, frequency=990.5)]}]}


class DiGraph:
    """The methods of networkx.DiGraph that harpe.graph uses."""

    def __init__(self, **attributes):
        self.graph, self.nodes, self._edges = attributes, {}, []

    def add_node(self, node, **attributes):
        self.nodes[node] = attributes

    def add_edge(self, before, after, **attributes):
        self._edges.append((before, after, attributes))

    def in_edges(self, node, data):
        return [edge for edge in self._edges if edge[1] == node]

    def is_directed(self):
        return True

    def is_multigraph(self):
        return False


def dag_of_job(kind=DiGraph, **attributes):
    dag = kind(resources=JOB["resources"], **attributes)
    for activity in JOB["activities"]:
        dag.add_node(activity["name"], **{key: value for key, value in activity.items()
                                          if key not in ("name", "after")})
    dag.add_edge("f0", "send")
    dag.add_edge("send", "f1", lag=0.001)
    return dag


class GraphTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = folder(cls.addClassCleanup)
        cls.file = cls.path / "job.json"
        cls.file.write_text(json.dumps(JOB))

    def check_job(self, frontier):
        """Checks the plans that were computed by hand."""
        slowest, fastest = frontier.plans[-1], frontier.plans[0]
        self.assertAlmostEqual(fastest.time, 0.103, places=12)
        # f0 and f1 are fast; gpu0 waits for 53 ms at 70 W.
        self.assertAlmostEqual(fastest.energy, 40 + 70 * 0.053, places=9)
        run = fastest.activities["f1"]
        self.assertEqual((run.option, run.frequency, run.slack), (1, 1410, 0))
        self.assertAlmostEqual(run.start, 0.053, places=12)
        self.assertEqual(fastest.activities["send"], (None, None, 0.05, 0))
        self.assertAlmostEqual(slowest.time, 0.143, places=12)
        self.assertAlmostEqual(slowest.energy, 28 + 70 * 0.073, places=9)
        self.assertEqual(slowest.activities["f0"], (1, 990.5, 0, 0))
        self.assertEqual(slowest.activities["f1"].frequency, None)
        self.assertEqual(list(frontier), frontier.plans[::-1])

    def test_every_form_gives_the_same_frontier(self):
        bare = {"activities": JOB["activities"]}
        with_numbers = json.loads(json.dumps(JOB))
        with_numbers["activities"][1]["time"] = types.SimpleNamespace(item=lambda: 0.002)
        for graph, options in [(JOB, {}), (self.file, {}), (str(self.file), {}),
                               (with_numbers, {}), (dag_of_job(), {}),
                               (bare, {"resources": JOB["resources"]}),
                               (bare, {"resources": {"gpu0": 70, "gpu1": 0}})]:
            with self.subTest(type(graph).__name__):
                self.check_job(harpe.graph.solve(graph, plans="all", **options))

    @unittest.skipUnless(networkx, "networkx is not installed")
    def test_networkx(self):
        self.check_job(harpe.graph.solve(dag_of_job(networkx.DiGraph), plans="all"))
        for kind in (networkx.Graph, networkx.MultiDiGraph):
            with self.assertRaisesRegex(harpe.InvalidArgumentError, "DiGraph is expected"):
                harpe.graph.solve(kind())

    def test_nodes_keep_their_identity(self):
        dag = DiGraph()
        dag.add_node(3, time=1.0)
        dag.add_node(("a", 1), options=[{"time": 2, "energy": 1}])
        dag.add_edge(3, ("a", 1))
        plan = harpe.graph.solve(dag).plans[0]
        self.assertEqual(set(plan.activities), {3, ("a", 1)})
        self.assertEqual(plan.time, 3)

    def test_operations_of_lowtime(self):
        option = types.SimpleNamespace
        spec = option(options=option(options=[option(real_time=0.07, cost=14, knob="slow"),
                                              option(real_time=0.05, cost=20, knob=1410)]))
        dag = DiGraph(source_node=0, sink_node=2)
        dag.add_node(0, op=option(is_dummy=True))
        dag.add_node(1, op=option(is_dummy=False, spec=spec), label="other attributes")
        dag.add_node(2, op=option(is_dummy=True))
        dag.add_edge(0, 1, weight=4)
        dag.add_edge(1, 2)
        frontier = harpe.graph.solve(dag, attr_name="op", plans="all")
        self.assertEqual([(plan.time, plan.energy) for plan in frontier], [(0.07, 14), (0.05, 20)])
        self.assertEqual([plan.activities[1].option for plan in frontier], [0, 1])
        self.assertEqual(frontier.plans[0].activities[1].frequency, 1410)
        dag.add_node(7)
        with self.assertRaisesRegex(harpe.InvalidArgumentError, "'7': it has no attribute 'op'"):
            harpe.graph.solve(dag, attr_name="op")

    def test_results_are_those_of_the_program(self):
        out = self.path / "plans"
        subprocess.run([HARPE, "plan", "--graph", self.file, "-o", out, "--no-pictures"],
                       check=True, capture_output=True, timeout=300)
        frontier = harpe.graph.solve(self.file)
        self.assertEqual(len(list(out.glob("plan_*.json"))), len(frontier.plans))
        for number, plan in enumerate(frontier):
            saved = self.path / "saved.json"
            plan.save(saved)
            self.assertEqual(json.loads(saved.read_text()),
                             json.loads((out / f"plan_{number:05d}.json").read_text()))

    def test_bound_and_choice(self):
        frontier = harpe.graph.solve(JOB, plans="all")
        self.assertEqual(frontier.bound_at(0.1), math.inf)
        for time, bound in frontier.vertices:
            self.assertAlmostEqual(frontier.bound_at(time), bound, places=9)
        self.assertEqual(frontier.choose(), frontier.plans[-1])
        self.assertEqual(frontier.choose(max_time=0.103), frontier.plans[0])
        self.assertEqual(frontier.choose(max_slowdown=1.3).time, frontier.plans[1].time)
        with self.assertRaisesRegex(harpe.NotFoundError, "the fastest takes 0.103 s"):
            frontier.choose(max_time=0.1)
        self.assertRegex(repr(frontier), "3 activities on 2 resources")
        # f1 has an option without a frequency, so its fastest is the reference.
        self.assertAlmostEqual(frontier.all_maximum.time, 0.103, places=12)

    def test_mistakes_name_the_activity(self):
        a = {"name": "a", "time": 1}
        loop = DiGraph()
        loop.add_node("x", time=1)
        loop.add_edge("x", "x")
        wrong = DiGraph()
        wrong.add_node("x", tmie=1)
        twins = DiGraph()
        twins.add_node(1, time=1)
        twins.add_node("1", time=1)
        for graph, words in [
                ({"activities": [dict(a, after=["b"])]}, "'a' waits for 'b', which does not exist"),
                ({"activities": [dict(a, time=-1)]}, "'a': its time is -1"),
                ({"activities": [dict(a, time=math.nan)]}, "activity 'a'"),
                ({"activities": [dict(a, time=object())]}, "activity 'a': .* is not a number"),
                ({"activities": [a, 5]}, "activity 1"), ({"activities": 5}, "activities"),
                ({}, "activities"), (5, "a path, a dict or a networkx.DiGraph"),
                (loop, "'x' can never start"), (wrong, "'x': the attribute 'tmie' is none of"),
                (twins, "the nodes 1 and '1' have the same name")]:
            with self.assertRaisesRegex(harpe.InvalidArgumentError, words) as raised:
                harpe.graph.solve(graph)
            self.assertNotIn("\n", str(raised.exception))
        for options in [{"plans": 0}, {"plans": "some"}, {"plans": []}, {"plans": [0.05]},
                        {"plans": ["a"]}, {"plans": 1.5}, {"cost_model": "linear"}, {"overhead_power": -1}]:
            with self.assertRaises(harpe.HarpeError) as raised:
                harpe.graph.solve(JOB, **options)
            self.assertNotIn("\n", str(raised.exception))
        with self.assertRaises(harpe.InvalidArgumentError):
            harpe.graph.solve(self.file, resources={})
        with self.assertRaises(harpe.NotFoundError):
            harpe.graph.solve(self.path / "nowhere.json")

    def test_a_loose_deadline_changes_no_plan(self):
        """With a high blocking power, the plan made for 2.1 s needs more than the faster one."""
        def job(**more):
            return {"resources": [{"name": "r", "blocking_power": 1000.0}], "activities": [
                {"name": "a", "resource": "r", **more, "options": [
                    {"time": 1.1, "energy": 25.0}, {"time": 1.0, "energy": 1.0}]},
                {"name": "b", "resource": "r", "after": ["a"], "options": [
                    {"time": 1.5, "energy": 16.0}, {"time": 1.1, "energy": 85.0},
                    {"time": 1.0, "energy": 50.0}]}]}
        for asked in ([2.1], [2.0, 2.1, 2.2, 2.3, 2.5]):
            free, bound = (harpe.graph.solve(one, plans=asked).plans
                           for one in (job(), job(deadline=10)))
            self.assertEqual([(plan.time, plan.energy) for plan in bound],
                             [(plan.time, plan.energy) for plan in free])

    def test_progress_can_stop_the_work(self):
        phases = []
        harpe.graph.solve(JOB, progress=lambda phase, fraction: phases.append(phase))
        self.assertIn("solving", phases)
        with self.assertRaises(harpe.HarpeError):
            harpe.graph.solve(JOB, progress=lambda phase, fraction: False)

    def test_a_pipeline_is_exported(self):
        profile = self.path / "profile.csv"
        subprocess.run([HARPE, "synth", "--stages", "2", "-o", profile, "--quiet"], check=True,
                       timeout=300)
        problem = harpe.plan.Problem(profile, num_microbatches=3, blocking_power=80)
        pipeline, file = problem.solve(), self.path / "pipeline.json"
        harpe.graph.export(problem, file)
        frontier = harpe.graph.solve(file)
        self.assertEqual([vertex.time for vertex in frontier.vertices],
                         [vertex.time for vertex in pipeline.vertices])
        self.assertAlmostEqual(frontier.all_maximum.energy, pipeline.all_maximum.energy, places=9)

    def test_copies_are_the_same(self):
        """They need no file, and the nodes of a networkx.DiGraph come along."""
        file, dag = self.path / "gone.json", DiGraph()
        file.write_text(json.dumps(JOB))
        dag.add_node(("a", 1), options=[{"time": 2, "energy": 1}])
        for given in (file, JOB, dag):
            frontier = harpe.graph.solve(given)
            text = pickle.dumps(frontier)
            file.unlink(missing_ok=True)
            for again in (pickle.loads(text), copy.deepcopy(frontier)):
                self.assertEqual((again.vertices, again.plans, again.all_maximum),
                                 (frontier.vertices, frontier.plans, frontier.all_maximum))
                self.assertEqual(again.plans[0].activities, frontier.plans[0].activities)
                self.assertEqual(repr(again), repr(frontier))

    def test_plans_outlive_the_frontier(self):
        plan = harpe.graph.solve(JOB).plans[0]
        gc.collect()
        self.assertEqual(plan.activities["f1"].option, 1)
        self.assertTrue(lib)
