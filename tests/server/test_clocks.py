#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The wall clock of a server may be set to any time at any moment. This evicts no job and blocks no
request, no last request is in the future, and the time of a registration does not move. A small library
(shifted_clock.c) shifts the clock of one server. The monotonic clocks do not change."""
import struct

from postgres import Postgres, programs
from server import *

DAY_S = 86400
IDLE_S = 120  # the server looks for idle jobs every 2 s


class ShiftedServer:
    """A server with a shifted clock."""

    def __init__(self, test, name, shift_s=0, *arguments):
        self.file = test.path / f"{name}.clock"
        self.shift(shift_s)
        self.server = Server(
            test.path, "--scheduler", "PointSolution", "--scheduler-args",
            json.dumps({"solution_path": str(test.path / "plan.py")}), "--log-level", "info",
            "--dump-dir", test.path / "dump", "--set", f"max_job_idle_time={IDLE_S}", *arguments,
            environment={"LD_PRELOAD": os.environ["HARPE_SHIFTED_CLOCK"],
                         "SHIFTED_CLOCK": str(self.file),
                         "ASAN_OPTIONS": "verify_asan_link_order=0"})
        test.addCleanup(self.server.kill)

    def shift(self, seconds):
        self.shift_s = seconds
        # The file is not truncated, because a server has it mapped.
        file = os.open(self.file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(file, struct.pack("=q", seconds), 0)
        os.close(file)

    def now_s(self):
        return time.time() + self.shift_s


class ClockTest(ServerTest):
    def setUp(self):
        super().setUp()
        self.registered = {}  # when each job registered, by the first answer about it

    def start_shifted(self, name, shift_s=0, *arguments):
        return ShiftedServer(self, name, shift_s, *(arguments or ("--store", self.path / "harpe.db")))

    def wait_for_check(self, shifted):
        """Waits for the server's check for idle jobs, which stores how long the server has run."""
        for _ in range(2):  # the first check may have begun before
            before = shifted.server.metric("harpe_store_changes_total")
            self.wait_until(lambda: shifted.server.metric("harpe_store_changes_total") > before,
                            "the server looks for idle jobs")

    def check_times(self, shifted, begin):
        """Checks that no time is in the future, and that ages come from a clock that does not
        jump."""
        listed = shifted.server.get("/jobs").json["jobs"]
        now_s = shifted.now_s() + 2
        lasted_s = time.monotonic() - begin + 4
        for job in listed:
            self.assertLessEqual(job["last_seen"], now_s, job)
            self.assertGreaterEqual(job["last_seen"], now_s - lasted_s, job)
            first = self.registered.setdefault(job["job_id"], job["registered_at"])
            self.assertEqual(job["registered_at"], first, job)
        for line in shifted.server.get("/metrics").body.decode().splitlines():
            if not line.startswith("#"):
                self.assertGreaterEqual(float(line.rpartition(" ")[2]), 0, line)
        return listed

    def test_jumps_evict_nobody_and_delay_nobody(self):
        self.write_plan(plan_for(2))
        begin = time.monotonic()
        shifted = self.start_shifted("one")
        job = register(shifted.server, 2)
        held = self.ask(shifted.server, job, 0)
        self.wait_for_waiting(shifted.server, job, 1)
        ids = [job.id]
        for days in (8, -8, 40000, -19000, 0):  # also after 2106 and before 1980
            with self.subTest(days=days):
                for rank in range(2):  # a retry: the server receives a request of the job
                    self.expect(shifted.server.post(f"/register_rank/{job.id}", job.rank(rank)), 200)
                shifted.shift(days * DAY_S)
                self.wait_for_check(shifted)
                self.expect(shifted.server.get(f"/jobs/{job.id}"), 200)
                self.assertTrue(held.is_held(0.01))
                ids.append(register(shifted.server, 2).id)
                listed = self.check_times(shifted, begin)
                self.assertEqual([one["job_id"] for one in listed], ids[::-1])
        other = self.ask(shifted.server, job, 1)
        self.expect(held.receive(), 200)
        self.expect(other.receive(), 200)
        self.assertEqual(shifted.server.metric("harpe_jobs_evicted_total"), 0)
        self.assertEqual(shifted.server.stop(), 0)

    @unittest.skipUnless(programs(), "PostgreSQL's programs are not installed")
    def test_servers_whose_clocks_differ_replace_each_other(self):
        self.write_plan(plan_for(2))
        postgres = Postgres()
        self.addCleanup(postgres.close)
        servers = [self.start_shifted(name, days * DAY_S, "--store", postgres.where)
                   for name, days in (("a", 0), ("b", 30), ("c", -30))]
        job = None
        while servers:
            leader = self.wait_until(lambda: next((one for one in servers if one.server.metric(
                "harpe_leads") == 1), None), "one of them leads")
            job = job or register(leader.server, 2)
            self.wait_for_check(leader)
            self.expect(leader.server.get(f"/jobs/{job.id}"), 200)
            self.check_times(leader, time.monotonic() - 61 * DAY_S)
            answers = [self.ask(leader.server, job, rank) for rank in range(2)]
            for answer in answers:
                self.expect(answer.receive(), 200)
            leader.shift(leader.shift_s - 90 * DAY_S)
            self.check_times(leader, time.monotonic())
            leader.server.kill()
            servers.remove(leader)


if __name__ == "__main__":
    unittest.main(verbosity=2)
