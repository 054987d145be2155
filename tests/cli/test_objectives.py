# SPDX-License-Identifier: Apache-2.0
"""Objectives beside the energy of GPUs: overhead power, prices, carbon, and limits on the power of
the pipeline. The tests compute every figure again from profile.csv or frontier.csv."""
import re
import shutil
import tempfile

from program import ProgramTest, json, rows

PROBLEM = ["--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84]
RANKS = 4
PRICES = ["--energy-price", 0.3, "--gpu-hour-price", 0.01]


class ObjectivesTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.profile()

    made = {}  # by flags: what was said, and a copy of the directory

    def plan(self, name, *flags):
        """Makes the plans of these flags once for all tests. The directory is the test's own."""
        if flags not in self.made:
            result = self.succeed("plan", *PROBLEM, "--no-pictures", "--output-dir", name,
                                  "--verify", "--json", *flags)
            kept = tempfile.TemporaryDirectory(prefix="harpe-test-")
            shutil.copytree(self.path / name, kept.name, dirs_exist_ok=True)
            self.made[flags] = result, kept
        result, kept = self.made[flags]
        shutil.copytree(kept.name, self.path / name, dirs_exist_ok=True)
        return result.json(), self.table(name)

    def table(self, name):
        return [{key: float(value) for key, value in row.items()}
                for row in rows(self.path / name / "frontier.csv")]


class Overhead(ObjectivesTest):
    def test_energies_are_those_of_whole_machines(self):
        plain, before = self.plan("plans")
        answer, table = self.plan("over", "--overhead-power", 900)
        self.assertEqual(answer["problem"]["overhead_power_w"], 900)
        self.assertEqual(answer["arguments"]["overhead_power"], 900)
        self.assertLess(table[-1]["time_s"], before[-1]["time_s"])
        self.assertEqual(table[0]["time_s"], before[0]["time_s"])
        for row in table:
            gpus = row["compute_energy_j"] + row["blocking_energy_j"]
            self.assertAlmostEqual(row["overhead_energy_j"], 900 * row["time_s"], 6)
            self.assertAlmostEqual(row["energy_j"], gpus + row["overhead_energy_j"], 6)
            self.assertAlmostEqual(row["average_power_w"], gpus / row["time_s"] / RANKS, 6)
            self.assertGreaterEqual(row["energy_j"], row["lower_bound_j"] * (1 - 1e-9))
        self.assertEqual({row["overhead_energy_j"] for row in before}, {0})
        maximum = answer["summary"]["all_maximum"]
        self.assertAlmostEqual(maximum["energy_j"] - 900 * maximum["time_s"],
                               plain["summary"]["all_maximum"]["energy_j"], 6)

    def test_people_see_both_energies(self):
        out = self.succeed("plan", *PROBLEM, "--bound-only", "--overhead-power", 900).out
        self.assertIn("overhead power 900 W", out)
        self.assertIn("GPU energy", out)
        self.assertNotIn("GPU energy", self.succeed("plan", *PROBLEM, "--bound-only").out)
        self.succeed("plan", *PROBLEM, "--output-dir", "over", "--overhead-power", 900)
        report = (self.path / "over/report.html").read_text()
        self.assertIn("900 W; energies are those of whole machines", report)
        self.assertIn("<th>overhead<br>", report)
        plan = (self.path / "over/freqs_pipeline_00000.py").read_text()
        row = next(row for row in self.table("over") if row["plan"] == 0)
        told = dict(re.findall(r"^# Iteration 0 ([^:]*): (.*)$", plan, re.MULTILINE))
        self.assertAlmostEqual(float(told["total cost with P2P"]),
                               row["energy_j"] - row["overhead_energy_j"], 6)
        self.assertAlmostEqual(float(told["total cost with P2P and overhead"]), row["energy_j"], 6)

    def test_evaluate_and_choose_count_it_too(self):
        _, table = self.plan("over", "--overhead-power", 900)
        answer = self.succeed("evaluate", *PROBLEM, "--overhead-power", 900, "--plan",
                              "over/freqs_pipeline_00000.py", "--json").json()
        self.assertAlmostEqual(answer["plans"][0]["energy_j"], table[-1]["energy_j"], 6)
        self.assertAlmostEqual(answer["plans"][0]["lower_bound_j"], table[-1]["lower_bound_j"], 6)
        chosen = self.succeed("choose", "over", "--straggler", 2, "--json").json()
        wait_s = 2 * table[0]["time_s"] - chosen["time_s"]
        self.assertAlmostEqual(chosen["waiting_energy_j"], (84 * RANKS + 900) * wait_s, 5)

    def test_choose_can_count_another_overhead(self):
        """The plans of two directories that are equally fast have the same figures with the same
        overhead."""
        maximum = self.plan("plans", "--plans", "all")[0]["summary"]["all_maximum"]
        answer, table = self.plan("over", "--overhead-power", 900, "--plans", "all")
        for row in table[::7]:
            told = self.succeed("choose", "plans", "--time", repr(row["time_s"] * (1 + 1e-8)),
                                "--overhead-power", 900, "--json").json()
            self.assertAlmostEqual(told["overhead_energy_j"], 900 * told["time_s"], 5)
            if abs(told["time_s"] - row["time_s"]) > 1e-9:
                continue
            self.assertAlmostEqual(told["lower_bound_j"], row["lower_bound_j"], 4)
            self.assertAlmostEqual(told["energy_j"] / row["energy_j"], 1, 2)
            self.assertAlmostEqual(told["savings_percent"], 100 - 100 * told["energy_j"] /
                                   answer["summary"]["all_maximum"]["energy_j"], 4)
        best = self.succeed("choose", "plans", "--min-energy", "--overhead-power", 900,
                            "--json").json()
        least = min(row["energy_j"] + 900 * row["time_s"] for row in self.table("plans"))
        self.assertAlmostEqual(best["energy_j"], least, 5)
        back = self.succeed("choose", "over", "--time", repr(table[0]["time_s"]),
                            "--overhead-power", 0, "--json").json()
        self.assertEqual(back["overhead_energy_j"], 0)
        self.assertAlmostEqual(back["peak_power_w"], table[0]["peak_power_w"] - 900, 6)
        self.assertAlmostEqual(back["savings_percent"], 100 - 100 * back["energy_j"] /
                               maximum["energy_j"], 4)

    def test_impossible_values_are_refused(self):
        self.refuse(2, "--overhead-power: expected", "choose", "plans", "--overhead-power=-1")
        for wrong in ("-1", "2e9", "nan", "much"):
            self.refuse(2, "--overhead-power: expected", "plan", *PROBLEM, "--bound-only",
                        f"--overhead-power={wrong}")


class Prices(ObjectivesTest):
    def setUp(self):
        super().setUp()
        self.maximum = self.plan("plans")[0]["summary"]["all_maximum"]
        self.rows = self.table("plans")

    def cost(self, row, energy_price, gpu_hour_price, carbon=0.0, carbon_price=0.0):
        kwh = row["energy_j"] / 1000 / 3600
        return (kwh * energy_price + RANKS * row["time_s"] / 3600 * gpu_hour_price +
                kwh * carbon / 1000 / 1000 * carbon_price)

    def choose(self, *arguments):
        return self.succeed("choose", "plans", *arguments, "--json").json()

    def test_the_plan_of_least_cost(self):
        for energy, hour, carbon, price in ((0.3, 0.01, 400, 80), (0.1, 0.004, 0, 0), (0, 2, 0, 0),
                                            (0.2, 0, 900, 0), (0.12, 2, 0, 0),
                                            (0.05, 0.01, 900, 500)):
            flags = ["--energy-price", energy, "--gpu-hour-price", hour, "--carbon", carbon,
                     "--carbon-price", price]
            chosen = self.choose(*flags)
            least = min(self.cost(row, energy, hour, carbon, price) for row in self.rows)
            self.assertAlmostEqual(chosen["cost"]["total"], least, 12)
            self.assertEqual(chosen["chosen_by"], "cost")
            self.assertEqual(chosen["gpus"], RANKS)
            self.assertAlmostEqual(chosen["fastest"]["cost"]["total"],
                                   self.cost(self.rows[0], energy, hour, carbon, price), 12)
            self.assertAlmostEqual(chosen["all_maximum"]["cost"]["total"],
                                   self.cost(self.maximum, energy, hour, carbon, price), 12)
            parts = chosen["cost"]
            self.assertAlmostEqual(parts["total"],
                                   parts["energy"] + parts["gpu_time"] + parts["carbon"], 12)
            self.assertAlmostEqual(parts["carbon_g"], chosen["energy_j"] / 3.6e6 * carbon, 9)
        self.assertEqual(self.choose("--energy-price", 0, "--gpu-hour-price", 1)["time_s"],
                         self.choose("--time", self.rows[0]["time_s"])["time_s"])
        self.assertEqual(self.choose("--energy-price", 1, "--gpu-hour-price", 0)["plan"], 0)

    def test_a_deadline_and_prices(self):
        middle = self.rows[len(self.rows) // 3]
        for flag, value in (("--deadline", middle["time_s"]),
                            ("--max-slowdown", middle["time_s"] / self.maximum["time_s"])):
            chosen = self.choose(*PRICES, flag, repr(value))
            least = min(self.cost(row, 0.3, 0.01) for row in self.rows
                        if row["time_s"] <= middle["time_s"] * (1 + 1e-9))
            self.assertAlmostEqual(chosen["cost"]["total"], least, 12)

    def test_carbon_alone_is_only_told(self):
        chosen = self.choose("--min-energy", "--carbon", 400)
        self.assertEqual(chosen["plan"], 0)
        self.assertEqual(list(chosen["cost"]), ["carbon_g"])
        self.assertAlmostEqual(chosen["cost"]["carbon_g"], chosen["energy_j"] / 3.6e6 * 400, 9)
        out = self.succeed("choose", "plans", "--min-energy", "--carbon", 400).out
        self.assertIn("carbon of 1000 iterations", out)

    def test_people_see_the_costs_of_many_iterations(self):
        chosen = self.choose(*PRICES)
        out = self.succeed("choose", "plans", *PRICES, "--iterations", 50000).out
        self.assertIn("cost of 50000 iterations", out)
        lines = re.findall(rf"^  plan {chosen['plan']} .* (\S+)$", out, re.MULTILINE)
        self.assertAlmostEqual(float(lines[-1]), 50000 * chosen["cost"]["total"], 3)
        self.assertRegex(out, r"\nAgainst plan \d+, the fastest: time \+.*, energy -.*, cost -")
        self.assertTrue(out.endswith(".py\n"), out)

    def test_gpus_are_counted_and_not_ranks(self):
        self.succeed("plan", *PROBLEM, "--gpus-per-stage", 8, "--no-pictures", "-o", "p8")
        one = self.choose("--energy-price", 0, "--gpu-hour-price", 1)
        eight = self.succeed("choose", "p8", "--energy-price", 0, "--gpu-hour-price", 1,
                             "--json").json()
        self.assertAlmostEqual(eight["cost"]["total"] / one["cost"]["total"], 8, 9)
        late = self.succeed("choose", "p8", "--straggler", 1.3, "--json").json()
        wait_s = 1.3 * self.table("p8")[0]["time_s"] - late["time_s"]
        self.assertAlmostEqual(late["waiting_energy_j"], 8 * RANKS * 84 * wait_s, 5)

    def test_bad_combinations_are_refused(self):
        for message, *flags in (
                ("give both; 0 is allowed", "--energy-price", 1),
                ("give both; 0 is allowed", "--gpu-hour-price", 1, "--min-energy"),
                ("--carbon-price needs --carbon", *PRICES, "--carbon-price", 80),
                ("--carbon-price needs --energy-price", "--carbon", 400, "--carbon-price", 80),
                ("--energy-price and --time: give only one", *PRICES, "--time", 3),
                ("--energy-price and --min-energy: give", *PRICES, "--min-energy"),
                ("--energy-price and --straggler: give", *PRICES, "--straggler", 2),
                ("--energy-price and --power-cap: give", "--power-cap", 200, *PRICES),
                ("--iterations is for costs", "--min-energy", "--iterations", 5),
                ("the criterion is missing", "--carbon", 400),
                ("--energy-price: expected", "--energy-price", "-1", "--gpu-hour-price", 1),
                ("--carbon: expected", *PRICES, "--carbon", "lots"),
                ("--iterations: expected", *PRICES, "--iterations", 0)):
            self.refuse(2, message, "choose", "plans", *flags)


class PowerShape(ObjectivesTest):
    def setUp(self):
        super().setUp()
        self.answer, self.rows = self.plan("plans")

    def test_people_see_them(self):
        out = self.succeed("evaluate", *PROBLEM, "--plan", "plans/freqs_pipeline_00000.py").out
        row = self.rows[-1]
        self.assertRegex(out, rf"freqs_pipeline_00000.py +{row['peak_power_w']:.1f} W +"
                              rf"{row['swing_w']:.1f} W +{row['swing_hz']:.3f} Hz\n")

    def choose(self, *arguments):
        return self.succeed("choose", "plans", *arguments, "--json").json()

    def test_limits_pick_among_the_plans(self):
        peaks, swings = ([row[name] for row in self.rows] for name in ("peak_power_w", "swing_w"))
        peak, swing = sorted(peaks)[len(peaks) // 2], sorted(swings)[len(swings) // 2]
        loose = 1 + 1e-9
        for flags, kept in (
                (["--max-peak-power", repr(peak)],
                 [row for row in self.rows if row["peak_power_w"] <= peak * loose]),
                (["--max-swing", repr(swing)],
                 [row for row in self.rows if row["swing_w"] <= swing * loose]),
                (["--max-swing", repr(swing), "--max-peak-power", repr(peak)],
                 [row for row in self.rows if row["swing_w"] <= swing * loose and
                  row["peak_power_w"] <= peak * loose])):
            fastest = self.choose(*flags)
            self.assertAlmostEqual(fastest["time_s"], min(row["time_s"] for row in kept), 9)
            self.assertEqual(fastest["chosen_by"], "fastest")
            self.assertEqual(fastest["without_limits"]["plan"], self.rows[0]["plan"])
            least = self.choose(*flags, "--min-energy")
            self.assertAlmostEqual(least["energy_j"], min(row["energy_j"] for row in kept), 6)
            self.assertEqual(least["without_limits"]["plan"], 0)
            cheapest = self.choose(*flags, *PRICES)
            cost = min(row["energy_j"] / 3.6e6 * 0.3 + RANKS * row["time_s"] / 3600 * 0.01
                       for row in kept)
            self.assertAlmostEqual(cheapest["cost"]["total"], cost, 12)
        out = self.succeed("choose", "plans", "--max-peak-power", peak).out
        self.assertRegex(out, r"\nAgainst plan \d+, the choice without limits: time \+.*, energy -")
        self.assertIn("peak power", out)
        self.assertIn("\nWithout the limits on power the choice is the same.\n",
                      self.succeed("choose", "plans", "--max-peak-power", 1e6).out)

    def test_limits_that_no_plan_keeps(self):
        refused = self.refuse(1, "no plan keeps the limits on power; the lowest peak", "choose",
                              "plans", "--max-peak-power", 1)
        peak = re.search(r"is ([\d.]+) W, and the smallest swing", refused.err)[1]
        self.succeed("choose", "plans", "--max-peak-power", peak)
        self.refuse(1, "no plan that keeps the limits on power takes at most", "choose", "plans",
                    "--max-peak-power", peak, "--time", self.rows[0]["time_s"])
        self.refuse(2, "--max-swing: expected", "choose", "plans", "--max-swing", "-1")
        self.refuse(2, "--max-peak-power: expected", "choose", "plans", "--max-peak-power", "0")

    def test_plans_that_keep_limits(self):
        free = min(self.rows, key=lambda row: row["time_s"])
        peak, share = 0.97 * free["peak_power_w"], 20
        _, rows = self.plan("limited", "--max-peak-power", peak, "--max-swing", f"{share}%")
        for row in rows:
            self.assertLessEqual(row["peak_power_w"], peak * (1 + 1e-9))
            mean = row["energy_j"] / row["time_s"]
            self.assertLessEqual(row["swing_w"], share / 100 * mean * (1 + 1e-9))
        self.assertGreater(free["swing_w"], share / 100 * free["energy_j"] / free["time_s"])
        out = self.succeed("plan", *PROBLEM, "--max-swing", "20%", "-o", "swing", "--no-pictures").out
        self.assertIn("\nAll plans keep the limits on power: swing 20 % of the mean; the other rows need not\n",
                      out)

    def test_files_say_the_limits(self):
        free = min(self.rows, key=lambda row: row["time_s"])
        peak = round(0.97 * free["peak_power_w"], 1)
        self.succeed("plan", *PROBLEM, "--max-peak-power", peak, "--max-swing", "20%", "-o", "told")
        told = json.loads((self.path / "told/plan.json").read_text())["summary"]["power_limits"]
        self.assertEqual({"max_peak_power_w": peak, "max_swing_share": 0.2, "plans_keep_them": True}, told)
        report = (self.path / "told/report.html").read_text()
        self.assertIn(f"<dt>Limits on power</dt><dd>peak {peak:g} W, swing 20 % of the mean: kept by all "
                      "plans; one clock and the highest clocks need not</dd>", report)
        self.assertEqual({}, json.loads((self.path / "plans/plan.json").read_text())["summary"]["power_limits"])

    def test_limits_that_no_plan_can_keep(self):
        refused = self.refuse(1, "no plan keeps the limits on power; the lowest peak found is", "plan",
                              *PROBLEM, "--max-peak-power", 1, "-o", "none")
        self.assertFalse((self.path / "none").exists())
        peak = float(re.search(r"found is ([\d.]+) W", refused.err)[1])
        self.plan("least", "--max-peak-power", peak * (1 + 1e-8))
        for value in ("0", "-1", "x", "0%", "%"):
            self.refuse(2, "--max-swing: expected", "plan", *PROBLEM, "--max-swing", value)
        self.refuse(2, "--max-peak-power: expected", "plan", *PROBLEM, "--max-peak-power", "0")

    def test_directories_of_older_versions(self):
        """They lack the columns. Only the new limits need them."""
        frontier = self.path / "plans" / "frontier.csv"
        lines = [",".join(line.split(",")[:10]) for line in frontier.read_text().splitlines()]
        frontier.write_text("\n".join(lines) + "\n")
        old = self.path / "plans" / "plan.json"
        answer = json.loads(old.read_text())
        del answer["problem"]["overhead_power_w"]
        for name in ("overhead_energy_j", "peak_power_w", "swing_w", "swing_hz"):
            del answer["summary"]["all_maximum"][name]
        old.write_text(json.dumps(answer))
        self.succeed("choose", "plans", *PRICES)
        self.assertEqual(self.choose("--min-energy")["plan"], 0)
        self.refuse(1, "an older harpe plan has written it", "choose", "plans", "--max-swing", 9)
