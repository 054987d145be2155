# SPDX-License-Identifier: Apache-2.0
"""harpe.plan compared with the program: the same profile gives the same frontier and the same plan
files. Also profiles in every form, limits, mistakes, interrupts, and that no C memory is left.
HARPE names the program. NumPy is tested if it is installed."""
import array
import collections
import copy
import csv
import gc
import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import unittest
import warnings

import world
from fixtures import folder
import harpe
import harpe.plan
from harpe._library import lib

HARPE = os.path.abspath(os.environ.get("HARPE", world.BUILD / "harpe"))
LIMIT_S = 300
NAMES = ("stage", "instruction", "frequency", "time", "energy")
TORCH_SCHEDULE = "0F0,0F1,,,0B0,0B1\n,1F0,1B0,1F1,1B1,\n"


def run(*arguments):
    return subprocess.run([HARPE, *map(str, arguments)], check=True, timeout=LIMIT_S,
                          capture_output=True, text=True).stdout


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_rows(path):
    return [(int(row["stage"]), row["instruction"], int(row["frequency"]), float(row["time"]),
             float(row["energy"])) for row in table(path)]


class Times(list):
    """Times that are compared as NumPy compares arrays: the result is neither true nor false."""

    def __eq__(self, other):
        return Times(one == other for one in self)

    def __bool__(self):
        raise ValueError("the truth value of an array is ambiguous")


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = folder(cls.addClassCleanup)
        cls.profile = cls.path / "profile.csv"
        run("synth", "--stages", 4, "--noise", 0.01, "--seed", 3, "-o", cls.profile)
        cls.rows = read_rows(cls.profile)

    def solve(self, profile=None, **options):
        return harpe.plan.solve(self.profile if profile is None else profile,
                                **{"num_microbatches": 6, "blocking_power": 80, **options})

    def refused(self, words, kind=harpe.InvalidArgumentError, profile=None, **options):
        with self.assertRaisesRegex(kind, words) as raised:
            self.solve(profile, **options)
        self.assertNotIn("\n", str(raised.exception))


class Results(PlanTest):
    def test_frontier_and_plan_files_are_those_of_the_program(self):
        out = self.path / "plans"
        run("plan", "-i", self.profile, "-m", 6, "-p", 80, "-o", out, "--plans", 10)
        frontier = self.solve(plans=10)
        rows = table(out / "frontier.csv")
        self.assertEqual(len(rows), len(frontier.plans))
        for row, plan in zip(rows, frontier.plans):
            self.assertAlmostEqual(float(row["time_s"]), plan.time, places=9)
            self.assertAlmostEqual(float(row["energy_j"]), plan.energy, places=6)
            self.assertLessEqual(plan.lower_bound, plan.energy)
            saved = self.path / "saved.py"
            plan.save(saved)
            written = out / f"freqs_pipeline_{int(row['plan']):05}.py"
            ours, theirs = saved.read_text().splitlines(), written.read_text().splitlines()
            self.assertEqual(ours[:5], theirs[:5])
            self.assertEqual([line.rpartition(" ")[0] for line in ours],
                             [line.rpartition(" ")[0] for line in theirs])
            for one, other in zip(ours[6:], theirs[6:]):
                self.assertAlmostEqual(float(one.split()[-1]), float(other.split()[-1]), places=6)

    def test_vertices_bound_every_plan(self):
        frontier = self.solve(plans="all")
        times = [time for time, _ in frontier.vertices]
        self.assertEqual(times, sorted(times))
        for time, bound in frontier.vertices:
            self.assertAlmostEqual(frontier.bound_at(time), bound, places=9)
        self.assertEqual(frontier.bound_at(times[0] * 0.99), math.inf)
        self.assertEqual(frontier.bound_at(times[-1] * 2), frontier.vertices[-1].lower_bound)
        self.assertGreater(len(frontier.plans), 10)
        self.assertRegex(repr(frontier), r"48 instructions on 4 ranks: .* vertices, \d+ plans")

    def test_the_bound_knows_the_latency(self):
        free, late = self.solve(plans=20), self.solve(plans=20, switch_latency=0.1)
        above = 0
        for plan in late.plans:
            self.assertAlmostEqual(late.bound_at(plan.time), plan.lower_bound, places=9)
            self.assertGreaterEqual(late.bound_at(plan.time), free.bound_at(plan.time) * (1 - 1e-9))
            above += late.bound_at(plan.time) - free.bound_at(plan.time)
        self.assertGreater(above, 0)
        self.assertEqual(late.one_clock().lower_bound, late.bound_at(late.one_clock().time))

    def test_plan_says_what_each_rank_runs(self):
        frontier = self.solve(plans=5)
        for plan in frontier.plans:
            self.assertEqual([len(rank) for rank in plan.frequencies], [12] * 4)
            self.assertEqual([name for name, _ in plan.frequencies[3]][:4],
                             ["forward", "backward"] * 2)
            self.assertAlmostEqual(plan.energy, plan.compute_energy + plan.blocking_energy)
            self.assertAlmostEqual(plan.average_power, plan.energy / plan.time / 4)
            self.assertEqual(hash(plan), hash(frontier.evaluate(plan)))
            self.assertEqual(plan, frontier.evaluate(plan))
        highest = max(mhz for _, _, mhz, _, _ in self.rows)
        self.assertEqual({mhz for rank in frontier.all_maximum.frequencies for _, mhz in rank},
                         {highest})
        self.assertGreater(frontier.all_maximum.energy, frontier.all_maximum.lower_bound)

    def test_one_clock_for_all_gpus(self):
        frontier = self.solve(plans=5)
        clocks = {mhz for _, _, mhz, _, _ in self.rows}
        expected = {mhz: frontier.problem.evaluate([[(name, mhz) for name, _ in rank] for rank in
                                                    frontier.all_maximum.frequencies])
                    for mhz in clocks}
        plans = frontier.problem.one_clock_plans
        self.assertEqual({plan.one_clock: plan for plan in plans}, expected)
        self.assertEqual([plan.time for plan in plans], sorted(plan.time for plan in plans))
        self.assertIsNone(frontier.plans[1].one_clock)
        for limit in (None, plans[0].time, 1.1 * plans[0].time, math.inf):
            most = frontier.all_maximum.time if limit is None else limit
            best = frontier.one_clock(limit)
            self.assertEqual(best.energy, min(plan.energy for plan in expected.values()
                                              if plan.time <= most))
            self.assertEqual(best.lower_bound, frontier.bound_at(best.time))
        with self.assertRaises(harpe.NotFoundError):
            frontier.one_clock(0.999 * plans[0].time)

    def test_saved_plan_is_loaded_and_evaluated(self):
        frontier = self.solve(plans=5)
        plan, path = frontier.plans[2], self.path / "plan.py"
        plan.save(path)
        self.assertEqual(harpe.plan.load(path), plan.frequencies)
        for form in (path, str(path), plan, plan.frequencies):
            self.assertEqual(frontier.evaluate(form), plan)
        self.assertIsNone(frontier.problem.evaluate(path).lower_bound)
        for wrong in (plan.frequencies[:3], [[("forward", 1)] * 12] * 4,
                      [[("sideways", 1410)] * 12] * 4):
            with self.assertRaises(harpe.InvalidArgumentError):
                frontier.evaluate(wrong)
        with self.assertRaises(harpe.NotFoundError):
            harpe.plan.load(self.path / "nowhere.py")
        with self.assertRaises(harpe.NotFoundError):
            plan.save(self.path / "nowhere" / "plan.py")
        closed = self.path / "closed"
        closed.mkdir(mode=0o500)
        if os.geteuid() != 0:  # root may write everywhere
            with self.assertRaises(harpe.PermissionDeniedError):
                plan.save(closed / "plan.py")

    def test_plans_at_given_times(self):
        spread = self.solve(plans=5).plans
        times = [(a.time + b.time) / 2 for a, b in zip(spread, spread[1:])]
        plans = self.solve(plans=times[::-1]).plans
        self.assertEqual(len(plans), len(times))
        for plan, time in zip(plans, times):
            self.assertLessEqual(plan.time, time * (1 + 1e-12))
            self.assertGreaterEqual(plan.energy, plan.lower_bound * (1 - 1e-9))
        for faster, slower in zip(plans, plans[1:]):
            self.assertGreater(faster.energy, slower.energy)
        as_array = self.solve(plans=Times(times)).plans
        self.assertEqual([plan.energy for plan in as_array], [plan.energy for plan in plans])

    def test_choice_keeps_its_limits(self):
        frontier = self.solve(plans=30)
        maximum = frontier.all_maximum
        self.assertEqual([plan.time for plan in self.solve(plans="fastest").plans],
                         [frontier.plans[0].time])
        best = frontier.choose()
        self.assertEqual(best.energy, min(plan.energy for plan in frontier.plans))
        plan = frontier.choose(max_slowdown=1.05)
        self.assertLessEqual(plan.time, 1.05 * maximum.time)
        self.assertEqual(plan.energy, min(other.energy for other in frontier.plans
                                          if other.time <= 1.05 * maximum.time))
        printed = plan.time * (1 - 1e-12)  # one digit less
        self.assertEqual(frontier.choose(max_time=printed), plan)
        self.assertEqual(frontier.choose(max_time=1.05 * maximum.time), plan)
        cap = (frontier.plans[0].average_power + best.average_power) / 2
        cool = frontier.choose(max_power=cap)
        self.assertLessEqual(cool.average_power, cap)
        self.assertEqual(cool.time, min(other.time for other in frontier.plans
                                        if other.average_power <= cap))
        for limits, words in (({"max_time": 0.01}, "no plan takes at most 0.01 s"),
                              ({"max_power": 1}, "at most 1 W per GPU; the least draws"),
                              ({"max_power": cap, "max_slowdown": 1}, "within the limits")):
            with self.assertRaisesRegex(harpe.NotFoundError, words):
                frontier.choose(**limits)


class Objectives(PlanTest):
    """Overhead power, prices and the power shape, compared with the program."""

    OVERHEAD_W = 900
    PRICES = ("--energy-price", 0.3, "--gpu-hour-price", 0.01, "--carbon", 400,
              "--carbon-price", 80)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run("plan", "-i", cls.profile, "-m", 6, "-p", 80, "--overhead-power", cls.OVERHEAD_W,
            "--no-pictures", "-o", cls.path / "over")
        cls.frontier = harpe.plan.solve(cls.profile, num_microbatches=6, blocking_power=80,
                                        overhead_power=cls.OVERHEAD_W)

    def choose(self, *arguments):
        return json.loads(run("choose", self.path / "over", *arguments, "--json"))

    def test_overhead_power_gives_the_same_plans_as_the_program(self):
        rows = table(self.path / "over/frontier.csv")
        self.assertEqual(len(rows), len(self.frontier.plans))
        for row, plan in zip(rows, self.frontier.plans):
            shape = plan.power_shape
            for name, value in {
                    "time_s": plan.time, "energy_j": plan.energy,
                    "lower_bound_j": plan.lower_bound, "overhead_energy_j": plan.overhead_energy,
                    "average_power_w": plan.average_power, "peak_power_w": shape.peak,
                    "swing_w": shape.swing, "swing_hz": shape.swing_frequency}.items():
                self.assertEqual(float(row[name]), value, name)
            self.assertAlmostEqual(plan.overhead_energy, self.OVERHEAD_W * plan.time, places=6)
            self.assertAlmostEqual(plan.energy, plan.gpu_energy + plan.overhead_energy, places=6)
            plan.save(self.path / "saved.py")
            self.assertEqual((self.path / "saved.py").read_bytes(),
                             (self.path / f"over/freqs_pipeline_{int(row['plan']):05}.py")
                             .read_bytes())
        without = self.solve()
        self.assertLess(self.frontier.plans[-1].time, without.plans[-1].time)
        self.assertEqual(without.plans[-1].overhead_energy, 0)

    def test_a_plan_costs_what_its_energy_and_time_cost(self):
        prices = harpe.plan.Prices(energy=0.3, gpu_hour=0.01, carbon=400, carbon_price=80)
        plan = self.frontier.plans[0]
        cost = plan.cost(prices)
        self.assertAlmostEqual(cost.energy, plan.energy / 3.6e6 * 0.3, places=12)
        self.assertAlmostEqual(cost.gpu_time, 4 * plan.time / 3600 * 0.01, places=12)
        self.assertAlmostEqual(cost.carbon_g, plan.energy / 3.6e6 * 400, places=12)
        self.assertAlmostEqual(cost.carbon, cost.carbon_g / 1e6 * 80, places=12)
        self.assertAlmostEqual(cost.total, cost.energy + cost.gpu_time + cost.carbon, places=12)
        best = self.frontier.choose(prices=prices)
        self.assertEqual(best.cost(prices).total,
                         min(plan.cost(prices).total for plan in self.frontier.plans))
        told = self.choose(*self.PRICES)
        self.assertAlmostEqual(told["time_s"], best.time, places=9)
        self.assertAlmostEqual(told["cost"]["total"], best.cost(prices).total, places=12)
        for name in ("energy", "gpu_hour", "carbon", "carbon_price"):
            for wrong in (-1, math.inf, math.nan):
                with self.assertRaisesRegex(harpe.InvalidArgumentError, f"^{name}: "):
                    harpe.plan.Prices(**{"energy": 1, "gpu_hour": 1, name: wrong})

    def test_clocks_that_change_late(self):
        rows = [(*row, 0.05 if row[2] % 2 else 0.2) for row in read_rows(self.profile)]
        rows = [dict(zip((*NAMES, "switch_latency"), row)) for row in rows]
        with open(self.path / "late.csv", "w", newline="") as file:
            out = csv.DictWriter(file, (*NAMES, "switch_latency"))
            out.writeheader()
            out.writerows(rows)
        for profile, latency in ((rows, "profile"), (self.profile, 0.1)):
            frontier = harpe.plan.solve(profile, num_microbatches=6, blocking_power=80, plans=4,
                                        switch_latency=latency)
            for plan in frontier.plans:
                late = plan.late(latency)
                self.assertEqual(late.late_instructions, 0)
                self.assertTrue(late.is_steady)
                self.assertAlmostEqual(late.time, plan.time, places=9)
                self.assertAlmostEqual(late.energy, plan.energy, places=6)
        plan = self.frontier.plans[0]
        self.assertLess(plan.time, plan.late(0.1, lead=0).time)
        told = json.loads(run("evaluate", "-i", self.path / "late.csv", "-m", 6, "-p", 80,
                              "--overhead-power", self.OVERHEAD_W, "--switch-latency", "profile",
                              "--switch-lead", 0.02, "-P",
                              self.path / "over/freqs_pipeline_00000.py", "--json"))["plans"][0]
        same = harpe.plan.Problem(rows, num_microbatches=6, blocking_power=80,
                                  overhead_power=self.OVERHEAD_W).evaluate(
                                      self.path / "over/freqs_pipeline_00000.py")
        self.assertAlmostEqual(told["time_asking_ahead_s"], same.late("profile", lead=0.02).time,
                               places=9)
        self.assertAlmostEqual(told["energy_with_switching_j"],
                               same.late("profile", lead=0).energy, places=6)
        with self.assertRaisesRegex(harpe.InvalidArgumentError, "switch_latency"):
            plan.late("profile")
        with self.assertRaisesRegex(harpe.InvalidArgumentError, "switch_latency: 'x'"):
            plan.late("x")

    def test_limits_on_the_power_of_the_pipeline(self):
        shapes = [plan.power_shape for plan in self.frontier.plans]
        peak, swing = shapes[len(shapes) // 2].peak, sorted(shape.swing for shape in shapes)[5]
        chosen = self.frontier.choose(max_peak_power=peak)
        self.assertEqual(chosen.time, min(
            plan.time for plan, shape in zip(self.frontier.plans, shapes)
            if shape.peak <= peak * (1 + 1e-9)))
        self.assertAlmostEqual(self.choose("--max-peak-power", repr(peak))["time_s"], chosen.time,
                               places=9)
        chosen = self.frontier.choose(max_swing=swing)
        self.assertAlmostEqual(self.choose("--max-swing", repr(swing))["time_s"], chosen.time,
                               places=9)
        for limit, words in (({"max_peak_power": 1}, "a peak power of at most 1 W; the lowest"),
                             ({"max_swing": 0}, "a swing of at most 0 W; the smallest")):
            with self.assertRaisesRegex(harpe.NotFoundError, words):
                self.frontier.choose(**limit)

    def test_plans_within_limits_on_power(self):
        limits = {"num_microbatches": 6, "blocking_power": 80, "plans": 8}
        fastest = harpe.plan.solve(self.profile, **limits).plans[0].power_shape
        for name, value, figure in (("max_peak_power", 0.97 * fastest.peak, "peak"),
                                    ("max_swing", 0.7 * fastest.swing, "swing")):
            for plan in harpe.plan.solve(self.profile, **limits, **{name: value}).plans:
                self.assertLessEqual(getattr(plan.power_shape, figure), value * (1 + 1e-9))
        for plan in harpe.plan.solve(self.profile, **limits, max_swing="15%").plans:
            self.assertLessEqual(plan.power_shape.swing, 0.15 * plan.energy / plan.time * (1 + 1e-9))
        for name, value in (("max_swing", "x%"), ("max_swing", 0), ("max_peak_power", -1)):
            with self.assertRaisesRegex(harpe.InvalidArgumentError, f"{name}: .* is not a number above 0"):
                harpe.plan.solve(self.profile, **limits, **{name: value})

    def test_an_impossible_overhead_power_is_refused(self):
        for wrong in (-1, 2e9, math.nan):
            self.refused("overhead power", overhead_power=wrong)

    def test_transfers_take_time(self):
        run("plan", "-i", self.profile, "-m", 6, "-p", 80, "--transfer-time", 0.003,
            "--no-pictures", "-o", self.path / "late")
        late = harpe.plan.solve(self.profile, num_microbatches=6, blocking_power=80,
                                transfer_time=0.003)
        self.assertEqual([(float(row["time_s"]), float(row["energy_j"]))
                          for row in table(self.path / "late/frontier.csv")],
                         [(plan.time, plan.energy) for plan in late.plans])
        # 1F1B on 4 ranks: the first microbatch goes 3 times down and 3 times up.
        self.assertGreater(late.plans[0].time, self.solve().plans[0].time)
        for wrong in (-1, 2e6, math.nan):
            self.refused("transfer time", transfer_time=wrong)


class Inputs(PlanTest):
    def same(self, profile):
        self.assertEqual(self.solve(profile, plans=3).vertices, self.solve(plans=3).vertices)

    def test_profile_comes_in_any_shape(self):
        row = collections.namedtuple("row", NAMES)
        self.same(str(self.profile))
        self.same(self.rows)
        self.same(iter(self.rows))
        self.same([row(*values) for values in self.rows])
        self.same([dict(zip(NAMES, values)) for values in self.rows])
        columns = dict(zip(NAMES, map(list, zip(*self.rows))))
        self.same(columns)
        self.same(dict(columns, colour=["red"] * len(self.rows),
                       time=array.array("d", columns["time"]),
                       frequency=array.array("d", columns["frequency"])))

    def test_profile_of_numpy_arrays(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("there is no NumPy")
        self.same(dict(zip(NAMES, map(numpy.array, zip(*self.rows)))))
        self.same(numpy.array(self.rows, dtype=object))
        self.same(numpy.array(self.rows, dtype=[
            ("stage", "i4"), ("instruction", "S16"), ("frequency", "u2"), ("time", "f8"),
            ("energy", "f8")]))
        self.assertEqual(self.solve(blocking_power=numpy.full(4, 80.0)).vertices,
                         self.solve(blocking_power=numpy.float64(80)).vertices)

    def test_ranks_of_a_profile_are_aggregated(self):
        twice = [dict(zip(NAMES, values), rank=rank) for values in self.rows for rank in (0, 1)]
        self.assertAlmostEqual(self.solve(twice, blocking_power=0).vertices[-1].lower_bound,
                               2 * self.solve(blocking_power=0).vertices[-1].lower_bound, places=6)

    def test_gpus_of_a_stage_wait_each(self):
        one = self.solve(plans=5)
        self.assertEqual(one.problem.num_gpus, 4)
        ranks = [dict(zip(NAMES, values), rank=rank) for values in self.rows for rank in range(8)]
        sums = [dict(zip(NAMES, values), energy=8 * values[4]) for values in self.rows]
        gpus = [dict(row, gpus=8) for row in sums]
        columns = {name: [row[name] for row in gpus] for name in gpus[0]}
        for profile, options in ((ranks, {}), (gpus, {}), (columns, {}),
                                 (sums, {"gpus_per_stage": 8})):
            eight = self.solve(profile, plans=5, **options)
            self.assertEqual(eight.problem.num_gpus, 32)
            self.assertEqual(eight.problem.num_ranks, 4)
            self.assertEqual([plan.time for plan in eight.plans], [plan.time for plan in one.plans])
            for a, b in zip(one.plans, eight.plans):
                self.assertAlmostEqual(b.energy, 8 * a.energy, places=5)
                self.assertAlmostEqual(b.average_power, a.average_power, places=5)
                self.assertAlmostEqual(b._cost_change, 8 * a._cost_change, places=5)
        self.refused("4 GPUs per stage are given, but stage 0 of the profile has 8", profile=ranks,
                     gpus_per_stage=4)
        self.refused("row 0: gpus must be", profile=[dict(row, gpus=-1) for row in sums])

    def test_repeated_rows_are_averaged_with_a_warning_or_refused(self):
        self.assertEqual(self.solve(plans=1).problem.repeats, [])
        stage, name, mhz, time, energy = self.rows[0]
        more = [*self.rows, (stage, name, mhz, time * 1.01, energy * 1.02)]
        with self.assertWarnsRegex(UserWarning, rf"2 rows \(0 and {len(self.rows)}\) measure stage "
                                                rf"{stage}, '{name}' at {mhz} MHz: averaged$"
                                   ) as warned:
            frontier = self.solve(more, plans=1)
        self.assertEqual(warned.filename, __file__)
        (repeat,) = frontier.problem.repeats
        self.assertEqual((repeat.stage, repeat.instruction, repeat.frequency, repeat.rows,
                          repeat.first_row, repeat.last_row, repeat.rank),
                         (stage, name, mhz, 2, 0, len(self.rows), -1))
        self.assertAlmostEqual(repeat.time_spread, 0.01, places=9)
        self.assertAlmostEqual(repeat.energy_spread, 0.02, places=9)
        self.refused(rf"row {len(self.rows)}: .* in row 0; repeats of one measurement agree",
                     profile=[*self.rows, (stage, name, mhz, time * 2, energy)])

    def test_doubtful_rows_are_told(self):
        stage, name, mhz, time, energy = self.rows[5]
        rows = [*self.rows[:5], (stage, name, mhz, time, energy * 1000), *self.rows[6:]]
        with self.assertWarnsRegex(UserWarning, f"profile: row 5: stage {stage} '{name}' at {mhz} MHz: the "
                                                "energy .* if the energies are in mJ, it is") as warned:
            self.solve(rows, plans=1)
        self.assertEqual(warned.filename, __file__)

    def test_schedules(self):
        self.assertIn("zb-h1", harpe.plan.schedule_names())
        times = {}
        for name, options in (("1f1b", {}), ("gpipe", {"num_ranks": 4}),
                              ("interleaved-1f1b", {"num_microbatches": 8, "num_chunks": 2})):
            frontier = self.solve(schedule=name, plans=2, **options)
            self.assertEqual(frontier.problem.num_ranks, 2 if "leaved" in name else 4)
            times[name] = frontier.vertices[0].time
        self.assertGreaterEqual(times["gpipe"], times["1f1b"] * 0.99)
        frontier = self.solve(schedule="interleaved-1f1b", plans=2, num_microbatches=5,
                              microbatch_group_size=3, overlap_moe_expert_parallel_comm=True)
        self.assertEqual([[name[0] for name, _ in rank] for rank in frontier.plans[0].frequencies],
                         [list("ffffff" + 4 * "fb" + 6 * "b"), list("ffff" + 6 * "fb" + 4 * "b")])
        self.refused("into 2 equal groups", schedule="interleaved-1f1b", num_microbatches=5)
        self.refused("at least 1, or None, not 0", schedule="interleaved-1f1b",
                     microbatch_group_size=0)
        file = self.path / "torch.csv"
        file.write_text(TORCH_SCHEDULE)
        two = [row for row in self.rows if row[0] < 2]
        frontier = harpe.plan.solve(two, blocking_power=[80, 70], schedule=file, plans=2)
        self.assertEqual([len(rank) for rank in frontier.plans[0].frequencies], [4, 4])
        rows = self.rows + [(stage, "load", 1410, 0.01, 1) for stage in range(4)]
        plan = self.solve(rows, prologue=["load"]).plans[0]
        self.assertEqual({rank[0] for rank in plan.frequencies}, {("load", 1410)})
        file.write_text(":load,0F0,0F1:light,BARRIER,0B0,0B1\n1F0,BARRIER,1B0,1F1,1B1\n")
        rows = two + [(stage, name, 1410, 0.01, 1) for stage in (0, 1)
                      for name in ("load", "light", "step")]
        plan = harpe.plan.solve(rows, blocking_power=80, schedule=file, plans=2,
                                epilogue=["step"]).plans[0]
        self.assertEqual([[name for name, _ in rank] for rank in plan.frequencies],
                         [["load", "forward", "light", "backward", "backward", "step"],
                          ["forward", "backward", "forward", "backward", "step"]])
        file.write_text(TORCH_SCHEDULE)
        self.refused("torch.csv has 2 microbatches, not 3: leave", profile=two, schedule=str(file),
                     num_microbatches=3)
        self.refused("torch.csv has 2 ranks, not 1: leave", profile=two, schedule=str(file),
                     num_microbatches=2, num_ranks=1)
        self.refused("cannot be combined with", profile=two, schedule=str(file), num_chunks=3)

    def test_wait_powers(self):
        file = self.path / "waits.csv"
        file.write_text("rank,wait,blocking_power\n,,80\n,end,50\n")
        from_file = self.solve(blocking_power=None, wait_powers=file, plans=3)
        run("plan", "-i", self.profile, "-m", 6, "--wait-powers", file, "--output-dir",
            self.path / "waits", "--no-pictures", "--plans", 3)
        energies = [float(row["energy_j"]) for row in table(self.path / "waits" / "frontier.csv")]
        for one, other in zip(sorted(energies), sorted(p.energy for p in from_file.plans)):
            self.assertAlmostEqual(one, other, 5)
        for rows in ({"end": 50}, [(None, "end", 50)], [(rank, "end", 50) for rank in range(4)]):
            self.assertEqual(self.solve(wait_powers=rows, plans=3).vertices, from_file.vertices)
        self.assertEqual(self.solve(wait_powers={"end": 80, "forward": 80}).vertices,
                         self.solve().vertices)
        for rows, says in (({"foo": 1}, "'foo'"), ([(0, "end")], "wait_powers, row 0"),
                           ({"end": -1}, "-1 W is not between"),
                           (self.path / "none.csv", "none.csv")):
            with self.assertRaisesRegex(harpe.HarpeError, says):
                self.solve(wait_powers=rows)

    def test_blocking_power_of_the_profile(self):
        given = self.solve(blocking_power=[60, 70, 80, 90])
        columns = dict(zip(("stage", "instruction", "frequency", "time", "energy"),
                           zip(*self.rows)))
        columns["blocking_power"] = [60 + 10 * stage for stage in columns["stage"]]
        found = harpe.plan.solve(columns, num_microbatches=6)
        self.assertEqual(found.vertices, given.vertices)
        self.assertEqual(found.problem._total_blocking_power, 300)
        self.refused("the profile has none for stage 0", blocking_power=None)

    def test_exponential_model(self):
        frontier = self.solve(cost_model="exponential", unit_time=0.002, plans=3)
        self.assertAlmostEqual(frontier.vertices[0].time, self.solve().vertices[0].time, delta=0.1)

    def test_mistakes_are_named(self):
        at = [list(row) for row in self.rows]
        for column, value, words in (
                (0, "first", "row 7, stage: 'first'"), (1, 3, "row 7, instruction: 3"),
                (2, 1410.5, "row 7, frequency: 1410.5"), (2, 2 ** 33, "row 7, frequency: 858"),
                (0, -1, "row 7.*stage"), (3, None, "row 7, time: None"),
                (4, math.nan, "row 7.*energy"), (3, -1, "row 7.*time"), (1, "a b", "row 7")):
            rows = [list(row) for row in at]
            rows[7][column] = value
            with self.subTest(value=value):
                self.refused(words, profile=rows)
        for words, options in (
                ("row 0: 'sta' is not", {"profile": ["sta"]}),
                ("row 0: .* is not", {"profile": [(0, "forward")]}),
                ("no column time", {"profile": {"stage": [0], "instruction": ["forward"], "frequency": [1410]}}),
                ("row 0: there is no energy", {"profile": [dict(zip(NAMES[:4], self.rows[0]))]}),
                ("different lengths", {"profile": dict(zip(NAMES, ([0], ["f"], [1], [1, 2], [1])))}),
                ("rows are expected, not int", {"profile": 3}),
                ("the number of microbatches is missing", {"num_microbatches": None}),
                ("num_microbatches must be at least 1", {"num_microbatches": 0}),
                ("num_ranks must be at least 1", {"num_ranks": 0}), ("threads", {"threads": -1}),
                (r"4 stages, but the schedule \(1f1b, 5 ranks\) has 5", {"num_ranks": 5}),
                ("2 blocking powers for 4 ranks: give one", {"blocking_power": [80, 80]}),
                ("blocking_power: give one", {"blocking_power": []}),
                ("cost_model 'cubic'", {"cost_model": "cubic"}), ("2f2b", {"schedule": "2f2b"}),
                ("num_microbatches: 4294967302 is too large", {"num_microbatches": 2 ** 32 + 6}),
                ("num_ranks: 'all'|num_ranks: could not", {"num_ranks": "all"}), ("plans: 0", {"plans": 0}),
                ("plans: 'some'", {"plans": "some"}),
                (r"plans: \['x'\] is neither 'all' nor 'fastest', nor a number from 1 on, nor a list of",
                 {"plans": ["x"]}),
                ("no iteration times to make plans for", {"plans": []}),
                ("no plan runs in 0.000001 s: the fastest takes", {"kind": harpe.HarpeError, "plans": [1e-6]}),
                ("backward", {"kind": harpe.HarpeError,
                              "profile": [row for row in self.rows if row[:2] != (2, "backward")]}),
                ("", {"kind": harpe.NotFoundError, "profile": "nowhere.csv"})):
            with self.subTest(options=options):
                self.refused(words, **options)
        with self.assertRaises(TypeError):
            self.solve(colour="red")
        with self.assertRaises(ValueError):  # code that does not know Harpe catches this
            self.solve(num_microbatches=-3)


class LongWork(PlanTest):
    SIZE = {"num_microbatches": 256, "plans": 10}  # some tenths of a second
    SMALL = {"num_microbatches": 32, "plans": 10}

    def test_progress_is_told_and_may_stop_the_work(self):
        told = []
        self.solve(progress=lambda *what: told.append(what), **self.SIZE)
        self.assertTrue(told)
        self.assertTrue(all(isinstance(phase, str) and 0 <= fraction <= 1
                            for phase, fraction in told), told)
        with self.assertRaisesRegex(harpe.HarpeError, "interrupt|stop"):
            self.solve(progress=lambda phase, fraction: False, **self.SIZE)

    def test_exception_in_progress_reaches_the_caller(self):
        def fail(phase, fraction):
            raise ZeroDivisionError(phase)

        with self.assertRaises(ZeroDivisionError):
            self.solve(progress=fail, **self.SIZE)

    def test_interrupt_ends_the_work_and_leaves_the_handler(self):
        before = signal.getsignal(signal.SIGINT)
        told = []

        def interrupt(phase, fraction):
            told.append(fraction)
            if len(told) == 1:
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            self.solve(progress=interrupt, **self.SIZE)
        self.assertLess(len(told), 5)
        self.assertIs(signal.getsignal(signal.SIGINT), before)

    def test_interrupted_program_ends_as_programs_do(self):
        script = ("import harpe.plan, sys; print('ready', flush=True)\n"
                  "while True: harpe.plan.solve(sys.argv[1], num_microbatches=256, "
                  "blocking_power=80)")
        process = subprocess.Popen(
            [sys.executable, "-c", script, self.profile], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        try:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            threading.Event().wait(0.5)
            process.send_signal(signal.SIGINT)
            _, complaints = process.communicate(timeout=LIMIT_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertIn(b"KeyboardInterrupt", complaints)
        self.assertNotIn(b"Exception ignored", complaints)

    def test_works_on_other_threads(self):
        results = []
        threads = [threading.Thread(target=lambda: results.append(self.solve(plans=3)))
                   for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual(len({tuple(frontier.vertices) for frontier in results}), 1)
        self.assertEqual(len(results), 3)


def slowest_of(frontier):
    """Runs in another process."""
    return frontier.plans[-1]


class Copies(PlanTest):
    """Plans and frontiers go through pickle, copy and the processes of a Pool."""

    def the_same(self, frontier, again):
        self.assertEqual((again.vertices, again.plans, again.all_maximum),
                         (frontier.vertices, frontier.plans, frontier.all_maximum))
        self.assertEqual(repr(again), repr(frontier))
        for time, _ in frontier.vertices:
            self.assertEqual(again.bound_at(time * 1.001), frontier.bound_at(time * 1.001))
        one, other = frontier.plans[1], again.plans[1]
        self.assertEqual(other.frequencies, one.frequencies)
        self.assertEqual(other.power_shape, one.power_shape)
        for plan, name in ((one, "one.py"), (other, "other.py")):
            plan.save(self.path / name)
        self.assertEqual((self.path / "one.py").read_text(), (self.path / "other.py").read_text())
        self.assertEqual(again.evaluate(one), frontier.evaluate(one))

    def test_a_copy_is_the_same(self):
        frontier = self.solve(plans=4)
        for again in (pickle.loads(pickle.dumps(frontier)), copy.copy(frontier),
                      copy.deepcopy(frontier)):
            self.the_same(frontier, again)
        for again in (pickle.loads(pickle.dumps(frontier.plans[0])), copy.copy(frontier.plans[0]),
                      copy.deepcopy(frontier.plans[0])):
            self.assertEqual(again, frontier.plans[0])

    def test_a_copy_needs_no_file(self):
        """The files may be gone, and the profile may come from anything that can be read once."""
        profile, schedule, waits = (self.path / name for name in ("p.csv", "s.csv", "w.csv"))
        two = [row for row in self.rows if row[0] < 2]
        profile.write_text("\n".join(",".join(map(str, row)) for row in [NAMES, *two]))
        schedule.write_text(TORCH_SCHEDULE)
        waits.write_text("rank,wait,blocking_power\n,,80\n1,end,50\n")
        frontiers = [
            self.solve(profile, num_microbatches=None, blocking_power=None, schedule=schedule,
                       wait_powers=waits, plans=3),
            self.solve(iter(two), blocking_power=iter([80, 81]), plans=3)]
        texts = [pickle.dumps(frontier) for frontier in frontiers]
        for file in (profile, schedule, waits):
            file.unlink()
        for frontier, text in zip(frontiers, texts):
            self.the_same(frontier, pickle.loads(text))

    def test_a_copy_warns_about_no_row_again(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frontier = self.solve([*self.rows, self.rows[0]], plans=3)
            self.assertEqual(len(caught), 1)
            again = pickle.loads(pickle.dumps(frontier))
            self.assertEqual(len(caught), 1)
        self.assertEqual(again.problem.repeats, frontier.problem.repeats)

    def test_processes_of_a_pool_exchange_them(self):
        frontier = self.solve(plans=3)
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map(slowest_of, [frontier] * 3), [frontier.plans[-1]] * 3)


class Memory(PlanTest):
    FREES = ("profile", "schedule", "problem", "frontier", "plan_set", "plan_file")

    def test_everything_made_in_c_is_given_back(self):
        made, freed = collections.Counter(), collections.Counter()

        def counting(name, function, counter):
            def counted(*arguments):
                counter[name] += 1
                return function(*arguments)
            return counted

        for name in self.FREES:
            free = f"harpe_{name}_free"
            before = getattr(lib, free)
            setattr(lib, free, counting(name, before, freed))
            self.addCleanup(setattr, lib, free, before)
        for name, makers in {
                "profile": ["profile_new", "profile_read_csv"], "schedule": ["schedule_for_profile"],
                "problem": ["problem_new"], "plan_set": ["plan_set_new"],
                "plan_file": ["plan_file_read", "plan_file_parse"]}.items():
            for maker in makers:
                before = getattr(lib, f"harpe_{maker}")
                setattr(lib, f"harpe_{maker}", counting(name, before, made))
                self.addCleanup(setattr, lib, f"harpe_{maker}", before)
        frontier = self.solve(plans=3)
        plan = frontier.plans[0]
        plan.save(self.path / "plan.py")
        frontier.evaluate(self.path / "plan.py")
        frontier.evaluate(plan)
        harpe.plan.load(self.path / "plan.py")
        self.solve(self.rows, plans=3)
        self.assertEqual(freed["problem"], 1)  # plan and frontier still need their objects
        del frontier
        gc.collect()
        self.assertGreater(plan.frequencies[0][0][1], 0)
        plan.save(self.path / "again.py")
        del plan
        gc.collect()
        made["frontier"] = made["plan_set"]
        self.assertEqual(freed, made)

    def test_problem_outlives_what_is_made_from_it(self):
        order = []
        for name in self.FREES:
            before = getattr(lib, f"harpe_{name}_free")
            setattr(lib, f"harpe_{name}_free",
                    lambda address, name=name, before=before: (order.append(name), before(address)))
            self.addCleanup(setattr, lib, f"harpe_{name}_free", before)
        self.solve(plans=2)
        gc.collect()
        self.assertEqual(order[-1], "problem")
