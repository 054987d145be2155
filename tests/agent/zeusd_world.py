# SPDX-License-Identifier: Apache-2.0
"""Code that the tests of zeusd's routes share: emulated GPUs, the daemon with these routes, the
published daemon, requests, tokens, and a tree of CPU energy counters. Needs only Python's standard
library."""
import base64
import ctypes
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "client"), str(TESTS)]
import kills
from fixtures import folder

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
DAEMON = pathlib.Path(os.environ.get("HARPE_ZEUSD_DAEMON", BUILD / "tests" / "zeusd_daemon"))
LIMIT_S = kills.LIMIT_S
KEY = b"a key of thirty-two bytes or more"
GROUPS = ["gpu-control", "gpu-read", "cpu-read"]


class Machine(kills.Machine):
    """Emulated GPUs. `index` chooses the GPU that the functions of the base class look at."""

    def __init__(self, gpus="3xA40"):
        super().__init__(BUILD, gpus=gpus)
        self.count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(self.count))
        self.handles = []
        for index in range(self.count.value):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            self.call("nvmlDeviceSetPowerManagementLimit", handle, kills.FOUND_MW)
            self.handles.append(handle)
        self.found_all = self.states()

    def states(self):
        found = []
        for handle in self.handles:
            self.handle = handle
            found.append(self.state())
        self.handle = self.handles[0]
        return found

    def until(self, reached):
        if self.wait_until(reached, LIMIT_S) is None:
            raise AssertionError(f"not reached: {self.states()}")


# ---- Tokens

def part(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def token(claims=None, header=None, key=KEY, **more):
    """Returns a token that is valid unless the arguments say otherwise."""
    claims = dict({"sub": "somebody", "scopes": GROUPS, "exp": int(time.time()) + 3600}, **more) \
        if claims is None else claims
    text = part({"typ": "JWT", "alg": "HS256"} if header is None else header) + "." + part(claims)
    return text + "." + part(hmac.new(key, text.encode(), hashlib.sha256).digest())


# ---- Requests

class Answer:
    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def type(self):
        return self.headers.get("content-type")

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.type} {self.body[:300]!r}"


class Connection(http.client.HTTPConnection):
    """A connection to a Unix socket, or to (host, port)."""

    def __init__(self, address, timeout=LIMIT_S):
        super().__init__("localhost", timeout=timeout)
        self.address = address

    def connect(self):
        if isinstance(self.address, tuple):
            self.sock = socket.create_connection(self.address, timeout=self.timeout)
            return
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.address))

    def ask(self, method, target, bearer=None, headers=None, body=None):
        fields = dict(headers or {})
        if bearer is not None:
            fields["Authorization"] = f"Bearer {bearer}"
        # putrequest keeps the target as it is
        self.putrequest(method, target, skip_accept_encoding=True)
        for name, value in fields.items():
            self.putheader(name, value)
        if method == "POST" or body:
            self.putheader("Content-Length", str(len(body or b"")))
        self.endheaders(body)
        answer = self.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())


def ask(address, method, target, **more):
    connection = Connection(address)
    try:
        return connection.ask(method, target, **more)
    finally:
        connection.close()


class Stream:
    """Reads server-sent events."""

    def __init__(self, address, target, bearer=None):
        self.connection = Connection(address)
        self.connection.putrequest("GET", target)
        if bearer:
            self.connection.putheader("Authorization", f"Bearer {bearer}")
        self.connection.endheaders()
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.headers = {name.lower(): value for name, value in self.answer.getheaders()}

    def event(self):
        line = self.answer.fp.readline() if not self.answer.chunked else self.answer.readline()
        while line == b"\n":
            line = self.answer.fp.readline() if not self.answer.chunked else self.answer.readline()
        if not line.startswith(b"data: "):
            raise AssertionError(f"no event: {line!r}")
        return json.loads(line[6:])

    def close(self):
        self.answer.close()
        self.connection.close()


# ---- CPUs

class Rapl:
    """A tree of counters as the kernel has it. Package 0 has memory; package 1 has none."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder, "powercap")
        for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0/intel-rapl:0:0", "dram"),
                           ("intel-rapl:1", "package-1")):
            path = self.root / zone
            path.mkdir(parents=True)
            (path / "name").write_text(name + "\n")
            (path / "max_energy_range_uj").write_text("262143328850\n")
            self.set(zone, 1000000)

    def set(self, zone, energy_uj):
        path = self.root / zone / "energy_uj"
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{energy_uj}\n")
        # The reader keeps the file open, so its content is replaced and not the file.
        with open(path, "r+" if path.exists() else "w", encoding="ascii") as file:
            file.write(f"{energy_uj}\n")
        fresh.unlink()


# ---- Daemons

class Daemon:
    """The daemon under test. `address` is its Unix socket, `tcp` its address of TCP or None."""

    def __init__(self, machine, folder, *options, tcp=False, faults_file=None):
        self.machine = machine
        self.folder = pathlib.Path(folder)
        self.address = self.folder / "zeusd.sock"
        (self.folder / "key").write_bytes(KEY)
        self.command = [str(DAEMON), "--unix", str(self.address), *map(str, options)]
        if tcp:
            self.command += ["--tcp", "127.0.0.1"]
        if tcp or "--unix-token" in options:
            self.command += ["--key", str(self.folder / "key")]
        self.wants_tcp = tcp
        self.environment = dict(machine.environment)
        if faults_file:
            self.environment["HARPE_EMULATOR_FAULTS_FILE"] = str(faults_file)
        self.log_path = self.folder / "log"
        self.log = open(self.log_path, "a", encoding="utf-8")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.environment, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            self.process.wait()
            raise RuntimeError("the daemon does not start: " + self.said()[-2000:])
        self.tcp = ("127.0.0.1", int(line.split()[1])) if self.wants_tcp else None

    def said(self):
        return self.log_path.read_text(encoding="utf-8")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        """Ends the daemon. Returns its exit status and its counts."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.stdout.read()
        status = self.process.wait()
        self.process.stdout.close()
        words = said.split()
        return status, dict(zip(words[::2], map(int, words[1::2])))

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()
        if "Sanitizer" in self.said():
            raise AssertionError(self.said()[-4000:])


def published_program():
    """Returns the published zeusd, or None."""
    return os.environ.get("HARPE_ZEUSD") or shutil.which("zeusd")


class Published:
    """The published daemon over the same GPUs, on a Unix socket or with tokens on TCP."""

    def __init__(self, machine, folder, tcp=False, groups="gpu-control,gpu-read"):
        self.folder = pathlib.Path(folder)
        library = self.folder / "libnvidia-ml.so.1"
        os.symlink(machine.nvml_path, library)
        environment = dict(machine.environment, LD_LIBRARY_PATH=str(self.folder))
        command = [published_program(), "serve", "--enable", groups, "--num-workers", "2"]
        self.address, self.tcp = self.folder / "published.sock", None
        if tcp:
            (self.folder / "key").write_bytes(KEY)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.tcp = listener.getsockname()
            command += ["--mode", "tcp", "--tcp-bind-address", "127.0.0.1:%d" % self.tcp[1], "--signing-key-path",
                        str(self.folder / "key")]
        else:
            command += ["--mode", "uds", "--socket-path", str(self.address)]
        self.log = open(self.folder / "published.log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)
        end = time.monotonic() + LIMIT_S
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                raise RuntimeError("zeusd does not start: " + self.log.read()[-2000:])
            time.sleep(0.02)

    def is_up(self):
        try:
            return ask(self.tcp or self.address, "GET", "/time").status == 200
        except OSError:
            return False

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


# ---- Clients that are processes of their own

CLIENT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import zeusd_world
address = sys.argv[2]
for line in sys.stdin:
    method, target = line.split()
    try:
        answer = zeusd_world.ask(address, method, target)
    except OSError:
        sys.exit("the daemon has ended")
    print(json.dumps([answer.status, answer.body.decode()]), flush=True)
"""


class Client:
    """A process that sends requests and lives until it is killed."""

    def __init__(self, daemon, **popen):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(pathlib.Path(__file__).resolve().parent), str(daemon.address)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1, **popen)
        self.pid = self.process.pid

    def send(self, method, target):
        self.process.stdin.write(f"{method} {target}\n")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the client has ended")
        status, body = json.loads(line)
        return Answer(status, [], body.encode())

    def ask(self, method, target):
        self.send(method, target)
        return self.answer()

    def post(self, command, **fields):
        query = "&".join(f"{name}={value}" for name, value in dict({"gpu_ids": 0, "block": "true"}, **fields).items())
        return self.ask("POST", f"/gpu/{command}?{query}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


class OtherUser(Client):
    """A fork of this process that runs as another user. The user may be unable to start Python."""

    def __init__(self, daemon, uid):
        requests, answers = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setgid(uid)
                os.setuid(uid)
                os.close(requests[1])
                streams = []
                for line in os.fdopen(requests[0]):
                    if "stream" in line:
                        streams.append(Stream(daemon.address, line.split()[1]))
                        os.write(answers[1], (json.dumps([streams[-1].status, ""]) + "\n").encode())
                        continue
                    answer = ask(daemon.address, *line.split())
                    os.write(answers[1], (json.dumps([answer.status, answer.body.decode()]) + "\n").encode())
            finally:
                os._exit(0)
        os.close(requests[0])
        os.close(answers[1])
        self.process = self
        self.stdin, self.stdout = os.fdopen(requests[1], "w", buffering=1), os.fdopen(answers[0])
        self.lives = True

    def kill(self):
        if self.lives:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.lives = False

    def close(self):
        self.kill()
        self.stdin.close()
        self.stdout.close()


# ---- Tests

class DaemonTest(unittest.TestCase):
    """Emulated GPUs, a folder, and daemons that end with the test."""

    gpus = "3xA40"

    def setUp(self):
        self.segments = kills.segments()
        self.addCleanup(self.nothing_is_left)
        self.machine = Machine(self.gpus)
        self.addCleanup(self.machine.close)
        self.folder = folder(self.addCleanup)
        self.faults = self.folder / "faults"

    def nothing_is_left(self):
        self.assertEqual(kills.own_segments(self.segments), set())

    def start(self, *options, **more):
        daemon = Daemon(self.machine, self.folder, *options, **more)
        self.addCleanup(daemon.close)
        self.address = daemon.address
        return daemon
