# SPDX-License-Identifier: Apache-2.0
"""The behaviour of the program in normal use: help, the plan directory, choosing, evaluating,
JSON."""
import ast
import csv
import re

from program import HARPE, ProgramTest, environment, json, os, rows, subprocess

COLUMNS = ["plan", "time_s", "energy_j", "lower_bound_j", "gap_percent", "compute_energy_j",
           "blocking_energy_j", "average_power_w", "slowdown_percent", "savings_percent",
           "overhead_energy_j", "peak_power_w", "swing_w", "swing_hz", "change_energy_j"]
COMMANDS = ["plan", "choose", "evaluate", "synth", "gpus", "emulate", "power-limit", "serve", "jobs",
            "monitor", "run", "graph", "profile", "store", "fleet", "agent", "train-sim"]


class Help(ProgramTest):
    def test_help_names_every_command(self):
        result = self.succeed("--help")
        for command in COMMANDS:
            self.assertIn(command, result.out)
        self.assertEqual(result.err, "")

    def test_every_command_has_help_in_both_ways(self):
        for command in COMMANDS:
            out = self.succeed(command, "--help").out
            self.assertTrue(out.startswith(f"Usage: harpe {command} "), out)
            self.assertEqual(out, self.succeed("help", command).out)
            self.assertIn("Usage:", self.succeed(command, "--usage").out)

    def test_help_ends_with_the_manual_page_and_breaks_no_example(self):
        for command in COMMANDS:
            out = self.succeed(command, "--help").out
            self.assertIn(f"harpe-{command}", out[out.rindex("man "):])
            self.assertNotRegex(out, r"(?m)^ +$")
            examples = re.search(r"\nExamples?:\n(.*?)\n\n", out + "\n", re.DOTALL)
            for line in examples[1].splitlines() if examples else []:
                self.assertTrue(line.startswith("  "), line)

    def test_help_lists_schedules_within_80_columns(self):
        out = self.succeed("plan", "--help").out
        for name in ["1f1b", "gpipe", "interleaved-1f1b", "zb-v"]:
            self.assertIn(f"\n  {name}", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_version(self):
        for arguments in (["--version"], ["plan", "--version"]):
            self.assertRegex(self.succeed(*arguments).out,
                             r"^harpe \d+\.\d+\.\d+\nWith .*\n$")

    def test_no_command_shows_help_and_fails(self):
        result = self.run_harpe()
        self.assertEqual((result.code, result.out), (2, ""))
        self.assertIn("Usage: harpe", result.err)

    def test_a_mistyped_command_is_suggested(self):
        self.refuse(2, "did you mean 'plan'?", "paln")
        self.refuse(2, "did you mean 'evaluate'?", "help", "evalute")
        self.refuse(2, "try 'harpe --help'", "frobnicate")
        self.refuse(2, "unknown option '--frob'", "--frob")

    def test_an_unknown_flag_of_a_command(self):
        result = self.run_harpe("plan", "--frob")
        self.assertEqual((result.code, result.out), (2, ""))
        self.assertIn("--frob", result.err)


class Synth(ProgramTest):
    def test_the_same_seed_gives_the_same_profile(self):
        a = self.succeed("synth", "--stages", 3, "--seed", 7).out
        self.assertEqual(a, self.succeed("synth", "--stages", 3, "--seed", 7).out)
        self.assertNotEqual(a, self.succeed("synth", "--stages", 3, "--seed", 8).out)
        self.assertEqual(a.splitlines()[0], "stage,instruction,frequency,time,energy")

    def test_the_hint_is_on_stderr_unless_quiet(self):
        self.assertRegex(self.succeed("synth").err, r"--p2p-power \d")
        self.assertEqual(self.succeed("synth", "--quiet").err, "")

    def test_the_hint_comes_after_the_rows_in_one_file(self):
        with open(self.path / "both", "w", encoding="utf-8") as both:
            subprocess.run([HARPE, "synth"], stdout=both, stderr=both, env=environment(), check=True)
        lines = (self.path / "both").read_text().splitlines()
        self.assertRegex(lines[-1], "^Blocking power")
        self.assertEqual({line.count(",") for line in lines[:-1]}, {4})

    def test_a_file_is_replaced_only_with_force(self):
        self.write("p.csv", "mine")
        self.refuse(1, "already exists", "synth", "--output", "p.csv")
        self.assertEqual((self.path / "p.csv").read_text(), "mine")
        self.succeed("synth", "--output", "p.csv", "--force")
        self.assertNotEqual((self.path / "p.csv").read_text(), "mine")

    def test_json_tells_the_blocking_power(self):
        answer = self.succeed("synth", "--output", "p.csv", "--json", "--split-backward").json()
        self.assertGreater(answer["blocking_power_w"], 0)
        self.assertTrue(answer["split_backward"])
        self.assertIn("backward_weight", (self.path / "p.csv").read_text())
        self.refuse(2, "--json needs --output", "synth", "--json")

    def test_bad_values(self):
        self.refuse(2, "--gpu: expected V100", "synth", "--gpu", "Voodoo2")
        self.refuse(2, "--stages", "synth", "--stages", "0")
        self.refuse(2, "--noise", "synth", "--noise", "0.5")
        self.refuse(2, "--imbalance", "synth", "--imbalance", "0.9")
        self.refuse(2, "'extra' is not a flag", "synth", "extra")


class Plan(ProgramTest):
    def plan(self, *more, directory="plans", **popen):
        return self.succeed("plan", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power",
                            84, "--output-dir", directory, *more, **popen)

    def setUp(self):
        super().setUp()
        self.profile()

    def test_the_directory_is_complete(self):
        self.plan()
        found = {p.name for p in (self.path / "plans").iterdir()}
        for name in ["frontier.csv", "bound.csv", "plan.json", "report.html", "frontier.svg",
                     "pipeline_fastest.svg", "pipeline_minimum_energy.svg",
                     "cost_model_stage_00.svg"]:
            self.assertIn(name, found)
        count = len(rows(self.path / "plans" / "frontier.csv"))
        self.assertGreater(count, 10)
        for number in range(count):
            self.assertIn(f"freqs_pipeline_{number:05d}.py", found)
        self.assertEqual(self.files(), sorted(["profile.csv", "plans"] +
                                              [f"plans/{name}" for name in found]))

    def test_a_critical_path_fills_the_iteration(self):
        for transfer in (0, 0.01):
            self.plan("--transfer-time", transfer, "--plans", 1, "--force")
            svg = (self.path / "plans" / "pipeline_fastest.svg").read_text()
            paths = re.findall(r'stroke="#12161b" stroke-width="2" d="M([^"]*)"', svg)
            ends = re.findall(r'stroke-dasharray="3" d="M(\S+) ', svg)
            self.assertEqual((len(paths), len(ends)), (3, 2))  # the last is in the key
            for path, end in zip(paths, ends):
                points = [tuple(map(float, point.split())) for point in path.split("L")]
                self.assertAlmostEqual(points[0][0], 74, delta=0.1)
                self.assertAlmostEqual(points[-1][0], float(end), delta=0.1)
                gaps = 0
                for (x, y), (later, other) in zip(points, points[1:]):
                    self.assertGreaterEqual(later, x)
                    if y != other and later - x > 0.7:
                        gaps += 1  # between ranks only, and only if a transfer takes time
                self.assertEqual(gaps > 0, transfer > 0, points)

    def test_frontier_csv_is_fastest_first_and_adds_up(self):
        self.plan("--no-pictures")
        table = rows(self.path / "plans" / "frontier.csv")
        self.assertEqual(list(table[0]), COLUMNS)
        values = [{k: float(v) for k, v in row.items()} for row in table]
        self.assertEqual([int(v["plan"]) for v in values], list(range(len(values)))[::-1])
        summary = json.loads((self.path / "plans" / "plan.json").read_text())["summary"]
        maximum = summary["all_maximum"]
        for faster, slower in zip(values, values[1:]):
            self.assertLess(faster["time_s"], slower["time_s"])
            self.assertGreater(faster["energy_j"], slower["energy_j"])
        for v in values:
            self.assertAlmostEqual(v["energy_j"], v["compute_energy_j"] + v["blocking_energy_j"], 6)
            self.assertGreaterEqual(v["gap_percent"], -1e-6)
            self.assertAlmostEqual(v["gap_percent"],
                                   100 * (v["energy_j"] / v["lower_bound_j"] - 1), 5)
            self.assertAlmostEqual(v["slowdown_percent"],
                                   100 * (v["time_s"] / maximum["time_s"] - 1), 5)
            self.assertAlmostEqual(v["savings_percent"],
                                   100 * (1 - v["energy_j"] / maximum["energy_j"]), 5)
            self.assertAlmostEqual(v["average_power_w"], v["energy_j"] / v["time_s"] / 4, 6)

    def test_plan_files_are_python_literals_with_the_cost_lines(self):
        self.plan("--no-pictures", "--plans", 5)
        table = rows(self.path / "plans" / "frontier.csv")
        cost = {}
        for row in table:
            number = int(row["plan"])
            text = (self.path / "plans" / f"freqs_pipeline_{number:05d}.py").read_text()
            plan = ast.literal_eval(text)
            self.assertEqual([len(rank) for rank in plan], [8] * 4)
            self.assertTrue(all(isinstance(f, int) and n in ("forward", "backward")
                                for rank in plan for n, f in rank))
            match = re.search(rf"\]\n# Iteration {number} cost change: (\S+)\n"
                              rf"# Iteration {number} total cost: (\S+)\n"
                              rf"# Iteration {number} total cost with P2P: (\S+)\n$", text)
            self.assertIsNotNone(match, text[-300:])
            change, total, with_p2p = map(float, match.groups())
            cost[number] = (change, total)
            self.assertAlmostEqual(with_p2p, float(row["energy_j"]), 6)
            self.assertAlmostEqual(total, with_p2p - 4 * 84 * float(row["time_s"]), 6)
        self.assertEqual(cost[0][0], 0)
        for number in range(1, len(table)):
            self.assertAlmostEqual(cost[number][0], cost[number][1] - cost[number - 1][1], 6)

    def test_plan_json_tells_what_was_asked_and_kept(self):
        self.plan("--no-pictures", "--plans", 5)
        content = json.loads((self.path / "plans" / "plan.json").read_text())
        self.assertEqual(content["arguments"]["num_mbs"], 4)
        self.assertEqual(content["arguments"]["plans"], "5")
        self.assertEqual(content["problem"]["ranks"], 4)
        self.assertEqual(content["problem"]["blocking_power_w"], [84] * 4)
        self.assertEqual(len(content["options"]), 8)
        for option_list in content["options"]:
            times = [option["time_s"] for option in option_list["options"]]
            self.assertEqual(times, sorted(times))
        self.assertIn("pivots", content["work"])

    def test_numbers_of_plans(self):
        self.plan("--no-pictures", "--plans", "all", directory="all")
        self.plan("--no-pictures", "--plans", 3, directory="three")
        self.plan("--plans", "none", directory="none")
        every = len(rows(self.path / "all" / "frontier.csv"))
        self.assertGreater(every, len(rows(self.path / "three" / "frontier.csv")))
        self.assertEqual(rows(self.path / "none" / "frontier.csv"), [])
        self.assertEqual(list((self.path / "none").glob("freqs*")), [])
        self.refuse(1, "no plans in it", "choose", "none", "--min-energy")

    def test_bound_only_writes_just_the_bound(self):
        self.plan("--bound-only")
        self.assertEqual([p.name for p in (self.path / "plans").iterdir()], ["bound.csv"])

    def test_bound_only_needs_no_directory(self):
        answer = self.succeed("plan", "--inst-profile", "profile.csv", "--num-mbs", 4,
                              "--p2p-power", 84, "--bound-only", "--json").json()
        self.assertIsNone(answer["output_dir"])
        self.assertEqual(self.files(), ["profile.csv"])

    def test_json_has_the_key_rows(self):
        answer = self.plan("--no-pictures", "--json").json()
        summary = answer["summary"]
        table = rows(self.path / "plans" / "frontier.csv")
        near = [row for row in table if float(row["time_s"]) <= 1.001 * float(table[0]["time_s"])]
        self.assertEqual(summary["fastest"]["plan"],
                         int(min(near, key=lambda row: float(row["energy_j"]))["plan"]))
        self.assertEqual(summary["minimum_energy"]["plan"], 0)
        self.assertLessEqual(summary["within_1.05x"]["time_s"],
                             1.05 * summary["all_maximum"]["time_s"])
        self.assertEqual(summary["plans"], len(table))

    def test_the_fastest_plan_alone(self):
        self.plan("--no-pictures", "--force")
        best = rows(self.path / "plans" / "frontier.csv")[0]
        summary = self.plan("--no-pictures", "--force", "--plans", "fastest", "--json").json()["summary"]
        table = rows(self.path / "plans" / "frontier.csv")
        self.assertEqual((len(table), summary["plans"]), (1, 1))
        self.assertAlmostEqual(float(table[0]["time_s"]), float(best["time_s"]), 12)
        self.assertLessEqual(float(table[0]["gap_percent"]), 1)

    def test_verify_says_so(self):
        self.assertIn("verified", self.plan("--no-pictures", "--verify").out)

    def test_every_bound_and_comparison_knows_the_cost_of_changes(self):
        """frontier.csv, bound.csv (also of --bound-only), choose and evaluate agree."""
        costs = "--switch-latency", 0.06, "--switch-energy", 3
        self.plan("--no-pictures", "--force", "--plans", 12, *costs)
        table = [{name: float(value) for name, value in row.items()} for row in
                 rows(self.path / "plans" / "frontier.csv")]
        self.assertTrue(any(row["change_energy_j"] > 0 for row in table))
        told = self.succeed("evaluate", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84, *costs,
                            "--json", "--plan", "plans").json()["plans"]
        for row, one in zip(table, reversed(told)):
            for name in ("time_s", "energy_j", "change_energy_j", "savings_percent"):
                self.assertAlmostEqual(row[name], one[name], 5, name)
            self.assertAlmostEqual(row["energy_j"] - row["change_energy_j"] - row["compute_energy_j"],
                                   row["blocking_energy_j"], 6)
            self.assertLessEqual(one["lower_bound_j"], one["energy_j"] * (1 + 1e-9))
        least = min(table, key=lambda row: row["energy_j"])
        self.assertEqual(self.succeed("choose", "plans", "--min-energy", "--json").json()["plan"], least["plan"])
        free = self.plan("--bound-only", "--force")
        free = rows(self.path / "plans" / "bound.csv")
        for flags in (["--bound-only"], []):
            self.plan("--no-pictures", "--force", "--plans", 12, *costs, *flags)
            bound = [(float(row["time_s"]), float(row["lower_bound_j"])) for row in
                     rows(self.path / "plans" / "bound.csv")]
            self.assertEqual([time for time, _ in bound], sorted(time for time, _ in bound))
            self.assertEqual([low for _, low in bound], sorted((low for _, low in bound), reverse=True))
            self.assertGreater(bound[0][1], float(free[0]["lower_bound_j"]) * (1 + 1e-9))
            for row in table:
                within = [low for time, low in bound if time >= row["time_s"] - 1e-9]
                self.assertLessEqual(max(within, default=0), row["energy_j"] * (1 + 1e-9))

    def test_the_summary_names_rows_and_report(self):
        out = self.plan().out
        for text in ["4 stages x 4 microbatches", "all at maximum frequency", "fastest",
                     "within 1.05x", "minimum energy", "Report: plans/report.html"]:
            self.assertIn(text, out)

    def test_output_to_a_pipe_has_no_colours_and_no_progress(self):
        result = self.plan("--no-pictures", env=environment(TERM="xterm"))
        self.assertNotIn("\x1b", result.out + result.err)
        self.assertEqual(result.err, "")

    def test_rows_that_the_schedule_does_not_run_are_told(self):
        rows = (self.path / "profile.csv").read_text().splitlines(keepends=True)
        for stages, message in (("0", "stage 0 'foreward' is not in schedule 1f1b: left out\n"),
                                ("01", "stage 0 'foreward' and 1 more are not in schedule")):
            more = [row.replace("forward", "foreward") for row in rows
                    if row[0] in stages and "forward" in row]
            (self.path / "profile.csv").write_text("".join(rows + more))
            result = self.plan("--no-pictures", "--force")
            self.assertIn("profile.csv: " + message, result.err)
            self.assertEqual(result.err.count("\n"), 1, result)
            self.assertEqual(self.plan("--no-pictures", "--force", "--quiet").err, "")

    def test_doubtful_rows_are_told(self):
        """By every command that reads a profile. The blocking power is not blamed."""
        lines = (self.path / "profile.csv").read_text().splitlines()
        row = lines[3].split(",")
        row[3] = repr(1000 * float(row[3]))
        (self.path / "profile.csv").write_text("\n".join([*lines[:3], ",".join(row), *lines[4:]]))
        result = self.plan("--no-pictures", "--json")
        note = result.json()["notes"][0]
        self.assertRegex(note, r"^warning: profile.csv:4: stage 0 .* times too high .* if the times are in ms or")
        self.assertEqual(result.err, f"harpe plan: {note}\n")
        self.assertEqual(self.plan("--no-pictures", "--force", "--quiet").err, "")
        inputs = ["--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84]
        self.assertIn(note, self.succeed("evaluate", *inputs, "--plan", "plans/freqs_pipeline_00000.py").err)
        self.assertIn(note, self.succeed("emulate", "--profile", "profile.csv", "--", "true").err)
        (self.path / "ms.csv").write_text("\n".join([lines[0]] + [
            ",".join([*line.split(",")[:3], repr(1000 * float(line.split(",")[3])), line.split(",")[4]])
            for line in lines[1:]]))
        result = self.succeed("plan", "--inst-profile", "ms.csv", *inputs[2:], "--bound-only", "--json")
        self.assertEqual(len(result.json()["notes"]), 3, result)
        self.assertNotIn("--p2p-power", result.err)

    def test_repeated_rows_are_told(self):
        text = (self.path / "profile.csv").read_text()
        stage, name, mhz, time, energy = text.splitlines()[1].split(",")
        again = ",".join([stage, name, mhz, repr(float(time) * 1.01), energy])
        (self.path / "profile.csv").write_text(text + again + "\n")
        last = text.count("\n") + 1
        note = (f"profile.csv: 2 rows (lines 2 and {last}) measure stage {stage} '{name}' at "
                f"{mhz} MHz: averaged")
        result = self.plan("--no-pictures", "--json")
        self.assertEqual(result.err, f"harpe plan: {note}\n")
        self.assertEqual(result.json()["notes"], [note])
        kept = json.loads((self.path / "plans" / "plan.json").read_text())
        self.assertEqual(kept["notes"], [note])
        evaluate = ["evaluate", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84,
                    "--plan", "plans/freqs_pipeline_00000.py", "--json"]
        result = self.succeed(*evaluate)
        self.assertEqual(result.err, f"harpe evaluate: {note}\n")
        self.assertEqual(result.json()["notes"], [note])
        self.assertEqual(self.succeed(*evaluate, "--quiet").err, "")
        bad = ",".join([stage, name, mhz, "1", energy])
        (self.path / "profile.csv").write_text(text + bad + "\n")
        refused = self.refuse(1, f"profile.csv:{last}:1: stage {stage}, instruction '{name}' at",
                              "plan", "--inst-profile", "profile.csv", "--num-mbs", 4,
                              "--p2p-power", 84, "--bound-only")
        self.assertIn("in line 2; repeats of one measurement agree within 5 %", refused.err)

    def test_a_blocking_power_above_all_work_is_doubted(self):
        err = self.plan("--no-pictures", "--p2p-power", 8400).err
        self.assertIn("warning: --p2p-power 8400: no instruction of profile.csv draws more", err)
        self.assertEqual(err.count("\n"), 1, err)

    def test_force_replaces_the_whole_directory(self):
        self.plan("--no-pictures", "--plans", "all")
        self.plan("--no-pictures", "--plans", 2, "--force")
        self.assertLess(len(list((self.path / "plans").glob("freqs*"))), 10)
        self.assertEqual([f for f in self.files() if "/" not in f], ["plans", "profile.csv"])

    def test_the_same_call_writes_the_same_files(self):
        self.plan("--no-pictures", directory="a")
        self.plan("--no-pictures", directory="b")
        for path in (self.path / "a").iterdir():
            if path.name != "plan.json":  # contains the times of solving
                self.assertEqual(path.read_bytes(), (self.path / "b" / path.name).read_bytes())

    def test_threads_do_not_change_the_plans(self):
        for threads in (1, 3, 4096):
            self.plan("--no-pictures", "--threads", threads, directory=f"plans{threads}")
        plans = sorted((self.path / "plans1").glob("freqs_pipeline_*"))
        self.assertGreater(len(plans), 3)
        for path in plans:
            for threads in (3, 4096):
                self.assertEqual((self.path / f"plans{threads}" / path.name).read_bytes(),
                                 path.read_bytes())
        for value in ("0", "-2", "1.5", "4097", "x"):
            self.refuse(2, "--threads", "plan", "-i", "profile.csv", "-m", 4, "-p", 84,
                        "-o", "refused", f"--threads={value}")

    def test_latencies_of_a_table(self):
        plan = ["plan", "-i", "profile.csv", "-m", 4, "-p", 84, "-o", "plans", "--switch-latency"]
        header = "gpu,frequency,latency_s,latency_p95_s,call_s,samples"
        self.write("bad.csv", f"{header}\nA100,1410,fast,1,1,1\n")
        self.write("good.csv", f"{header}\nA100,1410,0.1,1,1,1\n")
        for code, message, value in ((1, "bad.csv:2:11: latency_s must be a number of seconds", "bad.csv"),
                                     (1, "none.csv", "none.csv"),
                                     (1, "profile.csv:1:1: missing column 'latency_s'", "profile.csv"),
                                     (2, "expected a number of seconds, 'profile' or a file *.csv, found 'switch'",
                                      "switch"), (2, "--switch-latency", 3601)):
            self.refuse(code, message, *plan, value)
        self.refuse(2, "are for pipelines only", "plan", "--graph", "g.json", "-o", "plans",
                    "--switch-latency", "good.csv")
        for more, told in (([], "good.csv"), (["--switch-latency", 0.01], 0.01)):  # the last value counts
            self.succeed(*plan, "good.csv", *more, "--no-pictures", "--plans", 2, "--force")
            arguments = json.loads((self.path / "plans" / "plan.json").read_text())["arguments"]
            self.assertEqual(arguments["switch_latency_s"], told)

    def test_effort_is_gone(self):
        self.refuse(2, "--effort is gone", "plan", "-i", "profile.csv", "-m", 4, "-p", 84,
                    "-o", "plans", "--effort", 10)

    def test_one_blocking_power_per_rank(self):
        one = self.succeed("plan", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power",
                           "84,84,84,84", "--bound-only", "--json").json()
        all_ = self.succeed("plan", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power",
                            84, "--bound-only", "--json").json()
        self.assertEqual(one["summary"]["fastest"], all_["summary"]["fastest"])
        other = self.succeed("plan", "--inst-profile", "profile.csv", "--num-mbs", 4,
                             "--p2p-power", "84,84,84,90", "--bound-only", "--json").json()
        self.assertNotEqual(other["summary"]["fastest"], all_["summary"]["fastest"])

    def test_every_schedule_and_cost_model(self):
        self.profile("split.csv", 4, "--split-backward")
        for schedule in ["1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe-v"]:
            answer = self.succeed("plan", "--inst-profile", "split.csv", "--num-mbs", 8,
                                  "--p2p-power", 84, "--schedule", schedule, "--bound-only",
                                  "--json").json()
            ranks = 4 if schedule in ("1f1b", "gpipe", "zb-h1") else 2
            self.assertEqual(answer["problem"]["ranks"], ranks, schedule)
        self.plan("--no-pictures", "--cost-model", "exponential", "--unit-time", "0.01")

    def test_standalone_instructions(self):
        with open(self.path / "profile.csv", "a") as stream:
            for stage in range(4):
                stream.write(f"{stage},dataload,0,0.01,1\n{stage},optimizer,1410,0.02,3\n")
        self.plan("--no-pictures", "--plans", 2, "--prologue", "dataload", "--epilogue", "optimizer")
        plan = ast.literal_eval((self.path / "plans" / "freqs_pipeline_00000.py").read_text())
        for rank in plan:
            self.assertEqual((rank[0], rank[-1]), (("dataload", 0), ("optimizer", 1410)))

    def test_a_schedule_file(self):
        self.write("s.csv", "0F0,0F1,,,0B0,,0B1\n,1F0,1B0,1F1,1B1,,\n")
        self.profile("two.csv", 2)
        answer = self.succeed("plan", "--inst-profile", "two.csv", "--p2p-power", 84, "--schedule",
                              "s.csv", "--output-dir", "file", "--json").json()
        self.assertEqual(answer["problem"]["microbatches"], 2)
        self.refuse(2, "the schedule s.csv has 2 microbatches, not 3: leave", "plan", "--inst-profile", "two.csv",
                    "--num-mbs", 3, "--p2p-power", 84, "--schedule", "s.csv", "--bound-only")
        self.refuse(2, "the schedule s.csv has 2 ranks, not 3: leave", "plan", "--inst-profile",
                    "two.csv", "--num-stages", 3, "--p2p-power", 84, "--schedule", "s.csv",
                    "--bound-only")


class OneClock(ProgramTest):
    """Savings against one clock for all GPUs, compared with `harpe evaluate` of every clock."""

    def setUp(self):
        super().setUp()
        self.profile()
        table = rows(self.path / "profile.csv")
        self.clocks = sorted({int(row["frequency"]) for row in table}, reverse=True)
        # a power limit holds the highest clocks down: they are as slow as the third, and cost more
        times = {(row["stage"], row["instruction"]): row["time"] for row in table
                 if int(row["frequency"]) == self.clocks[2]}
        for row in table:
            if int(row["frequency"]) > self.clocks[2]:
                row["time"] = times[row["stage"], row["instruction"]]
        with open(self.path / "profile.csv", "w", newline="") as file:
            out = csv.DictWriter(file, table[0])
            out.writeheader()
            out.writerows(table)
        self.problem = ["--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84]
        self.answer = self.succeed("plan", *self.problem, "--plans", 20, "-o", "plans",
                                   "--json").json()
        self.evaluated = [self.evaluate(mhz) for mhz in self.clocks]
        self.highest_s = self.evaluated[0]["time_s"]

    def evaluate(self, mhz):
        plan = ast.literal_eval((self.path / "plans" / "freqs_pipeline_00000.py").read_text())
        self.write("one.py", repr([[(name, mhz) for name, _ in rank] for rank in plan]))
        return self.succeed("evaluate", *self.problem, "--plan", "one.py",
                            "--json").json()["plans"][0] | {"frequency_mhz": mhz}

    def best(self, most_s, overhead_w=0):
        return min((row for row in self.evaluated
                    if row["time_s"] <= max(most_s, self.highest_s) * (1 + 1e-9)),
                   key=lambda row: row["energy_j"] + overhead_w * row["time_s"])

    def check(self, row, best, overhead_w=0):
        energy = best["energy_j"] + overhead_w * best["time_s"]
        self.assertEqual(row["frequency_mhz"], best["frequency_mhz"])
        self.assertAlmostEqual(row["time_s"], best["time_s"], 9)
        self.assertAlmostEqual(row["energy_j"], energy, 5)
        return energy

    def check_savings(self, row, energy):
        self.assertAlmostEqual(row["one_clock_savings_percent"], 100 * (1 - row["energy_j"] / energy),
                               6)

    def test_plan(self):
        summary = self.answer["summary"]
        self.assertEqual(set(summary["one_clock"]),
                         {"all_maximum", "fastest", "within_1.05x", "minimum_energy"})
        for key, row in summary["one_clock"].items():
            most_s = 1.05 * self.highest_s if key == "within_1.05x" else summary[key]["time_s"]
            self.check_savings(summary[key], self.check(row, self.best(most_s)))
        as_fast = summary["one_clock"]["all_maximum"]
        self.assertEqual(as_fast["frequency_mhz"], self.clocks[2])
        self.assertGreater(as_fast["savings_percent"], 1)
        self.assertLess(summary["all_maximum"]["one_clock_savings_percent"], -1)
        self.assertLess(summary["fastest"]["one_clock_savings_percent"],
                        summary["fastest"]["savings_percent"] - 1)
        out = self.succeed("plan", *self.problem, "--plans", 20, "-o", "again").out
        self.assertRegex(out, rf"vs one clock .*\n.*\n  one clock, {self.clocks[2]} MHz .*\n  fastest")
        stored = json.loads((self.path / "plans" / "plan.json").read_text())["one_clock"]
        self.assertEqual(sorted(row["frequency_mhz"] for row in stored), sorted(self.clocks))

    def test_choose(self):
        for flags, most_s, overhead_w in (
                (["--max-slowdown", 1], self.highest_s, 0),
                (["--max-slowdown", 1.1], 1.1 * self.highest_s, 0),
                (["--max-slowdown", 1.1, "--overhead-power", 5000], 1.1 * self.highest_s, 5000),
                (["--deadline", 1e5], 1e5, 0), (["--min-energy"], None, 0)):
            answer = self.succeed("choose", "plans", *flags, "--json").json()
            most_s = answer["time_s"] if most_s is None else most_s
            one_clock = answer["one_clock"]
            energy = self.check(one_clock["plan"], self.best(most_s, overhead_w), overhead_w)
            self.check_savings(answer, energy)
            self.check(one_clock["all_maximum"], self.best(0, overhead_w), overhead_w)
        out = self.succeed("choose", "plans", "--max-slowdown", 1.1).out
        best = self.best(1.1 * self.highest_s)
        self.assertRegex(out, rf"one clock, {best['frequency_mhz']} MHz .*\n  plan \d+ ")

    def test_choose_from_a_directory_of_an_older_version(self):
        path = self.path / "plans" / "plan.json"
        about = json.loads(path.read_text())
        del about["one_clock"]
        path.write_text(json.dumps(about))
        self.assertNotIn("one_clock", self.succeed("choose", "plans", "--min-energy", "--json").out)
        self.assertNotIn("one clock", self.succeed("choose", "plans", "--min-energy").out)
        about["one_clock"] = [{"time_s": 1.0}]
        path.write_text(json.dumps(about))
        self.refuse(1, "a plan of one_clock lacks a number", "choose", "plans", "--min-energy")

    def test_evaluate(self):
        path = "plans/freqs_pipeline_00003.py"
        answer = self.succeed("evaluate", *self.problem, "--plan", path, "--json").json()
        self.check(answer["one_clock"], self.best(0))
        row = answer["plans"][0]
        self.check_savings(row, self.best(row["time_s"])["energy_j"])
        self.assertRegex(self.succeed("evaluate", *self.problem, "--plan", path).out,
                         rf"\n  one clock, {self.clocks[2]} MHz .*\n  freqs_pipeline_00003.py ")

    def test_a_graph_has_no_row(self):
        self.succeed("plan", *self.problem, "--export-graph", "graph.json")
        answer = self.succeed("plan", "--graph", "graph.json", "--bound-only", "--json").json()
        self.assertEqual(answer["summary"]["one_clock"], {})
        self.assertNotIn("one clock", self.succeed("plan", "--graph", "graph.json", "--bound-only").out)

    def test_report(self):
        page = (self.path / "plans" / "report.html").read_text()
        shown = re.search(r'"one_clock":(\[.*?\]\])', page).group(1)
        slowest_s = max(float(row["time_s"]) for row in rows(self.path / "plans" / "frontier.csv"))
        self.assertEqual(len(json.loads(shown)),
                         sum(row["time_s"] <= slowest_s for row in self.evaluated))
        saved = self.answer["summary"]["one_clock"]["all_maximum"]["savings_percent"]
        self.assertIn(f"than one clock, {self.clocks[2]} MHz, which saves {saved:.1f} %", page)
        self.assertIn("one clock for all GPUs", (self.path / "plans" / "frontier.svg").read_text())


class Choose(ProgramTest):
    def setUp(self):
        super().setUp()
        self.profile()
        self.succeed("plan", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84,
                     "--output-dir", "plans", "--no-pictures", "--plans", 20)
        self.rows = [{k: float(v) for k, v in row.items()}
                     for row in rows(self.path / "plans" / "frontier.csv")]

    def choose(self, *arguments):
        answer = self.succeed("choose", "plans", *arguments, "--json").json()
        self.assertTrue((self.path / answer["path"]).is_file())
        row = next(row for row in self.rows if row["plan"] == answer["plan"])
        for key, value in row.items():
            self.assertAlmostEqual(answer[key], value, 9, key)
        return answer

    def test_by_time(self):
        middle = self.rows[len(self.rows) // 2]
        for flag in ("--time", "--deadline"):
            self.assertEqual(self.choose(flag, middle["time_s"])["plan"], middle["plan"])
            self.assertEqual(self.choose(flag, middle["time_s"] * (1 - 1e-6))["plan"],
                             middle["plan"] + 1)
            self.assertEqual(self.choose(flag, 1e6)["plan"], 0)

    def test_by_slowdown(self):
        maximum = json.loads((self.path / "plans" / "plan.json").read_text())["summary"]
        allowed = 1.05 * maximum["all_maximum"]["time_s"]
        best = min((row for row in self.rows if row["time_s"] <= allowed),
                   key=lambda row: row["energy_j"])
        self.assertEqual(self.choose("--max-slowdown", 1.05)["plan"], best["plan"])

    def test_energies_and_times_of_any_size_are_plain_numbers(self):
        text = (self.path / self.profile("two.csv", 2)).read_text().splitlines()
        for scale in (4e-8, 1, 1e3):
            lines = [text[0]]
            for line in text[1:]:
                *key, time, energy = line.split(",")
                lines.append(",".join([*key, repr(float(time) * scale),
                                       repr(float(energy) * scale)]))
            (self.path / "scaled.csv").write_text("\n".join(lines) + "\n")
            problem = ["--inst-profile", "scaled.csv", "--num-mbs", 4, "--p2p-power", 84]
            out = self.succeed("plan", *problem, "--plans", 5, "-o", "scaled", "--force").out
            out += self.succeed("evaluate", *problem, "--plan", "scaled").out
            out += self.succeed("choose", "scaled", "--straggler", 1.5).out
            out += self.refuse(1, "the fastest, plan", "choose", "scaled", "--time", 1e-9).err
            out += (self.path / "scaled" / "frontier.svg").read_text().partition("<text")[2]
            self.assertIsNone(re.search(r"\d[eE][-+]\d", out), (scale, out[:3000]))
            for row in rows(self.path / "scaled" / "frontier.csv"):
                self.assertGreaterEqual(float(row["gap_percent"]), 0)

    def test_a_fastest_plan_does_not_hide_the_saving_of_one_as_fast_as_the_highest_clocks(self):
        """The clock in the middle is faster by a ten-thousandth, and needs more energy."""
        (self.path / "near.csv").write_text(
            "stage,instruction,frequency,time,energy\n" +
            "".join(f"0,{name},{mhz},{time},{energy}\n" for name in ("forward", "backward")
                    for mhz, time, energy in ((1410, 0.1, 10), (1305, 0.09999, 11),
                                              (1200, 0.1, 8))))
        out = self.succeed("plan", "--inst-profile", "near.csv", "--num-mbs", 2, "--p2p-power", 0,
                           "-o", "near", "--no-pictures").out
        saved = {line[:26].strip(): line[26:].split()[6] for line in out.splitlines()
                 if line.startswith(("  fastest", "  no slowdown"))}
        self.assertEqual(saved, {"fastest, within 0.1 %": "20.00"})
        self.assertIn("\n\nMeasured times vary by more than 0.1 %: plan 0 is shown in place of the fastest, 4, "
                      "which takes 0.0100 % less time and 37.50 % more energy.\n", out)
        out = self.succeed("plan", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power",
                           84, "-o", "usual", "--no-pictures").out
        self.assertNotIn("no slowdown", out)

    def test_time_and_deadline_agree(self):
        """If two clocks have the same energy, no plan is slower than another without saving
        energy."""
        (self.path / "even.csv").write_text(
            "stage,instruction,frequency,time,energy\n" +
            "".join(f"{stage},{name},{mhz},{time},{energy}\n" for stage in range(2)
                    for name, mhz, time, energy in (
                        ("forward", 1410, 0.1, 10), ("forward", 1305, 0.1125, 10),
                        ("backward", 1410, 0.2, 22), ("backward", 1305, 0.225, 20))))
        for plans in ("all", 7, 100):
            self.succeed("plan", "--inst-profile", "even.csv", "--num-mbs", 3, "--p2p-power", 0,
                         "-o", "even", "--force", "--no-pictures", "--plans", plans)
            table = [{k: float(v) for k, v in row.items()}
                     for row in rows(self.path / "even" / "frontier.csv")]
            self.assertGreater(len(table), 1)
            for fast, slow in zip(table, table[1:]):
                self.assertLess(fast["time_s"], slow["time_s"])
                self.assertGreater(fast["energy_j"], slow["energy_j"])
            for row in table:
                for time in (row["time_s"], row["time_s"] * 1.003):
                    chosen = [self.succeed("choose", "even", flag, time, "--json").json()["plan"]
                              for flag in ("--time", "--deadline")]
                    self.assertEqual(chosen[0], chosen[1], (plans, time))

    def test_by_energy(self):
        self.assertEqual(self.choose("--min-energy")["plan"], 0)

    def test_by_power(self):
        middle = self.rows[len(self.rows) // 2]
        chosen = self.choose("--power-cap", middle["average_power_w"])
        self.assertLessEqual(chosen["average_power_w"], middle["average_power_w"] * (1 + 1e-12))
        faster = [row for row in self.rows if row["plan"] > chosen["plan"]]
        self.assertTrue(all(row["average_power_w"] > middle["average_power_w"] for row in faster))

    def test_by_straggler_counts_the_waiting(self):
        fastest = self.rows[0]["time_s"]
        for factor in (1, 1.1, 100):
            chosen = self.choose("--straggler", factor)
            self.assertLessEqual(chosen["time_s"], factor * fastest)
            waiting = 4 * 84 * (factor * fastest - chosen["time_s"])
            self.assertAlmostEqual(chosen["waiting_energy_j"], waiting, 5)
            self.assertAlmostEqual(chosen["iteration_energy_j"], chosen["energy_j"] + waiting, 5)
        self.assertEqual(self.choose("--straggler", 1)["plan"], self.rows[0]["plan"])
        self.assertEqual(self.choose("--straggler", 100)["plan"], 0)

    def test_one_of_a_kind_is_no_plural(self):
        self.succeed("synth", "--stages", 1, "--output", "one.csv", "--quiet")
        self.assertIn("1 stage x 1 microbatch, ",
                      self.succeed("plan", "-i", "one.csv", "-m", 1, "-p", 70, "--bound-only").out)

    def test_for_people_it_ends_with_the_path(self):
        out = self.succeed("choose", "plans/", "--min-energy").out
        self.assertTrue(out.endswith("\nplans/freqs_pipeline_00000.py\n"), out)

    def test_what_cannot_be_had_names_the_nearest(self):
        self.refuse(1, "the fastest, plan", "choose", "plans", "--time", "0.001")
        refused = self.refuse(1, "the fastest, plan", "choose", "plans", "--time", "0.001")
        self.assertLessEqual(max(map(len, re.findall(r"\.(\d+)", refused.err))), 6, refused)
        fastest_s = re.search(r"takes ([0-9.]+) s$", refused.err.strip())[1]
        self.succeed("choose", "plans", "--time", fastest_s)
        self.refuse(1, "the least, plan 0, draws", "choose", "plans", "--power-cap", "1")
        self.refuse(2, "--max-slowdown 0.05: X is a factor of at least 1; 5 % slower is 1.05", "choose", "plans",
                    "--max-slowdown", "0.05")

    def test_usage(self):
        self.refuse(2, "the criterion is missing", "choose", "plans")
        self.refuse(2, "nowhere: No such file", "choose", "nowhere")
        self.refuse(2, "give only one", "choose", "plans", "--time", 3, "--min-energy")
        self.refuse(2, "plan directory is missing", "choose", "--min-energy")
        self.refuse(2, "'more' is a second", "choose", "plans", "more", "--min-energy")
        self.refuse(2, "--straggler: expected", "choose", "plans", "--straggler", "0.9")
        self.refuse(2, "--time: expected", "choose", "plans", "--time", "soon")
        self.refuse(2, "--time: expected", "choose", "plans", "--time", "-3")


class Evaluate(ProgramTest):
    def setUp(self):
        super().setUp()
        self.profile()
        self.problem = ["--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84]
        self.succeed("plan", *self.problem, "--output-dir", "plans", "--no-pictures", "--plans", 4)

    def test_it_agrees_with_the_planner(self):
        answer = self.succeed("evaluate", *self.problem, "--plan", "plans", "--json").json()
        table = {f"plans/freqs_pipeline_{int(row['plan']):05d}.py": row
                 for row in rows(self.path / "plans" / "frontier.csv")}
        self.assertEqual([plan["file"] for plan in answer["plans"]], sorted(table))
        for plan in answer["plans"]:
            for key in COLUMNS[1:]:
                self.assertAlmostEqual(plan[key], float(table[plan["file"]][key]), 5, key)

    def test_several_files_in_the_order_given(self):
        files = ["plans/freqs_pipeline_00001.py", "plans/freqs_pipeline_00000.py"]
        answer = self.succeed("evaluate", *self.problem, "--plan", files[0], "--plan", files[1],
                              "--json").json()
        self.assertEqual([plan["file"] for plan in answer["plans"]], files)
        out = self.succeed("evaluate", *self.problem, "--plan", *files).out
        self.assertIn("all at maximum frequency", out)
        self.assertLess(out.index("pipeline_00001"), out.index("pipeline_00000"))

    def test_plans_that_do_not_fit(self):
        plan = "plans/freqs_pipeline_00000.py"
        self.refuse(1, "rank 0 has 8 instructions, but the schedule runs 10", "evaluate",
                    "--inst-profile", "profile.csv", "--num-mbs", 5, "--p2p-power", 84, "--plan",
                    plan)
        self.profile("two.csv", 2)
        self.refuse(1, "the plan has 4 ranks, the schedule 2", "evaluate", "--inst-profile",
                    "two.csv", "--num-mbs", 4, "--p2p-power", 84, "--plan", plan)
        text = (self.path / plan).read_text()
        self.write("odd.py", re.sub(r"\('backward', \d+\)", "('backward', 1234)", text))
        self.refuse(1, "at 1234 MHz, which the profile does not have", "evaluate", *self.problem,
                    "--plan", "odd.py")

    def test_usage(self):
        self.refuse(2, "--plan is missing", "evaluate", *self.problem)
        os.mkdir(self.path / "empty")
        self.refuse(1, "no plan files", "evaluate", *self.problem, "--plan", "empty")
        self.refuse(1, "nowhere.py", "evaluate", *self.problem, "--plan", "nowhere.py")


class Streams(ProgramTest):
    def test_a_full_standard_output_is_noticed(self):
        with open("/dev/full", "w") as full:
            for arguments in (["--help"], ["synth", "--quiet"], ["plan", "--help"]):
                result = self.run_harpe(*arguments, stdout=full)
                self.assertEqual(result.code, 1, result)
                self.assertIn("standard output", result.err)

    def test_a_closed_standard_output_is_noticed(self):
        result = self.run_harpe("synth", "--quiet", preexec_fn=lambda: os.close(1))
        self.assertEqual(result.code, 1, result)
        self.assertIn("standard output", result.err)

    def test_a_closed_pipe_is_noticed(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        try:
            result = self.run_harpe("synth", "--quiet", stdout=write_end)
        finally:
            os.close(write_end)
        self.assertEqual(result.code, 1, result)
        self.assertIn("standard output", result.err)

    def test_closed_streams_do_not_end_up_in_files(self):
        def close_all():
            for fd in (0, 1, 2):
                os.close(fd)

        process = subprocess.Popen([HARPE, "synth", "--output", "p.csv"],
                                   cwd=self.path, preexec_fn=close_all, env=environment())
        process.wait(timeout=600)
        text = (self.path / "p.csv").read_text()
        self.assertTrue(text.startswith("stage,instruction"))
        self.assertNotIn("p2p-power", text)
