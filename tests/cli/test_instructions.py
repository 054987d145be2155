# SPDX-License-Identifier: Apache-2.0
"""What a profile and a schedule may say beyond forward and backward. test_random_plans.py compares plans
of such jobs with a simulation."""
from program import ProgramTest, rows

SCHEDULE = """\
0F0:forward_moe,0F1:forward_moe,0R0,0B0,0R1,0B1,BARRIER,:all_reduce
1F0,1B0,1F1,1B1,BARRIER,:all_reduce
"""
BLOCKING_W = [60, 45]


class Instructions(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("own.csv", SCHEDULE)
        self.lines = ["stage,instruction,frequency,time,energy"] + [
            f"{stage},{name},{mhz},{80 / mhz},{mhz / 50}" for stage, mhz in ((0, 1410), (0, 975), (1, 1305), (1, 885))
            for name in ("forward", "forward_moe", "recomputation", "backward", "all_reduce")]
        self.write("profile.csv", "\n".join(self.lines))

    def plan(self, name, *flags):
        self.succeed("plan", "-i", "profile.csv", "-s", "own.csv", "-o", name, "--no-pictures", "--quiet",
                     "--verify", *flags)
        return rows(self.path / name / "frontier.csv")

    def test_bad_transfer_times(self):
        flags = ["plan", "-i", "profile.csv", "-p", 60, "-o", "x"]
        for wrong in ("-1", "1e7", "nan", "4ms", ""):
            self.refuse(2, "--transfer-time", *flags, "-m", 2, f"--transfer-time={wrong}")
        self.write("bad.csv", "0F0,0B0+1s\n1F0,1B0\n")
        self.refuse(1, "bad.csv:1:5: after the plus sign is no time between 0 and 1000000 s",
                    *flags, "-s", "bad.csv")
        self.refuse(2, "--graph and --transfer-time", "plan", "--graph", "g.json",
                    "--transfer-time", 1, "-o", "x")

    def test_blocking_powers_may_be_in_the_profile(self):
        expected = self.plan("plans", "-p", ",".join(map(str, BLOCKING_W)))
        self.assertGreater(len(expected), 5)
        self.write("profile.csv", self.lines[0] + ",blocking_power\n" + "\n".join(
            f"{line},{BLOCKING_W[int(line[0])]}" for line in self.lines[1:]))
        self.assertEqual(self.plan("same"), expected)
        answer = self.succeed("evaluate", "-i", "profile.csv", "-s", "own.csv", "--plan",
                              "same/freqs_pipeline_00000.py", "--json").json()
        self.assertEqual(answer["problem"]["blocking_power_w"], BLOCKING_W)
        self.write("profile.csv", "\n".join(self.lines))
        self.refuse(2, "--p2p-power is missing, and the profile has no blocking_power for stage 0",
                    "plan", "-i", "profile.csv", "-s", "own.csv", "-o", "third")

    def test_a_name_without_rows_is_told(self):
        self.write("profile.csv", "\n".join(line for line in self.lines if "forward_moe" not in line))
        self.refuse(1, "the profile has no 'forward_moe' for stage 0, which the schedule runs",
                    "plan", "-i", "profile.csv", "-p", 60, "-o", "plans", "-s", "own.csv")
