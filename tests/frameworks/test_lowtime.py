# SPDX-License-Identifier: Apache-2.0
"""Compares Harpe's frontier with that of the published lowtime, on the same graphs and the same
cost curves. The profiles are generated: families of plausible and of odd ones. Needs a Python with
lowtime; without it the tests are skipped. `make check` does not run them."""
import pathlib
import random
import sys
import unittest
import warnings

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import world  # noqa: E402

import harpe.plan  # noqa: E402

sys.path.append(str(world.SOURCE / "bench" / "peers"))
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lowtime_frontier
    WHY_NOT = None
except ImportError as error:
    WHY_NOT = f"lowtime cannot be imported: {error}"

UNIT_S = 0.001
# The relative difference of two sums of the same energies in another order.
EQUAL = 1e-9


def plausible(choose, stage_s=None):
    """Returns the options of one instruction, {MHz: (s, J)}: a part of its time follows the clock,
    and its power is a constant plus the cube of the clock."""
    full_s = stage_s or choose.uniform(0.02, 0.06)
    share, static_w = choose.uniform(0.5, 0.95), choose.uniform(80, 120)
    dynamic_w = choose.uniform(200, 350)
    rows = {}
    for mhz in range(1410, 1410 - 60 * choose.randint(4, 9), -60):
        x = mhz / 1410
        time_s = full_s * (share / x + 1 - share)
        rows[mhz] = time_s, time_s * (static_w + dynamic_w * x ** 3)
    return rows


def noisy(choose):
    """As measurements are: some options are slower and need more energy than others."""
    return {mhz: (s * choose.uniform(0.97, 1.03), joules * choose.uniform(0.97, 1.03))
            for mhz, (s, joules) in plausible(choose).items()}


def concave(choose):
    """The options between the fastest and the slowest are of no use."""
    rows = plausible(choose)
    (fast_s, fast_j), (slow_s, slow_j) = rows[max(rows)], rows[min(rows)]
    changed = {}
    for mhz, (s, _) in rows.items():
        part = (s - fast_s) / (slow_s - fast_s)
        changed[mhz] = s, fast_j + (slow_j - fast_j) * part + 3 * part * (1 - part)
    return changed


def steep(choose):
    """A little time costs much energy at the fastest end, and nothing at the other."""
    return {1410 - 60 * i: (0.02 + 0.004 * i, 5 + 40 * 0.3 ** i) for i in
            range(choose.randint(3, 7))}


FAMILIES = {
    "plausible": lambda choose, stage, name: plausible(choose),
    "noisy": lambda choose, stage, name: noisy(choose),
    "concave": lambda choose, stage, name: concave(choose),
    "steep": lambda choose, stage, name: steep(choose),
    "one stage much slower": lambda choose, stage, name: plausible(choose, 0.09 if stage == 1
                                                                   else 0.02),
    "all stages alike": lambda choose, stage, name: plausible(random.Random(name)),
    "instructions of almost no time": lambda choose, stage, name: plausible(
        choose, 0.002 if name == "forward" else None),
    "one clock only": lambda choose, stage, name: (
        {1410: (0.03, 9.0)} if stage == 0 else plausible(choose)),
    "all options are equal": lambda choose, stage, name: (
        {mhz: (0.03, 9.0) for mhz in (1410, 1350, 1290)} if name == "forward"
        else plausible(choose)),
    "no time between options": lambda choose, stage, name: {
        1410: (0.0301, 9.0), 1350: (0.0303, 8.5), 1290: (0.0307, 8.3), 1230: (0.0362, 8.0)},
}


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Frontier(unittest.TestCase):
    def compare(self, profile, stages, microbatches, blocking_w, model):
        """Compares the frontiers. Returns the number of steps of lowtime, 0 if it fails."""
        try:
            found = lowtime_frontier.solve(profile, stages, microbatches, blocking_w, UNIT_S, model,
                                           keep=25)
        except Exception as error:  # its fit found no curve
            self.failures.append(f"{type(error).__name__}: {error}"[:60])
            return 0
        rows = [(stage, name, mhz, s, joules) for (stage, name), options in profile.items()
                for mhz, (s, joules) in options.items()]
        ours = harpe.plan.solve(rows, num_microbatches=microbatches, blocking_power=blocking_w,
                                plans=2)
        # Both solve the same graph: Harpe computes the same time and energy for lowtime's plans.
        for step, plan in found["kept"].items():
            seconds, joules = found["real"][step]
            evaluated = ours.evaluate(plan)
            self.assertAlmostEqual(evaluated.time, seconds, delta=EQUAL * seconds)
            self.assertAlmostEqual(evaluated.energy, joules, delta=EQUAL * joules)
        # With the times and energies of the profile, each of lowtime's plans needs at least the energy
        # of Harpe's bound.
        for seconds, joules in found["real"]:
            self.assertLessEqual(ours.bound_at(seconds * (1 + EQUAL)), joules * (1 + EQUAL))
        # On lowtime's own curves, Harpe's frontier is never above its frontier.
        curves = [(stage, name, 200 + 5 * number, units * UNIT_S,
                   cost + blocking_w * units * UNIT_S)
                  for (stage, name), points in found["curves"].items()
                  for number, (units, cost) in enumerate(reversed(points))]
        same = harpe.plan.solve(curves, num_microbatches=microbatches, blocking_power=blocking_w,
                                plans=2)
        for seconds, joules in found["predicted"]:
            self.assertLessEqual(same.bound_at(seconds * (1 + EQUAL)), joules * (1 + EQUAL))
        return found["steps"]

    def test_harpe_is_never_above(self):
        steps, self.failures = {}, []
        warnings.simplefilter("ignore")  # of the fit
        for number, (name, family) in enumerate(FAMILIES.items()):
            for blocking_w in (0, 70):
                with self.subTest(name, blocking_w=blocking_w):
                    choose = random.Random(100 * number + blocking_w)
                    stages, microbatches = choose.choice([(2, 3), (3, 4), (4, 3)])
                    profile = {(stage, what): family(choose, stage, what)
                               for stage in range(stages) for what in ("forward", "backward")}
                    for model in ("hull", "exponential"):
                        found = self.compare(profile, stages, microbatches, blocking_w, model)
                        steps[name, model] = steps.get((name, model), 0) + found
        solved = {model: sum(count > 0 for (_, one), count in steps.items() if one == model)
                  for model in ("hull", "exponential")}
        print(f"lowtime solved {solved['hull']} of {len(FAMILIES)} families with the hull and "
              f"{solved['exponential']} with its exponential curves; {sum(steps.values())} points; "
              f"{sorted(set(self.failures))}", file=sys.stderr)
        self.assertGreaterEqual(solved["hull"], len(FAMILIES) - 2, steps)
        self.assertGreaterEqual(solved["exponential"], 4, steps)
