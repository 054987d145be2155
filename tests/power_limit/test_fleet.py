# SPDX-License-Identifier: Apache-2.0
"""`harpe power-limit run` as a member of the fleet of a real `harpe serve`, on an emulated GPU: the
power limit follows budgets and events, and training goes on while the server is dead or stopped."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "server"), str(HERE.parent)]
import kills
from process_groups import end_group
from server import HARPE, LIMIT_S, ServerTest, clean_environment

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
FOUND_MW = 231000
# A GPU never draws more than its limit, so each plan's power is its limit.
PROFILE = {"measurements": [{"power_limit": limit, "energy": limit * seconds, "time": seconds}
                            for limit, seconds in ((300, 10), (250, 11), (200, 12.5), (150, 16))]}

# The training program. Its arguments are the names of three files: begin, end, steps. The program
# waits until `begin` exists. Then it trains until `end` exists: it marks each step, keeps the GPU
# busy, and writes the number of steps to `steps`.
TRAINING = """
import ctypes, os, sys, time
work = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"]).harpe_emulator_work
work.argtypes = [ctypes.c_uint, ctypes.c_double, ctypes.c_double, ctypes.c_void_p]
begin, end, steps = sys.argv[1:]
while not os.path.exists(begin):
    time.sleep(0.01)
step = 0
with open(steps, "wb", buffering=0) as count:
    while not os.path.exists(end):
        os.write(int(os.environ["HARPE_STEP_FD"]), b"step\\n")
        work(0, 0.1, 0.7, None)
        step += 1
        os.pwrite(count.fileno(), b"%12d" % step, 0)
"""


class Fleet(ServerTest):
    def setUp(self):
        super().setUp()
        self.machine = kills.Machine(BUILD, "1xV100", 20)
        self.addCleanup(self.machine.close)
        self.machine.set_limit(0, FOUND_MW)
        self.tokens = self.path / "tokens"
        self.operator = self.token("operator", "operator")
        (self.path / "token").write_text(self.token("trainers", "job", "--group", "row1") + "\n")
        self.profile = self.path / "profile.json"

    def token(self, name, role, *more):
        done = subprocess.run([HARPE, "fleet", "token", "add", name, "--role", role, *more, "--tokens",
                               self.tokens], capture_output=True, text=True, check=True,
                              env=clean_environment(), timeout=LIMIT_S)
        return done.stdout.strip()

    def serve(self, port=0):
        return self.start("--tokens", self.tokens, port=port)

    def ask(self, server, method, target, body=None):
        return self.expect(server.call(method, target, body,
                                       {"Authorization": f"Bearer {self.operator}"}), 200).json

    def train(self, server, *options, begins=True):
        """Starts the training program as the member 'trial' of the group row1. If `begins` is false, the
        program waits until the caller makes the file `self.begin`."""
        self.begin, self.end, self.count = (self.path / name for name in ("begin", "end", "count"))
        if begins:
            self.begin.touch()
        self.log = self.path / "run.log"
        with open(self.log, "wb") as log:
            run = subprocess.Popen(
                [BUILD / "harpe", "power-limit", "run", "--server", f"http://127.0.0.1:{server.port}",
                 "--token-file", self.path / "token", "--member", "trial", "--group", "row1",
                 "--selector", "time", "--pl-step", "50", *options, "--", sys.executable, "-c",
                 TRAINING, self.begin, self.end, self.count],
                env=self.machine.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, start_new_session=True)
        self.addCleanup(end_group, run)
        return run

    def wait_for_job(self, server, holds, what):
        """Waits until holds(job) is true for the only job of the fleet. Returns the job."""
        end = time.monotonic() + LIMIT_S
        while True:
            jobs = self.ask(server, "GET", "/fleet")["jobs"]
            if jobs and holds(jobs[0]):
                return jobs[0]
            self.assertLess(time.monotonic(), end, f"{what}: {jobs}\n{self.log.read_text()}")
            time.sleep(0.05)

    def wait_for_limit(self, watts):
        took = self.machine.wait_for(lambda: self.machine.limit(0) == watts * 1000, LIMIT_S)
        self.assertIsNotNone(took, f"{self.machine.limit(0)} mW\n{self.log.read_text()}")

    def wait_for_steps(self, more):
        steps = lambda: int(self.count.read_text() or 0)
        end = steps() + more
        self.wait_until(lambda: steps() >= end, "training goes on")

    def check_ended(self, run, server):
        self.end.touch()
        self.assertEqual(run.wait(LIMIT_S), 0, self.log.read_text())
        self.assertEqual(self.ask(server, "GET", "/fleet")["jobs"], [])
        self.assertEqual(self.machine.limit(0), FOUND_MW)

    def test_budgets_events_and_faults_of_the_server(self):
        self.profile.write_text(json.dumps(PROFILE))
        server = self.serve()
        self.ask(server, "PUT", "/fleet/groups/row1", {"parent": None})
        run = self.train(server, "--profile", self.profile, "--weight", "2", "--max-slowdown", "1.7")
        job = self.wait_for_job(server, lambda job: job["plans"] == 4, "declared")
        self.assertEqual((job["job_id"], job["group"], job["weight"], job["max_slowdown"], job["plan"]),
                         ("trial", "row1", 2, 1.7, 0))
        self.wait_for_limit(300)
        self.ask(server, "PUT", "/fleet/budget", {"group": "row1", "watts": 210})
        self.wait_for_limit(200)
        follows = lambda plan: lambda job: job["state"] == "follows" and job["plan"] == plan
        self.wait_for_job(server, follows(2), "follows the budget")
        before = time.time()
        job = self.wait_for_job(server, lambda job: job["answered_at"] > before + 1 and job["measured_w"],
                                "measured at the new limit")
        self.assertLessEqual(job["measured_w"], 210)
        event = self.ask(server, "POST", "/fleet/events",
                         {"duration_s": 100000, "watts": 40, "group": "row1", "ramp_s": 1})
        self.assertEqual(event["missing_w"], 0)
        self.wait_for_limit(150)
        self.ask(server, "DELETE", f"/fleet/events/{event['id']}")
        self.wait_for_limit(200)
        self.wait_for_job(server, follows(2), "back after the event")
        # The server is killed.
        port = server.port
        server.kill()
        lost = "no power limits from the fleet for now, training continues"
        self.wait_until(lambda: lost in self.log.read_text(), "the loss is told")
        self.wait_for_steps(100)
        self.assertEqual(self.machine.limit(0), 200000)
        server = self.serve(port)
        self.wait_until(lambda: "the server is back" in self.log.read_text(), "the return is told")
        self.wait_for_job(server, follows(2), "follows the new server")
        out = self.log.read_text()  # on a busy machine, the job may lose the server again
        self.assertIn(out.count(lost) - out.count("the server is back"), (0, 1), out)
        # The server is stopped, so it does not answer.
        server.process.send_signal(signal.SIGSTOP)
        try:
            self.wait_for_steps(300)
            self.assertEqual(self.machine.limit(0), 200000)
        finally:
            server.process.send_signal(signal.SIGCONT)
        self.ask(server, "DELETE", "/fleet/budget?group=row1")
        self.wait_for_limit(300)
        self.check_ended(run, server)
        out = self.log.read_text()
        self.assertIn(f"fleet member trial: declared to http://127.0.0.1:{port}", out)
        self.assertNotIn("may still count", out)

    def test_a_job_that_measures_counts_with_its_highest_power(self):
        server = self.serve()
        self.ask(server, "PUT", "/fleet/groups/row1", {"parent": None})
        run = self.train(server, "--warmup-steps", "1", "--profile-steps", "100", "--json",
                         begins=False)
        job = self.wait_for_job(server, lambda job: job["answered_at"], "declared")
        self.assertEqual((job["plans"], job["counted_w"]), (1, 300))
        self.begin.touch()
        job = self.wait_for_job(server, lambda job: job["fastest_time_s"] != 1, "measured")
        self.check_ended(run, server)
        result = json.loads(run.stdout.read())
        fastest = min(result["measurements"], key=lambda one: one["time"])
        self.assertEqual(result["optimum_w"], fastest["power_limit"])
        self.assertAlmostEqual(job["fastest_time_s"], fastest["time"] / 100)

    def test_a_killed_job_counts_until_it_is_removed(self):
        self.profile.write_text(json.dumps(PROFILE))
        server = self.serve()
        run = self.train(server, "--profile", self.profile)
        self.wait_for_job(server, lambda job: job["plans"] == 4 and job["answered_at"], "declared")
        self.wait_for_limit(300)
        end_group(run)
        self.assertIsNotNone(self.machine.wait_for(lambda: self.machine.limit(0) == FOUND_MW, LIMIT_S))
        job, = self.ask(server, "GET", "/fleet")["jobs"]
        self.assertEqual(job["counted_w"], 300)
        environment = clean_environment({"HARPE_SERVER": f"http://127.0.0.1:{server.port}",
                                         "HARPE_TOKEN": self.operator})
        subprocess.run([HARPE, "fleet", "member", "remove", "trial"], env=environment, check=True,
                       timeout=LIMIT_S)
        self.assertEqual(self.ask(server, "GET", "/fleet")["jobs"], [])

    def test_a_token_without_the_right_is_told_and_training_goes_on(self):
        (self.path / "token").write_text(self.token("watcher", "viewer") + "\n")
        self.profile.write_text(json.dumps(PROFILE))
        server = self.serve()
        run = self.train(server, "--profile", self.profile)
        self.wait_until(lambda: "the role job or operator" in self.log.read_text(), "told")
        self.wait_for_limit(300)
        self.check_ended(run, server)

    def test_wrong_flags_are_told_before_the_command_starts(self):
        environment = dict(self.machine.environment)
        environment.pop("HARPE_SERVER", None)
        for flags, words in ((["--group", "row1"], "--group needs --server"),
                             (["--server", "head-node"], "http://HOST:PORT"),
                             (["--server", "http://h:1", "--token-file", "/nowhere"], "/nowhere"),
                             (["--server", "http://h:1", "--member", "a\nb"], "control characters"),
                             (["--server", "http://h:1", "--weight", "0"], "--weight"),
                             (["--server", "http://h:1", "--max-slowdown", "0.9"], "--max-slowdown"),
                             (["--server", "http://h:1", "--hold", "0"], "--hold")):
            with self.subTest(flags=flags):
                done = subprocess.run([BUILD / "harpe", "power-limit", "run", *flags, "--", "echo", "ran"],
                                      env=environment, capture_output=True, text=True, timeout=LIMIT_S)
                self.assertIn(done.returncode, (1, 2), done)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")
