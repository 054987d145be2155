# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server for one test: in a temporary directory, on a Unix socket only, as a user who
is not root. It is postgres_server.h in Python. It ends with the test, however the test ends."""
import ctypes
import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

LIMIT_S = 300  # of every wait
PR_SET_PDEATHSIG = 1


def programs():
    """Returns the directory of initdb, postgres and psql: in PATH, or where Debian installs them,
    or None."""
    in_path = shutil.which("initdb")
    places = [os.path.dirname(os.path.realpath(in_path))] if in_path else []
    places += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return next((pathlib.Path(place) for place in places
                 if all(os.access(os.path.join(place, name), os.X_OK)
                        for name in ("initdb", "postgres", "psql"))), None)


def _user():
    """Returns the arguments of Popen for the user that runs the server, because the server refuses
    root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        except KeyError:
            continue
    return {}


class Postgres:
    def __init__(self):
        self.bin = programs()
        self.process = None
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="harpe-pg-"))
        self.where = f"postgresql://harpe@/postgres?host={self.directory}"
        try:
            if os.geteuid() == 0:
                os.chown(self.directory, _user()["user"], _user()["group"])
            done = self._spawn("initdb", "-D", self.directory / "data", "-U", "harpe", "-A", "trust",
                               "--no-sync", "-E", "UTF8", "--locale=C").wait(LIMIT_S)
            if done != 0:
                raise RuntimeError(f"initdb: {self.log()}")
            self.start()
        except BaseException:
            self.close()
            raise

    def _spawn(self, program, *arguments):
        libc = ctypes.CDLL(None)
        with open(self.directory / "log", "ab") as log:
            return subprocess.Popen(
                [self.bin / program, *arguments], cwd="/", stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, **_user(),
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT))

    def log(self):
        return (self.directory / "log").read_text(errors="replace")

    def start(self):
        self.process = self._spawn("postgres", "-D", self.directory / "data", "-k", self.directory,
                                   "-c", "listen_addresses=", "-c", "fsync=off",
                                   "-c", "max_connections=40")
        end = time.monotonic() + LIMIT_S
        while self._client("SELECT 1").returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL does not start: {self.log()}")
            time.sleep(0.05)

    def stop(self, number=signal.SIGINT):
        """Stops the server. SIGINT: a fast shutdown, SIGQUIT: a crash."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(LIMIT_S)

    def _processes(self):
        """Returns the started process and its children, one for each connection."""
        numbers = [self.process.pid]
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = path.read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == self.process.pid:
                numbers.append(int(path.parent.name))
        return numbers

    def freeze(self):
        """Stops its processes. The system still accepts connections for it, but it answers
        nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self):
        self._signal(signal.SIGCONT)

    def _signal(self, number):
        for process in self._processes():
            try:
                os.kill(process, number)
            except ProcessLookupError:  # it has already ended
                pass

    def _client(self, sql):
        return subprocess.run([self.bin / "psql", "-XAtq", "-h", self.directory, "-U", "harpe",
                               "-c", sql, "postgres"], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=LIMIT_S, check=False)

    def query(self, sql):
        done = self._client(sql)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def close(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
