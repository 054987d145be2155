# SPDX-License-Identifier: Apache-2.0
"""The secrets of `harpe serve`: the password of its database, its files, and the token, which
server and clients must read in the same way. The test of the password: no spelling of it occurs in
any output or answer of the server."""
import stat
import urllib.parse

import postgres
from server import *

SECRET = "hunter2%x y/z"
QUOTED = urllib.parse.quote(SECRET, safe="")
ALL_HEX = "".join(f"%{byte:02x}" for byte in SECRET.encode())
PARTS = ("hunter2", QUOTED, ALL_HEX)

# Connection strings that contain the secret.
ADDRESSES = (
    f"postgresql://me:{QUOTED}@db.example:5433/harpe",
    f"postgresql://me:{ALL_HEX}@db.example/harpe",
    f"postgres://:{QUOTED}@/harpe",
    f"postgresql://db.example/harpe?user=me&password={QUOTED}",
    f"postgresql://db.example/harpe?password={ALL_HEX}&sslmode=require",
    f"postgresql://db.example/harpe?p%61ssword={QUOTED}",
    f"postgresql://me@db.example/harpe?sslpassword={QUOTED}",
    f"postgresql://me:{QUOTED}@[::1]:5432,other:5433/harpe",
    f"postgresql://me:{QUOTED}@%2Ftmp%2Fsocket/harpe",
    "host=db.example dbname=harpe password='hunter2%x y/z'",
    "  password = hunter2   host=db.example",
    "dbname=harpe sslpassword=hunter2",
    "user=me passfile=/x password=hunter2",
    # Connection strings with mistakes.
    "postgresql://me:hunter2@x@db.example/harpe",
    "postgresql://me:12/hunter2@db.example/harpe",
    "postgresql://me:hunter2/3@db.example/harpe",
    "postgresql://me:12?hunter2@db.example/harpe",
    "postgresql://db.example/harpe?pasword=hunter2",
    "postgresql:/me:hunter2@db.example/harpe",
    "postgresql:me:hunter2@db.example/harpe",
    "POSTGRESQL://me:hunter2@db.example/harpe",
    " postgresql://me:hunter2@db.example/harpe",
    "host=db.example password=hunter2 x",
    "password='hunter2",
    "mysql://me:hunter2@db.example/harpe",
    "postgresql:///?dbname=host%3Dx%20password%3Dhunter2",
)


# Both streams in one.
TOGETHER = {"capture_output": False, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


class World(ServerTest):
    def start(self, *arguments, **others):
        running = Server(self.path, *arguments, **others)
        self.addCleanup(running.kill)
        return running

    def run_serve(self, *arguments, **options):
        return super().run_serve(*arguments, **TOGETHER, **options)

    def assert_silent(self, text, what):
        for part in PARTS:
            self.assertNotIn(part.lower(), text.lower(), what)


class ThePasswordOfTheDatabase(World):
    def test_settings_are_printed_without_it(self):
        for address in ADDRESSES:
            for where in ({"arguments": ("--store", address)},
                          {"environment": {"HARPE_PFO_STORE": address}}):
                with self.subTest(address=address):
                    done = self.run_serve("--print-settings", *where.get("arguments", ()),
                                          environment=where.get("environment"))
                    self.assertEqual(done.returncode, 0, done.stdout)
                    self.assert_silent(done.stdout, address)
                    self.assertIn("***", done.stdout)

    def test_what_is_no_secret_is_printed(self):
        for address, shown in (
                ("postgresql://me:x@db.example:5433/harpe",
                 "postgresql://me:***@db.example:5433/harpe"),
                ("postgresql://db.example/harpe?password=x&sslmode=require",
                 "postgresql://:***@db.example/harpe?sslmode=require"),
                ("host=/run/pg user=me dbname=harpe", "postgresql://me@/harpe?host=/run/pg"),
                ("postgresql://db.example/harpe", "postgresql://db.example/harpe"),
                ("jobs.db", "jobs.db"), ("memory", "memory")):
            with self.subTest(address=address):
                done = self.run_serve("--print-settings", "--store", address)
                self.assertIn(f"\nSTORE={shown}\n", done.stdout)

    def test_a_failing_start_does_not_tell_it(self):
        for address in ADDRESSES:
            # No server listens there, and no name has to be looked up.
            address = address.replace("db.example", "127.0.0.1").replace(",other:5433", "")
            address = address.replace(":5433", ":1").replace("5432", "1")
            with self.subTest(address=address):
                done = self.run_serve("--store", address,
                                      environment={"PGPORT": "1", "PGHOST": "127.0.0.1"})
                self.assertNotEqual(done.returncode, 0, done.stdout)
                self.assert_silent(done.stdout, address)
                self.assertEqual([p.name for p in self.path.iterdir()
                                  if "hunter" in p.name], [], "it became the name of a file")

    def test_a_line_that_is_no_setting_does_not_tell_it(self):
        config = self.path / "serve.conf"
        config.write_text("STORE postgresql://me@db.example/harpe?password=hunter2\n"
                          .replace("me@", "me:hunter2@"))
        done = self.run_serve("--config", config, "--print-settings")
        self.assertNotEqual(done.returncode, 0)
        self.assert_silent(done.stdout, "a file")
        done = self.run_serve("--set", "postgresql://me:hunter2@x/y?a=b", "--print-settings")
        self.assertNotEqual(done.returncode, 0)
        self.assert_silent(done.stdout, "a flag")


@unittest.skipIf(postgres.programs() is None, "PostgreSQL is not installed")
class ADatabaseThatWantsAPassword(World):
    @classmethod
    def setUpClass(cls):
        cls.database = postgres.Postgres()
        cls.addClassCleanup(cls.database.close)
        cls.database._client("ALTER ROLE harpe PASSWORD '" + SECRET + "'")
        (cls.database.directory / "data" / "pg_hba.conf").write_text(
            "local all all scram-sha-256\n")
        cls.database.process.send_signal(1)  # SIGHUP: read it again
        cls.plain = f"postgresql://harpe@/postgres?host={cls.database.directory}"

    def check(self, running):
        answer = running.get("/info")
        self.assertEqual(answer.status, 200)
        self.assert_silent(answer.body.decode(), "/info")
        self.assertIn("postgresql://harpe", answer.json["settings"]["store"])
        self.assert_silent(running.log(), "the log")
        self.assertEqual(running.get("/jobs").status, 200)
        self.assertEqual(running.stop(), 0)

    def test_it_may_be_in_the_address(self):
        for address in (f"postgresql://harpe:{QUOTED}@/postgres?host={self.database.directory}",
                        f"{self.plain}&password={ALL_HEX}",
                        f"host={self.database.directory} user=harpe dbname=postgres "
                        f"password='{SECRET}'"):
            self.check(self.start("--store", address))

    def test_it_may_be_in_a_file_of_its_own(self):
        path = self.path / "password"
        for content in (SECRET, SECRET + "\n", SECRET + "\r\nmore\n"):
            path.write_text(content)
            self.check(self.start("--store", self.plain, "--set", f"store_password_file={path}"))
        wrong = self.plain.replace("harpe@", "harpe:wrong@")
        self.check(self.start("--store", wrong, "--set", f"store_password_file={path}"))

    def test_it_may_be_in_a_file_of_libpq(self):
        path = self.path / "pgpass"
        path.write_text("*:*:*:harpe:" + SECRET.replace(":", "\\:") + "\n")
        path.chmod(0o600)
        self.check(self.start("--store", self.plain, environment={"PGPASSFILE": str(path)}))

    def test_without_it_the_server_does_not_start(self):
        path = self.path / "password"
        for content in (None, "wrong", "", "\n"):
            arguments = []
            if content is not None:
                path.write_text(content)
                arguments = ["--set", f"store_password_file={path}"]
            done = self.run_serve("--store", self.plain, *arguments,
                                  environment={"PGPASSFILE": "/dev/null"})
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assert_silent(done.stdout, "a failing start")
        done = self.run_serve("--store", "x.db", "--set", f"store_password_file={path}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("store_password_file", done.stdout)


def modes(directory):
    """Returns the rights of users other than the owner on the files of a directory: {name:
    mode}."""
    return {str(path.relative_to(directory)): oct(stat.S_IMODE(path.lstat().st_mode))
            for path in directory.rglob("*") if path.lstat().st_mode & 0o077}


class FilesOfTheServer(World):
    """The tests' own umask lets every user read."""

    def setUp(self):
        super().setUp()
        self.addCleanup(os.umask, os.umask(0o022))

    def register_and_wait(self, running):
        """Returns a job whose first dump is written."""
        job = register(running)
        self.wait_until(lambda: list(self.path.rglob("ranks.json")), "the dump")
        return job

    def test_are_for_its_user_alone(self):
        state = self.path / "new" / "state"
        running = self.start("--state-dir", state, "--set", "dump_data=true", "--scheduler", "HighestFrequency")
        job = self.register_and_wait(running)
        self.assertTrue((state / "harpe.db-wal").exists())
        self.assertEqual(modes(self.path / "new"), {})
        self.assertEqual(stat.S_IMODE((self.path / "new").stat().st_mode), 0o700)
        self.assertTrue((state / "dump" / job.id).is_dir())
        self.assertNotIn("warning", running.log())
        self.assertEqual(running.stop(), 0)
        self.assertEqual(modes(self.path / "new"), {})

    def test_stores_and_dumps_in_named_places_too(self):
        running = self.start("--store", "jobs.db", "--dump-dir", "a/b", "--scheduler",
                             "HighestFrequency")
        self.register_and_wait(running)
        left = {name: mode for name, mode in modes(self.path).items()
                if not name.endswith(".log")}
        self.assertEqual(left, {})

    def test_an_open_store_is_closed_and_an_open_directory_is_told(self):
        self.start("--store", "jobs.db", "--no-dump").kill()  # leaves a log behind
        for name in ("jobs.db", "jobs.db-wal"):
            (self.path / name).chmod(0o664)
        dumps = self.path / "dumps"
        dumps.mkdir(mode=0o755)
        running = self.start("--store", "jobs.db", "--dump-dir", dumps)
        self.assertIn("had mode 0664, now 0600", running.log())
        self.wait_for_log(running, "chmod 700")
        self.assertEqual(stat.S_IMODE((self.path / "jobs.db").stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE((self.path / "jobs.db-wal").stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(dumps.stat().st_mode), 0o755)


class TokenFiles(World):
    GOOD = (b"tok-1", b"tok-1\n", b"tok-1 \n", b"tok-1\r\n", b" \ttok-1\t \r\n\n", b"\n\ntok-1",
            b"\xef\xbb\xbftok-1\r\n", b"tok-1\v\f\nnot this\n")
    BAD = (b"", b"\n", b" \r\n", b"to k", b"to\tk\n", b"to\rk\n", b"t\0k", b"t\x1bk", b"t\x7fk",
           b"t\xc2\x9bk", b"tok\xc2\xa0\n", b"t\xc3\xa9k", b"\xff")

    def test_white_space_around_a_token_is_not_part_of_it(self):
        path, wire = self.path / "token", self.path / "wire"
        wire.write_text("tok-1")
        for content in self.GOOD:
            with self.subTest(content=content):
                path.write_bytes(content)
                running = self.start("--store", "memory", "--no-dump", "--token-file", path)
                right = running.get("/jobs", Authorization="Bearer tok-1")
                self.assertEqual(right.status, 200)
                self.assertEqual(running.get("/jobs", Authorization="Bearer tok").status, 401)
                for own in (path, wire):
                    done = self.ask(running, "--token-file", own)
                    self.assertEqual(done.returncode, 0, done.stdout)
                running.kill()

    def test_a_token_of_other_characters_is_refused_with_a_line(self):
        path = self.path / "token"
        running = self.start("--store", "memory", "--no-dump")
        for content in self.BAD:
            with self.subTest(content=content):
                path.write_bytes(content)
                for done in (self.run_serve("--store", "memory", "--no-dump", "--token-file", path),
                             self.ask(running, "--token-file", path)):
                    self.assertNotEqual(done.returncode, 0, done.stdout)
                    self.assertEqual(done.stdout.count("\n"), 1, done.stdout)
                    self.assertIn("token", done.stdout)

    def ask(self, running, *arguments):
        return run_harpe("jobs", "--server", f"http://127.0.0.1:{running.port}", *arguments, **TOGETHER)


if __name__ == "__main__":
    unittest.main(verbosity=2)
