# SPDX-License-Identifier: Apache-2.0
"""`harpe train-sim` from the outside, in virtual time: plans, baselines, physics, profiles, learning.
Real processes show only what needs them: kills, signals, late ranks, other servers."""
import csv
import http.server
import re
import statistics
import sys
import time

from program import LIMIT_S, environment, json, os, pathlib, signal
from program import SOURCE
from fixtures import folder
from train_sim import Simulation, processes_with

sys.path.insert(0, str(SOURCE / "tests" / "server"))
from server import Server  # noqa: E402


class PlanForEachGpu(Simulation):
    """A plan with a list for each GPU is served to the ranks by their places in the job."""

    def make_plan(self):
        directory = folder(self.addCleanup)
        gpus, plans = directory / "gpus.csv", directory / "plans"
        self.succeed("synth", "--stages", 2, "--replicas", 2, "--gpus-per-stage", 2,
                     "--variability", 0.15, "--output", gpus)
        self.succeed("plan", "--inst-profile", gpus, "--replicas", "--num-mbs", 4, "--output-dir",
                     plans)
        return f"{plans}/job.py"

    def test_ranks_follow_the_lists_of_their_places(self):
        plan = self.make_plan()
        job = ["--pp", 2, "--dp", 2, "--tp", 2, "--num-mbs", 4, "--steps", 3]
        measured = self.report(*job, "--plan", plan)["measured"]
        self.as_predicted(measured["plan"])
        # The emulated GPUs are equal, so lists in another order would give another time.
        lists = [line for line in pathlib.Path(plan).read_text().splitlines() if len(line) > 1]
        self.assertEqual(len(set(lists)), 8)
        self.assertGreater(measured["plan"]["savings_percent"], 1)

    def test_plan_for_another_job_is_refused(self):
        plan = self.make_plan()
        self.sim("--pp", 2, "--dp", 3, "--num-mbs", 4, "--plan", plan)
        _, said = self.finish(1)
        self.assertIn("the plan has 8 ranks, the schedule 2", said)
        self.sim("--pp", 2, "--dp", 2, "--tp", 2, "--num-mbs", 5, "--plan", plan)
        _, said = self.finish(1)
        self.assertIn("list 0 has 8 instructions, but stage 0 runs 10", said)


class Offline(Simulation):
    def test_measured_is_as_predicted_and_saves_energy(self):
        measured = self.report("--offline", "--steps", 5)["measured"]
        self.assertGreater(measured["plan"]["savings_percent"], 10)
        self.assertGreater(measured["plan"]["clock_writes"], 0)
        self.assertGreaterEqual(measured["plan"]["steps"], 5)
        for kind in ("highest_clocks", "plan"):
            self.as_predicted(measured[kind])
            self.assertGreaterEqual(measured[kind]["worst_time_s"], measured[kind]["mean_time_s"])
            self.assertGreaterEqual(measured[kind]["worst_time_s"], measured[kind]["time_s"])
            self.assertGreater(measured[kind]["mean_energy_j"], 0)


class OneClock(Simulation):
    """The best clock for all GPUs is that of `harpe plan` for the same profile."""

    def test_one_clock_is_that_of_the_planner(self):
        directory = folder(self.addCleanup)
        path = directory / "profile.csv"
        self.succeed("synth", "--stages", 2, "--output", path)
        problem = ["--inst-profile", path, "--num-mbs", 4, "--p2p-power", 84]
        made = self.succeed("plan", *problem, "--output-dir", directory / "plans", "--json").json()
        as_fast, slow = (made["summary"]["one_clock"][key] for key in ("all_maximum",
                                                                         "minimum_energy"))
        job = [*problem, "--pp", 2, "--dp", 2, "--steps", 3]
        job += ["--plan", directory / "plans/freqs_pipeline_00000.py"]
        self.sim("--json", *job)
        report = json.loads(self.finish()[0])
        found = report["predicted"]["one_clock"]
        for key, expected in (("highest_clocks", as_fast), ("plan", slow)):
            self.assertEqual(found[key]["frequency_mhz"], expected["frequency_mhz"])
            self.assertAlmostEqual(found[key]["energy_j"], 2 * expected["energy_j"], 5)
            self.assertAlmostEqual(found[key]["time_s"], expected["time_s"], 9)
        measured = report["measured"]
        self.assertAlmostEqual(measured["plan"]["one_clock_savings_percent"],
                               made["summary"]["minimum_energy"]["one_clock_savings_percent"], 2)
        self.sim(*job)
        out, _ = self.finish()
        for row in (as_fast, slow):
            self.assertRegex(out, rf"(?m)^  one clock, {row['frequency_mhz']} MHz ")
        self.assertRegex(out, r"One clock for all GPUs saves \d+\.\d\d % and takes \+\d+\.\d\d % time")


class Baseline(Simulation):
    """The baseline is measured in turns with the plan."""

    def test_a_plan_that_changes_nothing_saves_nothing(self):
        for physics in ("ideal", "real"):
            report = self.report("--scheduler", "AllMaxFrequency", "--scheduler-args", '{"num_microbatches": 8}',
                                 "--steps", 10, "--physics", physics)
            plan = report["measured"]["plan"]
            # so that the interval says something: the first steps of cold GPUs cost 1.2 to 1.9 % less
            self.assertLess(plan["savings_uncertainty_percent"], 1.2)
            self.assertLessEqual(abs(plan["savings_percent"]), plan["savings_uncertainty_percent"])

    def test_steps_of_the_baseline_are_spread_over_those_of_the_plan(self):
        for steps, expected in ((1, 2), (3, 4), (25, 9)):
            report = self.report("--offline", "--pp", 2, "--num-mbs", 4, "--steps", steps)
            highest, plan = report["measured"]["highest_clocks"], report["measured"]["plan"]
            self.assertEqual(highest["steps"], expected)
            self.assertEqual(len(report["baseline_steps"]), expected)
            self.assertEqual({step["round"] for step in report["baseline_steps"]}, {-1})
            self.assertGreaterEqual(plan["steps"], steps)
            self.assertEqual([rank["misfits"] for rank in report["ranks"]], [0, 0])

    def test_people_see_one_baseline_and_one_saving(self):
        self.sim("--pp", 2, "--num-mbs", 4, "--steps", 12, "--scheduler-args", '{"frequency_stride": 12}',
                 "--learning-limit", LIMIT_S)
        out, _ = self.finish()
        self.assertEqual(len(re.findall("^  highest clocks .* J ", out, re.MULTILINE)), 1, out)
        self.assertEqual(len(re.findall("The plan saves ", out)), 1, out)
        for name in ("saved:", "time lost:", "baseline:", "predicted"):
            self.assertNotIn(name, out)


class Physics(Simulation):
    """GPUs that are not ideal. What a plan loses on them is not tested here."""

    def test_a_plan_is_served_to_real_gpus(self):
        report = self.report("--offline", "--physics", "real", "--seed", 3, "--steps", 4)
        for kind in ("highest_clocks", "plan"):  # noise, drift and variability are below these bounds
            self.as_predicted(report["measured"][kind], percent=25)
        self.assertEqual(report["physics"], "real")
        measured = report["measured"]
        times = [step["time_s"] for step in report["baseline_steps"]]  # on ideal GPUs all are equal
        self.assertGreater(max(times) - min(times), 1e-5)
        self.assertGreater(measured["plan"]["clock_writes"], 0)

    def test_learning_ends_on_real_gpus(self):
        path = self.measured_profile()
        report = self.report("--inst-profile", path, "--pp", 2, "--num-mbs", 3, "--steps", 2,
                             "--physics", "real")
        self.assertGreater(report["measured"]["learning"]["steps"], 0)
        self.assertGreaterEqual(report["measured"]["plan"]["steps"], 2)

    def test_a_plan_beats_the_throttled_highest_clocks(self):
        """The power limit throttles the highest clocks. The learnt plan is as fast, within what the
        wandering clock leaves uncertain, and saves energy against the throttled GPU. The server,
        which sees the ranks' reports only, tells the same saving."""
        effects = folder(self.addCleanup) / "effects.json"
        effects.write_text('{"power_cap_w": 280, "throttle_wander": 0.05, "throttle_waste": 0.11}')
        report = self.report("--physics", effects, "--steps", 40)
        highest, plan = report["measured"]["highest_clocks"], report["measured"]["plan"]
        self.assertGreater(highest["time_error_percent"], 10)  # they are not reached
        self.assertGreater(plan["savings_percent"], 7)
        self.assertLess(plan["mean_time_s"], 1.01 * highest["mean_time_s"])
        self.assertLess(report["measured"]["learning"]["mean_time_s"], 1.01 * highest["mean_time_s"])
        told = [one for one in report["frontier"]["measured"] if one["baseline"]]
        self.assertTrue(told)
        for one in told:
            real = statistics.median(step["energy_j"] for step in report["steps"]
                                     if step["round"] == one["round"])
            self.assertAlmostEqual(one["baseline"][1] - one["energy"], highest["mean_energy_j"] - real,
                                   delta=one["uncertainty"][1] + 0.005 * highest["energy_j"], msg=one)

    def measured_profile(self):
        path = folder(self.addCleanup) / "profile.csv"
        lines = ["stage,instruction,frequency,time,energy"]
        for stage in range(2):
            for name, base_s in (("forward", 0.05), ("backward", 0.1)):
                for mhz in (1410, 1200, 900):
                    x = mhz / 1410
                    time_s = base_s * (1 + 0.1 * stage) * (0.8 / x + 0.2)
                    lines.append(f"{stage},{name},{mhz},{time_s},{time_s * (98 + 290 * x ** 3)}")
        path.write_text("\n".join(lines) + "\n")
        return path

    def test_a_late_clock_makes_the_plan_late(self):
        """With a latency far beyond the instructions, the time is not the plan's any more."""
        effects = folder(self.addCleanup) / "effects.json"
        effects.write_text('{"switch_latency_s": 0.2}')
        plan = self.report("--offline", "--physics", effects, "--steps", 3)["measured"]["plan"]
        self.assertGreater(plan["time_error_percent"], 2)

    def test_physics_that_make_no_sense_are_refused(self):
        self.sim("--offline", "--physics", "no-such-file")
        _, err = self.finish(code=2)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn("the physics is ideal, real, or a file of effects: no-such-file", err)


class Profiles(Simulation):
    """Profiles that have other clocks than the GPU, or that measure several GPUs."""

    def setUp(self):
        super().setUp()
        self.folder = folder(self.addCleanup)

    def write(self, clocks, stages=2, gpus=1):
        """`clocks` are the clocks of forward and of backward."""
        path = self.folder / "profile.csv"
        lines = ["stage,instruction,frequency,time,energy,gpus"]
        for stage in range(stages):
            for name, base_s, listed in zip(("forward", "backward"), (0.05, 0.1), clocks):
                for mhz in listed:
                    x = mhz / 1410
                    time_s = base_s * (1 + 0.1 * stage) * (0.8 / x + 0.2)
                    lines.append(f"{stage},{name},{mhz},{time_s},"
                                 f"{gpus * time_s * (98 + 290 * x ** 3)},{gpus}")
        path.write_text("\n".join(lines) + "\n")
        return path

    def swept(self, path, *more):
        """Returns the clocks that an online job measured, and the values of the report."""
        swept = self.folder / "swept.csv"
        report = self.report("--inst-profile", path, "--pp", 2, "--num-mbs", 3, "--steps", 2,
                             "--scheduler-args", json.dumps({"profile_path": str(swept)}), *more)
        clocks = {(row["instruction"], int(row["frequency"]))
                  for row in csv.DictReader(swept.read_text().splitlines())}
        return clocks, report

    def test_only_clocks_of_the_profile_are_measured_and_planned(self):
        narrow = [1410, 1395, 1200, 900]
        for listed, offered, told in (
                ((narrow, narrow), set(narrow), ""),
                (([1200], [1200]), {1200}, ""),
                (([1410, 1402, 1395], [1410, 1395, 1380]), {1410, 1395},
                 "4 rows, the first at 1380 MHz, are left out: an emulated A100 does not offer")):
            path = self.write(listed)
            clocks, _ = self.swept(path)
            self.assertLessEqual({mhz for _, mhz in clocks}, offered)
            self.assertIn(("forward", max(offered)), clocks)
            self.assertIn(told, self.err)
            self.assertEqual(self.err.count("are left out"), 1 if told else 0)

    def test_a_profile_of_another_gpu_is_refused(self):
        for listed in (([1402, 1207], [1402, 1207]), ([1410], [1395])):
            path = self.write(listed)
            self.sim("--inst-profile", path, "--pp", 2)
            _, err = self.finish(1)
            self.assertIn(f"{path}: an emulated A100 offers none of the clocks that all "
                          "instructions have: name the model", err)

    def test_repeated_rows_and_stages_that_do_not_fit_are_told(self):
        path = self.write(([1410, 1200], [1410, 1200]))
        path.write_text(path.read_text() + path.read_text().splitlines()[1] + "\n")
        self.report("--offline", "--inst-profile", path, "--pp", 2, "--num-mbs", 2, "--steps", 1)
        self.assertIn("2 rows (lines 2 and 10) measure stage 0 'forward' at 1410 MHz: averaged",
                      self.err)
        self.sim("--inst-profile", path, "--pp", 4)
        _, err = self.finish(1)
        self.assertIn("has 2 stages, but --pp 4 with the schedule 1f1b runs 4: give --pp 2", err)

    def test_each_emulated_gpu_draws_the_power_of_one(self):
        clocks = [1410, 1200, 1005]
        one = self.report("--offline", "--inst-profile", self.write((clocks, clocks)), "--pp", 2,
                          "--num-mbs", 2, "--steps", 1)["predicted"]
        eight = self.report("--offline", "--inst-profile", self.write((clocks, clocks), gpus=8),
                            "--pp", 2, "--num-mbs", 2, "--steps", 1)["predicted"]
        for kind in ("highest_clocks", "plan"):
            for key in ("time_s", "energy_j", "average_power_w"):
                self.assertAlmostEqual(one[kind][key], eight[kind][key], places=6)


class Online(Simulation):
    def test_a_throttled_gpu_is_seen_as_drift_and_planned_with(self):
        report = self.report("--steps", 12, "--scheduler-args", '{"frequency_stride": 6}',
                             "--straggler", "1@+6=1.2")
        measured, story = report["measured"], report["story"]
        self.assertGreater(measured["straggler"]["savings_percent"], 5, report)
        self.assertGreaterEqual(measured["straggler"]["last_round"], story["straggler_round"] + 4, report)

    def test_the_server_tells_the_savings_that_the_emulator_knows(self):
        report = self.report("--steps", 30, "--scheduler-args", '{"frequency_stride": 6}')
        highest = report["measured"]["highest_clocks"]
        steps = {}
        for step in report["steps"]:
            steps.setdefault(step["round"], []).append(step)
        planned = [one for one in report["frontier"]["measured"] if one["baseline"]]
        self.assertGreater(len(planned), 1)
        for one in planned:
            for i, (name, key) in enumerate((("time_s", "time"), ("energy_j", "energy"))):
                real = statistics.median(step[name] for step in steps[one["round"]])
                self.assertAlmostEqual(one["baseline"][i] - one[key], highest[name] - real,
                                       delta=one["uncertainty"][i] + 0.001 * highest[name], msg=one)
        self.assertLess(min(one["uncertainty"][1] for one in planned), 0.05 * highest["energy_j"])

    def test_the_report_of_the_server_comes_at_the_end(self):
        arguments = ("--pp", 2, "--num-mbs", 4, "--steps", 12, "--scheduler-args", '{"frequency_stride": 12}',
                     "--learning-limit", LIMIT_S)
        report = self.report(*arguments)
        trust, saved = report["report"], report["figures"]["saved"]
        self.assertEqual(trust["energy_is_significant"], abs(saved["energy"]) > saved["energy_uncertainty"])
        self.assertGreater(trust["baseline"]["iterations"], 0)
        self.assertGreater(trust["steps"]["run"], 2 * 12)
        self.assertEqual(trust["steps"]["misfit"], 0)
        self.assertEqual(trust["rounds"]["misfit"], 0)
        self.assertIsNone(trust["per_token"])
        self.sim(*arguments)
        out, _ = self.finish()
        for name in ("rounds:", "steps:"):
            self.assertEqual(len(re.findall(f"^  {name}  ", out, re.MULTILINE)), 1, out)


class Answers(Simulation):
    def test_a_step_log_that_cannot_be_written_ends_the_run(self):
        self.refuse(1, "No space left", "train-sim", "--offline", "--quiet", "--log-steps",
                    "/dev/full")
        self.refuse(1, "cannot write", "train-sim", "--offline", "--quiet", "--log-steps",
                    "/no/such/directory/steps")

    def test_people_get_a_table(self):
        self.sim("--offline", "--steps", 2)
        out, err = self.finish()
        self.assertIn("under the optimizer", out)
        self.assertIn("against the plan", out)
        self.assertNotIn("\n\n\n", out)
        progress = [re.fullmatch(r"harpe train-sim: step \d+(?:, round \d+)?: ([a-z-]+)(?: \d+ %)?", line)
                    for line in err.splitlines()]
        self.assertTrue(all(progress), err)
        phases = list(dict.fromkeys(match.group(1) for match in progress))
        self.assertIn(phases, (["warm-up", "learning", "plan"], ["warm-up", "plan"]))

    def test_no_plan_in_time_is_an_error(self):
        self.sim("--learning-limit", 2, "--quiet")
        out, err = self.finish(1)
        self.assertIn("--learning-limit", err)

    def test_a_profile_of_other_stages_is_refused_with_what_to_give(self):
        self.succeed("synth", "--stages", 4, "--quiet", "--output", "four.csv")
        for said, *arguments in (
                ("four.csv has 4 stages, but --pp 8 with the schedule 1f1b runs 8: give --pp 4, or name a "
                 "profile of 8 stages", "--pp", 8),
                ("--pp 2 with the schedule 1f1b runs 2: give --pp 4", "--pp", 2, "--dp", 3, "--tp", 2),
                ("runs 8 (2 a rank): give --pp 2, or", "--pp", 4, "--schedule", "interleaved-1f1b"),
                ("runs 6 (3 a rank): name a profile of 6 stages", "--pp", 2, "--schedule",
                 "interleaved-1f1b", "--chunks", 3),
                ("runs 8 (2 a rank): give --pp 2, or", "--pp", 4, "--schedule", "zb-v")):
            self.refuse(1, said, "train-sim", "--inst-profile", "four.csv", "--offline",
                        "--num-mbs", 8, *arguments)

    def test_schedules_with_batched_sends_are_refused(self):
        for name in ("dualpipe", "dualpipe-v-deepseek"):
            self.refuse(2, f"train-sim cannot run the schedule {name}, whose ranks also wait",
                        "train-sim", "--pp", 2, "--offline", "--num-mbs", 8, "--schedule", name)

    def test_values_that_make_no_sense_are_refused(self):
        for message, *arguments in (("RANK@STEP", "--kill-rank", "2"),
                                    ("STEP=FACTOR", "--straggler", "1@5"),
                                    ("0 to 3", "--straggler", "4@1=1.2"),
                                    ("exclude", "--offline", "--plan", "plan.py"),
                                    ("4100 ranks", "--pp", "41", "--dp", "100"),
                                    ("JSON object", "--scheduler-args", "[]"),
                                    ("no arguments", "what")):
            self.refuse(2, message, "train-sim", *arguments)
        self.refuse(1, "no server answers", "train-sim", "--server", "http://127.0.0.1:9")


class RealTime(Simulation):
    def test_a_restarted_rank_that_dies_ends_the_run(self):
        process = self.sim("--offline", "--steps", 1000, "--time-scale", 5, "--kill-rank", "2@+1")
        first = self.ranks_other_than(set())
        again = self.ranks_other_than(first)
        os.kill(min(again), signal.SIGKILL)
        out, err = self.finish(1)
        self.assertIn("ended before its time", err)
        self.assertEqual(out, "")

    def test_a_rank_that_this_machine_wakes_late_is_told(self):
        """A rank is stopped for half a second. What it does next comes late by at least this time, less
        the work that its GPU had left, which is less than a step."""
        stopped_s, scale = 0.5, 20
        log = folder(self.addCleanup) / "steps.jsonl"
        began_s = time.monotonic()
        self.sim("--offline", "--pp", 2, "--num-mbs", 4, "--steps", 10000, "--time-scale", scale, "--quiet",
                 "--log-steps", log)

        def steps():
            return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]

        self.wait_until(lambda: log.exists() and len(steps()) > 6, "steps have ended")
        rank = min(self.ranks_other_than(set(), 2))
        for _ in range(10):  # it may be stopped between two steps
            before = steps()
            os.kill(rank, signal.SIGSTOP)
            time.sleep(stopped_s)
            os.kill(rank, signal.SIGCONT)
            self.wait_until(lambda: len(steps()) > len(before) + 2, "steps have ended")
            late_s = max(step["host_late_s"] for step in steps()[len(before):])
            if late_s >= stopped_s * scale - before[-1]["time_s"]:
                break
        self.assertGreaterEqual(late_s, stopped_s * scale - before[-1]["time_s"])
        self.assertLess(late_s, (time.monotonic() - began_s) * scale)
        self.process.send_signal(signal.SIGINT)
        self.finish(128 + signal.SIGINT)

    def test_interrupted_it_leaves_nothing(self):
        self.sim("--time-scale", 5)
        until, servers = time.monotonic() + LIMIT_S, []
        while not servers and time.monotonic() < until:
            time.sleep(0.05)
            servers = [line for line in processes_with(self.mark) if b"harpe serve" in line]
        self.assertEqual(len(servers), 1)
        self.process.send_signal(signal.SIGINT)
        out, err = self.finish(128 + signal.SIGINT)
        self.assertEqual(out, "")
        self.assertIn("interrupted", err)

    def test_a_single_rank_is_not_killed(self):
        """It meets no other rank. The launcher kills ranks that do not end within 60 s, and says so."""
        self.sim("--pp", 1, "--steps", 10000, "--time-scale", 20, "--offline")
        self.wait_until(lambda: len([line for line in processes_with(self.mark)
                                     if b"train-sim" in line]) >= 3, "three processes run")
        self.process.send_signal(signal.SIGINT)
        _, err = self.finish(128 + signal.SIGINT)
        self.assertIn("interrupted", err)
        self.assertNotIn("killed", err)

    def test_each_step_is_logged_as_it_ends(self):
        log = folder(self.addCleanup) / "steps.jsonl"
        report = self.report("--offline", "--steps", 4, "--pp", 2, "--time-scale", 20, "--log-steps", log)
        steps = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(steps, report["steps"])
        ends = [step["ended_at"] for step in steps]
        self.assertEqual(ends, sorted(ends))
        self.assertLess(abs(time.time() - ends[-1]), LIMIT_S)
        # Interrupted, it keeps the steps that have ended.
        self.sim("--offline", "--steps", 10000, "--pp", 2, "--log-steps", log)
        self.wait_until(lambda: log.exists() and 20 <= len(log.read_text().splitlines()) < 10000,
                        "20 steps have ended")
        self.process.send_signal(signal.SIGINT)
        self.finish(128 + signal.SIGINT)
        self.assertGreaterEqual(len([json.loads(line) for line in log.read_text().splitlines()]), 20)

    def test_a_server_that_is_gone_is_the_reason_for_no_plan(self):
        class Healthy(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *arguments):
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
            self.sim("--server", f"http://127.0.0.1:{server.server_port}", "--learning-limit", 2, "--quiet")
            for _ in ("/info", "/healthz"):
                server.handle_request()
        out, err = self.finish(1)
        self.assertIn("the server does not answer", err)

    def test_nothing_is_left_in_tmp_however_it_ends(self):
        for ends in ((signal.SIGINT, signal.SIGINT), (signal.SIGKILL,), (signal.SIGTERM,)):
            with self.subTest(ends=ends):
                place = self.path / "-".join(name.name for name in ends)
                place.mkdir()
                self.variables["TMPDIR"] = str(place)
                process = self.sim("--steps", 10000, "--quiet")
                self.wait_until(lambda: list(place.glob("harpe-train-sim-*/*")), "it has files")
                for one in ends:
                    process.send_signal(one)
                process.communicate(timeout=LIMIT_S)
                self.wait_until(lambda: not list(place.iterdir()), "its files are gone")
                place.rmdir()
                self.nothing_is_left()

    def test_a_server_that_ends_at_its_start_says_why(self):
        for who, *arguments in (("harpe train-sim: the server",), ("harpe train-sim: the server", "--quiet"),
                                ("harpe serve", "--real-time"), ("harpe serve", "--real-time", "--quiet")):
            result = self.run_harpe("train-sim", "--scheduler", "Nobody", *arguments)
            self.assertEqual((result.code, result.out), (1, ""), result)
            self.assertRegex(result.err, rf"\A{who}: .*there is no 'Nobody'.*\n"
                                         r"harpe train-sim: the server .* ended at its start\n\Z")

    def test_a_server_that_wants_a_token_is_told_of_at_once(self):
        self.write("token", "secret\n")
        server = Server(self.path, "--store", "memory", "--no-dump", "--token-file", "token",
                        "--scheduler", "AllMaxFrequency", "--scheduler-args",
                        '{"num_microbatches": 8}')
        self.addCleanup(server.kill)
        for token, message in (("", "set HARPE_TOKEN"), ("guess", "does not know the token")):
            self.refuse(1, message, "train-sim", "--server", f"http://127.0.0.1:{server.port}",
                        env=environment(HARPE_TOKEN=token))
