# SPDX-License-Identifier: Apache-2.0
"""Bad input causes one clear line on stderr and the right exit code, and writes nothing. Input that
only looks bad (identical options) works. tests/plan has what each file may hold."""
import re
import resource
import shutil
import time

from program import HARPE, ProgramTest, environment, os, pathlib, rows, signal, subprocess

HEADER = "stage,instruction,frequency,time,energy\n"
GOOD = HEADER + "".join(
    f"{stage},{name},{frequency},{work / frequency:.6f},{work * (0.02 + frequency / 5e4):.4f}\n"
    for stage in range(2) for name, work in (("forward", 50 + stage), ("backward", 100))
    for frequency in (1400, 1200, 1000, 800))


class BadInputTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("good.csv", GOOD)

    def arguments(self, profile="good.csv", mbs=4, power=60, output="plans", more=()):
        return ["plan", "--inst-profile", profile, "--num-mbs", mbs, "--p2p-power", power,
                "--output-dir", output, *more]

    def refuse_profile(self, content, message):
        self.write("bad.csv", content)
        self.refuse(1, message, *self.arguments(profile="bad.csv"))

    def plan(self, content=GOOD, power=60, mbs=4):
        self.write("odd.csv", content)
        self.succeed(*self.arguments(profile="odd.csv", power=power, mbs=mbs,
                                     more=["--no-pictures", "--verify"]))
        table = rows(self.path / "plans" / "frontier.csv")
        shutil.rmtree(self.path / "plans")
        return table


class Profiles(BadInputTest):
    def test_missing_and_unreadable_files(self):
        self.refuse(1, "nowhere.csv", *self.arguments(profile="nowhere.csv"))
        self.refuse(1, ".", *self.arguments(profile="."))
        if os.geteuid() != 0:
            os.chmod(self.path / "good.csv", 0)
            self.refuse(1, "good.csv", *self.arguments())

    def test_stages_do_not_fit(self):
        self.refuse(1, "good.csv: the profile has 2 stages, but the schedule (1f1b, 4 ranks) has 4",
                    *self.arguments(more=["--num-stages", 4]))
        self.refuse(1, "good.csv: the profile has 2 stages, but the schedule (1f1b, 1 rank) has 1",
                    *self.arguments(more=["--num-stages", 1]))
        one = "".join(line for line in GOOD.splitlines(True) if not line.startswith("1,"))
        self.refuse_profile_with(one, "cannot be divided into 2 per rank", ["--schedule", "zb-v"])

    def refuse_profile_with(self, content, message, more):
        self.write("bad.csv", content)
        self.refuse(1, message, *self.arguments(profile="bad.csv", more=more))

    def test_an_instruction_that_the_schedule_needs_is_missing(self):
        content = "".join(line for line in GOOD.splitlines(True) if "1,backward" not in line)
        self.refuse_profile(content, "backward")
        self.refuse_profile(HEADER + "0,forward,1400,0.05,x\n", "bad.csv:2:21")
        self.refuse(1, "backward_input", *self.arguments(more=["--schedule", "zb-h1"]))
        self.refuse(1, "'dataload'", *self.arguments(more=["--prologue", "dataload"]))


class OddButFine(BadInputTest):
    def test_every_option_identical(self):
        content = HEADER + "".join(f"{s},{n},{f},0.05,10\n" for s in range(2)
                                   for n in ("forward", "backward") for f in (1400, 1200, 1000))
        self.assertEqual(len(self.plan(content)), 1)


class Values(BadInputTest):
    def test_numbers_of_microbatches(self):
        for value in ("0", "-4", "many", "4.5", "", "99999999999999999999", "2000000", " 4"):
            self.refuse(2, f"--num-mbs: expected a whole number from 1 to 1000000, found '{value}'",
                        *self.arguments(mbs=value))

    def test_a_huge_number_of_microbatches_has_an_estimate_and_a_limit(self):
        message = self.refuse(1, "MiB", *self.arguments(mbs=1000000,
                              more=["--memory-limit", 1])).err
        self.assertIn("microbatches, or raise the memory limit", message)

    def test_other_flags(self):
        for flag, value, message in [
                ("--num-stages", "0", "--num-stages"), ("--num-stages", "x", "--num-stages"),
                ("--p2p-power", "-1", "--p2p-power"), ("--p2p-power", "60,", "--p2p-power"),
                ("--p2p-power", "nan", "--p2p-power"), ("--p2p-power", "60W", "--p2p-power"),
                ("--p2p-power", "60,60,60", "3 blocking powers for 2 ranks: give one, or one for each"),
                ("--unit-time", "0", "--unit-time"), ("--noise-factor", "0", "--noise-factor"),
                ("--noise-factor", "1.1", "--noise-factor"),
                ("--cost-model", "cubic", "--cost-model: expected hull or exponential"),
                ("--schedule", "1f2b", "did you mean '1f1b'?"),
                ("--schedule", "whatever", "--schedule: expected"),
                ("--chunks", "0", "--chunks"), ("--chunks", "3", "1f1b"),
                ("--microbatch-group-size", "0", "--microbatch-group-size"),
                ("--microbatch-group-size", "2", "1f1b has no groups of microbatches"),
                ("--prologue", "a,,b", "--prologue"), ("--prologue", "forward", "forward"),
                ("--plans", "some", "--plans"), ("--plans", "0", "--plans"),
                ("--plans", "-3", "--plans"), ("--memory-limit", "0", "--memory-limit")]:
            self.refuse(2, message, *self.arguments(more=[f"{flag}={value}"]))

    def test_what_is_missing_is_named(self):
        full = self.arguments()
        for flag in ("--inst-profile", "--num-mbs", "--p2p-power", "--output-dir"):
            at = full.index(flag)
            self.refuse(2, f"{flag} is missing", *full[:at], *full[at + 2:])
        self.refuse(2, "'stray' is not a flag", *full, "stray")

    def test_odd_values_still_make_one_line(self):
        self.refuse(2, "found '4?5'", *self.arguments(mbs="4\n5"))
        self.refuse(2, "no command 'a?b'", "a\nb")
        self.refuse(1, "no?where.csv", *self.arguments(profile="no\nwhere.csv"))

    def test_values_are_checked_before_any_file(self):
        self.refuse(2, "--num-mbs", *self.arguments(profile="nowhere.csv", mbs=0))


class Outputs(BadInputTest):
    def test_an_existing_directory(self):
        os.mkdir(self.path / "plans")
        self.write("plans/mine.txt", "precious")
        self.refuse(1, "--force", *self.arguments())
        self.refuse(1, "not a plan directory", *self.arguments(more=["--force"]))
        self.assertEqual((self.path / "plans" / "mine.txt").read_text(), "precious")

    def test_force_replaces_nothing_that_harpe_did_not_make(self):
        for name, content in [(".bashrc", "precious"), ("bound.csv", "precious"),
                              ("plan.json", "precious"), ("plan.json", '{"program": "other"}'),
                              ("frontier.csv", "plan,time_s\n")]:
            os.mkdir(self.path / "plans")
            self.write(f"plans/{name}", content)
            self.refuse(1, "not a plan directory", *self.arguments(more=["--force"]))
            self.assertEqual((self.path / "plans" / name).read_text(), content)
            shutil.rmtree(self.path / "plans")
        os.mkdir(self.path / "plans")
        os.mkdir(self.path / "plans" / "sub")
        self.refuse(1, "plans", *self.arguments(more=["--force"]))

    def test_force_replaces_what_harpe_made_and_what_is_empty(self):
        os.mkdir(self.path / "plans")
        for more in (["--bound-only"], ["--bound-only"], ["--no-pictures"], ["--no-pictures"]):
            self.succeed(*self.arguments(more=["--force", *more]))
        self.assertTrue((self.path / "plans" / "plan.json").is_file())
        self.succeed(*self.arguments(output="bound", more=["--bound-only"]))
        self.write("bound/notes.txt", "precious")
        self.refuse(1, "not a plan directory",
                    *self.arguments(output="bound", more=["--bound-only", "--force"]))

    def test_an_existing_directory_is_met_before_the_work(self):
        os.mkdir(self.path / "plans")
        self.refuse(1, "already exists", *self.arguments(profile="nowhere.csv"))

    def test_an_existing_file(self):
        self.write("plans", "precious")
        self.refuse(1, "plans", *self.arguments())
        self.refuse(1, "plans", *self.arguments(more=["--force"]))
        self.assertEqual((self.path / "plans").read_text(), "precious")

    def test_a_failure_leaves_a_replaced_directory_alone(self):
        self.succeed(*self.arguments(more=["--no-pictures"]))
        self.refuse(1, "nowhere.csv", *self.arguments(profile="nowhere.csv", more=["--force"]))

    def test_a_directory_that_cannot_be_made(self):
        self.refuse(1, "/proc", *self.arguments(output="/proc/plans"))
        self.refuse(1, "good.csv", *self.arguments(output="good.csv/plans"))
        self.refuse(1, "", *self.arguments(output="x" * 5000))
        self.refuse(2, "name a directory", *self.arguments(output="/"))

    def test_a_file_size_limit_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
        self.refuse(1, "cannot write", *self.arguments(mbs=40), preexec_fn=limit)
        self.refuse(1, "", "synth", "--output", "p.csv", preexec_fn=limit)

    def test_a_full_disk_leaves_nothing(self):
        disk = self.path / "disk"
        disk.mkdir()
        script = ('mount -t tmpfs -o size=64k none "$1" || exit 77; "$2" plan --inst-profile '
                  'good.csv --num-mbs 40 --p2p-power 60 --output-dir "$1/plans"; code=$?; '
                  'find "$1" -mindepth 1; exit $code')
        process = subprocess.run(["unshare", "-rm", "sh", "-c", script, "sh", str(disk), HARPE],
                                 env=environment(), cwd=self.path, capture_output=True, text=True, timeout=600)
        if process.returncode == 77 or "unshare" in process.stderr:
            self.skipTest("no small file system can be mounted here")
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertEqual(process.stdout, "")
        self.assertIn("No space left", process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)


class Interruption(BadInputTest):
    def catches(self, process, number):
        """Returns true if the process has a handler for this signal."""
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        caught = int(re.search(r"^SigCgt:\t(\w+)$", status, re.M).group(1), 16)
        return caught >> (number - 1) & 1

    def interrupt(self, number, code, name):
        """Sends signals at many moments of a long run. After each, all of the output exists or none
        of it."""
        self.succeed("synth", "--stages", 16, "--noise", "0.02", "--quiet", "--force", "--output",
                     "big.csv")
        before = self.files()
        for delay in (0, 0.05, 0.3, 1.0):
            process = subprocess.Popen(
                [HARPE, "plan", "--inst-profile", "big.csv",
                 "--num-mbs", "400", "--p2p-power", "84", "--output-dir", "plans", "--plans", "all"],
                cwd=self.path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while process.poll() is None and not self.catches(process.pid, number):
                time.sleep(0.001)
            time.sleep(delay)
            process.send_signal(number)
            out, err = process.communicate(timeout=600)
            # A fast machine may have finished before; then all of the output exists.
            if process.returncode == 0:
                self.assertTrue((self.path / "plans" / "report.html").is_file())
                return
            self.assertEqual(process.returncode, code, err)
            self.assertEqual(err, f"harpe plan: interrupted by {name}; nothing was written\n")
            self.assertEqual(out, "")
            self.assertEqual(self.files(), before)

    def test_ctrl_c(self):
        self.interrupt(signal.SIGINT, 130, "SIGINT")

    def test_termination(self):
        self.interrupt(signal.SIGTERM, 143, "SIGTERM")


class PlanFiles(BadInputTest):
    def evaluate(self, content, message):
        self.write("plan.py", content)
        self.refuse(1, message, "evaluate", "--inst-profile", "good.csv", "--num-mbs", 1,
                    "--p2p-power", 60, "--plan", "plan.py")

    def test_a_plan_file_that_is_not_one(self):
        self.evaluate("", "plan.py:1:1")
        self.evaluate("print('hello')", "plan.py:1:1: expected a plan")
        self.evaluate(b"\x7fELF\x00\x00", "plan.py:1:1")
        self.evaluate("[[1400, 1400], [1400, 1400]]", "older plan form")
        self.evaluate("[\n[('forward', 1400)],\n[(__import__('os'), 1)]]", "plan.py:3:3")
        self.evaluate("[" * 100000, "plan.py:1:4")
        self.refuse(1, "/", "evaluate", "--inst-profile", "good.csv", "--num-mbs", 1,
                    "--p2p-power", 60, "--plan", "good.csv/x")


class PlanDirectories(BadInputTest):
    def choose(self, message):
        self.refuse(1, message, "choose", "plans", "--min-energy")

    def test_what_is_no_plan_directory(self):
        self.choose("plans: No such file or directory")
        self.write("plans", "a file")
        self.choose("plans: Not a directory")
        os.remove(self.path / "plans")
        os.mkdir(self.path / "plans")
        self.choose("plans: no frontier.csv in it; harpe plan")
        os.rmdir(self.path / "plans")
        self.succeed(*self.arguments(more=["--bound-only"]))
        self.choose("a lower bound but no plans in it")

    def test_damaged_plan_directories(self):
        self.succeed(*self.arguments(more=["--no-pictures"]))
        table = (self.path / "plans" / "frontier.csv").read_text()
        about = (self.path / "plans" / "plan.json").read_text()
        for name, content, message in [
                ("frontier.csv", table.replace("\n", "\nx", 1), "plans/frontier.csv:2:1: plan"),
                ("frontier.csv", "", "plans/frontier.csv"),
                ("plan.json", about[:-20], "plans/plan.json:"),
                ("plan.json", "[" * 100000, "plans/plan.json:1:"),
                ("plan.json", "[]", "not made by harpe plan"),
                ("plan.json", about.replace('"program": "harpe"', '"program": "else"'),
                 "not made by harpe plan"),
                ("plan.json", about.replace('"blocking_power_w"', '"x"'), "blocking_power_w"),
                ("plan.json", about.replace('"all_maximum"', '"x"'), "all_maximum")]:
            whole = (self.path / "plans" / name).read_text()
            self.write(f"plans/{name}", content)
            self.choose(message)
            self.write(f"plans/{name}", whole)
        for path in self.path.glob("plans/*.py"):
            path.unlink()
        self.choose("the chosen plan's file is missing")


class ScheduleFiles(BadInputTest):
    def schedule(self, content, message):
        self.write("schedule.csv", content)
        self.refuse(1, message, "plan", "--inst-profile", "good.csv", "--p2p-power", 60,
                    "--schedule", "schedule.csv", "--output-dir", "plans")

    def test_an_unknown_stage(self):
        self.schedule("0F0,1F0,,,1B0,0B0\n,,2F0,2B0,,\n", "good.csv: the profile has 2 stages")

    def test_what_is_no_schedule(self):
        self.schedule("", "schedule.csv")
        self.schedule("hello,world\n", "schedule.csv:1:1")
        self.schedule("0F0,0F0,0B0\n1F0,1B0\n", "schedule.csv")
        self.refuse(1, "nowhere.csv", "plan", "--inst-profile", "good.csv", "--p2p-power", 60,
                    "--schedule", "nowhere.csv", "--output-dir", "plans")

    def test_flags_that_a_file_answers_itself(self):
        self.write("schedule.csv", "0F0,,,0B0\n,1F0,1B0,\n")
        self.refuse(2, "cannot be combined with a schedule file", *self.arguments(
            mbs=1, more=["--schedule", "schedule.csv", "--chunks", 2]))
        self.refuse(2, "cannot be combined with a schedule file", *self.arguments(
            mbs=1, more=["--schedule", "schedule.csv", "--overlap-moe-expert-parallel-comm"]))
