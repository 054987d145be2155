# SPDX-License-Identifier: Apache-2.0
"""Kills `harpe serve` and the processes of a job at random moments, and starts them again as a
launcher does. A proxy between them notes all requests and answers. At the end, the dumps must have
each round that a rank saw once, with what the server answered and what the rank sent. The test (a few
kills) and bench/kill_trainers (300) use it."""
import asyncio
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time
import urllib.parse

import kill_trial
from server import HARPE, Server

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", pathlib.Path(HARPE).parent)).resolve()
LOOP = BUILD / "examples" / "example_pipeline_loop"
RANKS, STUCK_S = 2, 300
PLAN = [[("forward", 1200), ("forward", 1200), ("backward", 1305), ("backward", 1305)],
        [("forward", 1185), ("backward", 1290), ("forward", 1185), ("backward", 1290)]]


async def read_message(reader):
    """Returns (first line, headers, bytes) of a whole request or answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return first, headers, head + await reader.readexactly(int(headers.get("content-length", 0)))


class Trial:
    def __init__(self, directory, choose):
        self.directory, self.choose = pathlib.Path(directory), choose
        self.server_port, self.port = kill_trial.free_port(), None
        self.schedules = {}  # (rank, round): the answers
        self.results = {}    # (rank, round): [(body, status of the answer or None)]
        self.registered = set()
        self.kills = {"server": 0, "trainers": 0, "both": 0}
        self.trainers, self.problems = [], []
        self.environment = dict(
            os.environ, HARPE_NVML_LIBRARY=str(BUILD / "emulator" / "libnvidia-ml.so.1"), HARPE_PROGRAM=HARPE,
            HARPE_EMULATOR_GPUS=f"{RANKS}xA100", HARPE_EMULATOR_TIME_SCALE="50", HARPE_AGENT_SOCKET="",
            HARPE_EMULATOR_CLUSTER=f"trainers-{os.getpid()}-{self.server_port}")

    # ---- Processes ----

    def start_server(self):
        self.server = Server(self.directory, "--store", self.directory / "harpe.db", "--dump-dir",
                             self.directory / "dump", "--scheduler", "PointSolution", "--scheduler-args",
                             json.dumps({"solution_path": str(self.directory / "plan.py")}), port=self.server_port)

    def start_trainers(self):
        log = open(self.directory / "trainers.log", "ab")
        self.trainers = [subprocess.Popen(
            [LOOP, "--rank", str(rank), "--ranks", str(RANKS), "--key", "job", "--microbatches", "2", "--steps",
             "100000000", "--server", f"http://127.0.0.1:{self.port}"],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log) for rank in range(RANKS)]
        log.close()

    async def kill_trainers(self):
        """The ranks die one after the other, as when a launcher notices the first one."""
        for trainer in self.choose.sample(self.trainers, len(self.trainers)):
            trainer.kill()
            trainer.wait()
            await asyncio.sleep(self.choose.choice((0, self.choose.uniform(0, 0.2))))

    # ---- The proxy ----

    async def serve_client(self, reader, writer):
        try:
            while True:
                line, _, request = await read_message(reader)
                answer = asyncio.create_task(self.forward(line, request))
                gone = asyncio.create_task(reader.read(1))
                done, _ = await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if answer not in done:
                    answer.cancel()
                    break
                await asyncio.gather(gone, return_exceptions=True)
                writer.write(answer.result())
                await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):  # the client or the server is gone, or the trial ends
            pass
        finally:
            writer.close()

    async def forward(self, line, request):
        target = urllib.parse.urlsplit(line.split(" ")[1])
        query = dict(urllib.parse.parse_qsl(target.query))
        body = request.split(b"\r\n\r\n", 1)[1]
        sent = None
        if target.path.startswith("/result/"):
            sent = [json.loads(body), None]
            self.results.setdefault((sent[0]["rank"], int(query["round"])), []).append(sent)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        try:
            writer.write(request)
            first, headers, answer = await read_message(reader)
        finally:
            writer.close()
        status, value = int(first.split(" ")[1]), answer.split(b"\r\n\r\n", 1)[1]
        if sent:
            sent[1] = status
        elif target.path.startswith("/schedule/") and status == 200:
            key = int(query["rank"]), int(headers["harpe-round"])
            self.schedules.setdefault(key, []).append(json.loads(value))
        elif target.path.startswith("/register_job") and status == 200:
            self.registered.add(json.loads(value))
        return answer

    # ---- The trial ----

    async def run(self, kills, longest_s, progress):
        (self.directory / "plan.py").write_text(repr(PLAN))
        proxy = await asyncio.start_server(self.serve_client, "127.0.0.1", 0)
        self.port = proxy.sockets[0].getsockname()[1]
        self.start_server()
        self.start_trainers()
        await self.see_rounds(1)
        for done in range(kills):
            await asyncio.sleep(self.choose.uniform(0, longest_s))
            what = self.choose.choice(list(self.kills))
            self.kills[what] += 1
            if what != "trainers":
                self.server.kill()
            if what != "server":
                await self.kill_trainers()
                self.start_trainers()
            if what != "trainers":
                await asyncio.to_thread(self.start_server)
            progress(done + 1)
        await self.see_rounds(2)
        for trainer in self.trainers:
            trainer.kill()
            trainer.wait()
        proxy.close()

    async def see_rounds(self, more):
        """Waits until each rank has the schedule of a later round."""
        last, end_s = max((round_ for _, round_ in self.schedules), default=-1) + more, time.monotonic() + STUCK_S
        while not all((rank, last) in self.schedules for rank in range(RANKS)):
            if time.monotonic() > end_s:
                self.problems.append(f"no round {last} in {STUCK_S} s: {sorted(self.schedules)[-4:]}")
                return
            await asyncio.sleep(0.01)

    def check(self):
        jobs = self.server.get("/jobs?limit=10").json["jobs"]
        if self.server.stop() != 0:
            self.problems.append("harpe serve did not end well after SIGTERM")
        if len(jobs) != 1 or self.registered != {jobs[0]["job_id"]}:
            self.problems.append(f"the ranks met in {self.registered}; the server has {jobs}")
            return
        dump = self.directory / "dump" / jobs[0]["job_id"]
        newest = max(round_ for _, round_ in self.schedules)
        there = {path.name for path in dump.iterdir()} - {"ranks.json", f"{newest}.prof.json"}
        wanted = {f"{r}.sched.json" for r in range(newest + 1)} | {f"{r}.prof.json" for r in range(newest)}
        if there != wanted:
            self.problems.append(f"dumps missing {sorted(wanted - there)}, too many {sorted(there - wanted)}")
        read = lambda name: json.loads((dump / name).read_text()) if (dump / name).exists() else [None] * RANKS
        for (rank, round_), answers in self.schedules.items():
            stored = read(f"{round_}.sched.json")[rank]
            if any(answer != stored for answer in answers):
                self.problems.append(f"rank {rank} round {round_}: stored {stored}, answered {answers}")
        for (rank, round_), sent in self.results.items():
            stored = read(f"{round_}.prof.json")[rank]
            is_last = round_ == newest and stored is None
            bodies = [body for body, status in sent if status == 200] or [body for body, _ in sent]
            is_same = stored and [{name: body.get(name) for name in stored} == stored for body in bodies]
            accepted = any(status == 200 for _, status in sent)
            if not is_last and not (is_same and (all(is_same) if accepted else any(is_same))):
                self.problems.append(f"rank {rank} round {round_}: stored {stored}, sent {sent}")

    def __str__(self):
        sent = [status for results in self.results.values() for _, status in results]
        return (f"kills {self.kills}, {max(round_ for _, round_ in self.schedules) + 1} rounds, "
                f"{sum(map(len, self.schedules.values()))} schedules answered, {len(sent)} results sent, "
                f"{sent.count(200)} accepted: {len(self.problems)} problems")

    def close(self):
        for trainer in self.trainers:
            trainer.kill()
            trainer.wait()
        self.server.kill()
        pathlib.Path(f"/dev/shm/harpe-emulator-{os.getuid()}-{self.environment['HARPE_EMULATOR_CLUSTER']}").unlink(
            missing_ok=True)


def kill_many(count, seed=1, longest_s=2.0, progress=lambda done: None):
    """Makes `count` kills of one server and one job. Returns the trial."""
    with tempfile.TemporaryDirectory(prefix="harpe-trainers-") as directory:
        trial = Trial(directory, random.Random(seed))
        try:
            asyncio.run(trial.run(count, longest_s, progress))
            trial.check()
        finally:
            trial.close()
    return trial
