# SPDX-License-Identifier: Apache-2.0
"""The Python package without the privilege to change GPUs: it finds the node agent by itself, and
training goes on whatever happens to the agent."""
import json
import os
import signal
import subprocess
import time
from unittest import mock

import training
import world
from fixtures import folder
from attempts import attempt


class Agent(training.TrainingTest):
    gpus = "2xA100"

    def setUp(self):
        super().setUp()
        self.folder = folder(self.addCleanup)
        self.socket = self.folder / "agent.sock"
        # The driver refuses this process, so clocks can only come from the agent.
        changes = mock.patch.dict(os.environ, HARPE_AGENT_SOCKET=str(self.socket),
                                  HARPE_EMULATOR_FAULTS="no_permission")
        changes.start()
        self.addCleanup(changes.stop)
        self.process = None

    def start_agent(self, rules=""):
        (self.folder / "agent.conf").write_text(rules)
        environment = {name: value for name, value in os.environ.items() if name != "HARPE_EMULATOR_FAULTS"}
        self.process = subprocess.Popen([world.BUILD / "harpe", "agent", "--state-dir", self.folder / "state",
                                         "--config", self.folder / "agent.conf"], env=environment,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.stop_agent, self.process)
        self.wait_until(lambda: subprocess.run([world.BUILD / "harpe", "agent", "status"], capture_output=True,
                                               check=False).returncode == 0, "no agent")

    @staticmethod
    def stop_agent(process, number=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(number)
        process.wait(training.LIMIT_S)

    def registered_clocks(self, one):
        """Returns the clocks that the only rank of a job has told the server, as the server has dumped
        them. Returns None before."""
        dump = self.path / "dump" / (one.job_id or "not-registered") / "ranks.json"
        return json.loads(dump.read_text())[0]["available_frequencies"] if dump.exists() else None

    def train_until(self, one, condition, what):
        self.wait_until(condition, what, lambda: training.run_step(one))

    def test_clocks_without_privileges_while_the_agent_comes_and_goes(self):
        self.start_agent()
        one = self.optimizer(self.serve())
        self.train_until(one, lambda: self.clock(0) == 1200, "no clock")
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.stop_agent(self.process, number)
            steps = one.status().steps
            self.train_until(one, lambda: one.status().steps > steps + 20, "no steps without an agent")
            if number == signal.SIGTERM:
                self.assertEqual(self.clock(0), self.lowest_mhz)
                self.train_until(one, lambda: self.log.having("clocks are not controlled, training continues"),
                                 "nothing logged")
            self.start_agent()
            self.train_until(one, lambda: self.clock(0) == 1200, "no clock after the agent's restart")
        self.assertEqual(len(self.log.having("clocks are not controlled")), 1, self.log.lines)
        one.close()
        self.assert_clocks_are_back()

    def test_only_clocks_that_the_rules_allow_are_planned(self):
        self.start_agent("lowest_clock_mhz = 600\nhighest_clock_mhz = 1290\n")
        url = self.serve()
        expected = 1290, 600, 47

        def run(_):
            begin_s = time.monotonic()
            one = self.optimizer(url)
            took_s = time.monotonic() - begin_s
            self.train_until(one, lambda: self.registered_clocks(one), "no rank is registered")
            clocks = self.registered_clocks(one)
            one.close()
            return (max(clocks), min(clocks), len(clocks)), took_s

        # The constructor waits 3 s for the rules. On a busy machine the agent may answer later.
        found, took_s = attempt(run, lambda result: result[1] < 3 or result[0] == expected)
        self.assertEqual(found, expected, f"after {took_s} s")

    def test_an_agent_that_refuses_is_told_once_and_training_goes_on(self):
        (self.folder / "dev").mkdir()  # without device nodes
        self.start_agent(f"device_directory = {self.folder}/dev\n")
        one = self.optimizer(self.serve())
        word = "node agent" if os.getuid() else None
        self.train_until(one, lambda: one.status().round >= 2, "no rounds")
        if word:  # root needs no device node
            self.assertEqual(len(self.log.having(word)), 1, self.log.lines)
        one.close()
        self.assert_clocks_are_back()
