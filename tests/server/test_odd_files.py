#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every file that a server or `harpe store` opens at its start is replaced by a pipe that no
process writes, a directory, a device, a socket, or a link to one of them. No start waits for it,
and a failing start names the file in one line. No device changes its mode."""
import concurrent.futures
import shutil
import stat

from server import *

# Usually each pair of file and kind is tried with one of the commands, and with all trials every case.
SCALE = 4 if os.environ.get("HARPE_TEST_SCALE") else 1
COMMANDS = ("backup", "check", "restore", "accept")
STORE_SUFFIXES = ("", "-wal", "-shm", "-journal", ".commits", ".control")


def make_socket(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.close()


def link_to(make):
    def make_link(path):
        target = path.parent / f"target-{path.name}"
        make(target)
        path.symlink_to(target)
    return make_link


def link_to_device(major, minor):
    """Makes links to a device of the test's own where the system permits that, because a program
    that runs as root could change the machine's."""
    def make_link(path):
        target = path.parent / f"device-{path.name}"
        try:
            os.mknod(target, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
            os.chmod(target, 0o666)
            os.close(os.open(target, os.O_RDWR))
            path.symlink_to(target)
        except PermissionError:
            target.unlink(missing_ok=True)
            path.symlink_to({5: "/dev/zero", 7: "/dev/full"}[minor])
    return make_link


KINDS = {
    "pipe": os.mkfifo,
    "directory": os.mkdir,
    "socket": make_socket,
    "device": link_to_device(1, 5),
    "full device": link_to_device(1, 7),
    "terminal": lambda path: path.symlink_to("/dev/ptmx"),
    "link to a pipe": link_to(os.mkfifo),
    "link to a directory": link_to(os.mkdir),
    "link to itself": lambda path: path.symlink_to(path),
}


class OddFileTest(ServerTest):
    def setUp(self):
        super().setUp()
        self.template = None

    def store_template(self):
        """Creates a store with one job, of a server that was killed, so that the store has a
        log."""
        if self.template is None:
            self.template = self.path / "template"
            self.template.mkdir()
            server = self.start("--store", self.template / "harpe.db", "--no-dump")
            register(server)
            server.kill()
        return self.template

    def place(self, name, has_store):
        directory = self.path / name.replace(" ", "-").replace("/", "_")
        directory.mkdir(0o700)
        if has_store:
            for path in self.store_template().glob("harpe.db*"):
                if not stat.S_ISSOCK(path.lstat().st_mode):
                    shutil.copyfile(path, directory / path.name)
        return directory

    def run_harpe(self, directory, *arguments, before=(), environment=None):
        """Checks that the command ends by itself, or that it is a server, which is then stopped.
        Returns the exit status (None: it listened) and its output."""
        log = directory / "log"
        with open(log, "wb") as file:
            process = subprocess.Popen([*before, HARPE, *map(str, arguments)], cwd=directory,
                                       stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                       env=clean_environment({"STATE_DIRECTORY": str(directory),
                                                              **(environment or {})}))
        listens = lambda: "listening on" in log.read_text(errors="replace")
        try:
            self.wait_until(lambda: process.poll() is not None or listens(),
                            lambda: f"{arguments}\n{log.read_text()}")
            status = process.poll()
            process.terminate()
            process.wait(LIMIT_S)
        finally:
            process.kill()
            process.wait(LIMIT_S)
            self.check_devices(directory)
        return status, log.read_text(errors="replace")

    def check_devices(self, directory):
        devices = [path for path in directory.iterdir()
                   if path.is_char_device() and "ptmx" not in os.path.realpath(path)]
        modes = {str(path): oct(stat.S_IMODE(path.stat().st_mode)) for path in devices}
        self.assertEqual(set(modes.values()) - {oct(0o666)}, set(), modes)

    def check_refused(self, result, path):
        status, said = result
        self.assertIn(status, (1, 2, 3, 4, 5), said)
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertTrue(str(path) in said or os.path.realpath(path) in said, said)

    def each(self, check, cases):
        """Runs check(*case) for all cases, some of them in parallel."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            under_way = [(case, pool.submit(check, *case)) for case in cases]
            faults = [f"{case}: {one.exception()}" for case, one in under_way if one.exception()]
        self.assertEqual(faults, [], "\n".join(faults))


class StoreTest(OddFileTest):
    def put(self, directory, suffix, kind):
        path = directory / f"harpe.db{suffix}"
        path.unlink(missing_ok=True)
        KINDS[kind](path)
        return path

    def check_serve(self, suffix, kind, has_store):
        directory = self.place(f"serve{suffix}-{kind}-{has_store}", has_store)
        path = self.put(directory, suffix, kind)
        result = self.run_harpe(directory, "serve", "--port", "0", "--no-dump", "--store",
                                directory / "harpe.db", "--scheduler", "HighestFrequency")
        if result[0] is None:  # it has created its socket here
            self.assertEqual(suffix, ".control", result)
        else:
            self.check_refused(result, path)

    def test_no_start_of_a_server_waits_for_one(self):
        self.store_template()
        self.each(self.check_serve, [(suffix, kind, has_store)
                                     for i, suffix in enumerate(STORE_SUFFIXES)
                                     for j, kind in enumerate(KINDS) for has_store in (False, True)
                                     if (suffix or not has_store) and
                                     (SCALE >= 4 or not suffix or (i + j) % 2 == has_store)])

    def check_command(self, command, suffix, kind):
        directory = self.place(f"{command}{suffix}-{kind}", True)
        path = self.put(directory, suffix, kind)
        backup = self.path / f"backup-{directory.name}"
        if command == "restore":
            shutil.copyfile(self.backup, backup)
        files = {"backup": [backup], "check": [], "restore": [backup], "accept": []}[command]
        status, said = self.run_harpe(directory, "store", "--store", directory / "harpe.db",
                                      command, *files)
        if status == 0:
            self.assertEqual(suffix, ".control", said)
        else:
            self.check_refused((status, said), path)

    def test_no_store_command_waits_for_one(self):
        self.backup = self.path / "backup.db"
        run_harpe("store", "--store", self.store_template() / "harpe.db", "backup", self.backup, check=True)
        self.each(self.check_command, [(command, suffix, kind)
                                       for h, command in enumerate(COMMANDS)
                                       for i, suffix in enumerate(STORE_SUFFIXES)
                                       for j, kind in enumerate(KINDS) if (h + i + j) % 4 < SCALE])

    def check_argument(self, command, kind):
        directory = self.place(f"{command}-of-{kind}", True)
        path = directory / "given"
        KINDS[kind](path)
        store = [] if command == "check" else ["--store", directory / "harpe.db"]
        self.check_refused(self.run_harpe(directory, "store", *store, command, path), path)

    def test_no_store_command_waits_for_its_file(self):
        self.store_template()
        self.each(self.check_argument, [(command, kind) for kind in KINDS
                                        for command in ("backup", "check", "restore")])


class SettingsTest(OddFileTest):
    OPTIONS = {
        "token": ("--token-file", "{}"),
        "config": ("--config", "{}"),
        "cert": ("--tls-cert", "{}", "--tls-key", "{}"),
        "password": ("--set", "store_password_file={}", "--store", "postgresql://u@127.0.0.1:1/d"),
        "plan": ("--scheduler", "PointSolution", "--scheduler-args", '{{"solution_path": "{}"}}'),
        "csv": ("--scheduler", "Perseus", "--scheduler-args", '{{"schedule": {{"csv": "{}"}}}}'),
    }

    def check_option(self, name, kind):
        directory = self.place(f"{name}-{kind}", False)
        path = directory / "given.py"
        KINDS[kind](path)
        more = [word.format(path) for word in self.OPTIONS[name]]
        result = self.run_harpe(directory, "serve", "--port", "0", "--no-dump", *more)
        self.check_refused(result, path)

    def test_no_start_waits_for_a_file_of_its_settings(self):
        self.each(self.check_option, [(name, kind) for name in self.OPTIONS for kind in KINDS])

    def check_password_file(self, kind):
        """libpq reads this file, and ignores the parts that it cannot use."""
        directory = self.place(f"pgpass-{kind}", False)
        path = directory / "pgpass"
        KINDS[kind](path)
        status, said = self.run_harpe(directory, "serve", "--port", "0", "--no-dump", "--store",
                                      "postgresql://u@127.0.0.1:1/d",
                                      environment={"PGPASSFILE": str(path)})
        self.assertIsNotNone(status, said)
        self.assertIn("PostgreSQL database d: connection to server", said)

    def test_no_start_waits_for_the_password_file_of_libpq(self):
        self.each(self.check_password_file, [(kind,) for kind in KINDS])

    def check_directory(self, option, kind):
        directory = self.place(f"{option}-{kind}", False)
        path = directory / "given"
        KINDS[kind](path)
        result = self.run_harpe(directory, "serve", "--port", "0", option, path, "--scheduler",
                                "HighestFrequency")
        if "directory" in kind or option == "--dump-dir":  # dumps are tried again
            self.assertIsNone(result[0], result)
        else:
            self.check_refused(result, path)

    def test_no_start_waits_for_a_directory(self):
        self.each(self.check_directory, [(option, kind) for kind in KINDS
                                         for option in ("--dump-dir", "--state-dir")])

    def test_a_token_may_come_through_a_pipe_that_somebody_writes(self):
        for delay_s in ("0", "0.5"):
            directory = self.place(f"through-{delay_s}", False)
            script = directory / "start.sh"
            script.write_text('exec "$@" --token-file <(sleep ' + delay_s + '; echo secret)\n')
            result = self.run_harpe(directory, "serve", "--port", "0", "--no-dump",
                                    before=("bash", str(script)))
            self.assertIsNone(result[0], result)


if __name__ == "__main__":
    unittest.main(verbosity=2)
