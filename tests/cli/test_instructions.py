# SPDX-License-Identifier: Apache-2.0
"""Instructions beyond forward and backward, and ranks with GPUs of different models: what a profile
and a schedule may name, and what a plan then contains. The expected time and energy of the plans
come from a small simulation of the lists."""
import csv
import re

import program

# An A100 and a slower card whose clocks are others.
CLOCKS = {0: (1410, 1200, 975), 1: (1740, 1305, 885)}
FIXED = {"all_reduce": (0.03, 2.5), "optimizer": (0.01, 1.5)}  # a clock does not change them
SCHEDULE = """\
0F0:forward_moe,0F1:forward_moe,0R0,0B0,0R1,0B1,BARRIER,:all_reduce,:optimizer
1F0,1B0,1F1,1B1,BARRIER,:all_reduce,:optimizer
"""
NAMES = [["forward_moe", "forward_moe", "recomputation", "backward", "recomputation", "backward",
          "all_reduce", "optimizer"],
         ["forward", "backward", "forward", "backward", "all_reduce", "optimizer"]]
# (rank, place in its list) that must end before (rank, place) starts, besides the lists' order
AFTER = {(1, 0): [(0, 0)], (1, 2): [(0, 1)], (0, 3): [(1, 1)], (0, 5): [(1, 3)],
         (0, 6): [(1, 3)], (1, 4): [(0, 5)]}
BLOCKING_W = [60, 45]


def measured():
    """{(stage, instruction, MHz): (s, J)}"""
    table = {}
    lengths = {"forward": 0.05, "forward_moe": 0.06, "recomputation": 0.05, "backward": 0.11}
    for stage, clocks in CLOCKS.items():
        for name, length in lengths.items():
            for mhz in clocks:
                slower = clocks[0] / mhz
                table[stage, name, mhz] = (length * (0.2 + 0.8 * slower),
                                           length * (100 + 250 / slower ** 1.5))
        for name, (time, energy) in FIXED.items():  # longer on stage 1, which must wait for it
            table[stage, name, 0] = (time * (1 + 9 * stage), energy * (1 + 9 * stage))
    return table


class Instructions(program.ProgramTest):
    def plan(self, *arguments):
        rows = [f"{stage},{name},{mhz},{time!r},{energy!r}"
                for (stage, name, mhz), (time, energy) in measured().items()]
        self.write("profile.csv", "stage,instruction,frequency,time,energy\n" + "\n".join(rows))
        self.succeed("plan", "-i", "profile.csv", "-p", ",".join(map(str, BLOCKING_W)), "-o",
                     "plans", "--no-pictures", "--quiet", "--verify", *arguments)
        with open(self.path / "plans" / "frontier.csv", encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            path = self.path / "plans" / f"freqs_pipeline_{int(row['plan']):05}.py"
            lists = eval(re.sub("#.*", "", path.read_text()))  # pylint: disable=eval-used
            yield float(row["time_s"]), float(row["energy_j"]), lists

    def simulate(self, lists, lags=None, transfer=0.0):
        """lags: {(rank, place): s}, in place of the transfer time."""
        table, ends, energy = measured(), {}, 0.0
        work = [[table[rank, name, mhz] for name, mhz in lists[rank]] for rank in (0, 1)]
        for _ in range(20):  # the longest chain over both ranks is shorter
            for rank, row in enumerate(work):
                for place, (time, _) in enumerate(row):
                    before = [(rank, place - 1)] if place else []
                    lag = (lags or {}).get((rank, place), transfer)
                    start = max([ends.get(one, 0.0) for one in before] +
                                [ends.get(one, 0.0) + lag for one in AFTER.get((rank, place), [])],
                                default=0.0)
                    ends[rank, place] = start + time
        length = max(ends.values())
        for rank, row in enumerate(work):
            busy = sum(time for time, _ in row)
            energy += sum(joule for _, joule in row) + BLOCKING_W[rank] * (length - busy)
        return length, energy

    def test_a_file_with_own_names_and_an_end_of_the_iteration(self):
        self.write("own.csv", SCHEDULE)
        plans = list(self.plan("-s", "own.csv"))
        self.assertGreater(len(plans), 5)
        used = [set(), set()]
        for time, energy, lists in plans:
            self.assertEqual([[name for name, _ in rank] for rank in lists], NAMES)
            for rank, entries in enumerate(lists):
                used[rank].update(mhz for name, mhz in entries if name not in FIXED)
                self.assertEqual({mhz for name, mhz in entries if name in FIXED}, {0})
            length, expected = self.simulate(lists)
            self.assertAlmostEqual(time, length, places=9)
            self.assertAlmostEqual(energy, expected, places=6)
        for rank, clocks in CLOCKS.items():
            self.assertLessEqual(used[rank], set(clocks))
            self.assertGreater(len(used[rank]), 1)

    def test_a_barrier_before_an_epilogue_is_one(self):
        self.write("own.csv", SCHEDULE.replace(",:all_reduce,:optimizer", ""))
        epilogue = ["-s", "own.csv", "--epilogue", "all_reduce,optimizer"]
        plans = list(self.plan(*epilogue))
        self.assertGreater(len(plans), 5)
        for time, energy, lists in plans:
            self.assertEqual([[name for name, _ in row] for row in lists], NAMES)
            length, expected = self.simulate(lists)
            self.assertAlmostEqual(time, length, places=9)
            self.assertAlmostEqual(energy, expected, places=6)
        answer = self.succeed("evaluate", "-i", "profile.csv", "-p", "60,45", *epilogue, "--plan",
                              "plans/freqs_pipeline_00000.py", "--json").json()
        self.assertAlmostEqual(answer["plans"][0]["time_s"], plans[-1][0], places=9)

    def test_transfers_that_take_time(self):
        late = SCHEDULE.replace("1F0,", "1F0+0.02,").replace("0B1,", "0B1+0.5e-2,").replace(
            "BARRIER,:all_reduce,:optimizer\n1F0", "BARRIER,:all_reduce+0.01,:optimizer\n1F0")
        self.write("own.csv", SCHEDULE)
        self.write("late.csv", late)
        lags = {(1, 0): 0.02, (0, 5): 0.005, (0, 6): 0.01}
        for more, told in ((["-s", "late.csv"], (lags, 0)),
                           (["-s", "own.csv", "--transfer-time", "0.007"], ({}, 0.007)),
                           (["-s", "late.csv", "--transfer-time", "0.007"], (lags, 0.007))):
            with self.subTest(more=more):
                plans = list(self.plan("--force", *more))
                self.assertGreater(len(plans), 5)
                for time, energy, lists in plans:
                    length, expected = self.simulate(lists, *told)
                    self.assertAlmostEqual(time, length, places=9)
                    self.assertAlmostEqual(energy, expected, places=6)
                plan = f"{self.path}/plans/freqs_pipeline_00000.py"
                answer = self.succeed("evaluate", "-i", "profile.csv", "-p", "60,45", *more,
                                      "--plan", plan, "--json").json()
                self.assertAlmostEqual(answer["plans"][0]["time_s"], plans[-1][0], places=9)

    def test_bad_transfer_times(self):
        flags = ["plan", "-i", "profile.csv", "-p", 60, "-o", "x"]
        for wrong in ("-1", "1e7", "nan", "4ms", ""):
            self.refuse(2, "--transfer-time", *flags, "-m", 2, f"--transfer-time={wrong}")
        list(self.plan("-m", 2))
        self.write("bad.csv", "0F0,0B0+1s\n1F0,1B0\n")
        self.refuse(1, "bad.csv:1:5: after the plus sign is no time between 0 and 1000000 s",
                    *flags, "-s", "bad.csv")
        self.refuse(2, "--graph and --transfer-time", "plan", "--graph", "g.json",
                    "--transfer-time", 1, "-o", "x")

    def test_a_built_in_schedule_with_an_end_of_the_iteration(self):
        plans = list(self.plan("-m", 3, "--epilogue", "all_reduce,optimizer"))
        for _, _, lists in plans:
            for rank in (0, 1):
                self.assertEqual(lists[rank][-2:], [("all_reduce", 0), ("optimizer", 0)])
        self.assertLess(min(plans)[0], max(plans)[0])

    def test_blocking_powers_may_be_in_the_profile(self):
        self.write("own.csv", SCHEDULE)
        expected = list(self.plan("-s", "own.csv"))
        lines = (self.path / "profile.csv").read_text().splitlines()
        self.write("profile.csv", lines[0] + ",blocking_power\n" + "\n".join(
            f"{line},{BLOCKING_W[int(line[0])]}" for line in lines[1:]))
        self.succeed("plan", "-i", "profile.csv", "-s", "own.csv", "-o", "same", "--no-pictures",
                     "--quiet", "--verify")
        self.assertEqual((self.path / "same" / "frontier.csv").read_text(),
                         (self.path / "plans" / "frontier.csv").read_text())
        plan = f"{self.path}/same/freqs_pipeline_00000.py"
        answer = self.succeed("evaluate", "-i", "profile.csv", "-s", "own.csv", "--plan", plan,
                              "--json").json()
        self.assertEqual(answer["problem"]["blocking_power_w"], BLOCKING_W)
        self.write("profile.csv", "\n".join(lines))
        self.refuse(2, "--p2p-power is missing, and the profile has no blocking_power for stage 0",
                    "plan", "-i", "profile.csv", "-s", "own.csv", "-o", "third")
        self.assertGreater(len(expected), 5)

    def test_a_name_without_rows_is_told(self):
        self.write("own.csv", SCHEDULE.replace(":optimizer", ":clip"))
        self.write("profile.csv", "stage,instruction,frequency,time,energy\n0,forward,1410,1,1\n"
                                  "1,forward,1410,1,1\n")
        self.refuse(1, "the profile has no 'forward_moe' for stage 0, which the schedule runs",
                    "plan", "-i", "profile.csv", "-p", 60, "-o", "plans", "-s", "own.csv")
