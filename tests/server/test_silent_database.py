#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL that is connected and does not answer: stopped processes, and a proxy that discards
its data. Every request is answered within a limit. A change whose storage was not confirmed is
stored once or not at all, and a client that tries again learns which. All trials run at the same
time, because each of them waits for the server's time limit."""
import concurrent.futures
import pathlib
import select
import sys
import tempfile
import traceback

from postgres import Postgres, programs
from server import *

TIMELY_S = 40  # as docs/postgresql.md says


class Proxy:
    """A proxy on a Unix socket before a PostgreSQL. Each connection has a thread."""

    def __init__(self, directory, postgres):
        self.target = f"{postgres.directory}/.s.PGSQL.5432"
        self.where = f"postgresql://harpe@/postgres?host={directory}"
        self.swallows = {"question": False, "answer": False}  # for sessions that write
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{directory}/.s.PGSQL.5432")
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.forward, args=(client,), daemon=True).start()

    def forward(self, client):
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.target)
        writes = False
        with client, server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    try:
                        data = source.recv(1 << 16)
                        if not data:
                            return
                        # The session that owns the store is the session that writes.
                        writes = writes or b"pg_try_advisory_lock(1751216752, 0)" in data
                        kind = "question" if source is client else "answer"
                        if not (writes and self.swallows[kind]):
                            (server if source is client else client).sendall(data)
                    except OSError:
                        return

    def close(self):
        self.listener.close()


class Trial:
    """A job of two ranks in the middle of a round, at a server on a PostgreSQL of its own."""

    def __init__(self, test, with_proxy=False):
        directory = tempfile.TemporaryDirectory(prefix="harpe-silent-")
        test.addCleanup(directory.cleanup)
        self.test = test
        self.postgres = Postgres()
        test.addCleanup(self.postgres.close)
        test.addCleanup(self.postgres.thaw)
        self.proxy = Proxy(directory.name, self.postgres) if with_proxy else None
        if self.proxy:
            test.addCleanup(self.proxy.close)
        plan = pathlib.Path(directory.name) / "plan.py"
        plan.write_text(repr(plan_for(2)) + "\n")
        self.server = Server(directory.name, "--store", (self.proxy or self.postgres).where,
                             "--no-dump", "--scheduler", "InstructionProfiler",
                             "--scheduler-args", json.dumps({
                                 "num_microbatches": 2,
                                 "profile_path": str(pathlib.Path(directory.name) / "p.csv")}))
        test.addCleanup(self.server.kill)
        wait_until(lambda: self.server.metric("harpe_leads") == 1, self.server.log)
        self.job = register(self.server, pp=2)
        self.test.assertEqual([self.get_schedule(rank).status for rank in (0, 1)], [200, 200])

    def get_schedule(self, rank, round_=0):
        other = self.server.connect().send(
            "GET", f"/schedule/{self.job.id}?rank={1 - rank}&round={round_}")
        answer = self.server.get(f"/schedule/{self.job.id}?rank={rank}&round={round_}")
        other.receive()
        other.close()
        return answer

    def post_result(self, rank):
        return self.server.post(f"/result/{self.job.id}", result_of(rank))

    def check_refusal(self, answer, *words):
        self.test.assertEqual(answer.status, 503, answer)
        for word in words:
            self.test.assertIn(word, answer.json["detail"])

    def try_again(self, rank):
        """Repeats a request like a client, until the engine answers."""
        answers = []

        def is_answered():
            answers.append(self.post_result(rank))
            return answers[-1].status != 503
        wait_until(is_answered, self.server.log)
        return answers[-1]

    def check_all_is_well(self):
        """Checks that each result is stored once, and that the job goes on."""
        for rank in (0, 1):
            answer = self.try_again(rank)
            self.test.assertEqual((answer.status, answer.json), (200, None), answer)
        self.test.assertEqual(
            self.postgres.query("SELECT count(*), count(DISTINCT rank) FROM harpe.results"), "2|2")
        wait_until(lambda: self.server.get("/healthz").status == 200, self.server.log)
        shown = self.server.get(f"/jobs/{self.job.id}").json
        self.test.assertEqual((shown["round"], shown["failure"]), (0, None))
        self.test.assertEqual(self.server.stop(), 0)


class SilentDatabase(unittest.TestCase):
    """Each method `trial_...` is a trial."""

    def prepare(self):
        """PostgreSQL ends with the thread that starts it, so the main thread starts all of them."""
        names = [name for name in dir(self) if name.startswith("trial_")]
        with_proxy = [name for name in names if "proxy" in name]
        return [(getattr(self, name), Trial(self, name in with_proxy)) for name in names]

    def test_every_request_is_answered_and_nothing_is_lost_or_done_twice(self):
        trials = self.prepare()
        with concurrent.futures.ThreadPoolExecutor(len(trials)) as pool:
            under_way = {pool.submit(run, trial): run.__name__ for run, trial in trials}
            faults = [f"{under_way[one]}: {''.join(traceback.format_exception(one.exception()))}"
                      for one in concurrent.futures.as_completed(under_way) if one.exception()]
        self.assertEqual(faults, [], "\n".join(faults))

    @staticmethod
    def stop_writer(trial):
        """Stops the process of PostgreSQL that writes, and returns it."""
        writer = int(trial.postgres.query("SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
                                          " AND granted AND objid = 0"))
        os.kill(writer, signal.SIGSTOP)
        return writer

    def trial_the_process_that_writes_is_stopped(self, trial):
        writer = self.stop_writer(trial)
        begin = time.monotonic()
        trial.check_refusal(trial.post_result(0), "could not be stored", "PostgreSQL", f"{TIMELY_S} s")
        self.assertGreater(time.monotonic() - begin, TIMELY_S - 5)
        # It owns the store until it continues, so no server leads. The server reports this, too.
        while "no server leads" not in (answer := trial.post_result(1)).json["detail"]:
            trial.check_refusal(answer, "PostgreSQL was lost")
        trial.check_refusal(answer)
        self.assertEqual(trial.server.get("/healthz").status, 503)
        os.kill(writer, signal.SIGCONT)
        trial.check_all_is_well()

    def trial_all_processes_are_stopped(self, trial):
        trial.postgres.freeze()
        for rank in (0, 1):
            trial.check_refusal(trial.post_result(rank))
        trial.postgres.thaw()
        trial.check_all_is_well()

    def trial_a_pause_below_the_limit_is_only_slow(self, trial):
        writer = self.stop_writer(trial)
        resume = threading.Timer(TIMELY_S / 3, os.kill, (writer, signal.SIGCONT))
        resume.start()
        answer = trial.post_result(0)
        self.assertEqual((answer.status, answer.json), (200, None), answer)
        self.assertNotIn("cannot store", trial.server.log())
        trial.check_all_is_well()

    def trial_a_proxy_swallows_what_is_written(self, trial):
        trial.proxy.swallows["question"] = True
        trial.check_refusal(trial.post_result(0), f"{TIMELY_S} s")
        self.assertEqual(trial.postgres.query("SELECT count(*) FROM harpe.results"), "0")
        trial.proxy.swallows["question"] = False
        trial.check_all_is_well()

    def trial_a_proxy_swallows_the_answer_to_a_commit(self, trial):
        trial.proxy.swallows["answer"] = True
        trial.check_refusal(trial.post_result(0), f"{TIMELY_S} s")
        self.assertEqual(trial.postgres.query("SELECT count(*) FROM harpe.results"), "1")
        trial.proxy.swallows["answer"] = False
        trial.check_all_is_well()


if __name__ == "__main__":
    if programs() is None:
        print("skipped: no PostgreSQL server is installed here (initdb, postgres)")
        sys.exit(77)
    unittest.main(verbosity=2)
