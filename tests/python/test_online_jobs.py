# SPDX-License-Identifier: Apache-2.0
"""The example data_parallel_phases.py, in its own processes, learns plans for phases without a pipeline
from a real server. Each rank has a controller, on an emulated GPU, and its work takes real time. Needs
only Python's standard library; one test also needs PyTorch."""
import functools
import importlib.util
import json
import os
import subprocess
import sys
import time
import unittest
from unittest import mock

import training
import world

EXAMPLE = world.SOURCE / "examples" / "python" / "data_parallel_phases.py"
LIMIT_S = 900
ATTEMPTS = 6


def disturbed(test):
    """Repeats a test that fails: if the machine is busy, ranks measure wrong times, and the plan
    that follows from them is another one."""
    @functools.wraps(test)
    def repeated(self):
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return test(self)
            except AssertionError as failure:
                if attempt == ATTEMPTS:
                    raise
                print(f"attempt {attempt}: {failure}", file=sys.stderr)
                self.doCleanups()
                self.setUp()
    return repeated


def more_steps(count):
    """Numbers of steps for attempts. The example never waits for the server, so on a busy machine a
    short training may end before its first schedule has come."""
    return [count << attempt for attempt in range(ATTEMPTS)]


class OnlineTest(training.TrainingTest):
    time_scale = 1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()  # without faults
        # The energy counter moves continuously, so that a few short steps are enough.
        changes = mock.patch.dict(os.environ, HARPE_EMULATOR_FAULTS="energy_step=0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
        changes.start()
        cls.addClassCleanup(changes.stop)

    def start_online(self, **args):
        started = training.server.Server(
            self.path, "--store", self.path / "harpe.db", "--dump-dir", self.path / "dump",
            "--log-level", "info", "--scheduler", "Perseus", "--scheduler-args", json.dumps(args))
        self.addCleanup(started.kill)
        return started

    def planned(self, started):
        """Returns the frontier of the only job and the pipeline of its plan, or None before a
        round has run the plan."""
        jobs = started.get("/jobs").json
        jobs = jobs["jobs"] if isinstance(jobs, dict) else jobs
        if not jobs:
            return None
        path = f"/jobs/{jobs[0]['job_id']}"
        frontier = started.get(f"{path}/frontier").json
        self.assertNotEqual(frontier.get("phase"), "hold", frontier)
        if frontier.get("phase") != "plan" or frontier["round"] < frontier["sweep"]["rounds"] + 2:
            return None
        return frontier, started.get(f"{path}/pipeline").json


def clocks(pipeline, rank):
    """Returns the clocks of each instruction of a rank in a plan."""
    names = [entry["instruction"] for entry in pipeline["entries"]]
    row, found = pipeline["ranks"][rank], {}
    for entry, mhz in zip(row["entry"], row["frequency"]):
        found.setdefault(names[entry], set()).add(mhz)
    return found


class Phases(OnlineTest):
    gpus = "2xA100"

    @disturbed
    def test_the_example_learns_a_plan_for_its_phases(self):
        started = self.start_online(num_microbatches=1, epilogue=["reduce", "optimizer"],
                                    slowdown=1.05, learning="sweep", frequency_stride=14)
        ranks = [subprocess.Popen(
            [sys.executable, EXAMPLE, "--emulated", "--steps", "1000000", "--server",
             f"http://127.0.0.1:{started.port}"], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank),
                                             WORLD_SIZE="2")) for rank in range(2)]
        try:
            found = []
            self.wait_until(lambda: found.append(self.planned(started)) or found[-1], "no plan",
                            lambda: time.sleep(0.05))
            frontier, pipeline = found[-1]
            self.assertEqual([one.poll() for one in ranks], [None, None])
        finally:
            for one in ranks:
                one.kill()
                one.communicate()
        plan = frontier["plans"][frontier["current"]]
        self.assertLessEqual(plan["time"], 1.05 * frontier["plans"][0]["time"] * (1 + 1e-9))
        chosen = clocks(pipeline, 0)
        self.assertEqual(list(chosen), ["forward", "backward", "reduce", "optimizer"])
        # A lower clock does not make the reduction longer, so that it runs much lower.
        self.assertLess(max(chosen["reduce"]), 1000)
        self.assertGreater(min(chosen["backward"]), max(chosen["reduce"]))
        self.assertLess(plan["energy"], 0.97 * frontier["all_maximum"]["energy"])
        for gpu in range(2):
            self.assert_clocks_are_back(gpu)

    def test_a_single_process_trains(self):
        started = self.start_online(num_microbatches=1, epilogue=["reduce", "optimizer"])
        url = f"http://127.0.0.1:{started.port}"
        for steps in more_steps(20):
            done = subprocess.run([sys.executable, EXAMPLE, "--emulated", "--steps", str(steps),
                                   "--server", url], text=True, capture_output=True, timeout=LIMIT_S,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            if "round -1" not in done.stdout:
                break
        self.assertRegex(done.stdout,
                         rf"rank 0: job \S+, round \d+, {steps} steps of which 0 did not")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_it_trains_with_pytorch(self):
        names = ["forward", "backward", "reduce", "optimizer"]
        started = self.start(plan=[[(name, 1200) for name in names]], scheduler="PointSolution3D")
        for steps in more_steps(200):
            lines = self.run_two_ranks(started, steps)
            if all("round -1" not in line for line in lines):
                break
        self.assertEqual(len({line.split()[3] for line in lines}), 1, lines)
        for line in lines:
            self.assertRegex(line, rf"\+dp2\+pp1\+tp1\+.* {steps} steps of which 0 did not fit")

    def run_two_ranks(self, started, steps):
        """Returns the line of each rank."""
        command = [sys.executable, EXAMPLE, "--steps", steps, "--server", f"http://127.0.0.1:{started.port}"]
        return [line for out, _ in world.run_ranks(self, 2, command) for line in out.splitlines()
                if line.startswith("rank ")]
