# SPDX-License-Identifier: Apache-2.0
"""`harpe run` with scripts of real frameworks that name nothing of Harpe (scripts/), on emulated
GPUs and with a real server."""
import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
import threading
import unittest

import jobs
import training
import world
from fixtures import needs

SCRIPTS = jobs.HERE / "scripts"
HARPE = os.environ.get("HARPE", str(world.BUILD / "harpe"))


def is_older(name, *version):
    """Tells whether the installed package is older than the version."""
    try:
        found = re.findall(r"\d+", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(map(int, found[:len(version)])) < version


class Run(jobs.JobTest):
    def start_command(self, options, command):
        """Starts the command as a user without harpe in PYTHONPATH starts it."""
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("PYTHONPATH", "HARPE_LIBRARY", "HARPE_SERVER")}
        process = subprocess.Popen(
            [HARPE, "run", *options, "--", *map(str, command)], text=True, cwd=self.path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(environment, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore"))
        self.addCleanup(process.kill)
        return process

    def finish(self, process):
        """Returns the command's output, and the lines of harpe."""
        out, err = process.communicate(timeout=training.LIMIT_S)
        self.assertEqual(process.returncode, 0, err)
        return out, [line for line in err.splitlines() if line.startswith("harpe run:")]

    def torchrun(self, script, end, options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        return self.start_command(options, [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2,
            "--master-addr", "127.0.0.1", "--master-port", port, SCRIPTS / script, end])

    def pipeline_plan(self):
        order = ["forward forward backward forward backward forward backward backward",
                 "forward backward " * 4]
        self.clocks = {0: 1200, 1: 1185}
        return [[(name, self.clocks[rank]) for name in order[rank].split()] for rank in range(2)]

    @needs("torch")
    @unittest.skipIf(is_older("torch", 2, 6), "gloo does not complete the messages of a pipeline of PyTorch 2.5")
    def test_torchrun_of_a_pipeline_gets_the_plans_clocks(self):
        self.runs_at_the_plans_clocks("pipeline.py", "(Schedule1F1B)")

    @needs("deepspeed")
    def test_torchrun_of_deepspeed_gets_the_plans_clocks(self):
        self.runs_at_the_plans_clocks("pipeline_engine.py", "DeepSpeed (PipelineEngine)")

    def runs_at_the_plans_clocks(self, script, framework):
        started = self.start(plan=self.pipeline_plan(), scheduler="PointSolution")
        end = self.path / "end"
        process = self.torchrun(script, end, ["--server", f"http://127.0.0.1:{started.port}"])
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(process.stderr.readlines()))
        reader.start()
        try:
            self.wait_for_clocks(self.clocks, [process])
        finally:
            end.touch()
            code = process.wait(training.LIMIT_S)
            reader.join()
            out = process.stdout.read()
            process.stdout.close()
            process.stderr.close()
        self.assertEqual(code, 0, lines)
        self.assertIn("the loss fell: True\n", out)
        said = [line for line in lines if line.startswith("harpe run:")]
        self.assertEqual(len(said), 1, lines)
        self.assertIn(f"{framework}: clocks follow the plans", said[0])
        for gpu in self.clocks:
            self.assert_clocks_are_back(gpu)

    @needs("transformers", "accelerate")
    def test_a_trainer_logs_energy(self):
        out, said = self.finish(self.start_command(
            [], [sys.executable, SCRIPTS / "trainer.py", self.path / "out"]))
        history = json.loads(out.splitlines()[-1])
        energies = [one["energy_j"] for one in history]
        self.assertEqual(energies, sorted(energies))
        self.assertGreater(energies[0], 0)
        self.assertIn("energy_per_sample_j", history[0])
        self.assertEqual(said, ["harpe run: the Trainer of Transformers: its log gets the energy"])

    @needs("transformers", "accelerate")
    def test_a_trainer_finds_a_power_limit(self):
        before = self.machine.writes()
        _, said = self.finish(self.start_command(
            ["--power-limit"], [sys.executable, SCRIPTS / "trainer.py", self.path / "out"]))
        self.assertEqual(said, ["harpe run: the Trainer of Transformers: its log gets the energy, "
                                "the best power limit is looked for"])
        self.assertGreater(self.machine.writes(), before)
        self.assertEqual(self.machine.limit(0), 400000)

    @needs("lightning")
    def test_a_trainer_of_lightning_logs_energy(self):
        _, said = self.finish(self.start_command(
            [], [sys.executable, SCRIPTS / "fit.py", self.path]))
        names = (self.path / "log" / "version_0" / "metrics.csv").read_text().splitlines()[0]
        self.assertIn("energy_per_sample_j", names.split(","))
        self.assertEqual(said, ["harpe run: the Trainer of Lightning: its log gets the energy"])
