# SPDX-License-Identifier: Apache-2.0
"""Harpe's Python clients through the published zeusd, on an emulated GPU: a job without the right
to change the GPU trains with a plan, its clocks are put back when it is killed, and its monitor
agrees with the daemon's readings. Needs zeusd (cargo install zeusd --version 0.5.0) in PATH or
$HARPE_ZEUSD; without it the tests are skipped. `make check` does not run them."""
import http.client
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import training  # noqa: E402
import world  # noqa: E402

sys.path.append(str(world.SOURCE / "tests" / "client"))
import zeusd  # noqa: E402

A100_STEP_J = 0.05 * 400  # between two values of the energy counter, at most

# Trains with the plan of the server until it is killed. Prints the energy of a window for each line
# that it reads.
JOB = r"""
import sys, threading, time
from harpe.monitor import ZeusMonitor
from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer

optimizer = PipelineFrequencyOptimizer(0, 0, 0, 0, 0, 1, 1, 1, 1, sys.argv[1], job_key=sys.argv[2],
                                       iterations=2, warmup_iterations=0)
monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], sync_execution_with=None)

def windows():
    for line in sys.stdin:
        if line == "begin\n":
            monitor.begin_window("window")
            print("begun", flush=True)
        else:
            print(monitor.end_window("window").gpu_energy[0], flush=True)

threading.Thread(target=windows, daemon=True).start()
while True:
    optimizer.on_step_begin()
    for name in ("forward", "forward", "backward", "backward"):
        optimizer.on_instruction_begin(name)
        time.sleep(0.005)
        optimizer.on_instruction_end(name)
    optimizer.on_step_end()
"""


class Connection(http.client.HTTPConnection):
    """A connection to the daemon, over its socket if it has one."""

    def __init__(self, environment):
        super().__init__(environment.get("ZEUSD_HOST_PORT", "localhost"))
        self.path = environment.get("ZEUSD_SOCK_PATH")

    def connect(self):
        if not self.path:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def energy_j(environment):
    """Returns the energy counter of GPU 0 as the daemon reads it."""
    connection = Connection(environment)
    token = environment.get("ZEUSD_TOKEN")
    connection.request("GET", "/gpu/get_cumulative_energy?gpu_ids=0",
                       headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, (answer.status, body)
    return json.loads(body)["0"]["energy_mj"] / 1000


@unittest.skipUnless(zeusd.published_program(), "zeusd is not installed (cargo install zeusd)")
class Job(training.TrainingTest):
    gpus = "1xA100"

    def ask(self, process, line):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def run_job(self, daemon, url):
        process = subprocess.Popen(
            [sys.executable, "-c", JOB, url, daemon.environment.get("ZEUSD_TOKEN", "no token")[-20:]
             + str(daemon.path)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=dict(os.environ, HARPE_EMULATOR_FAULTS="no_permission", **daemon.environment))
        try:
            self.wait_until(lambda: self.clock(0) == 1200 or process.poll() is not None,
                            "the plan's clock is not set")
            self.assertIsNone(process.poll(), "the job has ended")
            # The monitor's window is between the daemon's inner and its outer readings.
            outer = energy_j(daemon.environment)
            self.assertEqual(self.ask(process, "begin"), "begun")
            inner = energy_j(daemon.environment)
            self.wait_until(lambda: energy_j(daemon.environment) > inner + 5 * A100_STEP_J,
                            "the GPU draws no energy")
            inner = energy_j(daemon.environment) - inner
            measured = float(self.ask(process, "end"))
            outer = energy_j(daemon.environment) - outer
            self.assertLessEqual(inner, measured + 1e-6)
            self.assertLessEqual(measured, outer + 1e-6)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.assert_clocks_are_back()

    def test_a_job_without_rights(self):
        url = self.serve(names=training.STEP)
        for is_socket, has_token in itertools.product((True, False), (False, True)):
            path = self.path / "zeusd.sock" if is_socket else None
            with self.subTest(is_socket=is_socket, has_token=has_token), \
                    zeusd.Published(self.machine, path, has_token) as daemon:
                self.run_job(daemon, url)
