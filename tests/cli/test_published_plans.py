# SPDX-License-Identifier: Apache-2.0
"""Evaluates plans of the published tool, and compares with their known times and energies. Needs
the measured data, which is not part of the project, and is skipped without it."""
from program import DATA, ProgramTest, rows, unittest

PROFILE = DATA / "synthetic" / "a100_4s.csv"
PLANS = DATA / "synthetic" / "published_tool_4x8"
PROBLEM = ["--inst-profile", PROFILE, "--num-mbs", 8, "--p2p-power", 70]


@unittest.skipUnless(PLANS.is_dir(), f"no data in {PLANS}")
class PublishedPlans(ProgramTest):
    def test_time_and_energy_are_the_real_ones(self):
        answer = self.succeed("evaluate", *PROBLEM, "--plan", PLANS, "--json").json()
        expected = {int(row["iteration"]): row for row in rows(PLANS / "plans.csv")}
        self.assertEqual(len(answer["plans"]), 4)
        for plan in answer["plans"]:
            number = int(plan["file"].rsplit("_", 1)[1].removesuffix(".py"))
            self.assertAlmostEqual(plan["time_s"], float(expected[number]["real_time"]), 5)
            self.assertAlmostEqual(plan["energy_j"], float(expected[number]["real_energy"]), 3)

    def test_no_published_plan_is_below_the_bound(self):
        for plan in self.succeed("evaluate", *PROBLEM, "--plan", PLANS, "--json").json()["plans"]:
            self.assertGreaterEqual(plan["gap_percent"], -1e-6)

    def test_our_plan_at_the_same_time_needs_no_more(self):
        self.succeed("plan", *PROBLEM, "--output-dir", "ours", "--plans", "all", "--no-pictures")
        for plan in self.succeed("evaluate", *PROBLEM, "--plan", PLANS, "--json").json()["plans"]:
            ours = self.succeed("choose", "ours", "--deadline", plan["time_s"], "--json").json()
            self.assertLessEqual(ours["energy_j"], plan["energy_j"] + 1e-6)

    def test_our_files_have_the_published_layout(self):
        self.succeed("plan", *PROBLEM, "--output-dir", "ours", "--plans", 3, "--no-pictures")
        theirs = (PLANS / "freqs_pipeline_01000.py").read_text().splitlines()
        ours = (self.path / "ours" / "freqs_pipeline_00001.py").read_text().splitlines()
        self.assertEqual(len(ours), len(theirs))
        shape = str.maketrans("0123456789", "0" * 10)
        for a, b in zip(ours[:6], theirs[:6]):
            squeeze = [",".join(cell.split(",")[:1]) for cell in a.split("), (")]
            self.assertEqual(squeeze, [",".join(cell.split(",")[:1]) for cell in b.split("), (")])
        for a, b in zip(ours[6:], theirs[6:]):
            self.assertEqual(a.split(":")[0].translate(shape), b.split(":")[0]
                             .replace("1000", "1").translate(shape))
