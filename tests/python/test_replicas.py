# SPDX-License-Identifier: Apache-2.0
"""harpe.replicas: the same plans as the program's; odd jobs (one replica, equal ones, one that is
slower, energies that differ); and mistakes. HARPE names the program."""
import json
import os
import subprocess
import unittest

import world
from fixtures import folder
import harpe
import harpe.plan
import harpe.replicas

HARPE = os.path.abspath(os.environ.get("HARPE", world.BUILD / "harpe"))


def profile(slower=1.0, hungrier=1.0, stages=2):
    """Returns the rows of a made-up GPU: slower work, or work that needs more energy."""
    rows = []
    for stage in range(stages):
        for name, work in (("forward", 1.0), ("backward", 2.0)):
            for mhz in range(600, 1411, 90):
                time = work * (1 + 0.1 * stage) * (0.8 * 1410 / mhz + 0.2) * slower / 100
                power = hungrier * (80 + 220 * (mhz / 1410) ** 2.5)
                rows.append((stage, name, mhz, time, time * power))
    return rows


def solve(*gpus, **options):
    profiles = harpe.replicas.Profiles.of_gpus([[gpu] for gpu in gpus])
    return harpe.replicas.solve(profiles, num_microbatches=4, blocking_power=75, **options)


class ReplicasTest(unittest.TestCase):
    def setUp(self):
        self.folder = folder(self.addCleanup)

    def check(self, plans):
        plans.verify()
        job = plans.job
        self.assertLessEqual(job.lower_bound, job.own.energy * (1 + 1e-9))
        self.assertLessEqual(job.own.energy, job.all_maximum.energy * (1 + 1e-9))
        self.assertGreaterEqual(job.own.time, job.fastest * (1 - 1e-9))
        self.assertAlmostEqual(sum(one.energy for one in plans.replicas), job.own.energy)
        self.assertAlmostEqual(max(one.time for one in plans.replicas), job.own.time)
        again = plans.evaluate(plans.profiles)
        self.assertAlmostEqual(again.energy, job.own.energy)
        self.assertAlmostEqual(plans.evaluate(plans.profiles, "all_maximum").energy,
                               job.all_maximum.energy)

    def test_one_replica_is_a_plan(self):
        plans = solve(profile())
        self.check(plans)
        self.assertEqual((plans.job.num_replicas, plans.job.num_peers, plans.job.num_ranks),
                         (1, 1, 2))
        fastest = harpe.plan.solve(profile(), num_microbatches=4, blocking_power=75).plans[0]
        self.assertAlmostEqual(plans.job.fastest, fastest.time, places=6)

    def test_equal_replicas_share_a_plan(self):
        plans = solve(profile(), profile(), profile())
        self.check(plans)
        self.assertEqual(plans.job.num_distinct, 1)
        self.assertEqual([one.same_as for one in plans.replicas], [0, 0, 0])
        self.assertEqual(plans.frequencies(0, 1), plans.frequencies(2, 1))

    def test_others_use_the_time_of_a_slower_replica(self):
        plans = solve(profile(), profile(slower=1.1), profile())
        self.check(plans)
        self.assertEqual(plans.job.slowest_replica, 1)
        self.assertAlmostEqual(plans.job.own.time, plans.job.fastest)
        self.assertLess(plans.job.own.energy, 0.99 * plans.job.one_plan.energy)
        for most in (0, 1.2 * plans.job.fastest):
            mhz, total = plans.one_clock(most)
            self.assertLessEqual(total.time, max(most, plans.job.all_maximum.time) * (1 + 1e-9))
            self.assertLess(plans.job.lower_bound, plans.job.all_maximum.energy)
            alone = [harpe.plan.Problem(one, num_microbatches=4, blocking_power=75)
                     for one in (profile(), profile(slower=1.1), profile())]
            runs = [[plan for plan in one.one_clock_plans if plan.one_clock == mhz][0] for one in alone]
            self.assertAlmostEqual(total.time, max(run.time for run in runs))
            self.assertAlmostEqual(total.energy, sum(run.energy + 2 * 75 * (total.time - run.time) for run in runs))
        mean = [sum(mhz for _, mhz in plans.frequencies(r, 0)) for r in range(2)]
        self.assertLess(mean[0], mean[1])

    def test_energies_that_differ(self):
        plans = solve(profile(), profile(hungrier=1.2))
        self.check(plans)
        self.assertAlmostEqual(plans.replicas[0].fastest, plans.replicas[1].fastest)
        self.assertGreater(plans.replicas[1].energy, plans.replicas[0].energy)

    def test_time_and_slowdown(self):
        gpus = profile(), profile(slower=1.2)
        fastest = solve(*gpus).job.fastest
        slow = solve(*gpus, slowdown=1.1)
        same = solve(*gpus, time=1.1 * fastest)
        self.check(slow)
        self.assertLessEqual(slow.job.own.time, 1.1 * fastest * (1 + 1e-9))
        self.assertAlmostEqual(slow.job.own.energy, same.job.own.energy, places=6)
        points = slow.frontier(5)
        self.assertEqual(len(points), 5)
        self.assertAlmostEqual(slow.bound_at(points[2].time), points[2].lower_bound, places=6)
        self.assertEqual(slow.bound_at(0.5 * fastest), float("inf"))

    def test_files_and_the_program(self):
        base = self.folder / "base.csv"
        lines = ["stage,instruction,frequency,time,energy"]
        lines += [",".join(map(str, row)) for row in profile()]
        base.write_text("\n".join(lines) + "\n", encoding="utf-8")
        how = harpe.replicas.Variability(num_replicas=3, num_peers=2, speed_deviation=0.05,
                                         power_deviation=0.05, noise=0.01, seed=7)
        profiles = harpe.replicas.Profiles.vary(base, how, blocking_power=75)
        self.assertEqual((profiles.num_replicas, profiles.num_peers), (3, 2))
        path = self.folder / "gpus.csv"
        profiles.smooth().save(path)
        read = harpe.replicas.Profiles(path)
        plans = harpe.replicas.solve(read, num_microbatches=4, blocking_power=75)
        self.check(plans)
        plans.save(self.folder / "all.py")
        self.assertEqual(len(harpe.plan.load(self.folder / "all.py")), 3 * 2 * 2)
        plans.save(self.folder / "one.py", replica=2)
        self.assertEqual(harpe.plan.load(self.folder / "one.py"),
                         [plans.frequencies(2, rank, peer) for rank in range(2)
                          for peer in range(2)])
        done = subprocess.run([HARPE, "plan", "--replicas", "--inst-profile", path, "--num-mbs", "4",
                               "--p2p-power", "75", "--json",
                               "--output-dir", self.folder / "plans"], capture_output=True, text=True,
                              cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertAlmostEqual(told["summary"]["own_plans"]["energy_j"], plans.job.own.energy, places=6)

    def test_mistakes(self):
        wrong = harpe.InvalidArgumentError
        gpus = harpe.replicas.Profiles.of_gpus([[profile()], [profile()]])
        for arguments, message in [
                ({"time": 1, "slowdown": 1.1}, "at most one"), ({"slowdown": 0.9}, "below 1"),
                ({"time": 0}, "above 0"), ({"blocking_power": None}, "blocking_power")]:
            with self.assertRaisesRegex(wrong, message):
                harpe.replicas.solve(gpus, **{"num_microbatches": 4, "blocking_power": 75,
                                              **arguments})
        with self.assertRaisesRegex(wrong, "same number of peers"):
            harpe.replicas.Profiles.of_gpus([[profile()], []])
        with self.assertRaises(harpe.HarpeError):
            harpe.replicas.solve(gpus, num_microbatches=4, blocking_power=75, time=1e-6)
        plans = harpe.replicas.solve(gpus, num_microbatches=4, blocking_power=75)
        with self.assertRaisesRegex(wrong, "no GPU with replica 2"):
            plans.frequencies(2, 0)
        with self.assertRaisesRegex(wrong, "none of own"):
            plans.evaluate(gpus, "best")
        with self.assertRaises(harpe.NotFoundError):
            harpe.replicas.Profiles(self.folder / "missing.csv")
        with self.assertRaises(harpe.HarpeError):
            harpe.replicas.solve(gpus, num_microbatches=4, blocking_power=75,
                                 progress=lambda *_: False)
