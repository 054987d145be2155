# SPDX-License-Identifier: Apache-2.0
"""`harpe power-limit`, tested from the outside: replays of synthetic and measured logs, and a
command run under the optimizer on emulated GPUs."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kills  # noqa: E402
from program import ProgramTest, json, unittest  # noqa: E402

HEADER = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n"


def log(*rows):
    return HEADER + "".join(f"1.0,__GlobalPowerLimitOptimizer_{w},{time},{energy},{energy}\n"
                            for w, time, energy in rows)


SMALL = log((200, 10, 900), (175, 11, 800), (150, 20, 700))


class Replay(ProgramTest):
    def test_json_has_a_list_per_set_with_a_value_per_gpu(self):
        self.write("log.csv", SMALL)
        result = self.succeed("power-limit", "replay", "log.csv", "--selector", "energy", "--json").json()
        self.assertEqual(result["power_limits_w"], [[200, 200], [175, 175], [150, 150]])
        self.assertEqual(result["optimum_w"], 150)
        self.assertEqual(result["measurements"][0], {"power_limit": 200, "energy": 1800.0, "time": 10.0})

    def test_text_shows_the_sequence_and_marks_the_optimum(self):
        self.write("log.csv", SMALL)
        out = self.succeed("power-limit", "replay", "log.csv", "--selector", "max-slowdown",
                           "--factor", 1.1, "--epoch-steps", 60).out
        self.assertIn("Power limits set: 200 | 175 | 200 150 | 200 150 175\n".split("|")[0], out)
        self.assertIn("Optimum: 175 W", out)
        self.assertIn("  *       175       11.000         1600.0  chosen\n", out)
        self.assertIn("Against the highest limit, 200 W: 11.1 % less energy, 10.0 % more time\n", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)
        self.assertEqual(out.count("chosen"), 1)

    def test_text_shows_the_cost_that_was_compared(self):
        self.write("log.csv", SMALL)
        out = self.succeed("power-limit", "replay", "log.csv", "--eta", 0.25).out
        self.assertIn("limit (W)     time (s)     energy (J)       cost (J)\n", out)
        # 0.25 * 1800 J + 0.75 * (200 W * 2 GPUs) * 10 s
        self.assertIn("  *       200       10.000         1800.0         3450.0  chosen\n", out)
        self.assertIn("Against the highest limit, 200 W: the same, it is the best itself\n", out)

    def test_epochs_too_short_end_without_an_optimum(self):
        self.write("log.csv", SMALL)
        result = self.succeed("power-limit", "replay", "log.csv", "--epoch-steps", 20, "--json").json()
        self.assertIsNone(result["optimum_w"])
        self.assertEqual(result["measurements"], [])

    def test_the_last_of_repeated_windows_counts_and_others_are_passed_over(self):
        self.write("log.csv", log((200, 1, 1), (175, 11, 800), (200, 10, 900)) + "1,epoch,5,1,1\n")
        result = self.succeed("power-limit", "replay", "log.csv", "--json").json()
        self.assertEqual(result["measurements"][0]["time"], 10)

    def test_bad_logs_and_flags_are_refused(self):
        self.write("log.csv", SMALL)
        for content, message in [("", "empty: expected a monitor's log"), ("a,b\n1,2\n", "not a monitor's log"),
                                 (HEADER, "no window"), (HEADER + "1,epoch,1,1,1\n", "no window"),
                                 (log((200, 0, 1)), "above 0"), (log((200, 1, "x")), "energy"),
                                 (log(("x", 1, 1)), "watts"), (log((200, 1, -1)), "below 0"),
                                 (HEADER + "1,2\n", "fields")]:
            self.write("bad.csv", content)
            self.refuse(1, message, "power-limit", "replay", "bad.csv")
        self.refuse(1, "180 W", "power-limit", "replay", "log.csv", "--pl-step", 20)
        self.write("wide.csv", log((200, 10, 900), (150, 11, 800), (100, 20, 700)))
        self.refuse(1, "give --pl-step 50", "power-limit", "replay", "wide.csv")
        self.write("uneven.csv", log((200, 10, 900), (150, 11, 800), (110, 20, 700)))
        self.refuse(1, "as the log was made with", "power-limit", "replay", "uneven.csv")
        self.refuse(1, "nowhere.csv", "power-limit", "replay", "nowhere.csv")
        self.refuse(2, "--eta", "power-limit", "replay", "log.csv", "--eta", 1.5)
        self.refuse(2, "--factor", "power-limit", "replay", "log.csv", "--factor", 1.5)
        self.refuse(2, "--selector", "power-limit", "replay", "log.csv", "--selector", "best")
        self.refuse(2, "--epochs", "power-limit", "replay", "log.csv", "--epochs", 3)
        self.refuse(2, "log is missing", "power-limit", "replay")
        self.refuse(2, "replay or run", "power-limit", "repaly")


class Run(ProgramTest):
    def run_marked(self, command, *options, faults=""):
        return self.run_harpe("emulate", "--gpus", "1xV100", "--time-scale", "100", "--faults", faults, "--", HARPE,
                              "power-limit", "run", *options, "--", *command)

    def test_a_command_that_marks_its_steps(self):
        script = kills.MARK + ("for _ in range(80):\n    mark()\n    time.sleep(0.004)\n"
                               "raise SystemExit(7)\n")
        result = self.run_marked((sys.executable, "-c", script), "--warmup-steps", 1,
                                 "--profile-steps", 3, "--profile", "p.json", "--json")
        self.assertEqual(result.code, 7, result)
        answer = result.json()
        self.assertTrue(answer["is_done"], result)
        self.assertEqual(answer["steps"], 80)
        saved = json.loads((self.path / "p.json").read_text())
        self.assertEqual(len(saved["measurements"]), len(answer["measurements"]))
        again = self.run_marked(["true"], "--profile", "p.json", "--json")
        self.assertEqual(again.json()["optimum_w"], answer["optimum_w"])

    def test_a_fault_is_one_line_and_the_command_runs_to_its_end(self):
        result = self.run_marked((sys.executable, "-c", "print('trained')"),
                                 "--profile", "p.json", faults="no_permission")
        self.assertEqual((result.code, result.out), (0, "trained\n"), result)
        self.assertEqual(len(result.err.splitlines()), 1, result)
        self.assertIn("NVML_ERROR_NO_PERMISSION", result.err)
        self.assertFalse((self.path / "p.json").exists())

    def test_a_command_that_marks_nothing_is_told_how(self):
        result = self.run_marked(("sh", "-c", "exit 3"))
        self.assertEqual(result.code, 3, result)
        self.assertIn("HARPE_STEP_FD", result.err)

    def test_a_command_that_is_not_there(self):
        result = self.run_harpe("emulate", "--gpus", "1xV100", "--", HARPE, "power-limit", "run", "--",
                                "/nowhere/cmd")
        self.assertEqual(result.code, 1, result)
        self.assertIn("/nowhere/cmd", result.err)


from program import HARPE  # noqa: E402

if __name__ == "__main__":
    unittest.main()
