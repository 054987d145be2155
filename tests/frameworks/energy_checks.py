# SPDX-License-Identifier: Apache-2.0
"""The checks that the tests of training loops with energy share: what the callbacks have logged
against the emulator's own account (energy_account.py)."""

IDLE_W, BUSY_W = 40, 500  # one A100; a counter's step more or less in a short window


class EnergyChecks:
    """Methods for a unittest.TestCase."""

    def assert_accounted(self, results):
        """The sums of all ranks' accounts bracket the totals that every rank has."""
        totals = results[0]["totals"]
        for phase, name in (("training", "energy_j"), ("evaluation", "evaluation_energy_j")):
            least = sum(one["account"]["least"][phase] for one in results)
            most = sum(one["account"]["most"][phase] for one in results)
            self.assertLessEqual(least, totals[name], phase)
            self.assertGreaterEqual(most, totals[name], phase)
            self.assertGreater(least, 0, phase)
        loops_j = sum(one["account"]["loops_j"] for one in results)
        self.assertGreater(loops_j, 0)
        self.assertGreater(totals["evaluation_energy_j"], loops_j - 400 * len(results))
        for one in results:
            self.assertEqual(one["totals"], totals)
        self.assertLess(totals["energy_j"] + totals["evaluation_energy_j"],
                        sum(one["all_j"] for one in results) + 400 * len(results))

    def assert_rising(self, logs, ranks):
        """The energies of successive logs rise, and the powers are those of this many GPUs."""
        energies = [one["energy_j"] for one in logs]
        self.assertEqual(energies, sorted(energies))
        self.assertGreater(energies[0], 0)
        for one in logs:
            self.assertGreater(one["power_w"], IDLE_W * ranks)
            self.assertLess(one["power_w"], BUSY_W * ranks)

    def assert_rates(self, logs, per, count):
        """Between successive logs, energy_per_token_j (or another `per`) is energy divided by
        count(log)."""
        for before, after in zip(logs, logs[1:]):
            expected = (after["energy_j"] - before["energy_j"]) / (count(after) - count(before))
            self.assertAlmostEqual(after[per] / expected, 1, 3)
