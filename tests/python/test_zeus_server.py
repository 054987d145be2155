# SPDX-License-Identifier: Apache-2.0
"""Clients and servers of both packages combined, as processes that communicate over sockets: the
published client with `harpe serve`, and Harpe's clients with the published server. PyTorch's
collectives are real. Its CUDA, which Debian's PyTorch lacks, is replaced by functions that do
nothing."""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import published_zeus
import world
from attempts import attempt
from training import server

LIMIT_S = 900
DISTURBANCE = re.compile("the server is not harpe serve and gives each rank a job of its own"
                         "|no schedules for now, .*(Timeout was reached|timed out)")

# One rank of 1F1B with `microbatches`, with the published client or Harpe's. Prints the job and the
# schedule, or the reason of its end.
RANK = r"""
import logging, os, sys, time, torch
import torch.distributed as dist
package, url, rank, ranks, microbatches, store, options = sys.argv[1:]
rank, ranks, microbatches, options = int(rank), int(ranks), int(microbatches), eval(options)
logging.basicConfig(level=logging.INFO)
torch.cuda.is_available = lambda: True
torch.cuda.set_device = torch.cuda.synchronize = lambda device=None: None
if store:
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)

def step(optimizer):
    optimizer.on_step_begin()
    warm_up = min(ranks - 1 - rank, microbatches)
    for name in (["forward"] * warm_up + ["forward", "backward"] * (microbatches - warm_up)
                 + ["backward"] * warm_up):
        optimizer.on_instruction_begin(name)
        time.sleep(0.002)
        optimizer.on_instruction_end(name)
    optimizer.on_step_end()

arguments = (rank, 0, rank, 0, rank, 1, ranks, 1, ranks, url)
if package == "zeus":
    from zeus.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
    optimizer = PipelineFrequencyOptimizer(*arguments, **options)
    for _ in range(3):
        step(optimizer)
    print(f"<{optimizer.job_id}> {len(optimizer.freq_schedule)} entries, trained", flush=True)
else:
    from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
    with PipelineFrequencyOptimizer(*arguments, iterations=2, warmup_iterations=0,
                                    **options) as optimizer:
        end = time.monotonic() + 900
        while optimizer.status().round < 2 and optimizer.status().state != "off":
            assert time.monotonic() < end, optimizer.status()
            step(optimizer)
        print(f"<{optimizer.job_id}> {optimizer.status().state}, misfits "
              f"{optimizer.status().misfits}, round {optimizer.status().round}", flush=True)
if store:
    dist.barrier()
"""


class Ranks(server.ServerTest):
    """Starts two ranks as processes."""

    def setUp(self):
        super().setUp()
        published_zeus.require_torch()
        self.machine = world.machine("2xA100", 20)
        self.addCleanup(self.machine.close)

    def run_ranks(self, package, url, microbatches=4, ranks=2, collectives=True, **options):
        """Returns [(exit status, output)] of all ranks."""
        folder = tempfile.TemporaryDirectory(prefix="harpe-ranks-")
        self.addCleanup(folder.cleanup)
        store = os.path.join(folder.name, "store") if collectives else ""
        if package == "zeus":
            python, environment = published_zeus.python(), published_zeus.environment(
                **{name: value for name, value in os.environ.items()
                   if name.startswith("HARPE_EMULATOR_")},
                LD_LIBRARY_PATH=world.BUILD / "emulator")
        else:
            python, environment = sys.executable, dict(os.environ)
        for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
            environment.pop(name, None)
        started = [subprocess.Popen(
            [str(python), "-W", "ignore", "-c", RANK, package, url, str(rank), str(ranks),
             str(microbatches), store, repr(options)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(ranks)]
        ended = []
        for process in started:
            try:
                said = process.communicate(timeout=LIMIT_S)[0]
            except subprocess.TimeoutExpired:
                for one in started:
                    one.kill()
                said = "did not end: " + process.communicate()[0]
            ended.append((process.returncode, said))
        return ended

    def run_undisturbed(self, *arguments, **options):
        """Runs the ranks again if a machine that is too busy disturbed them: the job's id did not come
        from rank 0 within 3 s, or an answer of the server took longer than 30 s."""
        return attempt(lambda _: self.run_ranks(*arguments, **options),
                       lambda ended: not any(DISTURBANCE.search(said) for _, said in ended))

    def jobs(self, ended):
        return {re.search("<(.*)>", said).group(1) for _, said in ended}


class PublishedClients(Ranks):
    def serve_with(self, scheduler, **args):
        started = server.Server(self.path, "--store", "memory", "--no-dump", "--scheduler",
                                scheduler, "--scheduler-args", json.dumps(args))
        self.addCleanup(started.kill)
        return f"http://127.0.0.1:{started.port}"

    def assert_trained(self, ended, entries):
        for code, said in ended:
            self.assertEqual(code, 0, said)
            self.assertIn(f"{entries} entries, trained", said)
        self.assertEqual(len(self.jobs(ended)), 1, ended)

    def test_a_plan_is_followed(self):
        started = self.start(plan=[[("forward", 1200), ("forward", 1110), ("backward", 1200),
                                    ("backward", 1110)],
                                   [("forward", 1200), ("backward", 1110)] * 2])
        self.assert_trained(self.run_ranks("zeus", f"http://127.0.0.1:{started.port}", 2), 4)

    def test_perseus_is_followed_where_it_knows_the_microbatches(self):
        """The number comes from the scheduler's own argument, or from the job's metadata, which
        takes precedence."""
        for args, microbatches, metadata in (({"num_microbatches": 4}, 4, None),
                                             ({"num_microbatches": 8}, 3,
                                              "llama, num_microbatches=3")):
            with self.subTest(args):
                url = self.serve_with("Perseus", **args)
                ended = self.run_ranks("zeus", url, microbatches, job_metadata=metadata)
                self.assert_trained(ended, 2 * microbatches)

    def test_perseus_that_does_not_know_the_microbatches_says_what_to_set(self):
        for code, said in self.run_ranks("zeus", self.serve_with("Perseus")):
            self.assertNotEqual(code, 0)
            self.assertIn("status code 400", said)
            self.assertIn("num_microbatches=N", said)
            self.assertIn("--scheduler-args", said)


class PublishedServer(Ranks):
    """The server of the published package, with a plan for two ranks and four microbatches."""

    def serve_published(self):
        self.write_plan([[("forward", 1200)] * 1 + [("forward", 1200), ("backward", 1110)] * 3
                         + [("backward", 1110)], [("forward", 1200), ("backward", 1110)] * 4])
        self.server_log = self.path / "published.log"
        with socket.socket() as bound, open(self.server_log, "wb") as log:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
            process = subprocess.Popen(
                [str(published_zeus.python()), "-m", "uvicorn", "--fd", str(bound.fileno()),
                 "zeus.optimizer.pipeline_frequency.server.router:app"], cwd=self.path, stdout=log,
                stderr=subprocess.STDOUT, pass_fds=[bound.fileno()], env=published_zeus.environment(
                    ZEUS_PFO_SCHEDULER="PointSolution", ZEUS_PFO_LOG_LEVEL="info",
                    ZEUS_PFO_DUMP_DATA="false",
                    ZEUS_PFO_SCHEDULER_ARGS=json.dumps(
                        {"solution_path": str(self.path / "plan.py")})))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return f"http://127.0.0.1:{port}"
            except ConnectionRefusedError:
                self.assertIsNone(process.poll(), self.server_log.read_text())
                self.assertLess(time.monotonic(), end, "the published server does not listen")
                time.sleep(0.05)

    def test_its_own_client_works_here(self):
        for code, said in self.run_ranks("zeus", self.serve_published()):
            self.assertEqual(code, 0, said)

    def test_ranks_that_meet_by_broadcast_are_in_one_job(self):
        ended = self.run_undisturbed("harpe", self.serve_published(), job_metadata="mine")
        for code, said in ended:
            self.assertEqual(code, 0, said)
            self.assertRegex(said, r"misfits 0, round [2-9]")
            self.assertNotIn("WARNING", said)
        job, = self.jobs(ended)
        self.assertRegex(job, r"\+PointSolution\+mine node=\S+$")

    def test_ranks_with_a_key_say_what_is_wrong(self):
        ended = self.run_ranks("harpe", self.serve_published(), collectives=False, job_key="run 7")
        for code, said in ended:
            self.assertEqual(code, 0, said)
            self.assertIn("off, misfits 0, round -1", said)
            self.assertEqual(len(re.findall("not harpe serve", said)), 1, said)
            self.assertIn("broadcast", said)

    def test_a_single_rank_needs_neither(self):
        url = self.serve_published()
        self.write_plan([[("forward", 1200), ("backward", 1110)] * 4])
        (code, said), = self.run_undisturbed("harpe", url, ranks=1, collectives=False)
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"misfits 0, round [2-9]")

    def test_a_rank_that_fails_does_not_let_the_others_wait(self):
        url = self.serve_published()
        script = RANK.replace("arguments = (", "options.update(iterations=0) if rank == {} else 0\n"
                              "arguments = (").replace("iterations=2, ", "").replace(
            "**options) as optimizer", "**dict(dict(iterations=2), **options)) as optimizer")
        for failing in (0, 1):
            with self.subTest(failing=failing), unittest.mock.patch.dict(
                    globals(), RANK=script.replace("{}", str(failing), 1).replace(
                        "end = time.monotonic() + 900", "sys.exit(0)")):
                ended = self.run_ranks("harpe", url)
            self.assertIn("iterations must be at least 1", ended[failing][1])
            other = ended[1 - failing]
            self.assertNotIn("did not end", other[1])
            if failing == 0:
                self.assertIn("rank 0", other[1])
                self.assertNotEqual(other[0], 0)
            else:
                self.assertEqual(other[0], 0, other[1])

    def test_simulated_training_works(self):
        url = self.serve_published()
        profile = self.path / "profile.csv"
        subprocess.run([server.HARPE, "synth", "--gpu", "A100", "--stages", "2", "--quiet",
                        "--output", str(profile)], check=True)
        done = subprocess.run(
            [server.HARPE, "train-sim", "--inst-profile", str(profile), "--pp", "2", "--num-mbs",
             "4", "--server", url, "--time-scale", "10", "--steps", "5", "--json"], text=True,
            capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in done.stderr.splitlines():
            self.assertRegex(line, r"^harpe train-sim: step \d+")  # no warnings
        self.assertIn("measured", json.loads(done.stdout))


class RealScheduler(server.ServerTest):
    def test_a_scheduler_that_imports_the_real_zeus_is_told_to_import_harpe(self):
        python = published_zeus.python()
        (self.path / "mine.py").write_text(
            "from zeus.optimizer.pipeline_frequency.common import FrequencySchedule\n"
            "from zeus.optimizer.pipeline_frequency.server.scheduler import FrequencyScheduler\n"
            "class Mine(FrequencyScheduler):\n"
            "    def _run(self):\n"
            "        yield [FrequencySchedule(rank=one.rank, frequencies=[('forward', 1200)])\n"
            "               for one in self.rank_infos]\n")
        started = server.Server(self.path, "--store", "memory", "--no-dump", "--scheduler",
                                "python:mine.Mine", environment={"HARPE_PYTHON": str(python)})
        self.addCleanup(started.kill)
        job = server.register(started)
        self.expect_detail(self.ask(started, job, 0).receive(), 500, "import harpe")
