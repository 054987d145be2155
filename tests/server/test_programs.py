#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Scheduler programs as processes: when they start and end, and whether any remain that do not want
to end, also after a server that was killed. Every process that a server has started has the
server's environment, even if its parents have ended. A variable in the environment therefore counts
them."""
import pathlib
import random
import re
import shutil

from server import *
from server import HERE, is_alive
from attempts import attempt

MARK = "HARPE_TEST_MARK"


class ProgramTest(ServerTest):
    def setUp(self):
        super().setUp()
        self.server = None
        self.mark = f"{MARK}={random.getrandbits(64):x}"
        self.addCleanup(self.kill_processes)

    def start_program(self, *arguments, command=None, **options):
        command = command or f"/usr/bin/python3 -S {HERE / 'faulty_scheduler.py'}"
        return self.start_scheduler(f"program:{command}", *arguments, **options)

    def start_scheduler(self, scheduler, *arguments, environment=None, **options):
        self.server = self.start("--no-dump", *arguments, scheduler=scheduler, args={}, **options,
                                 environment=dict([self.mark.split("=")]) | (environment or {}))
        return self.server

    def processes(self):
        """Returns the processes that a server has started, without zombies and the server
        itself."""
        found = []
        for number in filter(str.isdigit, os.listdir("/proc")):
            if self.server and int(number) == self.server.process.pid:
                continue
            try:
                with open(f"/proc/{number}/environ", "rb", buffering=0) as file:
                    if self.mark.encode() in file.read().split(b"\0") and is_alive(number):
                        found.append(int(number))
            except OSError:
                continue
        return found

    def kill_processes(self):
        for number in self.processes():
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait_for_none(self):
        self.wait_until(lambda: not self.processes(), "all processes have ended")


    def check_faults(self):
        """Each fault in SAID, at the first request and later, fails its own job and no other."""
        healthy = register(self.server)
        for number, (fault, said) in enumerate(self.SAID.items()):
            with self.subTest(fault):
                jobs = [register(self.server, job_metadata=fault),
                        register(self.server, job_metadata=f"{fault} later")]
                self.train(self.server, jobs[1], 1)
                for job in jobs:
                    failure = self.wait_for_failure(self.server, job)
                    self.assertIn(said, failure)
                    self.assertRegex(failure, r"\A[^\x00-\x1f\x7f-\x9f]+\Z")
                    self.expect_detail(self.ask(self.server, job, 0).receive(), 500, said)
                    self.assertEqual(self.server.log().count(f"{job.id}: failed: {failure}\n"), 1)
            self.assertEqual(self.train(self.server, healthy, 1, number), 1000 + number)
        self.end(self.server, healthy)
        self.wait_for_none()


class EndsTest(ProgramTest):
    def test_jobs_that_have_ended_have_no_processes_and_those_that_come_back_do(self):
        self.start_program()
        jobs = [register(self.server) for _ in range(20)]
        for job in jobs:
            self.assertEqual(self.train(self.server, job, 2), 1001)
        self.assertGreaterEqual(len(self.processes()), 20)
        for job in jobs[1:]:
            self.end(self.server, job)
        self.wait_until(lambda: 0 < len(self.processes()) <= 3, "19 jobs have left theirs")
        self.assertEqual(self.server.get(f"/jobs/{jobs[5].id}").json["state"], "ended")
        self.assertEqual(self.train(self.server, jobs[0], 1, 2), 1002)
        back = jobs[5]
        self.expect(self.server.post(f"/register_rank/{back.id}", back.rank(0)), 200)
        self.assertEqual(self.train(self.server, back, 3, 2), 1004)
        self.end(self.server, back)
        self.end(self.server, jobs[0])
        self.wait_for_none()
        self.assertEqual(self.server.stop(), 0)

    def test_ranks_that_have_ended_and_ask_all_the_same_are_answered(self):
        self.start_program()
        job = register(self.server, pp=2)
        self.train(self.server, job, 1)
        self.end(self.server, job)
        self.wait_for_none()
        self.assertEqual(self.train(self.server, job, 2, 1), 1002)

    def test_jobs_that_had_ended_start_nothing_after_a_restart(self):
        self.start_program()
        job = register(self.server)
        self.train(self.server, job, 2)
        self.end(self.server, job)
        self.server.kill()
        self.start_program()
        self.assertEqual(self.server.get(f"/jobs/{job.id}").json["state"], "ended")
        self.train(self.server, register(self.server, job_metadata="finish 0"), 1)
        self.wait_for_none()
        self.expect(self.server.post(f"/register_rank/{job.id}", job.rank(0)), 200)
        self.assertEqual(self.train(self.server, job, 1, 2), 1002)

    def test_finished_and_evicted_jobs_have_no_processes(self):
        self.start_program()
        finished = [register(self.server, job_metadata=f"finish {n}") for n in range(3)]
        for job in finished:
            self.train(self.server, job, 4)
        self.wait_for_none()
        for n, job in enumerate(finished):
            self.assertEqual(self.train(self.server, job, 1, 4), 1000 + n)
        evicted = register(self.server)
        self.train(self.server, evicted, 1)
        self.assertTrue(self.processes())
        self.expect(self.server.call("DELETE", f"/jobs/{evicted.id}"), 200)
        self.wait_for_none()

    def test_job_that_is_evicted_while_its_program_does_not_answer(self):
        self.start_program("--set", "scheduler_timeout=3600")
        for fault in ("deaf", "stop", "deaf later", "escape later"):
            with self.subTest(fault):
                job = register(self.server, job_metadata=fault)
                if fault.endswith("later"):
                    self.train(self.server, job, 1)
                self.wait_until(self.processes, "it has begun")
                self.expect(self.server.call("DELETE", f"/jobs/{job.id}"), 200)
                self.wait_for_none()
        self.train(self.server, register(self.server), 2)

    def test_job_that_has_failed_has_no_processes(self):
        for timeout_s, faults in ((120, ("garbage", "negative later", "escape-and-exit")),
                                  (1, ("deaf", "stop", "family"))):
            self.start_program("--set", f"scheduler_timeout={timeout_s}")
            self.check_failures(faults)
            self.assertEqual(self.server.stop(), 0)
        answered_s = attempt(lambda timeout_s: self.answers_within(timeout_s) and timeout_s, bool,
                             (2, 10, 60))
        self.assertTrue(answered_s)
        self.wait_for_none()

    def answers_within(self, timeout_s):
        """Lets a program answer once and then stop. Returns whether its first answer came in time,
        which a busy machine can prevent."""
        self.start_program("--set", f"scheduler_timeout={timeout_s}")
        job = register(self.server, job_metadata="stop later")
        answer = self.ask(self.server, job, 0, 0).receive()
        if answer.status == 200:
            self.expect(self.server.post(f"/result/{job.id}?round=0", result_of(0, 0)), 200)
        self.wait_for_failure(self.server, job)
        self.wait_for_none()
        self.assertEqual(self.server.stop(), 0)
        return answer.status == 200

    def check_failures(self, faults):
        for fault in faults:
            with self.subTest(fault):
                job = register(self.server, job_metadata=fault)
                if fault.endswith("later"):
                    self.train(self.server, job, 1)
                self.wait_for_failure(self.server, job)
                self.wait_for_none()

    def test_what_a_program_leaves_behind_ends_with_its_job(self):
        self.start_program()
        job = register(self.server, job_metadata="escape-and-go-on")
        self.assertEqual(self.train(self.server, job, 3), 1002)
        self.assertGreaterEqual(len(self.processes()), 2)
        self.end(self.server, job)
        self.wait_for_none()


class KilledServerTest(ProgramTest):
    FAULTS = ("stop", "loop", "deaf", "escape", "family", "stop later", "family later",
              "escape-and-go-on", "")

    def test_nothing_survives_the_kill_of_a_server(self):
        self.start_program("--set", "scheduler_timeout=3600")
        jobs = {fault: register(self.server, job_metadata=fault) for fault in self.FAULTS}
        for fault in self.FAULTS:
            if fault.endswith("later") or fault in ("escape-and-go-on", ""):
                self.train(self.server, jobs[fault], 1)
        self.wait_until(lambda: len(self.processes()) > 100, "all have begun")
        self.server.kill()
        self.wait_for_none()

    def test_nothing_survives_a_stop(self):
        self.start_program("--set", "scheduler_timeout=3600")
        for fault in self.FAULTS[:5]:
            register(self.server, job_metadata=fault)
        self.wait_until(lambda: len(self.processes()) > 40, "all have begun")
        self.assertEqual(self.server.stop(), 0)
        self.wait_for_none()

    def test_a_descriptor_that_is_open_elsewhere_keeps_nothing_alive(self):
        """The last process that holds the end of a pipe is not the server: only the server's
        process counts."""
        self.start_program("--set", "scheduler_timeout=3600")
        register(self.server, job_metadata="deaf")
        self.wait_until(self.processes, "it has begun")
        held = []
        pidfd = os.pidfd_open(self.server.process.pid)
        self.addCleanup(os.close, pidfd)
        for number in map(int, os.listdir(f"/proc/{self.server.process.pid}/fd")):
            try:
                held.append(pidfd_getfd(pidfd, number))
            except OSError:
                continue
        self.assertTrue(held)
        self.server.kill()
        self.wait_for_none()
        for descriptor in held:
            os.close(descriptor)

    def test_a_job_outlives_a_killed_supervisor(self):
        self.start_program("--set", "scheduler_timeout=3600")
        job = register(self.server)
        self.train(self.server, job, 2)
        before = set(self.processes())
        for supervisor in self.supervisors():
            os.kill(supervisor, signal.SIGKILL)
        self.assertEqual(self.train(self.server, job, 2, 2), 1003)
        self.wait_until(lambda: not before & set(self.processes()), "its program has ended, too")

    def supervisors(self):
        found = []
        for number in self.processes():
            try:
                with open(f"/proc/{number}/comm") as file:
                    if file.read().strip() == "harpe-supervise":
                        found.append(number)
            except OSError:
                continue
        return found


@unittest.skipUnless(os.geteuid() == 0, "needs root, to make set-uid programs")
class SetUidTest(ProgramTest):
    """The supervisor has the server's user and can only kill processes of that user. A scheduler and
    its children therefore cannot become another user, even through set-user-ID programs."""

    SERVER_UID = 65534
    # Changes permanently to the owner of its file, as sudo does, and then does not end.
    CHANGE = ("import os, pathlib, signal, time\n"
              "wanted = os.geteuid(), os.getegid()\n"
              "os.setresgid(wanted[1], wanted[1], wanted[1])\n"
              "os.setresuid(wanted[0], wanted[0], wanted[0])\n"
              "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
              "path = pathlib.Path('{path}/changed')\n"
              "path.with_suffix('.new').write_text(f'{{os.getuid()}} {{os.getgid()}}')\n"
              "path.with_suffix('.new').rename(path)\n"
              "time.sleep(3600)\n")

    def make_interpreter(self, state, owner, mode):
        """A copy of Python that becomes `owner`, if the kernel lets it."""
        copy = state / "set-id"
        shutil.copyfile(os.path.realpath("/usr/bin/python3"), copy)
        os.chown(copy, owner, owner)
        copy.chmod(mode)
        self.path.chmod(0o777)
        return f"{copy} -I -S -c \"exec(open('{self.path}/change.py').read())\""

    def start_set_id(self, before, owner, mode):
        (self.path / "changed").unlink(missing_ok=True)
        (self.path / "change.py").write_text(self.CHANGE.format(path=self.path))
        state = self.path / f"state-{random.getrandbits(32):x}"
        state.mkdir()
        os.chown(state, self.SERVER_UID, self.SERVER_UID)
        self.start_scheduler(f"program:{before}{self.make_interpreter(state, owner, mode)}",
                             "--store", state / "harpe.db", "--set", "scheduler_timeout=3600",
                             before=("setpriv", f"--reuid={self.SERVER_UID}",
                                     f"--regid={self.SERVER_UID}", "--clear-groups"))

    def check_set_id(self, before, owner, mode):
        self.start_set_id(before, owner, mode)
        job = register(self.server)
        self.wait_until((self.path / "changed").exists, "the program runs")
        self.assertEqual((self.path / "changed").read_text(),
                         f"{self.SERVER_UID} {self.SERVER_UID}")
        self.expect(self.server.call("DELETE", f"/jobs/{job.id}"), 200)
        self.wait_for_none()
        register(self.server)
        self.wait_until(self.processes, "it has begun")
        self.server.kill()
        self.wait_for_none()

    def test_set_id_programs_stay_of_the_servers_user_and_are_killed(self):
        for before in ("", "exec ", "setsid ", "true; "):
            for owner, mode in ((0, 0o4755), (1, 0o6755), (1, 0o2755)):
                with self.subTest(before, owner=owner, mode=oct(mode)):
                    self.check_set_id(before, owner, mode)


class FaultsTest(ProgramTest):
    """A fault of a program affects only its own job, and one line describes the mistake."""

    SAID = {
        "raise": "(exit status 1: ValueError: the power of GPU \u00e9\u00df is no number)",
        "memory": "(exit status 1: MemoryError)",
        "exit 0": "(exit status 0)", "exit 3": "(exit status 3)", "half": "(exit status 7)",
        "segfault": "(signal 11 (Segmentation fault))", "abort": "(signal 6 (Aborted))",
        "garbage": "not a JSON object: ?[2J garbage", "binary": "not a JSON object: ?",
        "list": "not a JSON object", "lines": "more than one line", "flood": "more than 5 MiB",
        "NaN": "not a JSON object", "infinite": "not a JSON object", "huge": "not a JSON object",
        "negative": "instruction forward of rank 0 -1200 MHz", "fraction": "integer", "text": "integer",
        "pair": "2", "rank": "rank 1", "no rank": "greater than or equal to 0",
        "object": "not a list",
    }

    def test_every_fault_fails_its_own_job_with_one_clear_line(self):
        self.start_program("--set", "scheduler_timeout=120")
        self.check_faults()

    def test_flood_of_standard_error_is_bounded_and_delays_nobody(self):
        script = self.path / "flood.py"
        script.write_text("import sys\n"
                          "for line in sys.stdin:\n"
                          "    for i in range(1 << 18): sys.stderr.write('noise ' * 20 + '\\n')\n"
                          "    sys.exit('the last words')\n")
        self.start_program("--set", "scheduler_timeout=3600", command=f"/usr/bin/python3 -S {script}")
        job = register(self.server)
        self.assertIn("(exit status 1: the last words)", self.wait_for_failure(self.server, job))
        self.wait_for_none()
        self.assertLess(self.server.log_path.stat().st_size, 16 << 20)  # of 32 MB

    def test_programs_are_the_first_to_end_when_memory_is_out(self):
        self.start_program()
        self.train(self.server, register(self.server), 1)
        scores = [pathlib.Path(f"/proc/{number}/oom_score_adj").read_text()
                  for number in self.processes()]
        self.assertIn("1000\n", scores)

    def test_errors_of_any_text_reach_all_who_look(self):
        """The text of an error is truncated between characters, whatever its length and characters
        are."""
        script = self.path / "complain.py"
        script.write_text(
            "import json, sys\n"
            "info = json.loads(sys.stdin.readline())['init']['job_info']\n"
            "print(json.dumps({'error': info['job_metadata']}, ensure_ascii=False))\n")
        self.start_program(command=f"PYTHONIOENCODING=utf-8:surrogatepass /usr/bin/python3 -S {script}")
        for text in self.texts():
            with self.subTest(text[:40], length=len(text.encode())):
                self.check_text(register(self.server, job_metadata=text), text)

    def texts(self):
        random.seed(14)
        alphabets = ["\u00e9", "\u20ac", "\U0001f525", "a\u0301", "\u0e01\u0e33", "\u009b2J\u009d",
                     "x\u00df\u4f60\U0001f600\u0308"]
        for size in (*range(890, 906), *range(1010, 1030), 3000, 65536):
            alphabet = random.choice(alphabets)
            text = ""
            while len(text.encode()) < size:
                text += random.choice(alphabet)
            text = "a" * (len(text.encode()) - size) + text
            while len(text.encode()) > size:
                text = text[:-1]
            yield text

    def check_text(self, job, text):
        failure = self.wait_for_failure(self.server, job)
        expected = re.sub("[\x00-\x1f\x7f-\x9f]", "?", text)
        shown = failure.removesuffix("...")
        self.assertTrue(expected.startswith(shown), (failure, expected))
        self.assertGreater(len(shown.encode()), min(len(expected.encode()), 880) - 8)
        self.assertIn(f"{job.id}: failed: {failure}\n", self.server.log())
        detail = self.ask(self.server, job, 0).receive().json["detail"]
        self.assertTrue(detail.startswith(shown[:200]), detail)
        row = next(row for row in self.server.get("/jobs").json["jobs"]
                   if row["job_id"] == job.id)
        self.assertEqual(row["state"], "failed")
        command = run_harpe("jobs", "show", job.id, "--server", f"http://127.0.0.1:{self.server.port}")
        self.assertIn(f"failure:    {failure}\n", command.stdout)


class LibraryTest(ProgramTest):
    """A shared object runs in a separate process for each job, so its faults affect only that
    job."""

    SAID = {"segfault": "signal 11", "abort": "signal 6", "exit": "exit status 0",
            "exit 5": "exit status 5", "overflow": "signal 11", "thread": "signal 11",
            "leave": "exit status 0", "close": "ended", "error": "???",
            "silent error": "infeasible"}

    def start_library(self, *arguments, with_state=False, at_load=None, timeout_s=120):
        name = "HARPE_FAULTY_LIBRARY" + ("_WITH_STATE" if with_state else "")
        # With sanitizers a crash must still be a signal.
        environment = {"ASAN_OPTIONS": "handle_segv=0:handle_abort=0:detect_leaks=0"}
        if at_load:
            environment["HARPE_TEST_FAULT_AT_LOAD"] = at_load
        return self.start_scheduler(os.environ[name], "--set", f"scheduler_timeout={timeout_s}",
                                    *arguments, environment=environment)

    def test_every_fault_costs_only_its_job(self):
        self.start_library()
        self.check_faults()
        self.assertEqual(self.server.stop(), 0)

    def test_a_loop_without_end_costs_only_its_job(self):
        self.assertTrue(attempt(self.outlives_loops, bool, (2, 10, 60)))

    def outlives_loops(self, timeout_s):
        """Returns whether a healthy job goes on. On a busy machine, an answer may come too late."""
        self.start_library(timeout_s=timeout_s)
        healthy, later = register(self.server), register(self.server, job_metadata="loop later")
        loops = [register(self.server, job_metadata="loop"), later]
        for job in (healthy, later):
            if self.ask(self.server, job, 0, 0).receive().status != 200:
                return False
            self.expect(self.server.post(f"/result/{job.id}?round=0", result_of(0, 0)), 200)
        for job in loops:
            self.assertIn(f"did not answer within {timeout_s} s",
                          self.wait_for_failure(self.server, job))
        answer = self.ask(self.server, healthy, 0, 1).receive()
        self.assertEqual(self.server.stop(), 0)
        return answer.status == 200 and answer.json["frequencies"] == [["forward", 1001]]

    def test_faults_when_it_is_loaded_are_told_at_start(self):
        for fault in ("segfault", "abort", "exit 5", "overflow", "loop", "silent error"):
            with self.subTest(fault):
                with self.assertRaisesRegex(AssertionError, "scheduler library|returned nothing"):
                    self.start_library(at_load=fault, timeout_s=1 if fault == "loop" else 120)

    def test_what_it_prints_and_logs_reaches_the_log(self):
        self.start_library(timeout_s=3600)
        for fault in ("print", "print later"):
            job = register(self.server, job_metadata=fault)
            self.assertEqual(self.train(self.server, job, 3), 1002)
        self.wait_for_log(self.server, "noise")
        self.wait_for_log(self.server, "after 2 rounds")

    def test_a_killed_process_is_replaced_and_knows_what_it_knew(self):
        for with_state in (False, True):
            with self.subTest(with_state=with_state):
                self.start_library(with_state=with_state, timeout_s=3600)
                job = register(self.server)
                self.train(self.server, job, 3)
                for _ in range(2):
                    before = set(self.processes())
                    self.kill_processes()
                    self.wait_until(lambda: not before & set(self.processes()), "they are gone")
                    round_ = self.server.get(f"/jobs/{job.id}").json["round"] + 1
                    # its results find that the process has ended
                    self.train(self.server, job, 1, round_)
                    self.assertEqual(self.train(self.server, job, 1, round_ + 1), 1001 + round_)
                self.end(self.server, job)
                self.wait_for_none()
                self.expect(self.server.post(f"/register_rank/{job.id}", job.rank(0)), 200)
                self.assertEqual(self.train(self.server, job, 2, 7), 1008)
                self.assertEqual(self.server.stop(), 0)
                self.start_library(with_state=with_state)
                self.assertEqual(self.train(self.server, job, 1, 9), 1009)
                self.server.kill()
                for path in self.path.glob("harpe.db*"):
                    path.unlink()

    def test_nothing_survives_the_kill_of_a_server(self):
        self.start_library(timeout_s=3600)
        for fault in ("loop", ""):
            register(self.server, job_metadata=fault)
        self.wait_until(lambda: len(self.processes()) == 4, "two processes and their supervisors")
        self.server.kill()
        self.wait_for_none()


def pidfd_getfd(pidfd, number):
    import ctypes
    found = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, number, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
