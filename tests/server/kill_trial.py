# SPDX-License-Identifier: Apache-2.0
"""Kills `harpe serve` at random moments while jobs register, fetch schedules and report. Restarts
it at once on the same port and store, and compares all answers with those of a server that was not
killed. The test (a few kills) and bench/kill_server (200) use it. Needs only Python's standard
library."""
import asyncio
import json
import pathlib
import random
import shlex
import signal
import socket
import sys
import tempfile
import time

import counting_scheduler
from server import Server

STUCK_S = 300  # after the last kill, for the jobs to end
RETRIED = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class Refused(Exception):
    """An answer that a client of a server without kills would never get."""


class Client:
    """One connection, which is opened again until a complete answer arrives."""

    def __init__(self, trial):
        self.trial = trial
        self.stream = None
        self.retries = 0

    async def call(self, method, target, body=None):
        """Returns (headers, value) of an answer with status 200."""
        data = b"" if body is None else json.dumps(body).encode()
        request = (f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n"
                   f"Content-Length: {len(data)}\r\n\r\n").encode() + data
        wait_s = 0.03
        while True:
            try:
                status, head, text = await self._exchange(request)
                if status not in (502, 503):
                    break
                self.close()  # another server may lead
            except RETRIED:
                self.close()
            self.retries += 1
            await asyncio.sleep(self.trial.choose.uniform(0.5, 1) * wait_s)
            wait_s = min(2 * wait_s, 0.25)
        if status != 200:
            raise Refused(f"{method} {target} after {self.retries} retries, after kill "
                          f"{self.trial.kills}: {status} {text[:300]!r}")
        return head, json.loads(text)

    async def _exchange(self, request):
        if not self.stream:
            self.stream = await asyncio.open_connection("127.0.0.1", self.trial.port)
        reader, writer = self.stream
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        lines = head.split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        text = await reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split(" ")[1]), headers, text

    def close(self):
        if self.stream:
            self.stream[1].close()
        self.stream = None


class Job:
    """A job whose ranks run round after round until `last_round` is set."""

    def __init__(self, trial, number, ranks):
        self.trial, self.number = trial, number
        self.says_round = number % 2 == 1
        self.ranks = ranks
        self.id = None
        self.newest_round = -1
        self.last_round = None
        self.logs = [[] for _ in range(ranks)]  # the answers to each rank
        self.registered = asyncio.Event()

    def energy(self, rank, round_):
        return float((self.number * 7919 + round_ * 101 + rank * 13) % 2999)

    def result(self, rank, round_):
        return {"rank": rank, "iter_time": [1.0 + round_], "iter_energy": [self.energy(rank, round_)],
                "time_breakdown": {"forward": [[0.25, 0.5]]},
                "energy_breakdown": {"forward": [[25.5, rank]]}}

    def rank_info(self, rank):
        return {"rank": rank, "dp_rank": 0, "pp_rank": rank, "tp_rank": 0,
                "available_frequencies": [1740 - self.number, 1200, 810]}

    async def register(self, client):
        _, self.id = await client.call("POST", "/register_job", {
            "job_id": "", "pp_degree": self.ranks, "dp_degree": 1, "tp_degree": 1,
            "world_size": self.ranks, "job_metadata": f"kills {self.number}"})
        self.trial.register_retries += client.retries
        self.registered.set()

    async def run_rank(self, rank):
        client = Client(self.trial)
        try:
            if rank == 0:
                await self.register(client)
            await self.registered.wait()
            await client.call("POST", f"/register_rank/{self.id}", self.rank_info(rank))
            round_ = 0
            while self.last_round is None or round_ <= self.last_round:
                await self._go_through_round(client, rank, round_)
                round_ += 1
        except Refused as refused:
            self.trial.problems.append(f"job {self.id} rank {rank}: {refused}")
            self.trial.stop.set()
        finally:
            self.trial.retries += client.retries
            client.close()

    async def _go_through_round(self, client, rank, round_):
        more = f"round={round_}" if self.says_round else ""
        head, schedule = await client.call("GET", f"/schedule/{self.id}?rank={rank}"
                                                  f"{'&' + more if more else ''}")
        self.newest_round = max(self.newest_round, round_)
        self.logs[rank].append((int(head.get("harpe-round", -1)), schedule))
        await asyncio.sleep(self.trial.choose.uniform(0, 0.02))  # training
        head, value = await client.call("POST", f"/result/{self.id}{'?' + more if more else ''}",
                                        self.result(rank, round_))
        self.logs[rank].append((int(head.get("harpe-round", -1)), value))

    # ---- Answers of a server without kills ----

    def expected_logs(self, rounds):
        logs = [[] for _ in range(self.ranks)]
        digest = 0
        for round_ in range(rounds):
            for rank in range(self.ranks):
                logs[rank] += [(round_, counting_scheduler.schedule(rank, round_, digest)),
                               (round_, None)]
            digest = counting_scheduler.digest_after(
                digest, (self.energy(rank, round_) for rank in range(self.ranks)))
        return logs

    def problems(self, shown, directory):
        """`shown` is the server's view of this job, as in /jobs."""
        rounds = self.newest_round + 1
        expected = self.expected_logs(rounds)
        found = [f"job {self.id} rank {rank}: {first_difference(self.logs[rank], expected[rank])}"
                 for rank in range(self.ranks) if self.logs[rank] != expected[rank]]
        for name, value in (("world_size", self.ranks), ("round", rounds - 1),
                            ("ranks_registered", self.ranks), ("ranks_reported", self.ranks)):
            if not shown or shown.get(name) != value:
                found.append(f"job {self.id}: /jobs says {shown}, expected {name} {value}")
        return found + [f"job {self.id}: {problem}"
                        for problem in self._dump_problems(directory / str(self.id), rounds, expected)]

    def _dump_problems(self, directory, rounds, expected):
        wanted = {"ranks.json": [self.rank_info(rank) for rank in range(self.ranks)]}
        for round_ in range(rounds):
            wanted[f"{round_}.sched.json"] = [log[2 * round_][1] for log in expected]
            wanted[f"{round_}.prof.json"] = [self.result(r, round_) for r in range(self.ranks)]
        there = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
        missing, too_many = sorted(set(wanted) - there), sorted(there - set(wanted))
        if missing or too_many:
            yield f"dumps missing {missing}, too many {too_many}"
        for name in sorted(there & set(wanted)):
            try:
                if json.loads((directory / name).read_text()) != wanted[name]:
                    yield f"dumps: {name} differs from what clients sent or were answered"
            except ValueError as error:
                yield f"dumps: {name}: {error}"


def first_difference(log, expected):
    for i, entry in enumerate(expected):
        if i >= len(log) or log[i] != entry:
            return f"answer {i}: {log[i] if i < len(log) else 'none'}, expected {entry}"
    return f"{len(log) - len(expected)} answers too many"


class Trial:
    """Some kills of one server with one store."""

    def __init__(self, directory, kills, jobs, ranks, choose, longest_s):
        self.directory = pathlib.Path(directory)
        self.choose, self.longest_s = choose, longest_s
        self.planned, self.kills = kills, 0
        self.port = free_port()
        self.retries = self.register_retries = self.orphans = 0
        self.longest_restart_s = 0.0
        self.problems = []  # messages about lost, duplicated or wrong data
        self.jobs = [Job(self, number, ranks) for number in range(jobs)]
        self.begun = []
        self.stop = None
        self.server = None

    def start_server(self):
        start = time.monotonic()
        program = [sys.executable, str(pathlib.Path(counting_scheduler.__file__).resolve())]
        self.server = None
        while self.server is None:
            try:
                self.server = Server(self.directory, "--store", self.directory / "harpe.db",
                                     "--dump-dir", self.directory / "dump", "--log-level", "info",
                                     "--scheduler", f"program:exec {shlex.join(program)}",
                                     port=self.port)
            except AssertionError as problem:
                # The killed server may have been starting a program. The new process keeps the
                # listening socket until it runs the program.
                if "it is taken" not in str(problem) or time.monotonic() > start + STUCK_S:
                    raise
        self.longest_restart_s = max(self.longest_restart_s, time.monotonic() - start)

    async def run(self, progress):
        self.stop = asyncio.Event()
        self.start_server()
        # Half of the jobs begin one by one between the kills, so that kills also hit registrations.
        late = self.jobs[len(self.jobs) // 2:]
        tasks = self._begin(self.jobs[:len(self.jobs) // 2])
        while self.kills < self.planned and not self.stop.is_set():
            due = len(late) * 2 * (self.kills + 1) // (self.planned + 1)
            tasks += self._begin(late[:due])
            await asyncio.sleep(self.choose.uniform(0, self.longest_s))
            self.server.kill()
            self.kills += 1
            await asyncio.to_thread(self.start_server)
            progress(self.kills)
        tasks += self._begin(late)
        await self._end(tasks)

    def _begin(self, jobs):
        """Returns those of `jobs` that have not begun yet."""
        jobs = [job for job in jobs if job not in self.begun]
        self.begun += jobs
        return [asyncio.create_task(job.run_rank(rank)) for job in jobs for rank in range(job.ranks)]

    async def _end(self, tasks):
        for job in self.jobs:
            job.last_round = job.newest_round + 2
        stopped = asyncio.create_task(self.stop.wait())
        everyone = asyncio.gather(*tasks)
        await asyncio.wait([everyone, stopped], timeout=STUCK_S,
                           return_when=asyncio.FIRST_COMPLETED)
        if not everyone.done():
            if not self.stop.is_set():
                self.problems.append(f"stuck for {STUCK_S} s after kill {self.kills}: {self._shown()}")
            everyone.cancel()
        stopped.cancel()
        await asyncio.gather(everyone, stopped, return_exceptions=True)

    def _shown(self):
        return self.server.get("/jobs?limit=1000").json["jobs"]

    def check(self):
        """Checks the state after all jobs have ended."""
        shown = {entry["job_id"]: entry for entry in self._shown()}
        status = self.server.stop(signal.SIGTERM)
        if status != 0:
            self.problems.append(f"harpe serve ended with {status} after SIGTERM")
        if len({job.id for job in self.jobs}) != len(self.jobs):
            self.problems.append("two jobs have one id")
        self.orphans = len(set(shown) - {job.id for job in self.jobs})
        if self.orphans > self.register_retries:
            self.problems.append(f"{self.orphans} jobs that nobody can have registered")
        for job in self.jobs:
            self.problems += job.problems(shown.get(job.id), self.directory / "dump")

    def close(self):
        if self.server:
            self.server.kill()


def free_port():
    """Chooses a different port than a parallel trial with the same seed. The port is outside the
    range that the system gives to clients. Otherwise a client that connects while no server listens
    would at some time be connected to itself."""
    choose = random.SystemRandom()
    while True:
        port = choose.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Outcome:
    def __init__(self):
        self.kills = self.jobs = self.ranks = self.rounds = self.answers = 0
        self.retries = self.orphans = 0
        self.longest_restart_s = 0.0
        self.problems = []

    def add(self, trial):
        self.kills += trial.kills
        self.jobs += len(trial.jobs)
        self.ranks += sum(job.ranks for job in trial.jobs)
        self.rounds += sum(job.newest_round + 1 for job in trial.jobs)
        self.answers += sum(len(log) for job in trial.jobs for log in job.logs)
        self.retries += trial.retries
        self.orphans += trial.orphans
        self.longest_restart_s = max(self.longest_restart_s, trial.longest_restart_s)
        self.problems += trial.problems

    def __str__(self):
        return (f"{self.kills} kills, {self.jobs} jobs, {self.ranks} ranks, {self.rounds} rounds of a "
                f"job, {self.answers} schedules and results answered, {self.retries} retries, "
                f"{self.orphans} jobs registered again after a lost answer, longest restart "
                f"{self.longest_restart_s * 1000:.0f} ms: {len(self.problems)} problems")


def kill_many(count, jobs=16, ranks=64, seed=1, per_trial=20, longest_s=2.0,
              progress=lambda done: None):
    """Makes `count` kills. Each server and its jobs survive `per_trial` of them."""
    choose = random.Random(seed)
    outcome = Outcome()
    while outcome.kills < count and not outcome.problems:
        with tempfile.TemporaryDirectory(prefix="harpe-kills-") as directory:
            trial = Trial(directory, min(per_trial, count - outcome.kills), jobs, ranks, choose,
                          longest_s)
            try:
                asyncio.run(trial.run(lambda done: progress(outcome.kills + done)))
                trial.check()
            finally:
                trial.close()
            outcome.add(trial)
    return outcome
