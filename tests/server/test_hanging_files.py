#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files that users name, on a file system that does not answer: the server's own process never uses
them, so a signal ends it, its store is free at once, and the rest of its work goes on. Such a file
system is made with FUSE, as root. The other tests use pipes without a reader."""
import pathlib

from server import *
from hanging_files import LOOKUP, HangingFiles
import side_by_side


class FilesTest(ServerTest):
    def hanging(self, hangs_at=LOOKUP):
        """Mounts a file system in which no file is found, because each search for one hangs."""
        files = HangingFiles(self.path / "hanging", hangs_at)
        self.addCleanup(files.close)
        if files.reason:
            self.skipTest(files.reason)
        return files

    def start(self, *arguments, **options):
        return super().start("--dump-dir", self.path / "dump", *arguments, **options)

    def file_processes(self, use=b""):
        """Returns the file processes of the servers of this test."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[1:2] == [b"--file-process"] and use in words[2] and \
                        os.readlink(process / "cwd") == str(self.path.resolve()):
                    found.append(int(process.name))
            except OSError:  # it has ended
                pass
        return found

    def kill_file_processes(self):
        """Returns their number."""
        processes = self.file_processes()
        for process in processes:
            os.kill(process, signal.SIGKILL)
        return len(processes)

    def wait_for_no_file_process(self):
        self.wait_until(lambda: not self.file_processes(), "the file processes end")

    def dump(self, job, name):
        return self.path / "dump" / job.id / name

    def wait_for_dump(self, job, name):
        self.wait_until(self.dump(job, name).exists, f"{name} of {job.id}")

    def link_dumps(self, server, folder):
        """Returns a job whose dumps are in this folder."""
        job = register(server, ranks=False)
        (self.path / "dump").mkdir(exist_ok=True)
        (self.path / "dump" / job.id).symlink_to(folder)
        self.expect(server.post(f"/register_rank/{job.id}", job.rank(0)), 200)
        return job

    def stop(self, server, number):
        """Ends the server by a signal."""
        expected = 0 if number == signal.SIGTERM else -number
        self.assertEqual(server.stop(number), expected, server.log())


class DumpsTest(FilesTest):
    def check_end(self, server, job, number):
        """A signal ends the server, and the next one goes on with the job."""
        self.stop(server, number)
        server = self.start("--set", "work_deadline=1")
        self.assertEqual(server.get(f"/jobs/{job.id}").json["round"], 1)
        return server

    def test_a_server_ends_while_its_dump_directory_hangs(self):
        files = self.hanging()
        (self.path / "dump").symlink_to(files.folder)
        server = self.start("--set", "work_deadline=1")
        for number in (signal.SIGTERM, signal.SIGKILL):
            job = register(server)
            self.train(server, job, 2)
            self.wait_for_health(server, 503)
            server = self.check_end(server, job, number)
        files.close()  # each dump finds a path that is a broken link
        (self.path / "dump").unlink()
        self.wait_for_dump(job, "1.prof.json")
        self.assertEqual(server.stop(), 0)
        self.wait_for_no_file_process()

    def test_a_job_whose_dumps_hang_delays_no_other_job(self):
        files = self.hanging()
        server = self.start()
        hanging = [self.link_dumps(server, files.folder) for _ in range(3)]
        files.wait_until_hangs(LIMIT_S)
        healthy = register(server)
        for job in (healthy, *hanging):
            self.train(server, job, 3)
        for name in ("ranks.json", "2.sched.json", "2.prof.json"):
            self.wait_for_dump(healthy, name)
        self.expect(server.get("/healthz"), 200)

    def test_a_file_process_ends_with_its_server(self):
        """Also while it waits for a pipe."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            server = self.start("--set", "work_deadline=1")
            self.stick(server)
            self.wait_for_health(server, 503)  # it waits for the pipe
            self.assertTrue(self.file_processes(b"dumps"))
            server.stop(number)
            self.wait_for_no_file_process()

    def test_a_file_process_has_no_descriptor_of_its_server(self):
        server = self.start()
        self.wait_for_dump(register(server), "ranks.json")
        process = self.file_processes()[0]
        folder = pathlib.Path(f"/proc/{process}/fd")
        # Between two pieces of work it has its socket, and the pidfd of the server.
        self.wait_until(lambda: {one.name for one in folder.iterdir()} == set("01234"), "no more")
        self.assertEqual({os.readlink(folder / name) for name in "012"}, {"/dev/null"})
        self.wait_until(lambda: not self.children(server), "no child and no zombie")

    def children(self, server):
        """Returns the numbers of its children, also of those that have ended."""
        found = []
        for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
            try:
                found += (task / "children").read_text().split()
            except OSError:  # the thread has ended
                pass
        return found

    def test_a_file_process_that_is_killed_is_replaced(self):
        server = self.start()
        job = register(server)
        self.train(server, job, 1)
        self.wait_for_dump(job, "0.prof.json")
        count = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        killed = 0
        for round_ in range(1, 5):
            killed += self.kill_file_processes()
            self.wait_for_no_file_process()
            self.train(server, job, 1, round_)
            self.wait_for_dump(job, f"{round_}.prof.json")
            self.assertTrue(self.dump(job, f"{round_}.sched.json").exists())
        # One line for each at most. A process may have been at work on a file that exists already.
        self.assertIn(server.log().count("file process was killed"), range(1, killed + 1),
                      server.log())
        self.wait_until(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) <= count,
                        "no descriptor is left")
        self.wait_until(lambda: not self.children(server), "no child and no zombie")

    def test_a_dump_whose_process_is_killed_is_tried_again(self):
        server = self.start("--set", "work_deadline=1")
        job = self.stick(server)
        self.wait_for_health(server, 503)  # it waits for the pipe
        self.expect_detail(server.get("/healthz"), 503, "dump", job.id)
        self.kill_file_processes()
        self.wait_for_log(server, "is tried again")
        self.assertEqual(server.log().count("was killed while it worked on"), 1, server.log())
        ranks = json.loads(self.dump(job, "ranks.json").read_text())
        self.assertEqual(ranks[0]["rank"], 0)
        self.wait_for_log(server, "dumps can be written again")
        self.wait_for_health(server, 200)


class TokensTest(FilesTest):
    """The directory of the file of tokens is a link, which the tests set to a file system that
    hangs."""

    def setUp(self):
        super().setUp()
        self.link, self.real = self.path / "rights", self.path / "real"
        self.real.mkdir()
        self.link.symlink_to(self.real)
        self.file = self.real / "tokens"
        self.token = self.harpe("add", "one", "--role", "operator").stdout.strip()

    def harpe(self, *words):
        return run_harpe("fleet", "token", *words, "--tokens", self.file, check=True)

    def point_to(self, folder):
        new = self.path / "rights.new"
        new.symlink_to(folder)
        new.replace(self.link)

    def start(self, *arguments, **options):
        return super().start("--tokens", self.link / "tokens", "--no-dump", *arguments, **options)

    def status(self, server):
        return server.get("/jobs", Authorization=f"Bearer {self.token}").status

    def hang(self, server):
        files = self.hanging()
        self.point_to(files.folder)
        files.wait_until_hangs(LIMIT_S)
        self.assertEqual(self.status(server), 200)
        return files

    def check_revocation(self, server):
        self.wait_until(lambda: self.status(server) == 401, f"revoked: {server.log()}")
        log = server.log()
        self.assertEqual(log.count("does its file system hang?"), 1, log)
        self.assertIn("answers again", log)

    def test_a_revocation_holds_when_the_file_answers_again(self):
        server = self.start()
        files = self.hang(server)
        self.harpe("remove", "one")
        self.wait_for_log(server, "does its file system hang?")
        self.assertEqual(self.status(server), 200)
        self.point_to(self.real)
        files.close()
        self.check_revocation(server)

    def test_a_revocation_holds_when_another_file_system_takes_its_place(self):
        """The first one never answers."""
        server = self.start()
        files = self.hang(server)
        self.wait_for_log(server, "does its file system hang?")
        self.harpe("remove", "one")
        self.point_to(self.real)
        self.check_revocation(server)
        self.assertGreaterEqual(len(self.file_processes(b"tokens")), 2)
        files.close()
        self.wait_until(lambda: len(self.file_processes(b"tokens")) == 1, "the others end")

    def test_a_server_ends_while_its_tokens_hang(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            server = self.start()
            files = self.hang(server)
            self.stop(server, number)
            self.point_to(self.real)
            server = self.start()
            self.assertEqual(self.status(server), 200)
            files.close()
            self.assertEqual(server.stop(), 0)

    def test_a_server_ends_while_its_first_tokens_hang(self):
        self.start().stop()
        files = self.hanging()
        self.point_to(files.folder)
        process = self.begin_serve("--store", self.path / "harpe.db", "--no-dump", "--tokens",
                                   self.link / "tokens")
        files.wait_until_hangs(LIMIT_S)
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 0)
        self.point_to(self.real)
        self.assertEqual(self.status(self.start()), 200)


class AuditTest(FilesTest):
    def test_a_server_ends_while_its_audit_log_hangs(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            server = self.start("--no-dump", "--audit-log", self.path / "link" / "audit.log")
            job = register(server)
            files = self.hanging()
            link = self.path / "link"
            link.symlink_to(files.folder)
            connection = self.connect(server).send("DELETE", f"/jobs/{job.id}")
            files.wait_until_hangs(LIMIT_S)
            self.train(server, register(server), 1)
            self.stop(server, number)
            connection.close()
            self.start("--no-dump").stop()
            files.close()
            link.unlink()


if __name__ == "__main__":
    side_by_side.main()  # in place of unittest.main()
