# SPDX-License-Identifier: Apache-2.0
"""harpe.fleet: the same split as the program's, also after changes; mistakes; and that no C memory is left. HARPE names the program. NumPy is tested if it is installed."""
import gc
import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import world
import harpe
import harpe.fleet

HARPE = os.path.abspath(os.environ.get("HARPE", world.BUILD / "harpe"))
A = [(1.0, 400.0), (1.1, 300.0)]
B = [{"time": 2.0, "power": 500}, {"time": 2.02, "power": 400}, {"time": 2.1, "power": 300}]


def in_file(plans):
    return [plan if isinstance(plan, dict) else dict(zip(("time", "power"), plan)) for plan in plans]


def generated(rng):
    """Returns the contents of a file with up to 5 jobs of up to 6 plans in nested groups."""
    jobs = []
    for number in range(rng.randint(1, 5)):
        time, power = rng.uniform(0.1, 20), rng.uniform(100, 5000)
        jobs.append({"name": f"job {number} \u00e9", "weight": rng.choice([0, 0.5, 1, 3]),
                     "group": rng.choice([None, "row", "rack"]),
                     "plans": [{"time": time * (1 + 0.1 * k), "power": power * rng.uniform(0.8, 1) ** k}
                               for k in range(rng.randint(1, 6))]})
    most = sum(job["plans"][0]["power"] for job in jobs)
    return {"jobs": jobs, "budgets": [
        {"watts": most * rng.uniform(0.7, 1.05)}, {"group": "row", "watts": most * rng.uniform(0.3, 1)},
        {"group": "rack", "parent": "row", "watts": most * rng.uniform(0.2, 1)}]}


def built(content):
    fleet = harpe.fleet.Fleet()
    fleet.add_group("row")
    fleet.add_group("rack", parent="row")
    for budget in content["budgets"]:
        fleet.set_budget(budget.get("group"), budget["watts"])
    for job in content["jobs"]:
        fleet.set_job(job["name"], job["plans"], weight=job["weight"], group=job["group"])
    return fleet


class FleetTest(unittest.TestCase):
    def refused(self, words, function, *arguments, kind=harpe.InvalidArgumentError, **named):
        with self.assertRaisesRegex(kind, words) as raised:
            function(*arguments, **named)
        self.assertNotIn("\n", str(raised.exception))

    def same(self, one, other):
        self.assertEqual(one.feasible, other.feasible)
        self.assertAlmostEqual(one.objective, other.objective)
        self.assertAlmostEqual(one.lower_bound, other.lower_bound)

    def test_it_is_what_the_program_prints(self):
        content = generated(random.Random(8))
        with tempfile.TemporaryDirectory(prefix="harpe-fleet-") as folder:
            path = pathlib.Path(folder) / "fleet.json"
            path.write_text(json.dumps(content))
            done = subprocess.run([HARPE, "fleet", "solve", path, "--json"], text=True,
                                  stdout=subprocess.PIPE, check=False, timeout=300)
            split = harpe.fleet.solve(path)
            self.same(split, harpe.fleet.solve(str(path)))
        printed = json.loads(done.stdout)
        for job in printed["jobs"]:
            chosen = split.jobs[job.pop("name")]
            self.assertEqual(chosen.plan, job.pop("plan"))
            for key, value in job.items():
                self.assertAlmostEqual(getattr(chosen, key), value, places=6)
        for budget in printed["budgets"]:
            shown = split.budgets[budget.pop("group")]
            for key, value in budget.items():
                self.assertAlmostEqual(getattr(shown, key), value, places=6)

    def test_a_changed_fleet_is_solved_like_a_new_one(self):
        rng = random.Random(11)
        content = generated(rng)
        fleet = built(content)
        for _ in range(30):
            fleet.solve()
            other = generated(rng)
            job = dict(rng.choice(other["jobs"]), name=rng.choice(content["jobs"])["name"])
            content["jobs"] = [one for one in content["jobs"] if one["name"] != job["name"]] + [job]
            if rng.random() < 0.5:
                fleet.remove_job(job["name"])
            fleet.set_job(job["name"], job["plans"], weight=job["weight"], group=job["group"])
            content["budgets"][0]["watts"] *= rng.uniform(0.9, 1.1)
            fleet.set_budget(None, content["budgets"][0]["watts"])
            self.same(fleet.solve(), harpe.fleet.solve(content))
            fleet.verify()

    def test_margins_overheads_and_prices(self):
        fleet = harpe.fleet.Fleet()
        fleet.set_job("a", A)
        fleet.set_job("b", B, max_slowdown=1.02)
        fleet.set_budget(None, 1000, margin=0.1, overhead=1.2)
        split = fleet.solve()
        self.assertEqual((split.jobs["a"].plan, split.jobs["b"].plan), (1, 1))
        self.assertAlmostEqual(split.budgets[None].limit_w, 750)
        fleet.set_budget(None, 800, margin=0.1, overhead=1.2)
        split = fleet.solve()
        self.assertFalse(split.feasible)
        self.assertAlmostEqual(split.budgets[None].missing_w, 700 * 1.2 / 0.9 - 800)
        fleet.set_budget(None, None)
        self.assertIsNone(fleet.solve().budgets[None].budget_w)
        fleet.set_price(energy_per_kwh=-0.2, value_per_s=1 / 3600)
        split = fleet.solve()
        fleet.verify()
        self.assertEqual(split.jobs["b"].plan, 0)
        self.assertAlmostEqual(split.objective * 3600, -0.2 * split.power_w / 1000)
        fleet.set_price()
        fleet.set_budget(None, 800)
        without = fleet.solve()
        self.assertEqual(without.objective, without.weighted_slowdown)

    def test_a_moment(self):
        content = {"jobs": [{"name": "a", "plans": in_file(A)}, {"name": "b", "power": 5, "end": 60}],
                   "budgets": [{"watts": 405}],
                   "events": [{"from": 100, "duration": 10, "share": 0.2}]}
        self.assertEqual(harpe.fleet.solve(content).power_w, 405)
        self.assertEqual(list(harpe.fleet.solve(content, at=60).jobs), ["a"])
        self.assertEqual(harpe.fleet.solve(content, at=100).power_w, 300)

    def test_mistakes(self):
        solve = harpe.fleet.solve
        self.refused("job 'x' has neither", solve, {"jobs": [{"name": "x"}]})
        self.refused("not a known member", solve, {"jobs": [], "extra": 1})
        self.refused("fleet: .*not JSON compliant", solve, {"jobs": [{"name": "x", "power": math.nan}]})
        self.refused("fleet: .*is not a number", solve, {"jobs": object()})
        self.refused("a path or a dict is expected, not int", solve, 5)
        self.refused("moment", solve, {"jobs": []}, at=-1)
        self.refused("/nonexistent/f", solve, "/nonexistent/f", kind=harpe.NotFoundError)
        fleet = harpe.fleet.Fleet()
        self.refused("job 'a'", fleet.set_job, "a", [])
        self.refused("job 'a': KeyError: 'power'", fleet.set_job, "a", [{"time": 1}])
        self.refused("job 'a'", fleet.set_job, "a", [(1, 2, 3)])
        self.refused("job 'a'", fleet.set_job, "a", A, max_slowdown=0)
        self.refused("job 'a', plan 1: it is faster", fleet.set_job, "a", A[::-1])
        self.refused("contains a NUL character", fleet.set_job, "a\0b", A)
        self.refused("control character", fleet.set_job, "a\nb", A)
        self.refused("no group 'row'", fleet.set_job, "a", A, group="row", kind=harpe.NotFoundError)
        self.refused("no job 'a'", fleet.remove_job, "a", kind=harpe.NotFoundError)
        self.refused("the watts must be", fleet.set_budget, None, -1)
        self.refused("the margin must be", fleet.set_budget, None, 1, margin=1)
        self.refused("call harpe_fleet_solve", fleet.verify)
        fleet.add_group("row")
        self.refused("already has a group 'row'", fleet.add_group, "row")
        self.assertEqual(fleet.solve().jobs, {})

    def test_numbers_of_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        plans = numpy.array(A)
        fleet = harpe.fleet.Fleet()
        fleet.set_job("a", plans, weight=numpy.float32(2))
        fleet.set_budget(None, numpy.int64(300))
        self.assertAlmostEqual(fleet.solve().weighted_slowdown, 0.2)
        split = harpe.fleet.solve({"jobs": [{"name": "a", "weight": numpy.float64(2), "plans": in_file(A)}],
                                   "budgets": [{"watts": numpy.int64(300)}]})
        self.assertAlmostEqual(split.weighted_slowdown, 0.2)

    def test_no_memory_of_c_is_left(self):
        freed = []
        original = harpe.fleet._Handle
        harpe.fleet._Handle = lambda address, free: original(
            address, lambda pointer: (freed.append(pointer), free(pointer)))
        try:
            harpe.fleet.solve({"jobs": []})
            harpe.fleet.Fleet().solve()
        finally:
            harpe.fleet._Handle = original
        gc.collect()
        self.assertEqual(len(freed), 2)
