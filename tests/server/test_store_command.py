# SPDX-License-Identifier: Apache-2.0
"""Failures of the SQLite store, and `harpe store`: backups of a running server, logs that were
removed or damaged, files that were deleted or replaced while the server runs, and restored files.
Data that a server has acknowledged must exist, or the next server must refuse to start."""
import pathlib
import random
import resource
import shutil
import sqlite3
import stat
import unittest

from server import *


def cpu_time_of(process):
    """Returns the processor time of a process in seconds."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class StoreCommandTest(ServerTest):
    def setUp(self):
        super().setUp()
        self.store = self.path / "harpe.db"

    def harpe_store(self, *arguments, status=0, store=None):
        """Returns the standard output, or the message if `status` means failure."""
        if arguments[0] != "check" or len(arguments) == 1 or str(arguments[1]).startswith("-"):
            arguments += ("--store", store or self.store)
        done = run_harpe("store", *arguments, cwd=self.path)
        self.assertEqual(done.returncode, status, done)
        return done.stdout if status == 0 else done.stderr

    def report(self, *arguments, **options):
        return json.loads(self.harpe_store(*arguments, "--json", **options))

    def problems(self, path=None):
        """Returns the findings of a check, which must exist."""
        done = run_harpe("store", "check", "--json", path or self.store)
        self.assertEqual(done.returncode, 1, done)
        told = json.loads(done.stdout)
        self.assertFalse(told["ok"])
        return "\n".join(told["problems"])

    def refusal(self):
        """Returns the message of a server that must not start."""
        return self.refuse_to_start("--store", self.store, "--no-dump")

    def log_of(self, path=None):
        return (path or self.store).with_name((path or self.store).name + "-wal")

    def killed_server(self, rounds=3):
        """Creates jobs with a server that is killed. Some of its data is only in the log."""
        server = self.start()
        jobs = [register(server), register(server)]
        for job in jobs:
            self.train(server, job, rounds)
        server.kill()
        return jobs


class BackupTest(StoreCommandTest):
    def test_backup_of_a_running_server_holds_what_was_answered(self):
        server = self.start()
        job = register(server)
        stop, failures, answered = threading.Event(), [], []

        def go_on():
            try:
                while not stop.is_set():
                    self.train(server, job, 1, len(answered))
                    answered.append(None)
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            for number in range(5):
                self.wait_until(lambda: len(answered) > 2 * number or failures, "rounds go on")
                before = len(answered)
                backup = self.path / f"backup-{number}.db"
                told = self.report("backup", backup)
                self.assertTrue(told["in_use"] and told["ok"], told)
                self.assertGreaterEqual(told["rounds"], before)
                self.assertEqual((told["jobs"], told["bytes"]), (1, backup.stat().st_size))
                self.assertEqual(stat.S_IMODE(backup.stat().st_mode), 0o600)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(failures, [])
        server.kill()
        other = self.path / "elsewhere.db"
        self.harpe_store("restore", backup, store=other)
        server = self.start("--store", other)
        self.assertGreaterEqual(server.get(f"/jobs/{job.id}").json["round"], before - 1)
        self.assertEqual(sorted(p.name for p in self.path.glob("*.tmp")), [])
        self.assertFalse((self.path / "harpe.db.snapshot").exists())

    def test_backup_works_without_a_server_and_after_a_kill(self):
        jobs = self.killed_server()
        before = {p.name: p.read_bytes() for p in self.path.glob("harpe.db*") if p.is_file()}
        told = self.report("backup", self.path / "backup.db")
        self.assertEqual((told["jobs"], told["rounds"], told["in_use"]), (2, 6, False))
        after = {p.name: p.read_bytes() for p in self.path.glob("harpe.db*") if p.is_file()}
        self.assertEqual(before, after)  # it only reads
        server = self.start()
        self.assertEqual(len(server.get("/jobs").json["jobs"]), len(jobs))
        server.stop()
        self.assertEqual(self.report("backup", self.path / "clean.db")["rounds"], 6)
        self.assertEqual(list(self.path.glob("clean.db*")), [self.path / "clean.db"])

    def test_backup_never_writes_over_a_file_unasked(self):
        self.start()
        target = self.path / "backup.db"
        target.write_text("precious")
        self.assertIn("--force", self.harpe_store("backup", target, status=1))
        self.assertEqual(target.read_text(), "precious")
        self.harpe_store("backup", target, "--force")
        self.report("check", target)
        (self.path / "folder").mkdir()
        self.harpe_store("backup", self.path / "folder", "--force", status=1)
        self.harpe_store("backup", self.path / "nowhere" / "backup.db", status=1)

    def test_a_backup_never_takes_the_place_of_its_own_store(self):
        server = self.start()
        job = register(server)
        (self.path / "link.db").symlink_to("harpe.db")
        (self.path / "there").symlink_to(".")
        before = self.store.stat().st_ino
        for name in ("harpe.db", "harpe.db-wal", "harpe.db.commits", "harpe.db.control",
                     "./there/./harpe.db", "there/harpe.db", "there/harpe.db-journal"):
            for force in ((), ("--force",)):
                for store in (self.store, self.path / "link.db"):
                    self.assertIn("is a file of the store itself",
                                  self.harpe_store("backup", *force, name, status=1, store=store))
        self.assertEqual(self.store.stat().st_ino, before)
        self.train(server, job, 1)
        self.harpe_store("backup", "harpe.db.backup")
        server.stop()
        self.assertIn("is a file of the store itself",
                      self.harpe_store("backup", "--force", "harpe.db", status=1))
        self.assertEqual(self.report("check")["rounds"], 1)

    def test_a_backup_that_fails_leaves_nothing_behind(self):
        self.killed_server()
        self.log_of().unlink()
        self.assertIn("missing", self.harpe_store("backup", self.path / "backup.db", status=1))
        self.assertFalse((self.path / "backup.db").exists())
        self.assertEqual(list(self.path.glob(".backup*")), [])

    def test_only_sqlite_has_files(self):
        for store, word in (("postgresql://u:secret@h/d", "pg_dump"), ("memory", "memory"),
                            ("host=h password=secret", "pg_dump")):
            said = self.harpe_store("backup", self.path / "b", store=store, status=1)
            self.assertIn(word, said)
            self.assertNotIn("secret", said)

    def test_long_paths_and_odd_names(self):
        directory = self.path / ("d" * 120) / "a b%3F?#"
        directory.mkdir(parents=True)
        store = directory / "odd %20 name?.db"
        server = self.start("--store", store)
        register(server)
        self.assertEqual(self.report("backup", directory / "b?.db", store=store)["jobs"], 1)
        self.assertEqual(self.report("check", directory / "b?.db")["jobs"], 1)
        self.assertEqual(self.report("check", "--quiet", store=store)["jobs"], 1)
        server.stop()
        self.assertEqual(self.report("check", "--quiet", store=store)["jobs"], 1)

    def test_links_to_files_that_do_not_exist_yet(self):
        """All files of the store are beside the file itself, not beside the link."""
        (self.path / "disk").mkdir()
        links = {"relative.db": "disk/one.db", "absolute.db": self.path / "disk" / "two.db",
                 "first.db": "second.db", "second.db": "disk/../disk/three.db"}
        for name, target in links.items():
            (self.path / name).symlink_to(target)
        for name in ("relative.db", "absolute.db", "first.db"):
            link = self.path / name
            server = self.start("--store", link)
            job = register(server)
            self.assertTrue(self.report("check", store=link)["in_use"])
            self.train(server, job, 2)
            server.kill()
            self.assertEqual(self.report("check", store=link)["rounds"], 2)
            server = self.start("--store", link)
            self.assertEqual(server.get(f"/jobs/{job.id}").json["round"], 1)
            server.stop()
        self.assertEqual(sorted(p.name for p in self.path.glob("*.db*")), sorted(links))

    @unittest.skipUnless(os.geteuid() == 0, "needs a second user")
    def test_another_user_gets_no_backup(self):
        server = self.start()
        register(server)
        path = self.path / "harpe.db.control"
        for place in (self.path, path):  # even if a mode was changed by mistake
            os.chmod(place, 0o777)
        program = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
                   "s.send(b'b'); print(socket.recv_fds(s, 1000, 4))")
        done = subprocess.run(["/usr/bin/python3", "-c", program, path], capture_output=True,
                              text=True, user="nobody", group="nogroup", extra_groups=[],
                              timeout=LIMIT_S, cwd="/")
        self.assertIn("only the server's user", done.stdout, done)
        self.assertIn(", [], ", done.stdout)  # no descriptor
        self.report("backup", self.path / "backup.db")

    def test_a_server_without_descriptors_waits_for_one_in_peace(self):
        server = self.start()
        process = server.process.pid
        limits = resource.prlimit(process, resource.RLIMIT_NOFILE)
        with socket.socket(socket.AF_UNIX) as client:
            resource.prlimit(process, resource.RLIMIT_NOFILE, (3, limits[1]))
            client.connect(str(self.path / "harpe.db.control"))
            client.sendall(b"b")
            before = cpu_time_of(process)
            time.sleep(2)
            spent = cpu_time_of(process) - before
            resource.prlimit(process, resource.RLIMIT_NOFILE, limits)
            client.settimeout(LIMIT_S)
            self.assertEqual(client.recv(100), b"ok")
        self.assertLess(spent, 0.5)

    def test_what_a_killed_restore_left_is_removed(self):
        self.killed_server()
        self.harpe_store("backup", self.path / "backup.db")
        left = [self.path / f".{name}.0123456789abcdef.tmp" for name in ("harpe.db", "new.db")]
        for path in left:
            path.write_text("half")
        self.harpe_store("restore", self.path / "backup.db")
        self.harpe_store("backup", self.path / "new.db")
        self.assertEqual([path for path in left if path.exists()], [])

    def test_the_socket_is_for_the_servers_user(self):
        server = self.start()
        path = self.path / "harpe.db.control"
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        idle = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for one in idle:  # connects and sends no request
            self.addCleanup(one.close)
            one.connect(str(path))
        self.report("backup", self.path / "backup.db")
        self.assertEqual(server.stop(), 0)
        self.assertFalse(path.exists())


class LostLogTest(StoreCommandTest):
    def test_a_log_that_was_removed_is_noticed_and_accepted_only_on_request(self):
        self.killed_server()
        self.log_of().rename(self.path / "saved-wal")
        said = self.refusal()
        for word in ("commits are missing", "harpe.db-wal", "harpe store restore"):
            self.assertIn(word, said)
        self.refusal()  # also the second time
        self.assertIn("commits are missing", self.problems())
        (self.path / "saved-wal").replace(self.log_of())  # it was only elsewhere
        server = self.start()
        self.assertEqual(len(server.get("/jobs").json["jobs"]), 2)
        register(server)
        server.kill()
        self.log_of().unlink()
        told = self.report("accept")
        self.assertGreater(told["missing"], 0)
        server = self.start()
        self.expect(server.get("/healthz"), 200)
        register(server)
        server.kill()
        self.start()

    def test_damage_anywhere_in_the_log_is_noticed(self):
        """Changes one byte in the log of each copy. If the server starts, no data may be missing.
        This is the case for bytes that the log no longer uses."""
        jobs = self.killed_server(rounds=4)
        log = self.log_of().read_bytes()
        files = {p: p.read_bytes() for p in self.path.glob("harpe.db*") if p.is_file()}
        dice = random.Random(5)
        places = [0, 10, 33, 60, len(log) // 2, len(log) - 1]
        places += [dice.randrange(len(log)) for _ in range(6)]
        refused = 0
        for place in places:
            for path, content in files.items():
                path.write_bytes(content)
            damaged = bytearray(log)
            damaged[place] ^= 0x55
            self.log_of().write_bytes(damaged)
            server = None
            try:
                server = self.start()
            except AssertionError as failure:
                self.assertIn("commits are missing", str(failure))
                refused += 1
                continue
            for job in jobs:
                self.assertEqual(server.get(f"/jobs/{job.id}").json["round"], 3, place)
            server.kill()
        self.assertGreater(refused, len(places) // 2)

    def test_a_log_that_was_cut_short_is_noticed(self):
        self.killed_server()
        with open(self.log_of(), "r+b") as log:
            log.truncate(self.log_of().stat().st_size // 2)
        self.assertIn("commits are missing", self.refusal())

    def test_a_database_that_was_removed_does_not_start_empty(self):
        for kills in (True, False):
            with self.subTest(kills=kills):
                server = self.start()
                register(server)
                if kills:
                    server.kill()
                else:
                    server.stop()
                self.store.unlink()
                self.assertIn("gone", self.refusal())
                self.assertFalse(self.store.exists())
                self.harpe_store("accept")
                server = self.start()
                self.assertEqual(server.get("/jobs").json["jobs"], [])
                server.stop()

    def test_accept_needs_something_that_is_left(self):
        self.assertIn("nothing is left", self.harpe_store("accept", status=1))
        self.store.touch()
        self.assertIn("nothing is left", self.harpe_store("accept", status=1))
        self.assertEqual([p.name for p in self.path.glob("harpe.db*")], ["harpe.db"])

    def test_what_two_accepts_put_aside_at_once_is_kept_twice(self):
        kept = set()
        for number in range(12):  # several in one second
            record, log = self.path / "harpe.db.commits", self.log_of()
            record.write_text(f"record {number}\n")
            log.write_text(f"log {number}\n")
            kept.add(self.report("accept")["kept"])
            self.assertFalse(record.exists() or log.exists())
        self.assertEqual(len(kept), 12)
        texts = sorted(p.read_text() for p in self.path.glob("harpe.db.before-accept-*"))
        self.assertEqual(texts, sorted(f"{what} {number}\n" for number in range(12)
                                       for what in ("log", "record")))

    def test_a_record_that_is_damaged_holds_up_nobody(self):
        server = self.start()
        record = self.path / "harpe.db.commits"
        texts = (b"", b"harpe-store 1\n", b"\xff" * 95, b"\0" * 96, b"x" * 97, b"y" * 100000)
        for count, text in enumerate(texts, 1):
            register(server)
            server.kill()
            record.write_bytes(text)
            self.assertTrue(self.report("check")["ok"])
            server = self.start()
            self.assertEqual(len(server.get("/jobs").json["jobs"]), count)
            self.assertTrue(record.read_bytes().startswith(b"harpe-store 1\nid "))

    def test_an_older_copy_in_its_place_is_noticed(self):
        server = self.start()
        job = register(server)
        self.harpe_store("backup", self.path / "old.db")
        self.train(server, job, 2)
        server.stop()
        shutil.copy(self.path / "old.db", self.store)
        self.assertIn("older copy", self.refusal())
        self.harpe_store("restore", self.path / "old.db")
        server = self.start()
        self.assertEqual(server.get(f"/jobs/{job.id}").json["round"], -1)

    def test_a_backup_copied_over_the_store_of_a_killed_server_is_noticed(self):
        """SQLite would write the newer log into the older file."""
        for clean in (True, False):
            with self.subTest(clean=clean):
                server = self.start()
                job = register(server)
                self.harpe_store("backup", self.path / "old.db", "--force")
                later = register(server)
                if clean:
                    server.stop()
                    server = self.start()
                else:
                    self.train(server, job, 1)
                    server.kill()
                    server = self.start()
                self.train(server, job, 1, 0 if clean else 1)
                server.kill()
                shutil.copy(self.path / "old.db", self.store)
                self.assertIn("older copy", self.refusal())
                self.assertIn("older copy", self.problems())
                self.harpe_store("accept")
                server = self.start()
                self.expect(server.get(f"/jobs/{job.id}"), 200)
                self.expect(server.get(f"/jobs/{later.id}"), 404)
                server.kill()

    def test_what_an_earlier_accept_kept_is_left_alone(self):
        """Only files with a suffix are here, and within the same second."""
        server = self.start()
        register(server)
        self.harpe_store("backup", self.path / "old.db")
        register(server)
        server.stop()
        shutil.copy(self.path / "old.db", self.store)
        now = time.time()
        earlier = [pathlib.Path(f"{self.store}.before-accept-"
                                + time.strftime("%Y%m%d-%H%M%S", time.localtime(now + s)) + ".commits")
                   for s in range(600)]
        for path in earlier:
            path.write_text("kept")
        self.harpe_store("accept")
        self.assertEqual({path.read_text() for path in earlier}, {"kept"})
        self.assertEqual(len(list(self.path.glob("*.before-accept-*.2.commits"))), 1)
        self.start().kill()

    def test_a_copy_of_the_file_alone_is_no_backup(self):
        server = self.start()
        register(server)
        copy = self.path / "copy.db"
        shutil.copy(self.store, copy)
        self.assertIn("copy of a store that a server had open",
                      self.harpe_store("restore", copy, status=1, store=self.path / "new.db"))
        server.stop()
        for path in self.path.glob("harpe.db*"):
            path.unlink()
        shutil.copy(copy, self.store)
        self.assertIn("copy of a store that a server had open", self.refusal())

    def test_a_store_of_an_unreleased_harpe_is_refused(self):
        self.start().stop()
        for table in "job_requests", "store":
            with sqlite3.connect(self.store) as database:
                database.execute(f"DROP TABLE {table}")
            database.close()
            self.assertIn("was not released", self.harpe_store("check", status=1))
            self.assertIn("was not released", self.refusal())


class TakenAwayTest(StoreCommandTest):
    """Changes the files of a running server."""

    def expect_refusal(self, server, *words):
        self.wait_for_health(server, 503)
        self.expect_detail(server.get("/healthz"), 503, "store", *words)
        self.expect(server.post("/register_job", job_info()), 503)
        self.assertIn(words[0], server.log())

    def test_a_deleted_database_is_noticed_and_a_backup_saves_all(self):
        server = self.start()
        job = register(server)
        self.train(server, job, 3)
        self.store.unlink()
        self.expect_refusal(server, "was deleted")
        told = self.report("backup", self.path / "backup.db")
        self.assertEqual((told["jobs"], told["rounds"]), (1, 3))
        self.assertEqual(server.stop(), 0)
        self.harpe_store("restore", self.path / "backup.db")
        server = self.start()
        self.train(server, job, 2, 3)

    def test_a_deleted_log_is_noticed(self):
        server = self.start()
        register(server)
        self.log_of().unlink()
        self.expect_refusal(server, "harpe.db-wal was deleted")
        self.assertEqual(self.report("backup", self.path / "backup.db")["jobs"], 1)

    def test_replaced_files_are_noticed_and_left_alone(self):
        for suffix in ("", "-wal"):
            with self.subTest(suffix):
                server = self.start()
                job = register(server)
                path = self.path / f"harpe.db{suffix}"
                other = self.path / "other"
                other.write_bytes(path.read_bytes())
                os.replace(other, path)
                content = path.read_bytes()
                self.expect_refusal(server, "was replaced")
                backup = self.path / f"backup{suffix}.db"
                self.report("backup", backup)
                self.assertEqual(server.stop(), 0)
                self.assertEqual(path.read_bytes(), content)
                self.harpe_store("restore", backup)
                server = self.start()
                self.expect(server.get(f"/jobs/{job.id}"), 200)
                server.stop()

    def test_files_that_others_write_to_are_noticed(self):
        for suffix in ("", "-wal"):
            with self.subTest(suffix):
                server = self.start("--store", self.path / f"cut{suffix}.db")
                register(server)
                with open(self.path / f"cut{suffix}.db{suffix}", "r+b") as file:
                    file.truncate(20)
                self.expect_refusal(server, "was truncated")
        server = self.start("--store", self.path / "overwritten.db")
        register(server)
        with open(self.path / "overwritten.db", "r+b") as file:
            file.write(bytes(100))
        self.expect_refusal(server, "written by another program")

    def test_a_directory_that_comes_back_is_used_again(self):
        state = self.path / "state"
        state.mkdir()
        server = self.start("--store", state / "harpe.db")
        register(server)
        state.rename(self.path / "away")
        self.expect_refusal(server, "was deleted")
        (self.path / "away").rename(state)
        self.wait_for_health(server, 200)
        register(server)

    def test_harmless_things_do_no_harm(self):
        server = self.start()
        register(server)
        os.utime(self.store)
        os.utime(self.log_of())
        os.chmod(self.store, 0o640)
        register(server)
        (self.path / "harpe.db.commits").unlink()
        register(server)
        self.expect(server.get("/healthz"), 200)
        server.kill()
        server = self.start()
        self.assertEqual(len(server.get("/jobs").json["jobs"]), 3)


class CheckAndRestoreTest(StoreCommandTest):
    def test_check_finds_damaged_pages_and_records(self):
        server = self.start()
        self.train(server, register(server), 2)
        register(server, pp=2)
        server.stop()
        self.assertIn("is sound", self.harpe_store("check"))
        backup = self.path / "backup.db"
        for statement, word in (
                ("DELETE FROM jobs", "belong to no job"),
                ("UPDATE jobs SET text = '{'", "record cannot be read"),
                ("UPDATE ranks SET text = 'x' WHERE rank = 1", "rank 1 cannot be read"),
                ("UPDATE rounds SET text = ''", "first round"),
                ("UPDATE rounds SET text = '[1, 2'", "schedules of round"),
                ("UPDATE results SET text = zeroblob(50) WHERE round = 1", "result of a rank"),
                ("UPDATE results SET text = replace(text, '\"rank\": 0', '\"rank\": 1')",
                 "result of a rank"),
                ("INSERT INTO results VALUES (1, 0, 7, 'x')", "does not have"),
                ("INSERT INTO results VALUES (1, 99, 0, 'x')", "not handed out"),
                ("DROP TABLE job_sums", "table")):
            with self.subTest(statement):
                shutil.copy(self.store, backup)
                with sqlite3.connect(backup) as database:
                    database.execute(statement)
                database.close()
                before = backup.read_bytes()
                self.assertIn(word, self.problems(backup))
                self.assertEqual(backup.read_bytes(), before)
                self.harpe_store("restore", backup, status=1)
        content = bytearray(self.store.read_bytes())
        for at in range(8192 * 2, len(content), 8192):
            content[at:at + 600] = os.urandom(600)
        backup.write_bytes(content)
        self.problems(backup)
        self.harpe_store("restore", backup, status=1)
        self.start()  # data that was not restored still exists

    def test_check_refuses_what_is_no_store(self):
        (self.path / "letter").write_text("not a database " * 20)
        (self.path / "empty").write_text("")
        for name in ("letter", "empty", "nothing", "."):
            done = run_harpe("store", "check", self.path / name)
            self.assertEqual(done.returncode, 1, done)
            self.assertEqual(len(done.stderr.splitlines()), 1, done)

    def test_restore_replaces_nothing_but_files(self):
        server = self.start()
        self.harpe_store("backup", "backup.db")
        server.stop()
        pipe = self.path / "pipe.db"
        os.mkfifo(pipe)
        self.assertIn("is not a file", self.harpe_store("restore", "backup.db", status=1,
                                                        store=pipe))
        self.assertTrue(stat.S_ISFIFO(pipe.lstat().st_mode))
        self.assertEqual(list(self.path.glob("pipe.db?*")), [])

    def test_restore_refuses_while_a_server_runs_and_keeps_the_old_store(self):
        server = self.start()
        job = register(server)
        self.harpe_store("backup", self.path / "backup.db")
        later = register(server)
        self.assertIn("stop it first",
                      self.harpe_store("restore", self.path / "backup.db", status=1))
        (self.path / "harpe.db.control").unlink()  # the lock then shows it
        self.assertIn("stop it first",
                      self.harpe_store("restore", self.path / "backup.db", status=1))
        register(server)
        server.kill()
        told = self.report("restore", self.path / "backup.db")
        self.assertEqual(stat.S_IMODE(self.store.stat().st_mode), 0o600)
        server = self.start()
        self.expect(server.get(f"/jobs/{job.id}"), 200)
        self.expect(server.get(f"/jobs/{later.id}"), 404)
        server.stop()
        self.assertEqual(self.report("check", told["replaced"])["jobs"], 3)
        server = self.start("--store", told["replaced"])
        self.expect(server.get(f"/jobs/{later.id}"), 200)

    def test_a_restore_that_is_killed_leaves_the_old_or_the_new_store_or_a_refusal(self):
        server = self.start()
        register(server)
        self.harpe_store("backup", self.path / "backup.db")
        register(server)
        server.kill()
        states = set()
        for delay_ms in range(0, 60, 4):
            process = subprocess.Popen(
                [HARPE, "store", "restore", self.path / "backup.db", "--store", self.store],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
            time.sleep(delay_ms / 1000)
            process.kill()
            process.wait()
            try:
                server = self.start()
            except AssertionError as failure:
                self.assertIn("harpe store restore", str(failure))
                self.harpe_store("restore", self.path / "backup.db")
                states.add("refused")
                continue
            states.add(len(server.get("/jobs").json["jobs"]))
            server.kill()
        self.assertTrue(states <= {1, 2, "refused"}, states)
        self.harpe_store("restore", self.path / "backup.db")
        self.assertEqual(len(self.start().get("/jobs").json["jobs"]), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
