# SPDX-License-Identifier: Apache-2.0
"""Blocking powers of kinds of waits (--wait-powers). tests/plan/test_wait_power.c compares the energies of
plans with a simulation of each rank."""
from program import ProgramTest, json, rows

RANKS, MICROBATCHES = 4, 4
PROBLEM = ["--inst-profile", "profile.csv", "--num-mbs", MICROBATCHES]


class WaitPowers(ProgramTest):
    def setUp(self):
        super().setUp()
        self.profile()

    def powers(self, text, name="waits.csv"):
        (self.path / name).write_text(text)
        return name

    def plan(self, name, *flags):
        self.succeed("plan", *PROBLEM, "--no-pictures", "--output-dir", name, "--verify", "--json",
                     *flags)
        table = [{key: float(value) for key, value in row.items()}
                 for row in rows(self.path / name / "frontier.csv")]
        return json.loads((self.path / name / "plan.json").read_text()), table

    def test_each_wait_has_its_power(self):
        waits = self.powers("rank,wait,blocking_power\n,,84\n,end,55\n2,backward,70\n1,,90\n")
        said, table = self.plan("plans", "--wait-powers", waits)

        self.assertEqual(said["problem"]["blocking_power_w"], [84, 90, 84, 84])
        self.assertEqual(said["problem"]["end_wait_power_w"], [55] * 4)
        self.assertEqual(said["problem"]["wait_powers"][1],
                         {"rank": None, "wait": "end", "power_w": 55})
        again = self.succeed("evaluate", *PROBLEM, "--wait-powers", waits, "--plan", "plans",
                             "--json").json()
        energies = sorted(plan["energy_j"] for plan in again["plans"])
        for mine, other in zip(energies, sorted(row["energy_j"] for row in table)):
            self.assertAlmostEqual(mine, other, 4)

    def test_equal_powers_change_nothing(self):
        _, before = self.plan("one", "--p2p-power", 84)
        waits = self.powers("wait,blocking_power\nend,84\nforward,84\n")
        _, after = self.plan("two", "--p2p-power", 84, "--wait-powers", waits)
        self.assertEqual(before, after)

    def test_a_straggler_is_waited_for_at_the_end(self):
        waits = self.powers("wait,blocking_power\nend,50\n")
        _, table = self.plan("plans", "--p2p-power", 84, "--wait-powers", waits)
        chosen = self.succeed("choose", "plans", "--straggler", 1.5, "--json").json()
        waiting = chosen["iteration_time_s"] - chosen["time_s"]
        self.assertGreater(waiting, 0)
        self.assertAlmostEqual(chosen["waiting_energy_j"], RANKS * 50 * waiting, 4)

    def test_people_and_reports_see_the_file(self):
        waits = self.powers("wait,blocking_power\n,84\nend,50\n")
        result = self.succeed("plan", *PROBLEM, "--wait-powers", waits, "--output-dir", "plans")
        self.assertIn("blocking powers of waits.csv", result.out)
        self.assertIn("for each kind of wait, from waits.csv",
                      (self.path / "plans" / "report.html").read_text())

    def test_other_options_go_with_it(self):
        # Two stages: plans whose clocks hold (--min-dwell) take long.
        self.profile("profile.csv", 2, "--force")
        waits = self.powers("wait,blocking_power\n,84\nend,50\n")
        for number, flags in enumerate((["--min-dwell", 0.1], ["--overhead-power", 500],
                                        ["--plans", "all"],
                                        ["--cost-model", "exponential"])):
            _, table = self.plan(f"plans{number}", "--wait-powers", waits, *flags)
            self.assertGreaterEqual(len(table), 1)
        self.succeed("plan", *PROBLEM, "--wait-powers", waits, "--bound-only", "--verify")

    def test_mistakes_are_told_in_one_line(self):
        for text, says in (
                ("wait,blocking_power\nfoward,60\n",
                 "waits.csv: a wait power is for the wait 'foward', but no instruction has this "
                 "name (waits: forward, backward, end)"),
                ("rank,wait,blocking_power\n7,end,60\n", "waits.csv: a wait power is for rank 7"),
                ("wait,blocking_power\nend,sixty\n", "waits.csv:2:5: expected 0 to 100000 W"),
        ):
            self.refuse(1, says, "plan", *PROBLEM, "--p2p-power", 84, "--wait-powers",
                        self.powers(text), "--output-dir", "plans")
        waits = self.powers("wait,blocking_power\nend,60\n")
        self.refuse(1, "a graph has one blocking power for each resource", "plan", *PROBLEM,
                    "--p2p-power", 84, "--wait-powers", waits, "--export-graph", "graph.json")
        self.refuse(2, "--p2p-power is missing", "plan", *PROBLEM, "--wait-powers", waits,
                    "--output-dir", "x")
