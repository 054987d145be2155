# SPDX-License-Identifier: Apache-2.0
"""Plans of a job without a pipeline: one stage with phases. The expected plans come from trying all
combinations of clocks."""
import csv
import itertools
import re

import program

CLOCKS = (1410, 1230, 1050, 870)
# name: (s at the highest clock, share that follows the clock, static W, dynamic W)
PHASES = {"all_gather": (0.06, 0.0, 100, 75), "forward": (0.2, 0.9, 98, 270),
          "backward": (0.41, 0.9, 98, 280), "reduce_scatter": (0.09, 0.0, 100, 80),
          "optimizer": (0.03, 0.1, 110, 170)}
ORDER = ["all_gather", "forward", "backward", "forward", "backward", "reduce_scatter", "optimizer"]
SCHEDULE = ":all_gather,0F0,0B0,0F1,0B1,:reduce_scatter,:optimizer\n"


def cost(name, mhz):
    time_s, share, static_w, dynamic_w = PHASES[name]
    x = mhz / CLOCKS[0]
    time_s *= share / x + 1 - share
    return time_s, time_s * (static_w + dynamic_w * x ** 2.6)


def total(clocks):
    costs = [cost(name, mhz) for name, mhz in zip(ORDER, clocks)]
    return sum(time_s for time_s, _ in costs), sum(energy_j for _, energy_j in costs)


class Phases(program.ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.all = sorted(total(clocks) for clocks in itertools.product(CLOCKS, repeat=len(ORDER)))
        cls.highest_s, cls.highest_j = total([CLOCKS[0]] * len(ORDER))

    def setUp(self):
        super().setUp()
        rows = [f"0,{name},{mhz},{cost(name, mhz)[0]!r},{cost(name, mhz)[1]!r}"
                for name in PHASES for mhz in CLOCKS]
        self.write("profile.csv", "stage,instruction,frequency,time,energy\n" + "\n".join(rows))
        self.write("order.csv", SCHEDULE)
        self.succeed("plan", "-i", "profile.csv", "-s", "order.csv", "-p", 0, "-o", "plans",
                     "--no-pictures", "--quiet", "--verify")

    def read(self, path):
        return eval(re.sub("#.*", "", path.read_text()))  # pylint: disable=eval-used

    def least_energy_within(self, time_s):
        return min(energy_j for one_s, energy_j in self.all if one_s <= time_s * (1 + 1e-9))

    def test_plans_are_what_they_say_and_the_bound_is_one(self):
        with open(self.path / "plans" / "frontier.csv", encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        self.assertGreater(len(rows), 10)
        for row in rows:
            plan, = self.read(self.path / "plans" / f"freqs_pipeline_{int(row['plan']):05}.py")
            self.assertEqual([name for name, _ in plan], ORDER)
            time_s, energy_j = total([mhz for _, mhz in plan])
            self.assertAlmostEqual(float(row["time_s"]), time_s, places=9)
            self.assertAlmostEqual(float(row["energy_j"]), energy_j, places=6)
            best_j = self.least_energy_within(time_s)
            self.assertLessEqual(float(row["lower_bound_j"]), best_j * (1 + 1e-9))
            self.assertLessEqual(energy_j, 1.002 * best_j)

    def test_a_phase_that_waits_for_the_network_runs_at_its_lowest_clock(self):
        for slowdown in (1.0, 1.01, 1.05, 1.2):
            last = self.succeed("choose", "plans", "--max-slowdown", slowdown).out.splitlines()[-1]
            plan, = self.read(self.path / last)
            chosen = [mhz for _, mhz in plan]
            self.assertEqual((chosen[0], chosen[5]), (870, 870))
            time_s, energy_j = total(chosen)
            self.assertLessEqual(time_s, slowdown * self.highest_s * (1 + 1e-9))
            self.assertLess(energy_j, self.highest_j)
            if slowdown == 1:
                self.assertEqual(set(chosen[1:5]), {1410})
                self.assertAlmostEqual(energy_j, self.least_energy_within(time_s), places=6)
            if slowdown == 1.05:
                self.assertEqual(chosen[6], 870)  # the optimizer step waits for the memory
                self.assertLess(energy_j, 0.95 * self.highest_j)
            # A slower plan within the limit saves at most a little more.
            best_j = self.least_energy_within(slowdown * self.highest_s)
            self.assertLessEqual(energy_j, 1.01 * best_j)
