#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two `harpe serve` on one PostgreSQL: one leads, and the other stands by. Clients try both. One
server or the database is lost or sleeps during a job, and every rank still sees every round as if
nothing had happened. kill_trial.py provides the jobs and the expected answers."""
import asyncio
import http.client
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import counting_scheduler
import kill_trial
from postgres import Postgres, programs
from server import (HARPE, LIMIT_S, SOURCE, Server, ServerTest, clean_environment, job_info,
                    register, wait_until)

# A server leaves although threads of it wait for a database, which ThreadSanitizer calls a leak.
os.environ["TSAN_OPTIONS"] = os.environ.get("TSAN_OPTIONS", "") + " report_thread_leaks=0"

HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
SCHEDULER = f"program:exec {shlex.quote(sys.executable)} " \
            f"{shlex.quote(str(pathlib.Path(counting_scheduler.__file__).resolve()))}"

# Answers the first request with an error, as soon as there is a file "go" in the given directory.
FAILS_ONCE = """
import json, pathlib, sys, time
place = pathlib.Path(sys.argv[1])
for line in sys.stdin:
    is_first = not (place / "asked").exists()
    (place / "asked").touch()
    while not (place / "go").exists():
        time.sleep(0.01)
    answer = {"error": "not now"} if is_first else {"schedules": [{"rank": 0, "frequencies": []}]}
    print(json.dumps(answer), flush=True)
"""


class Trial:
    """The parameters of kill_trial's jobs."""

    def __init__(self, servers, port):
        self.servers, self.only_port = servers, port
        self.choose = random.Random(7)
        self.retries = self.register_retries = self.kills = self.turn = 0
        self.problems = []
        self.stop = None

    @property
    def port(self):
        self.turn += 1
        return self.only_port or self.servers[self.turn % len(self.servers)].port

    async def run(self, jobs, in_between):
        """Runs jobs during `in_between` (a coroutine function that causes a failure) and for two
        more rounds."""
        self.stop = asyncio.Event()
        tasks = [asyncio.create_task(job.run_rank(rank)) for job in jobs for rank in range(job.ranks)]
        try:
            await self.wait_for_rounds(jobs, 2)
            await in_between()
            await self.wait_for_rounds(jobs, 2)
            for job in jobs:
                job.last_round = job.newest_round + 1
            await asyncio.wait_for(asyncio.gather(*tasks), LIMIT_S)
        except asyncio.TimeoutError:
            self.problems.append("stuck: " + "; ".join(
                f"{job.id}: {[len(log) for log in job.logs]}" for job in jobs))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_for_rounds(self, jobs, more):
        """Waits until every job has advanced by this number of rounds."""
        goals = [job.newest_round + more for job in jobs]
        end = time.monotonic() + LIMIT_S
        while any(job.newest_round < goal for job, goal in zip(jobs, goals)):
            if time.monotonic() > end or self.stop.is_set():
                raise asyncio.TimeoutError
            await asyncio.sleep(0.02)


def leads(server):
    return server.metric("harpe_leads") == 1


def status_of(port, target):
    """Returns the status of an answer to GET, or None if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("GET", target)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class OnPostgres(ServerTest):
    postgres = None  # one for all tests

    def setUp(self):
        super().setUp()
        self.postgres.query("SET client_min_messages = error; DROP SCHEMA IF EXISTS harpe CASCADE")


class TwoServers(OnPostgres):
    def setUp(self):
        super().setUp()
        self.servers = [self.start(), self.start()]
        self.wait_until(self.leader, "a server leads")

    # ---- Servers ----

    def start(self, *arguments):
        server = Server(self.path, "--store", self.postgres.where, "--dump-dir", self.path / "dump",
                        "--log-level", "info", "--scheduler", SCHEDULER, *arguments)
        self.addCleanup(server.kill)
        return server

    def leader(self):
        """Returns the server that leads, or None if there is none at present."""
        return next((server for server in self.servers if server.process.poll() is None and
                     leads(server)), None)

    def leader_and_follower(self):
        """Waits until a server leads. A busy machine may stop a server for so long that another
        one takes over."""
        leader = self.wait_until(self.leader, "a server leads")
        return leader, next((server for server in self.servers if server is not leader), None)

    @staticmethod
    def own_address(server):
        return f"127.0.0.1:{server.port}"

    def wait_until(self, condition, what):
        return wait_until(condition, lambda: f"{what}\n{self.logs()}")

    def logs(self):
        return "\n".join(server.log() for server in self.servers)

    # ---- Jobs that go on ----

    def run_jobs(self, in_between, port=None):
        """Checks that three jobs survive `in_between` without losing or duplicating anything.
        Their clients connect to all servers in turn, or only to `port`."""
        trial = Trial(self.servers, port)
        jobs = [kill_trial.Job(trial, number, 6) for number in range(3)]
        asyncio.run(trial.run(jobs, in_between))
        self.assertEqual(trial.problems, [], self.logs())
        leader, _ = self.leader_and_follower()
        shown = {job["job_id"]: job for job in leader.get("/jobs").json["jobs"]}
        for job in jobs:
            self.wait_for_dumps(job)
            self.assertEqual(job.problems(shown.get(job.id), self.path / "dump"), [])
        self.assertEqual(len(shown), 3)

    def wait_for_dumps(self, job):
        """They are written beside the answers, also by a server that led before and has slept."""
        directory = self.path / "dump" / job.id
        last = directory / f"{job.newest_round}.prof.json"
        self.wait_until(lambda: last.exists() and not list(directory.glob(".*.tmp")),
                        "the last results are dumped and nothing is being written")

    async def kill_leader(self):
        leader, _ = await asyncio.to_thread(self.leader_and_follower)
        leader.kill()
        self.servers.remove(leader)

    def test_leader_is_killed(self):
        self.run_jobs(self.kill_leader)

    def test_follower_is_killed_and_another_comes(self):
        async def kill():
            _, follower = await asyncio.to_thread(self.leader_and_follower)
            follower.kill()
            self.servers.remove(follower)
            self.servers.append(await asyncio.to_thread(self.start))
        self.run_jobs(kill)

    def test_one_after_the_other_is_killed(self):
        async def kill():
            for _ in range(3):
                victim = self.leader() or self.servers[0]
                victim.kill()
                self.servers.remove(victim)
                self.servers.append(await asyncio.to_thread(self.start))
                await asyncio.sleep(0.3)
        self.run_jobs(kill)

    def test_leader_is_stopped_in_good_order(self):
        async def stop():
            leader, _ = await asyncio.to_thread(self.leader_and_follower)
            self.assertEqual(await asyncio.to_thread(leader.stop), 0, leader.log())
            self.servers.remove(leader)
        self.run_jobs(stop)

    def test_leader_sleeps_and_wakes_up_as_a_follower(self):
        async def sleep():
            leader, other = await asyncio.to_thread(self.leader_and_follower)
            leader.process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.to_thread(self.wait_until, lambda: leads(other), "the other one leads")
                # A job that the sleeping server does not know.
                new = await asyncio.to_thread(other.post, "/register_job", job_info())
                self.assertEqual(new.status, 200)
            finally:
                leader.process.send_signal(signal.SIGCONT)
            # Immediately: the server must not answer from its memory.
            for _ in range(5):
                shown = await asyncio.to_thread(leader.get, "/jobs")
                self.assertEqual(shown.status, 503, leader.log())
            self.assertEqual((await asyncio.to_thread(
                other.call, "DELETE", f"/jobs/{new.json}")).status, 200)
            self.assertFalse(leads(leader))
        self.run_jobs(sleep)

    def test_database_is_restarted(self):
        async def restart():
            for number in (signal.SIGINT, signal.SIGQUIT):
                await asyncio.to_thread(self.postgres.stop, number)
                await asyncio.sleep(0.7)
                self.postgres.start()  # here: it ends with the thread that starts it
                await asyncio.sleep(1)
        self.run_jobs(restart)

    def test_a_failure_that_the_next_leader_will_not_know_is_not_told(self):
        """The scheduler fails while the database is away, so the failure cannot be stored. A new
        scheduler is asked later, and answers."""
        program = self.path / "fails_once.py"
        program.write_text(FAILS_ONCE)
        for server in self.servers:
            self.assertEqual(server.stop(), 0)
        scheduler = shlex.join(["exec", sys.executable, str(program), str(self.path)])
        self.servers = [self.start("--scheduler", f"program:{scheduler}") for _ in range(2)]
        leader, _ = self.leader_and_follower()
        job = register(leader)
        held = leader.connect().send("GET", f"/schedule/{job.id}?rank=0")
        self.wait_until((self.path / "asked").exists, "the scheduler is asked")
        self.postgres.stop(signal.SIGQUIT)
        (self.path / "go").touch()
        try:
            time.sleep(1)
        finally:
            self.postgres.start()
        self.assertIn(held.receive().status, (200, 503), self.logs())
        held.close()
        self.wait_until(lambda: any(server.get(f"/schedule/{job.id}?rank=0").status == 200
                                    for server in self.servers), "a server has a schedule")
        self.assertNotIn("failed: not now", self.logs())

    def test_database_that_hangs_is_told_and_holds_up_no_server(self):
        """Connections are accepted, and nothing is answered. The loop of each server goes on."""
        before = self.servers
        self.servers = [self.start("--set", "work_deadline=1") for _ in range(2)]
        for server in before:
            self.assertEqual(server.stop(), 0)
        self.wait_until(self.leader, "a server leads")

        async def hang():
            self.postgres.freeze()
            try:
                for server in self.servers:
                    status = lambda: server.get("/healthz").status
                    while await asyncio.to_thread(status) != 503:
                        await asyncio.sleep(0.05)
                for _ in range(20):
                    for server in self.servers:
                        for target in ("/healthz", "/metrics", "/info", "/"):
                            answer = await asyncio.to_thread(server.get, target)
                            self.assertIn(answer.status, (200, 503), answer)
            finally:
                self.postgres.thaw()
        self.run_jobs(hang)
        healthy = lambda: [server for server in self.servers if server.get("/healthz").status == 200]
        self.wait_until(lambda: len(healthy()) == 1, "the leader is healthy again")

    def test_servers_stop_while_the_database_hangs(self):
        leader, _ = self.leader_and_follower()
        job = register(leader)
        self.assertEqual(leader.get(f"/schedule/{job.id}?rank=0").status, 200)
        self.postgres.freeze()
        self.addCleanup(self.postgres.thaw)
        for server in self.servers:
            self.assertEqual(server.stop(), 0, server.log())

    def test_leader_loses_only_the_session_that_writes(self):
        """It continues as a member and may lead again. Clients whose requests it held repeat
        them."""
        async def cut():
            for _ in range(2):
                await asyncio.to_thread(self.postgres.query,
                                        "SELECT pg_terminate_backend(pid) FROM pg_locks"
                                        " WHERE locktype = 'advisory' AND objid = 0")
                await asyncio.sleep(0.6)
        self.run_jobs(cut)

    def test_calls_wait_while_a_server_fails_to_lead(self):
        leader, follower = self.leader_and_follower()
        job = register(leader, pp=2)
        self.postgres.query("UPDATE harpe.ranks SET text = 'broken' || text")
        leader.kill()
        self.servers = [follower]
        self.wait_until(lambda: "cannot load the jobs" in follower.log(), "it tries to lead")
        held = follower.connect().send("GET", f"/schedule/{job.id}?rank=1")
        self.postgres.query("UPDATE harpe.ranks SET text = substr(text, 7)")
        self.wait_until(self.leader, "a server leads")
        self.assertEqual(follower.get(f"/schedule/{job.id}?rank=0").status, 200)
        self.assertEqual(held.receive().status, 200)
        held.close()

    # ---- The server that stands by ----

    def test_a_server_that_stands_by_says_who_leads(self):
        leader, follower = self.leader_and_follower()
        job = register(leader)
        self.assertEqual(leader.get("/healthz").status, 200)
        self.wait_until(lambda: follower.get("/healthz").status == 503, "it has seen the leader")
        for method, target, body in (("GET", "/healthz", None), ("GET", "/jobs", None),
                                     ("POST", "/register_job", job_info()), ("GET", "/fleet", None),
                                     ("GET", f"/schedule/{job.id}?rank=0", None),
                                     ("DELETE", f"/jobs/{job.id}", None)):
            self.expect_detail(follower.call(method, target, body), 503,
                               f"stands by: the server at {self.own_address(leader)} leads")
        self.assertEqual(follower.metric("harpe_healthy"), 1)
        self.assertIn("# HELP harpe_healthy 1 if the server can serve or stands by;",
                      follower.get("/metrics").body.decode())
        self.assertEqual([job["job_id"] for job in leader.get("/jobs").json["jobs"]], [job.id])

    def test_haproxy_sends_calls_to_the_leader(self):
        """With the file of docs/postgresql.md. Clients know only HAProxy."""
        if not HAPROXY:
            self.skipTest("missing: haproxy")
        document = (SOURCE / "docs" / "postgresql.md").read_text(encoding="utf-8")
        text = re.search(r"^```haproxy\n(.*?)^```$", document, re.M | re.S)[1]
        port = kill_trial.free_port()
        text = text.replace(":7700", f":{port}")
        for example, server in zip(("10.0.0.1:7787", "10.0.0.2:7787"), self.servers):
            self.assertIn(example, text)
            text = text.replace(example, self.own_address(server))
        (self.path / "haproxy.cfg").write_text(text)
        with open(self.path / "haproxy.log", "wb") as log:
            proxy = subprocess.Popen([HAPROXY, "-db", "-f", self.path / "haproxy.cfg"],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(proxy.wait)
        self.addCleanup(proxy.kill)
        jobs_there = lambda: status_of(port, "/jobs") == 200
        self.wait_until(jobs_there, "HAProxy has found the leader")
        self.run_jobs(self.kill_leader, port)

    # ---- Power budgets ----

    def put(self, server, target, **body):
        self.expect(server.call("PUT", target, body), 200)

    @staticmethod
    def settings(server):
        """Returns what the server shows of the fleet, without times and without what is measured."""
        fleet = server.get("/fleet").json
        keep = lambda rows, *names: [[row[name] for name in names] for row in rows]
        return {"budgets": keep(fleet["budgets"], "group", "watts", "margin", "overhead", "limit_w"),
                "groups": sorted(keep(fleet["groups"], "name", "parent")),
                "jobs": sorted(keep(fleet["jobs"], "job_id", "group", "kind", "weight")),
                "events": keep(fleet["events"], "id", "group", "state", "promised_w", "note"),
                "price": fleet["price"]}

    def run_member(self, server, watts):
        """A declared job reports to `server` until it has the plan with this power and the budget
        is kept."""
        plan = 0

        def is_kept():
            nonlocal plan
            report = {"plan": plan, "power": self.PLANS[plan]["power"]}
            plan = self.expect(server.post("/fleet/members/limit", report), 200).json["plan"]
            fleet = server.get("/fleet").json
            return (self.PLANS[plan]["power"] == fleet["power"]["counted_w"] == watts and
                    fleet["state"] == "within")
        self.wait_until(is_kept, f"{watts} W")

    PLANS = [{"time": 1, "power": 500}, {"time": 1.2, "power": 400}, {"time": 1.5, "power": 300}]

    def test_a_fleet_survives_the_leader(self):
        leader, follower = self.leader_and_follower()
        self.put(leader, "/fleet/groups/room", parent=None)
        self.put(leader, "/fleet/groups/row1", parent="room")
        self.put(leader, "/fleet/budget", watts=450, margin=0, overhead=1)
        self.put(leader, "/fleet/budget", group="row1", watts=5000, margin=0.1, overhead=1.25)
        self.put(leader, "/fleet/members/limit", group="row1", weight=3, plans=self.PLANS)
        self.put(leader, "/fleet/prices", currency="EUR", value_per_s=1,
                 series=[{"at": 0, "energy_per_kwh": 0.2, "carbon_g_per_kwh": 300}])
        event = {"from": time.time() + 5000, "duration_s": 100, "watts": 50, "key": "grid-7"}
        posted = leader.post("/fleet/events", event).json
        self.assertEqual(posted["promised_w"], 400)
        self.assertEqual(leader.post("/fleet/events", event).json["id"], posted["id"])
        shown = self.settings(leader)
        self.assertEqual([row[:2] for row in shown["budgets"]], [[None, 450], ["row1", 5000]])
        self.assertEqual([row[3] for row in shown["jobs"]], [3])
        self.assertEqual([row[:3] for row in shown["events"]], [[posted["id"], None, "announced"]])
        self.run_member(leader, 400)
        refused = leader.call("PUT", "/fleet/budget", {"watts": -1})
        self.assertEqual((refused.status, "watts" in refused.json["detail"]), (422, True))
        leader.kill()
        self.servers = [follower, self.start()]
        self.wait_until(self.leader, "another server leads")
        leader, _ = self.leader_and_follower()
        self.assertEqual(self.settings(leader), shown)
        self.run_member(leader, 400)
        self.put(leader, "/fleet/budget", watts=350)
        self.run_member(leader, 300)
        self.wait_until(lambda: leader.get("/fleet/history").json["at"], "the history has a point")
        for target in (f"/fleet/events/{posted['id']}", "/fleet/budget", "/fleet/budget?group=row1",
                       "/fleet/prices", "/fleet/members/limit"):
            self.expect(leader.call("DELETE", target), 200)
        self.wait_until(lambda: leader.get("/fleet").json["state"] == "none", "nothing is steered")


class Stall:
    """A database that is connected and stops answering: the tables that the servers need are
    locked, from before the other tests on, because the servers wait for half a minute."""
    LEADER = "SELECT server FROM harpe.lead"

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="harpe-stall-")
        self.postgres, self.servers, self.psql = Postgres(), [], None
        try:
            self.begin()
        except BaseException:
            self.close()
            raise

    def begin(self):
        for _ in range(2):
            self.servers.append(Server(self.directory.name, "--store", self.postgres.where,
                                       "--scheduler", SCHEDULER, "--no-dump"))
        leader = wait_until(lambda: next((s for s in self.servers if leads(s)), None), "one leads")
        self.leader = leader
        self.job = register(leader, pp=2)
        self.held = leader.connect().send("GET", f"/schedule/{self.job.id}?rank=1")
        wait_until(lambda: leader.get(f"/jobs/{self.job.id}").json["ranks_waiting"] == 1, "it is held")
        self.leads_as = self.postgres.query(self.LEADER)
        self.psql = subprocess.Popen(
            [self.postgres.bin / "psql", "-Xq", self.postgres.where, "-c",
             "BEGIN; LOCK TABLE harpe.lead; SELECT pg_sleep(3000)"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.postgres.query(
            "SELECT count(*) FROM pg_locks WHERE NOT granted") != "0", "the servers wait")
        self.since = time.monotonic()
        time.sleep(3)  # the database no longer confirms the leader
        self.call = leader.connect().send("GET", "/jobs")

    def end(self):
        self.postgres.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                            " WHERE query LIKE 'BEGIN; LOCK%'")

    def close(self):
        for server in self.servers:
            server.kill()
        self.postgres.close()
        if self.psql:
            self.psql.wait(LIMIT_S)
        self.directory.cleanup()


class WhenDatabaseStalls(unittest.TestCase):  # last in the alphabet
    stall = None

    def test_calls_are_answered_after_half_a_minute(self):
        stall = self.stall
        answer = stall.call.receive(2 * LIMIT_S)
        self.assertEqual(answer.status, 503, answer)
        self.assertIn("no server leads", answer.json["detail"])
        stall.call.close()
        self.assertGreater(time.monotonic() - stall.since, 25)
        stall.end()
        # A stalled server does not count as dead: the same one leads, and holds the rank.
        self.assertEqual(stall.leader.get(f"/schedule/{stall.job.id}?rank=0").status, 200)
        self.assertEqual(stall.held.receive().status, 200)
        stall.held.close()
        self.assertEqual(stall.postgres.query(stall.LEADER), stall.leads_as)


class Document(OnPostgres):
    def test_its_commands_work(self):
        """Returns the marked blocks of docs/postgresql.md as one script."""
        document = (SOURCE / "docs" / "postgresql.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^<!-- two servers -->\n```sh\n(.*?)^```$", document, re.M | re.S)
        self.assertEqual(len(blocks), 3)
        script = "\n".join(blocks)
        for port in ("7787", "7788"):
            script = script.replace(port, str(kill_trial.free_port()))
        self.addCleanup(self.end_all)
        path = f"{pathlib.Path(HARPE).parent}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.path, text=True,
                              env=clean_environment({"STORE": self.postgres.where, "PATH": path}),
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        self.assertEqual(done.stdout.count("AllMaxFrequency"), 4, done.stdout)
        self.assertIn("it stands by\n", done.stdout)
        self.assertRegex(done.stdout, r" 127\.0\.0\.1:\d+ +\| ")

    def end_all(self):
        """Removes everything that the document's commands have left."""
        for file in self.path.glob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass


def setUpModule():
    WhenDatabaseStalls.stall = Stall()
    unittest.addModuleCleanup(WhenDatabaseStalls.stall.close)
    OnPostgres.postgres = Postgres()
    unittest.addModuleCleanup(OnPostgres.postgres.close)


if __name__ == "__main__":
    if programs() is None:
        print("skipped: no PostgreSQL server is installed here (initdb, postgres)")
        sys.exit(77)
    unittest.main()
