# SPDX-License-Identifier: Apache-2.0
"""harpe fleet: a split, budgets that cannot hold, the numbers of a
simulated day, its picture, and mistakes."""
import xml.etree.ElementTree

from program import *

TWO = [{"name": "a", "plans": [{"time": 1.0, "power": 400}, {"time": 1.1, "power": 300}]},
       {"name": "b", "plans": [{"time": 2.0, "power": 500}, {"time": 2.02, "power": 400},
                               {"time": 2.1, "power": 300}]}]
DAY = {"jobs": [dict(job, gpus=1, priority=number) for number, job in enumerate(TWO)],
       "budgets": [{"watts": 800}], "horizon": 7200, "reaction": 10, "prices": [{"price": 0.1}],
       "value": 0.01, "events": [{"from": 3600, "duration": 600, "share": 0.2, "notice": 60}]}


class Fleet(ProgramTest):
    def fleet(self, content, name="fleet.json"):
        return self.write(name, content if isinstance(content, (str, bytes)) else json.dumps(content))

    # ---- solve ----

    def test_the_split_is_the_best_choice(self):
        """tests/fleet compares random fleets with all choices."""
        split = self.succeed("fleet", "solve", self.fleet({"jobs": TWO, "budgets": [{"watts": 800}]}), "--json").json()
        self.assertEqual((split["feasible"], split["optimal"], split["power_w"]), (True, True, 800))
        self.assertAlmostEqual(split["weighted_slowdown"], 0.01)
        self.assertLessEqual(split["lower_bound"], 0.01 + 1e-9)
        a, b = split["jobs"]
        self.assertEqual((a["name"], a["plan"], a["time"], a["power_w"], a["slowdown"]), ("a", 0, 1.0, 400, 1))
        self.assertEqual((b["name"], b["plan"], b["time"], b["power_w"]), ("b", 1, 2.02, 400))
        self.assertAlmostEqual(b["slowdown"], 1.01)

    def test_budgets_that_cannot_hold(self):
        path = self.fleet({"jobs": [dict(TWO[0], group="row 1"), TWO[1]], "budgets": [
            {"watts": 500}, {"group": "row 1", "watts": 225, "margin": 0.1, "overhead": 1.2}]})
        result = self.run_harpe("fleet", "solve", path, "--json")
        self.assertEqual(result.code, 3, result)
        self.assertEqual(result.err.splitlines(), [
            f"harpe fleet: {path}: the budget of the whole fleet, 500.0 W, is 100.0 W too small: its jobs draw at "
            "least 600.0 W within the slowdowns that they accept, which needs a budget of 600.0 W",
            f"harpe fleet: {path}: the budget of group 'row 1', 225.0 W, is 175.0 W too small: its jobs draw at "
            "least 300.0 W within the slowdowns that they accept, which needs a budget of 400.0 W"])
        split = result.json()
        self.assertFalse(split["feasible"])
        self.assertEqual([job["plan"] for job in split["jobs"]], [1, 2])
        self.assertEqual([budget["group"] for budget in split["budgets"]], [None, "row 1"])
        self.assertAlmostEqual(split["budgets"][1]["missing_w"], 300 * 1.2 / 0.9 - 225)
        self.assertAlmostEqual(split["budgets"][1]["limit_w"], 225 * 0.9 / 1.2)
        table = self.run_harpe("fleet", "solve", path)
        self.assertEqual((table.code, table.err), (3, result.err))
        self.assertIn("No split is within the budgets", table.out)
        self.assertEqual(table.out.count("too small"), 2)

    def test_the_table_has_units(self):
        out = self.succeed("fleet", "solve", self.fleet({
            "jobs": [*TWO, {"name": "storage", "power": 1000}], "budgets": [{"watts": 1700}]})).out
        rows = [line.split() for line in out.splitlines()]
        self.assertIn(["a", "-", "0", "1.000", "s", "400.0", "W", "1.0000", "0"], rows)
        self.assertIn("b - 2 2.100 s 300.0 W 1.0500 0.4".split(), rows)
        self.assertIn("storage - load - 1000 W".split(), rows)
        self.assertIn("3 jobs draw 1700 W, weighted slowdown 0.05", out)
        self.assertIn("No split within the budgets is better", out)

    def test_a_moment_has_its_events_and_prices(self):
        path = self.fleet(DAY)
        self.assertEqual(self.succeed("fleet", "solve", path, "--json").json()["power_w"], 800)
        later = self.succeed("fleet", "solve", path, "--json", "--at", 3600).json()
        self.assertEqual((later["power_w"], later["budgets"][0]["budget_w"]), (600, 640))
        prices = self.write("prices.csv", "time_s,price_per_kwh\n0,0.1\n100,5000\n")
        dear = self.succeed("fleet", "solve", path, "--json", "--at", 100, "--prices", prices).json()
        self.assertEqual(dear["power_w"], 600)
        cost = 0.01 * (0.1 + 0.05) + 5000 / 3.6e6 * (300 * 1.1 + 300 * 1.05)
        self.assertAlmostEqual(dear["objective"], cost)

    def test_a_negative_price_pays_for_power(self):
        day = dict(DAY, budgets=[{"watts": 800}], value=1e-6, prices=[{"price": -0.1}])
        split = self.succeed("fleet", "solve", self.fleet(day), "--json").json()
        # 800 W: a runs its fastest plan and b the next one. 300 W + 500 W would pay more, and lose
        # 0.1 of a's time, which is worth little.
        costs = [1e-6 * lost - 0.1 / 3.6e6 * energy for lost, energy in
                 ((0.01, 400 + 400 * 1.01), (0.1, 300 * 1.1 + 500), (0.15, 300 * 1.1 + 300 * 1.05))]
        self.assertAlmostEqual(split["objective"], min(costs), 12)
        self.assertLess(split["objective"], 0)
        self.assertLessEqual(split["lower_bound"], split["objective"])
        for prices in ("time_s,price_per_kwh\n0,-0.1\n", None):
            words = ["--prices", self.write("p.csv", prices)] if prices else []
            shown = self.succeed("fleet", "simulate", self.fleet(day), "--json", *words).json()
            for policy in ("split", "uniform_cap", "stop_lowest"):
                one = shown[policy]
                self.assertAlmostEqual(one["cost"], one["energy_j"] / 3.6e6 * -0.1)
        self.refuse(1, '"price" must be -1e6 .. 1e6', "fleet", "solve",
                    self.fleet(dict(DAY, prices=[{"price": -2e6}])))

    def test_hostile_names_are_shown_safely(self):
        name = "\u001b[31m \u00e9 </svg>"
        path = self.fleet({"jobs": [{"name": "\u00e9 </svg>" * 20, "power": 1}], "budgets": []})
        self.assertNotIn("\x1b", self.succeed("fleet", "solve", path).out)
        path = self.fleet({"jobs": [{"name": name, "power": 1}], "budgets": []})
        self.assertNotIn("\x1b", self.refuse(1, "control character", "fleet", "solve", path).err)

    # ---- simulate ----

    def test_an_event_without_notice_is_a_breach(self):
        fleet = dict(DAY, events=[{"from": 3600, "duration": 600, "watts": 160}])
        path = self.fleet(fleet)
        split = self.succeed("fleet", "simulate", path, "--json").json()["split"]
        self.assertEqual(split["breaches"], [{"group": None, "from_s": 3600.0, "to_s": 3610.0,
                                              "worst_w": 160.0}])
        self.assertEqual(split["breach_s"], 10)
        out = self.succeed("fleet", "simulate", path).out
        self.assertIn("whole fleet", out)
        self.assertIn("from 3600 s for 10 s, up to 160.0 W above the budget", out)

    def test_pictures(self):
        path = self.fleet(DAY)
        self.succeed("fleet", "simulate", path, "--output", "day.svg")
        text = "".join(xml.etree.ElementTree.parse(self.path / "day.svg").getroot().itertext())
        for words in ("budget", "split", "uniform cap", "stop lowest", "event", "time (h)"):
            self.assertIn(words, text)
        self.refuse(1, "day.svg: already exists", "fleet", "simulate", path, "--output", "day.svg")
        before = (self.path / "day.svg").read_bytes()
        self.succeed("fleet", "simulate", path, "--output", "day.svg", "--force")
        self.assertEqual((self.path / "day.svg").read_bytes(), before)
        for name in ("day.png", "day.pdf", "day"):
            self.refuse(2, f"--output: '{name}' must end in .svg; rsvg-convert or a browser makes PNG "
                        "and PDF from SVG", "fleet", "simulate", path, "-o", name)
            self.assertFalse((self.path / name).exists())

    # ---- mistakes ----

    def test_mistakes_in_the_file(self):
        for content, message in (
                ("", "not JSON"), ("{", "not JSON"), ({"jobs": [{"name": "x"}]}, "job 'x' has neither"),
                ({"jobs": TWO, "budgets": [{"watts": -5}]}, "budget 0 (the first is 0): \"watts\" must be 0"),
                ({"jobs": TWO, "budgets": [{"group": "r", "wats": 5}]}, "group 'r': \"wats\" is not a known"),
                ({"jobs": [dict(TWO[0], group="row")]}, "job 'a': no entry of \"budgets\" names the group 'row'")):
            for action in ("solve", "simulate"):
                self.refuse(1, message, "fleet", action, self.fleet(content))
        self.refuse(1, "nothing.json", "fleet", "solve", "nothing.json")

    def test_mistakes_on_the_command_line(self):
        path = self.fleet(DAY)
        for words, message in (((), "an action is missing"), (("solve",), "file is missing"),
                               (("split", path), "split"), (("solve", path, path), "one file"),
                               (("solve", ""), "unexpected argument ''"),
                               (("solve", path, "--output", "x.svg"), "--output is only for simulate"),
                               (("simulate", path, "--at", 5), "--at is only for solve"),
                               (("simulate", path, "--force"), "--force is only for --output"),
                               (("solve", path, "--at", -1), "--at")):
            self.refuse(2, message, "fleet", *words)
        self.refuse(1, "time_s and price_per_kwh", "fleet", "solve", path, "--prices",
                    self.write("prices.csv", "time_s\n"))
