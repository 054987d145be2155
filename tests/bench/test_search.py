# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/run that measure the search for plans, on tiny jobs: they run, they compare
two builds, and their own arithmetic is right. HARPE_BINARY_DIR names the build."""
import csv
import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR",
                                     pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", SOURCE / "build" / "release"))
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "bench"))
from search import dwell, gaps, optimum, profiles, scale  # noqa: E402

NAMES = ["1f1b", "early-recomputation-1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v",
         "dualpipe-v", "dualpipe-v-deepseek", "dualpipe"]


def pipeline(ranks, microbatches, clocks, seed):
    """Makes a pipeline of forwards and backwards without Harpe's schedules: all forwards, then all
    backwards."""
    source = random.Random(seed)
    kinds = {(rank, name): [(1000 + 100 * k, source.uniform(0.9, 1.1) / (10 + k),
                             source.uniform(0.9, 1.1) * (10 + k)) for k in range(clocks)]
             for rank in range(ranks) for name in ("forward", "backward")}
    activities = []
    for rank in range(ranks):
        for place in range(2 * microbatches):
            name = "forward" if place < microbatches else "backward"
            after = [f"{rank}.{place - 1}"] if place else []
            neighbour = rank - 1 if name == "forward" else rank + 1
            if 0 <= neighbour < ranks:
                after.append({"name": f"{neighbour}.{place}"})
            activities.append({
                "name": f"{rank}.{place}", "resource": f"gpu{rank}", "after": after,
                "options": [{"frequency": f, "time": t, "energy": e}
                            for f, t, e in kinds[rank, name]]})
    resources = [{"name": f"gpu{rank}", "blocking_power": 60.0} for rank in range(ranks)]
    return dwell.Pipeline({"resources": resources, "activities": activities})


class Arithmetic(unittest.TestCase):
    def test_a_seed_always_gives_the_same_job(self):
        for number in range(9):
            one, other = (profiles.job(7, number, NAMES).csv() for _ in range(2))
            self.assertEqual(one, other)
            self.assertNotEqual(one, profiles.job(8, number, NAMES).csv())
        self.assertEqual({profiles.job(1, number, NAMES).schedule for number in range(9)},
                         set(NAMES))

    def test_quantiles(self):
        values = list(range(1, 11))
        random.Random(1).shuffle(values)
        self.assertEqual([gaps.quantile(values, share) for share in (0.5, 0.9, 0.91, 1)],
                         [5, 9, 10, 10])

    def test_dwell_times_go_round_the_end_of_the_iteration(self):
        one = pipeline(1, 2, 2, 1)
        for index in range(4):
            one.options[index] = [(1000, 1.0, 5.0), (1100, 1.0, 6.0)]
        for mhz, shortest in (((1000,) * 4, float("inf")), ((1100, 1000, 1000, 1100), 2.0),
                              ((1000, 1100, 1100, 1100), 1.0)):
            time, energy, found = one.evaluate(mhz)
            self.assertEqual((time, found), (4.0, shortest))
            self.assertAlmostEqual(energy, sum(5.0 if clock == 1000 else 6.0 for clock in mhz))

    def test_one_clock_per_rank_is_the_best_of_all_combinations(self):
        for seed in range(5):
            job = pipeline(2, 3, 4, seed)
            plans = [job.evaluate([mhz[rank] for rank in job.rank])
                     for mhz in itertools.product((1000, 1100, 1200, 1300), repeat=2)]
            times = [1.0001 * time for time, *_ in plans]
            found = dwell.simple_searches(BUILD / "bench" / "bench_groups", job,
                                          [(time, 1e9) for time in times])
            for deadline, (ranks, greedy) in zip(times, found):
                best = min(energy for time, energy, _ in plans if time <= deadline)
                self.assertAlmostEqual(ranks, best, places=6)
                if greedy is not None:
                    self.assertGreaterEqual(greedy, best - 1e-6)

    def test_a_plan_that_needs_more_is_worse(self):
        row = {"now": 101.0, "ranks": 100.0, "greedy": 102.0, "before": None}
        self.assertAlmostEqual(dwell.worse_by(row, "ranks"), 1.0)
        self.assertEqual([dwell.worse_by(row, key) for key in ("greedy", "before")], [0, 0])

    def test_steadiness(self):
        reports = [(1.0, "solving", 0.1), (1.5, "solving", 0.5), (4.0, "planning", 0.4)]
        found = scale.steadiness(reports, 5.0)
        for value, wanted in zip(found, (2.5, 0.4, 0.1)):
            self.assertAlmostEqual(value, wanted)

    def test_only_useful_options_are_part_of_the_program(self):
        options = [(1300, 1.0, 50.0), (1200, 1.1, 60.0), (1100, 1.2, 40.0), (1000, 2.0, 45.0)]
        self.assertEqual([time for time, _ in optimum.useful(options, 10.0)], [1.0, 1.2, 2.0])
        self.assertEqual([time for time, _ in optimum.useful(options, 0.0)], [1.0, 1.2])


class Programs(unittest.TestCase):
    def run_part(self, *words, code=0):
        done = subprocess.run(
            [SOURCE / "bench" / "run", words[0], "--build", BUILD, *words[1:]], check=False,
            text=True, capture_output=True, timeout=1000,
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_gaps(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            path = pathlib.Path(folder) / "gaps.csv"
            out = self.run_part("gaps", "--instances", "9", "--plans", "4", "--likes", "0",
                                "--most-instructions", "100", "--before", BUILD, "--output",
                                path).stdout
            self.assertIn("mean gap, before", out)
            with open(path, encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 18)
        for one, other in zip(rows[::2], rows[1::2]):
            self.assertEqual((one["build"], other["build"]), ("now", "before"))
            self.assertEqual(one["mean_gap_percent"], other["mean_gap_percent"])  # the same build
            self.assertGreaterEqual(float(one["mean_gap_percent"]), 0)
            self.assertLessEqual(int(one["instructions"]), 100)

    def test_profiles_like_the_published_ones(self):
        out = self.run_part("gaps", "--instances", "0", "--likes", "1", "--plans", "2",
                            "--markdown").stdout
        self.assertRegex(out, r"\| Bloom-like, equal stages \| now \| \d\.\d{3} % \|")
        self.assertRegex(out, r"\| Bloom-like, unequal stages \| now \| \d\.\d{3} % \|")

    def test_dwell(self):
        out = self.run_part("dwell", "--instances", "1", "--likes", "0", "--no-measured",
                            "--dwells", "2", "--factors", "1.0,1.05").stdout
        self.assertRegex(out, r"all +2 ")
        self.assertIn("never", out)

    def test_latency(self):
        out = self.run_part("latency", "--instances", "2", "--no-measured",
                            "--latencies", "0,0.05").stdout
        self.assertRegex(out, r"1f1b 4 x 16, 0 ms +100\.0 % +-?0\.00 %")
        self.assertRegex(out, r"1f1b 1 x 6, 50 ms +\d+\.\d %")

    def test_shapes(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            path = pathlib.Path(folder) / "shapes.csv"
            out = self.run_part("shapes", "--shapes", "3", "--most-instructions", "100",
                                "--latencies", "0,0.05", "--output", path).stdout
            with open(path, encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        self.assertRegex(out, r"50 ms, \+5 % +3 ")
        self.assertEqual(len(rows), 3 * 2 * 4)
        for row in rows:
            self.assertLessEqual(int(row["instructions"]), 100)
            joules = [float(row[key]) for key in ("bound_j", "plan_j", "ranks_j", "one_j",
                                                  "highest_j")]
            for less, more in zip(joules, joules[1:]):
                self.assertLessEqual(less, more * (1 + 1e-9))

    def test_optimum(self):
        done = self.run_part("optimum", "--instances", "1", "--time-limit", "20")
        if "skipped" in done.stderr:
            self.skipTest("the Python package highspy is missing")
        self.assertRegex(done.stdout, r"3 of 3")

    def test_scale(self):
        out = self.run_part("scale", "--sizes", "2x4", "--plans", "4", "--interrupts", "1").stdout
        self.assertRegex(out, r"2 x 4 +now +solver")
        self.assertRegex(out, r"2 x 4 +now +\d plans")
        self.assertIn("Interrupts", out)

    def test_wrong_arguments_get_one_line(self):
        for words, message in ((("scale", "--sizes", "64"), "'64' is not a size such as 64x512"),
                               (("gaps", "--plans", "0"), "--plans at least 1"),
                               (("shapes", "--shapes", "0"), "--shapes and --processes must be")):
            err = self.run_part(*words, code=2).stderr
            self.assertTrue(re.search(message, err.strip().split("\n")[-1]), err)
        done = subprocess.run([SOURCE / "bench" / "run", "gaps", "--build", "/nonexistent"],
                              check=False, text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/libharpe.so does not exist", done.stderr)
