# SPDX-License-Identifier: Apache-2.0
"""`harpe train-sim` in its simulated world, with all that goes wrong, and one short journey with real
processes. test_train_sim.py has the rest of the real time."""
import os
import re
import resource
import signal

from train_sim import Simulation
from fixtures import folder


class World(Simulation):
    def run_world(self, *arguments, code=0):
        self.sim(*arguments)
        return self.finish(code)

    def test_a_job_learns_and_survives_what_goes_wrong(self):
        report = self.report("--pp", 2, "--dp", 2, "--num-mbs", 4, "--steps", 6, "--kill-rank", "2@+1",
                            "--restart-server", "+2", "--straggler", "1@+4=1.2")
        measured, story = report["measured"], report["story"]
        self.assertTrue(report["virtual_time"])
        self.assertEqual([rank["misfits"] for rank in report["ranks"]], [0] * 4)
        self.assertGreater(measured["learning"]["steps"], 0)
        self.assertLess(abs(measured["plan"]["time_error_percent"]), 1)
        self.assertLess(abs(measured["plan"]["energy_error_percent"]), 1)
        self.assertGreater(measured["plan"]["savings_percent"], 5)
        for event in ("kill_step", "restart_step", "straggler_step"):
            self.assertGreater(story[event], 0)
        self.assertGreater(story["gpu_back_s"], 0)
        self.assertGreaterEqual(story["answered_step"], story["straggler_step"])
        self.assertGreater(measured["straggler"]["savings_percent"], 5)

    def test_a_given_plan_runs_exactly_as_predicted(self):
        for shape in ((), ("--schedule", "zb-v"), ("--pp", 2, "--dp", 2, "--tp", 2), ("--pp", 1)):
            measured = self.report("--offline", "--num-mbs", 4, "--steps", 3, *shape)["measured"]
            for kind in ("highest_clocks", "plan"):
                self.as_predicted(measured[kind])

    def test_the_same_command_prints_the_same_bytes_everywhere(self):
        command = ("--json", "--pp", 2, "--num-mbs", 3, "--steps", 3, "--physics", "real", "--scheduler-args",
                   '{"frequency_stride": 6}', "--straggler", "1@+2=1.2")
        log = folder(self.addCleanup) / "steps"
        first = self.run_world(*command, "--log-steps", log)
        steps = log.read_bytes()
        place = self.path / "another place"
        place.mkdir()
        self.variables.update(TMPDIR=str(place), HOME=str(place), TZ="Asia/Tokyo", USER="somebody",
                              CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID="17", HARPE_TOKEN="a-secret-of-the-user")
        self.sim(*command, "--log-steps", log, before=("taskset", "-c", str(min(os.sched_getaffinity(0)))))
        out, err = self.process.communicate()
        self.assertEqual((out, err), first)
        self.assertEqual(log.read_bytes(), steps)
        self.assertEqual(list(place.iterdir()), [])
        place.rmdir()

    def test_people_are_told_of_virtual_time(self):
        out, err = self.run_world("--pp", 2, "--num-mbs", 3, "--steps", 3, "--physics", "real", "--kill-rank",
                                  "1@+1", "--restart-server", "+2", "--scheduler-args", '{"frequency_stride": 6}')
        self.assertIn("; virtual time\n", out)
        self.assertEqual(len(re.findall("of virtual time$", out, re.MULTILINE)), 2, out)
        for wrong in ("this machine", "times as fast", "real time"):
            self.assertNotIn(wrong, out)
        self.assertTrue(all(re.fullmatch(r"harpe train-sim: step \d+(?:, round \d+)?: [a-z-]+(?: \d+ %)?", line)
                            for line in err.splitlines()), err)

    def test_interrupted_it_leaves_nothing(self):
        process = self.sim("--offline", "--steps", 10000)
        self.assertIn("step 0", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        out, err = self.finish(128 + signal.SIGINT)
        self.assertEqual(out, "")
        self.assertIn("interrupted", err)

    def test_descriptors_are_raised_to_the_hard_limit_or_refused(self):
        def limited(hard):
            return ("sh", "-c", f'ulimit -Sn 64; ulimit -Hn {hard}; exec "$@"', "sh")

        command = ("--offline", "--pp", 4, "--dp", 4, "--num-mbs", 2, "--steps", 1, "--quiet")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.assertGreaterEqual(hard, 1024)
        self.sim(*command, before=limited(1024))
        self.finish()
        self.sim(*command, before=limited(512))
        _, err = self.finish(1)
        self.assertRegex(err, r"\Aharpe train-sim: 16 ranks need \d+ open files, but this process may have 512: "
                              r"raise .*\n\Z")

    def test_more_ranks_than_gpus_are_refused(self):
        self.refuse(2, "4160 ranks are more than", "train-sim", "--pp", 64, "--dp", 65)


class RealTime(Simulation):
    def test_a_job_runs_a_plan_and_leaves_nothing(self):
        self.sim("--offline", "--pp", 2, "--num-mbs", 2, "--steps", 2, "--time-scale", 20)
        out, _ = self.finish()
        self.assertEqual(len(re.findall("^  The plan saves .* % of the energy", out, re.MULTILINE)), 1, out)
        self.assertIn("time runs 20 times as fast", out)
