#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One use of the server's threads never waits for another: schedulers that hang, plans that take
long, dumps that never open. The tests compare the order of events: a healthy job goes on while the
others are still stuck. They also check that the server stops while work is stuck, and that /healthz
reports the stuck work. Only one test compares a time, that of such a stop."""

from server import *
from server import HERE, is_alive
from attempts import attempt
import side_by_side

# A server leaves although threads of it are stuck, which ThreadSanitizer calls a leak.
os.environ["TSAN_OPTIONS"] = os.environ.get("TSAN_OPTIONS", "") + " report_thread_leaks=0"


class PoolTest(ServerTest):
    def start_program(self, *arguments, **options):
        command = f"/usr/bin/python3 {HERE / 'hanging_scheduler.py'} {self.path}"
        self.addCleanup(self.kill_programs)
        return self.start(*arguments, scheduler=f"program:{command}", args={}, **options)

    def programs(self):
        """Returns the processes of the programs that hang, and their children."""
        return [int(number) for path in self.path.glob("hanging-*") if path.suffix != ".new"
                for number in path.read_text().split()]

    def kill_programs(self):
        """Returns the files and processes that a killed server has left behind."""
        for number in self.programs():
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:  # it has ended
                pass

    def hang(self, server, count):
        """Registers jobs whose schedulers do not answer."""
        return [register(server, job_metadata="hang") for _ in range(count)]

    def wait_for_hanging(self, count):
        self.wait_until(lambda: len(self.programs()) >= 2 * count, f"{count} programs hang")

    def stop(self, server):
        """SIGTERM ends the server with status 0. Work that is stuck never ends, so the server does not
        wait for it."""
        self.assertEqual(server.stop(), 0, server.log())


class SchedulersTest(PoolTest):
    def test_a_hanging_scheduler_delays_no_other_job(self):
        server = self.start_program("--set", "scheduler_timeout=3600", "--set", "worker_threads=2")
        for count in (1, 8):
            self.hang(server, count)
        self.wait_for_hanging(9)
        self.train(server, register(server), 5)
        self.assertTrue(all(map(is_alive, self.programs())))
        self.assertEqual(len(self.programs()), 18)
        self.expect(server.get("/healthz"), 200)
        self.stop(server)
        self.wait_until(lambda: not any(map(is_alive, self.programs())), "programs are killed")

    def test_schedulers_beyond_the_bound_wait_and_health_says_so(self):
        # Two of the jobs that hang fail after each 15 s, so some wait for a long time.
        server = self.start_program("--set", "scheduler_timeout=15",
                                    "--set", "scheduler_threads=2")
        hanging = self.hang(server, 12)
        waiting = register(server)
        held = self.ask(server, waiting, 0)
        self.wait_for_health(server, 503)
        self.expect_detail(server.get("/healthz"), 503, "scheduler", "wait")
        for job in hanging:
            self.expect(server.call("DELETE", f"/jobs/{job.id}"), 200)
        self.expect(held.receive(), 200)
        self.wait_for_health(server, 200)

    def test_an_evicted_job_with_a_stubborn_program_holds_up_nobody(self):
        server = self.start_program("--set", "scheduler_timeout=3600")
        job = self.hang(server, 1)[0]
        self.wait_for_hanging(1)
        self.expect(server.call("DELETE", f"/jobs/{job.id}"), 200)
        self.train(server, register(server), 2)


class DumpsTest(PoolTest):
    """A dump whose file is a FIFO without a reader never opens, as on a file server that does not
    answer."""

    def start_plan(self, *arguments):
        return self.start("--set", "worker_threads=2", *arguments)

    def test_a_stuck_dump_delays_neither_its_job_nor_others(self):
        server = self.start_plan()
        jobs = [self.stick(server) for _ in range(4)]
        healthy = register(server)
        self.train(server, healthy, 3)
        last = self.path / "dump" / healthy.id / "2.prof.json"
        self.wait_until(last.exists, "the healthy job's dumps")
        for job in jobs:
            self.train(server, job, 3)
            self.assertFalse((self.path / "dump" / job.id / "0.sched.json").exists())
        for job in jobs:
            ranks = json.loads((self.path / "dump" / job.id / "ranks.json").read_text())  # opens it
            self.assertEqual(ranks[0]["rank"], 0)
            last = self.path / "dump" / job.id / "2.prof.json"
            self.wait_until(last.exists, "the dumps that waited")

    def test_stop_with_stuck_dumps_and_the_next_server_makes_them(self):
        server = self.start_plan()
        job, _ = self.stick(server), self.stick(server)
        self.train(server, job, 2)
        self.stop(server)
        self.assertIn("dump", server.log())
        self.assertIn(job.id, server.log())
        for path in (self.path / "dump").glob("*/ranks.json"):
            path.unlink()
        server = self.start_plan()
        self.assertEqual(server.get(f"/jobs/{job.id}").json["round"], 1)
        self.wait_until((self.path / "dump" / job.id / "1.prof.json").exists, "made up for")
        self.stop(server)


class SharedObjectTest(PoolTest):
    """The code of a shared object that does not return ends with its process."""

    LIBRARY = os.environ.get("HARPE_ENDLESS_SCHEDULER")

    def start_endless(self, *arguments):
        return self.start("--set", "worker_threads=2", *arguments, scheduler=self.LIBRARY, args={})

    def test_endless_schedulers_delay_nobody_and_fail_after_their_time(self):
        server = self.start_endless("--set", "scheduler_timeout=30")
        jobs = self.hang(server, 4)
        held = self.ask(server, jobs[0], 0)
        self.train(server, register(server), 3)
        self.expect_detail(held.receive(), 500, "did not answer within 30 s", self.LIBRARY)
        for job in jobs:
            self.wait_for_failure(server, job)
        self.expect(server.get("/healthz"), 200)
        self.stop(server)

    def test_what_was_answered_before_a_stop_with_stuck_work_is_stored(self):
        server = self.start_endless("--set", "scheduler_timeout=3600")
        jobs = self.hang(server, 3)
        healthy = register(server)
        self.train(server, healthy, 2)
        held = self.ask(server, jobs[0], 0)
        self.wait_for_waiting(server, jobs[0], 1)
        self.stop(server)
        self.expect(held.receive(), 503)
        server = self.start_endless("--set", "scheduler_timeout=3600")
        self.assertEqual(server.get(f"/jobs/{healthy.id}").json["round"], 1)
        self.assertEqual(len(server.get("/jobs").json["jobs"]), 4)
        self.stop(server)

    def test_a_stop_with_stuck_work_takes_less_than_ten_seconds(self):
        """The server promises this of a machine that has time for it, so one stop of five must be so
        fast. Each server has a store of its own, so that it has no jobs of those before it."""
        def stop_s(number):
            server = self.start_endless("--set", "scheduler_timeout=3600", "--store",
                                        self.path / f"harpe-{number}.db")
            self.hang(server, 3)
            begin_s = time.monotonic()
            self.stop(server)
            return time.monotonic() - begin_s

        self.assertLess(attempt(stop_s, lambda took_s: took_s < 10, range(5)), 10)

    def test_a_second_signal_ends_it_too(self):
        server = self.start_endless("--set", "scheduler_timeout=3600")
        self.hang(server, 1)
        server.process.send_signal(signal.SIGINT)
        self.stop(server)


class LoopTest(PoolTest):
    """The thread that owns all jobs is itself stuck."""

    def test_a_start_that_hangs_is_ended_by_a_signal(self):
        server = self.start()
        register(server)
        self.stop(server)
        hung = self.path / "harpe.db"
        process = self.begin_serve("--store", hung, "--no-dump", environment=hanging_files(hung))
        sign = self.path / "harpe.db.hangs"
        self.wait_until(lambda: process.poll() is not None or sign.exists(), "it hangs")
        self.assertIsNone(process.poll())
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 0)


if __name__ == "__main__":
    side_by_side.main()  # in place of unittest.main()
