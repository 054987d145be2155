# SPDX-License-Identifier: Apache-2.0
"""`harpe profile`: the power of a waiting GPU, on emulated GPUs and through (a stand-in for)
PyTorch; and profiles from a server's dumps."""
import signal
import time

from program import HARPE, ProgramTest, environment, json, os, rows, subprocess
from attempts import attempt
from process_groups import end_group

A100_BLOCKING_W = 84

# Behaves like the two processes of PyTorch: the first reports that it waits, the second releases
# it.
WAITER = """#!/bin/sh
shift 2
echo $$ >> "$PIDS"
if [ "$1" = 0 ]; then
    echo waiting
    while [ ! -e "$3.sent" ]; do sleep 0.02; done
    rm "$3.sent"
else
    read -r line
    : > "$3.sent"
fi
"""


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class P2p(ProgramTest):
    def emulated(self, *arguments, gpus="2xA100", **popen):
        return self.run_harpe("emulate", "--gpus", gpus, "--time-scale", "20", "--", HARPE,
                              "profile", "p2p", *arguments, **popen)

    def stand_in(self, text):
        path = self.path / "python-stand-in"
        path.write_text(text)
        path.chmod(0o755)
        return path

    def test_an_emulated_gpu_waits_by_itself(self):
        result = self.emulated("--duration", 20, "--json", gpus="1xA100")
        self.assertEqual(result.code, 0, result)
        answer = result.json()
        self.assertEqual((answer["gpu"], answer["emulated"], answer["method"]),
                         (0, True, "emulator"))
        self.assertAlmostEqual(answer["power_w"], A100_BLOCKING_W, delta=0.02 * A100_BLOCKING_W)
        self.assertGreaterEqual(answer["time_s"], 20)
        self.assertEqual(answer["option"], "--p2p-power %.4g" % answer["power_w"])

    def test_the_answer_is_an_option_of_plan(self):
        result = self.emulated("--duration", 5, "--gpu", 1)
        self.assertEqual(result.code, 0, result)
        self.assertIn("GPU 1 (NVIDIA A100-SXM4-80GB), emulated, drew ", result.out)
        self.assertRegex(result.out, r"Plan with: harpe plan --p2p-power [0-9.]+ \.\.\.\n$")

    def test_no_gpu_at_all(self):
        self.refuse(1, "none.so", "profile", "p2p",
                    env=environment(HARPE_NVML_LIBRARY=str(self.path / "none.so")))

    def test_two_processes_wait_for_each_other_and_end(self):
        python = self.stand_in(WAITER)
        pids = self.path / "pids"
        result = self.emulated("--torch", "--python", python, "--duration", 4, "--json",
                               env=environment(PIDS=str(pids)))
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.json()["method"], "torch")
        started = [int(line) for line in pids.read_text().split()]
        self.assertEqual(len(started), 2)
        self.assertFalse(any(is_running(pid) for pid in started))

    def test_what_cannot_be_measured_is_told(self):
        lacking = self.stand_in("#!/bin/sh\necho error no PyTorch here, install torch\n")
        for code, message, gpus, *arguments in (
                (2, "--gpu 7: there are 2 GPUs visible here\n", "2xA100", "--gpu", 7),
                (2, "--peer 1: expected another GPU than 1", "2xA100", "--torch", "--gpu", 1, "--peer", 1),
                (1, "only one is visible here", "1xA100", "--torch"),
                (1, "no PyTorch here, install torch\n", "2xA100", "--torch", "--python", lacking),
                (1, "starting /nowhere/python3 (see --python)", "2xA100", "--torch", "--python", "/nowhere/python3")):
            result = self.emulated(*arguments, gpus=gpus)
            self.assertEqual((result.code, result.err.count("\n")), (code, 1), result)
            self.assertIn(message, result.err)

    def test_a_python_without_pytorch_is_told(self):
        if subprocess.run(["python3", "-c", "import torch"], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0:
            self.skipTest("this Python has PyTorch")
        result = self.emulated("--torch")
        self.assertEqual(result.code, 1, result)
        self.assertIn("has no PyTorch", result.err)
        self.assertIn("--python", result.err)

    def test_processes_that_end_early_stop_the_measurement(self):
        python = self.stand_in('#!/bin/sh\nshift 2\n[ "$1" = 0 ] && echo waiting\nsleep 0.2\n')
        result = self.emulated("--torch", "--python", python, "--duration", 1000)
        self.assertEqual((result.code, result.err.count("\n")), (1, 1), result)

    def start(self, python, **variables):
        """Starts a measurement in a session of its own, which ends with the test."""
        process = subprocess.Popen(
            [HARPE, "emulate", "--gpus", "2xA100", "--", HARPE, "profile", "p2p", "--torch",
             "--python", str(python)], cwd=self.path, env=environment(**variables),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True)
        self.addCleanup(end_group, process)
        return process

    def test_ctrl_c_ends_everything(self):
        python = self.stand_in(WAITER)
        pids = self.path / "pids"
        process = self.start(python, PIDS=str(pids))
        self.wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "two processes")
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(timeout=300), 128 + signal.SIGINT)
        for pid in pids.read_text().split():
            self.wait_until(lambda pid=pid: not is_running(int(pid)), "the process has ended")

    def test_nothing_is_left_in_tmp_when_it_is_killed(self):
        """Interrupts as a second Ctrl-C does."""
        told = self.path / "told"
        python = self.stand_in(f'#!/bin/sh\n[ "$3" = 0 ] || exec sleep 1000\n'
                               f': > "$5"\necho "$PPID $5" > {told}.new\nmv {told}.new {told}\n'
                               'echo waiting\nexec sleep 1000\n')
        self.start(python)
        self.wait_until(told.exists, "its files are told")
        pid, path = told.read_text().split()
        self.assertTrue(os.path.exists(path))
        os.kill(int(pid), signal.SIGKILL)
        self.wait_until(lambda: not os.path.exists(os.path.dirname(path)), "they are gone")


class Convert(ProgramTest):
    def setUp(self):
        super().setUp()
        self.dump = self.path / "dump"
        self.dump.mkdir()
        self.ranks = [{"rank": r, "dp_rank": 0, "pp_rank": r, "tp_rank": 0,
                       "available_frequencies": [1005, 1410, 1200]} for r in range(2)]
        self.put("ranks.json", self.ranks)

    def put(self, name, value):
        (self.dump / name).write_text(json.dumps(value))

    def schedule(self, round_number, entries):
        self.put(f"{round_number}.sched.json",
                 [{"rank": r, "frequencies": entries} for r in range(2)])

    def result(self, round_number, times, energies):
        self.put(f"{round_number}.prof.json",
                 [{"rank": r, "iter_time": [1.0], "iter_energy": [100.0],
                   "time_breakdown": times, "energy_breakdown": energies} for r in range(2)])

    def convert(self, *arguments):
        return self.succeed("profile", "convert", "dump", "--output", "profile.csv", *arguments)

    def test_runs_are_averaged_by_frequency(self):
        self.schedule(1, [["forward", 1410], ["backward", 1200], ["forward", 1005]])
        self.result(1, {"forward": [[0.1, 0.2], [0.3, 0.4]], "backward": [[0.5], [0.7]]},
                    {"forward": [[10, 20], [12, 22]], "backward": [[50], [70]]})
        self.schedule(2, [["forward", 1410], ["backward", 1200], ["forward", 1410]])
        self.result(2, {"forward": [[0.2, 0.2]], "backward": [[0.6]]},
                    {"forward": [[14, 16]], "backward": [[60]]})
        self.convert()
        got = {(row["stage"], row["instruction"], row["frequency"]):
               (float(row["time"]), float(row["energy"])) for row in rows(self.path / "profile.csv")}
        self.assertEqual(len(got), 6)
        for stage in "01":
            time_s, energy_j = got[(stage, "forward", "1410")]
            self.assertAlmostEqual(time_s, (0.1 + 0.3 + 0.2 + 0.2) / 4)
            self.assertAlmostEqual(energy_j, (10 + 12 + 14 + 16) / 4)
            self.assertAlmostEqual(got[(stage, "forward", "1005")][0], 0.3)
            self.assertAlmostEqual(got[(stage, "backward", "1200")][1], 60)
        self.succeed("plan", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84,
                     "--output-dir", "plans", "--quiet")

    def test_without_an_output_the_profile_is_printed(self):
        self.schedule(0, [["forward", 0]])
        self.result(0, {"forward": [[0.1]]}, {"forward": [[10]]})
        result = self.succeed("profile", "convert", "dump")
        self.assertEqual(result.out, "stage,rank,instruction,frequency,time,energy\n"
                                     "0,0,forward,0,0.1,10\n1,1,forward,0,0.1,10\n")

    def test_an_empty_schedule_means_the_highest_frequency(self):
        self.schedule(0, [])
        self.result(0, {"forward": [[0.1, 0.3]]}, {"forward": [[10, 10]]})
        self.convert()
        self.assertEqual([row["frequency"] for row in rows(self.path / "profile.csv")],
                         ["1410", "1410"])

    def test_what_does_not_fit_is_left_out_and_told(self):
        self.schedule(0, [["forward", 1410]])
        self.result(0, {"forward": [[0.1], [0.1, 0.1]]}, {"forward": [[10], [10, 10]]})
        result = self.convert()
        self.assertIn("of 4 lists of instructions 2 did not fit their schedule", result.err)
        answer = self.convert("--force", "--json").json()
        self.assertEqual((answer["rounds"], answer["rows"], answer["skipped_iterations"]),
                         (1, 2, 2))

    def test_results_without_energies_are_refused(self):
        self.schedule(0, [["forward", 1410]])
        self.result(0, {"forward": [[0.1]]}, {})
        self.refuse(1, "hold no energies", "profile", "convert", "dump", "--output", "new.csv")
        self.result(0, {"forward": [[0.1]]}, {"forward": [[0]]})
        self.refuse(1, "rank 0, 'forward' at 1410 MHz", "profile", "convert", "dump")

    def test_a_directory_that_is_no_dump_is_refused(self):
        self.refuse(1, "no K.prof.json here", "profile", "convert", "dump")
        self.refuse(1, "nowhere: No such file", "profile", "convert", "nowhere")
        (self.dump / "ranks.json").unlink()
        self.refuse(1, "ranks.json", "profile", "convert", "dump")

    def test_a_rank_that_is_unknown_is_refused(self):
        self.put("ranks.json", self.ranks[:1])
        self.schedule(0, [["forward", 1410]])
        self.result(0, {"forward": [[0.1]]}, {"forward": [[10]]})
        self.refuse(1, "rank 1 is not in ranks.json", "profile", "convert", "dump")

    def test_a_profile_is_not_replaced_unasked(self):
        self.schedule(0, [["forward", 1410]])
        self.result(0, {"forward": [[0.1]]}, {"forward": [[10]]})
        self.convert()
        self.refuse(1, "already exists", "profile", "convert", "dump", "--output", "profile.csv")

    def test_usage(self):
        self.refuse(2, "expected 'p2p', 'switch' or 'convert'", "profile")
        self.refuse(2, "expected the directory", "profile", "convert")
        self.refuse(2, "one directory at a time", "profile", "convert", "a", "b")
        self.refuse(2, "--json needs --output", "profile", "convert", "a", "--json")
        self.refuse(2, "'p2'", "profile", "p2")
        for word in (["profile"], ["profile", "p2p"], ["profile", "convert"]):
            self.assertIn("man harpe-profile", " ".join(self.succeed(*word, "--help").out.split()))


class Switch(ProgramTest):
    """The emulated physics says how long a change of the clock takes. The measured time may not be shorter,
    also on a busy machine. The changes are slow, so that a busy machine sees most of them closely enough."""

    def setUp(self):
        super().setUp()
        self.physics = self.path / "physics.json"
        self.physics.write_text('{"switch_call_s": 0.002, "switch_latency_s": {"210": 0.6, "1410": 0.2}}')

    def emulated(self, *arguments, **popen):
        return self.run_harpe("emulate", "--gpus", "1xA100", "--physics", self.physics, "--", HARPE,
                              "profile", "switch", *arguments, **popen)

    def told(self, code, message, *arguments):
        result = self.emulated(*arguments)
        self.assertEqual(result.code, code, result)
        self.assertIn(message, result.err)

    def measured(self, *arguments, is_good=lambda _: True):
        """Runs the measurement. Repeats it if the machine was so busy that it saw no change to one of the
        clocks, or that the frequency controller did not run for 30 s. Also repeats it until
        is_good(result)."""
        def is_done(result):
            if ("or this machine is too busy" in result.err or
                    "the frequency controller has not answered" in result.err):
                return False
            return result.code != 0 or is_good(result)

        result = attempt(lambda _: self.emulated(*arguments), is_done)
        self.assertEqual(result.code, 0, result)
        return result

    def check_rows(self, answer):
        rows = answer["clocks"]
        self.assertEqual([row["frequency_mhz"] for row in rows], [1410, 810, 210])
        self.assertEqual(answer["left_out"], 0)
        for row, least_s in zip(rows, (0.202, 0.402, 0.602)):
            self.assertEqual(row["samples"], 2)
            self.assertGreaterEqual(row["latency_s"], 0.85 * least_s)
            self.assertGreaterEqual(row["latency_p95_s"], row["latency_s"])
            self.assertGreaterEqual(row["call_s"], 0.002)

    def test_latencies_by_new_clock(self):
        # A busy machine does not see every change.
        answer = self.measured("--clocks", "1410,810,210", "-r", 2, "--json",
                               is_good=lambda result: result.json()["left_out"] == 0).json()
        self.assertEqual((answer["gpu"], answer["emulated"]), (0, True))
        self.check_rows(answer)

    def test_the_csv_says_the_same_and_is_not_replaced_by_accident(self):
        path = self.path / "switch.csv"
        result = self.measured("--clocks", "1410,810,210", "-r", 2, "--output", path, "--json")
        lines = path.read_text().splitlines()
        self.assertEqual(lines[0], "gpu,frequency,latency_s,latency_p95_s,call_s,samples")
        for line, row in zip(lines[1:], result.json()["clocks"]):
            values = line.split(",")
            self.assertEqual(values[0], "NVIDIA A100-SXM4-80GB")
            self.assertEqual([int(values[1]), int(values[5])], [row["frequency_mhz"], row["samples"]])
            self.assertAlmostEqual(float(values[2]), row["latency_s"], delta=1e-6)
        self.profile()
        self.succeed("plan", "-i", "profile.csv", "-m", 4, "-p", 84, "--plans", 3, "--no-pictures", "-o",
                     "plans", "--switch-latency", path)
        before = path.read_text()
        self.told(1, "--force to replace it", "--clocks", "1410,210", "-r", 1, "--output", path)
        self.assertEqual(path.read_text(), before)

    def test_the_table(self):
        result = self.measured("--spread", 2, "-r", 1)
        self.assertRegex(result.out, r"(?m)^  1410 +[0-9.]+ +[0-9.]+ +[0-9.]+ +1$")
        self.assertRegex(result.out, r"(?m)^   210 +[0-9.]+ +[0-9.]+ +[0-9.]+ +1$")

    def test_a_command_that_ends_is_not_steady_work(self):
        self.told(1, "'true' ended before the measurement", "--", "true")
        self.told(1, "cannot run '/no/such/program'", "--", "/no/such/program")

    def test_a_command_is_stopped_at_the_end(self):
        pids = self.path / "pids"
        pids.touch()
        # The measurement may end before the shell has written its process number.
        self.measured("--spread", 2, "-r", 1, "--", "sh", "-c", f"echo $$ > {pids}; exec sleep 1000",
                      is_good=lambda _: pids.read_text())
        self.assertFalse(is_running(int(pids.read_text())))

    def test_wrong_values(self):
        for arguments, message in ((("--clocks", "1410"), "at least two"),
                                   (("--clocks", "1410,1411"), "does not offer 1411 MHz"),
                                   (("--clocks", "1410,1410"), "1410 MHz twice"),
                                   (("--gpu", "3"), "--gpu: there is no GPU 3; this process sees 1"),
                                   (("--repetitions", "0"), "--repetitions")):
            self.told(2, message, *arguments)

    def test_the_gpu_is_restored_even_after_sigkill(self):
        script = (f"{HARPE} profile switch --clocks 1410,705 -r 1000 & child=$!; "
                  "until nvidia-smi --query-gpu=clocks.gr --format=csv,noheader | grep -qv '^210 '; do sleep 0.02; done; "
                  "kill -9 $child; "
                  "until nvidia-smi --query-gpu=clocks.gr --format=csv,noheader | grep -q '^210 '; do sleep 0.02; done; "
                  "sleep 0.2; nvidia-smi --query-gpu=clocks.gr --format=csv,noheader; "
                  f"until {HARPE} gpus --restore --dry-run; do sleep 0.1; done")
        result = self.run_harpe("emulate", "--gpus", "1xA100", "--", "sh", "-c", script)
        self.assertEqual(result.code, 0, result)
        self.assertIn("210 MHz", result.out)
