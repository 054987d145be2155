# SPDX-License-Identifier: Apache-2.0
"""Runs `harpe serve` on a free port and communicates with it over real sockets: the common part of
the server's Python tests. Every test has a directory of its own. At the end, all its servers,
connections and files are removed. HARPE names the program. Needs only Python's standard library."""
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR", HERE.parent.parent))
HARPE = os.path.abspath(os.environ.get("HARPE", SOURCE / "build" / "release" / "harpe"))
LIMIT_S = int(os.environ.get("HARPE_TEST_LIMIT_S", "300"))  # of every wait: far more than is needed
LISTENING = re.compile(r"harpe serve: listening on https?://(\S+):(\d+)")


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:600]!r}"


class Connection:
    """One connection, one request at a time. Uses plain bytes, so that no library corrects the
    requests."""

    def __init__(self, port, timeout=LIMIT_S, connected=None):
        """`connected`: a socket to use instead of a new one."""
        self.socket = connected or socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending = b""

    def send(self, method, target, body=None, headers=None):
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        data = body.encode() if isinstance(body, str) else body
        if data is not None:
            lines.append(f"Content-Length: {len(data)}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + (data or b""))
        return self

    def receive(self, timeout=LIMIT_S):
        self.socket.settimeout(timeout)
        while b"\r\n\r\n" not in self.pending:
            self._more()
        head, self.pending = self.pending.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(iter(self._chunk, b""))
        else:
            body = self._bytes(int(headers.get("content-length", 0)))
        return Answer(int(lines[0].split(" ")[1]), headers, body)

    def _bytes(self, length):
        while len(self.pending) < length:
            self._more()
        taken, self.pending = self.pending[:length], self.pending[length:]
        return taken

    def _chunk(self):
        """Reads the next chunk. b"" is the last."""
        while b"\r\n" not in self.pending:
            self._more()
        line, self.pending = self.pending.split(b"\r\n", 1)
        data = self._bytes(int(line, 16))
        assert self._bytes(2) == b"\r\n"
        return data

    def is_held(self, seconds=0.3):
        """Checks that no answer arrives within this time."""
        self.socket.settimeout(seconds)
        try:
            self._more()
        except (TimeoutError, socket.timeout):
            return True
        return False

    def close(self):
        self.socket.close()

    def reset(self):
        """Closes the connection abruptly, as when the client's machine kills the client."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def _more(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError(f"closed by the server after {self.pending!r}")
        self.pending += data


class Server:
    """A running `harpe serve`. Its log goes to a file, so that it never waits for a reader."""

    def __init__(self, directory, *arguments, port=0, environment=None, limits=None, before=()):
        """`limits`: soft and hard limit of open files. `before`: the words of a command that runs
        the program, such as setpriv."""
        self.log_path = pathlib.Path(directory) / f"serve-{time.monotonic_ns()}.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*map(str, before), HARPE, "serve", "--port", str(port), *map(str, arguments)],
                cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                preexec_fn=limits and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)),
                env=clean_environment({"STATE_DIRECTORY": str(directory)} | (environment or {})))

        def listening():
            ended = self.process.poll() is not None
            match = LISTENING.search(self.log())
            assert match or not ended, f"harpe serve does not listen:\n{self.log()}"
            return match
        try:
            self.port = int(wait_until(listening, self.log).group(2))
        except AssertionError:
            self.kill()
            raise

    def log(self):
        return self.log_path.read_text(errors="replace")

    def connect(self):
        return Connection(self.port)

    def call(self, method, target, body=None, headers=None):
        connection = self.connect()
        try:
            return connection.send(method, target, body, headers).receive()
        finally:
            connection.close()

    def get(self, target, **headers):
        return self.call("GET", target, None, headers)

    def post(self, target, body=None, **headers):
        return self.call("POST", target, body, headers)

    def metric(self, name):
        """Returns the value of a metric without labels."""
        text = self.get("/metrics").body.decode()
        return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE).group(1))

    def stop(self, number=signal.SIGTERM):
        """Returns its exit status."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)


def clean_environment(changes=None):
    """Returns an environment without the settings of the user who runs the tests."""
    values = {name: value for name, value in os.environ.items()
              if not name.upper().startswith(("ZEUS_PFO_", "PERSEUS_"))}
    values.update(changes or {})
    return values


def run_harpe(*words, before=(), environment=None, **options):
    """Runs the program until it ends. `before`: the words of a command that runs it."""
    options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": LIMIT_S,
               "check": False, "env": clean_environment(environment)} | options
    return subprocess.run([*map(str, before), HARPE, *map(str, words)], **options)


def make_certificate(directory, name, *more):
    """Makes a certificate for localhost: {name}.pem and its {name}.key. Returns their paths. `more`:
    words for openssl."""
    paths = [pathlib.Path(directory) / f"{name}.{end}" for end in ("pem", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "30", "-subj", "/CN=localhost", "-out", paths[0], "-keyout",
                    paths[1], *more], check=True, capture_output=True, timeout=LIMIT_S)
    return paths


def hanging_files(path):
    """Returns the environment of a server in which everything below this path hangs."""
    return {"LD_PRELOAD": os.environ["HARPE_HUNG_FILES"], "HUNG_FILES": str(path),
            "ASAN_OPTIONS": "verify_asan_link_order=0"}


def is_alive(process):
    """Whether a process exists and is no zombie."""
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, what):
    """Waits until condition() is true, and returns its value. `what`: a text, or a function that
    returns one."""
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < end, f"never: {what() if callable(what) else what}"
        time.sleep(0.02)
    return value


class ServerTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="harpe-server-")
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name)
        self._server = None

    def start(self, *arguments, plan=None, scheduler="PointSolution", args=None, **options):
        """Starts a server in this test's directory. Without `args`, the arguments of its scheduler,
        the scheduler gets a plan (a list of [instruction, MHz] lists)."""
        if args is None:
            self.write_plan(plan if plan is not None else plan_for(1))
            args = {"solution_path": str(self.path / "plan.py")}
        server = Server(self.path, "--store", self.path / "harpe.db", "--dump-dir",
                        self.path / "dump", "--scheduler", scheduler, "--scheduler-args",
                        json.dumps(args), *arguments, **options)
        self.addCleanup(server.kill)
        return server

    def run_serve(self, *arguments, environment=None, **options):
        """Runs `harpe serve` until it ends. The arguments must keep it from serving."""
        return run_harpe("serve", "--port", "0", *arguments, cwd=self.path, **options,
                         environment={"STATE_DIRECTORY": str(self.path)} | (environment or {}))

    def begin_serve(self, *arguments, environment=None, output=subprocess.DEVNULL, **options):
        """Starts a server, and does not wait until it listens."""
        process = subprocess.Popen(
            [HARPE, "serve", "--port", "0", *map(str, arguments)], stdout=output, stderr=output,
            **({"stdin": subprocess.DEVNULL, "cwd": self.path, "env": clean_environment(
                {"STATE_DIRECTORY": str(self.path)} | (environment or {}))} | options))
        self.addCleanup(process.wait, LIMIT_S)
        self.addCleanup(process.kill)
        return process

    def refuse_to_start(self, *arguments, exit_code=2, **options):
        """Returns the last line of the message. Exit code 2: another start would not help; 1: it may
        help."""
        done = self.run_serve(*arguments, **options)
        self.assertEqual(done.returncode, exit_code, done)
        return done.stderr.splitlines()[-1]

    def write_plan(self, plan):
        text = repr([[tuple(entry) for entry in rank] for rank in plan])
        (self.path / "plan.py").write_text(text + "\n")

    def connect(self, server):
        connection = server.connect()
        self.addCleanup(connection.close)
        return connection

    def ask(self, server, job, rank, round_=None):
        """Sends a request for a schedule without waiting for the answer."""
        more = "" if round_ is None else f"&round={round_}"
        return self.connect(server).send("GET", f"/schedule/{job.id}?rank={rank}{more}")

    def ask_and_not_read(self, server, target):
        """Opens a socket that accepts only a few KiB of the answer before it is read."""
        connection = socket.socket()
        self.addCleanup(connection.close)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(LIMIT_S)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return connection

    def stick(self, server):
        """Returns a job whose first dump is a pipe that nobody reads, so that it never opens."""
        job = register(server, ranks=False)
        (self.path / "dump" / job.id).mkdir(parents=True)
        os.mkfifo(self.path / "dump" / job.id / "ranks.json")
        self.expect(server.post(f"/register_rank/{job.id}", job.rank(0)), 200)
        return job

    def train(self, server, job, rounds, first=0):
        """Lets all ranks ask and report in each round. Returns the first clock of the last
        schedule, if it has one."""
        for round_ in range(first, first + rounds):
            asking = [self.ask(server, job, rank, round_) for rank in range(job.size)]
            for held in asking:
                frequencies = self.expect(held.receive(), 200).json["frequencies"]
                held.close()
            for rank in range(job.size):
                self.expect(server.post(f"/result/{job.id}?round={round_}",
                                        result_of(rank, round_)), 200)
        return frequencies[0][1] if frequencies else None

    def expect(self, answer, status, body=None):
        self.assertEqual(answer.status, status, answer)
        if body is not None:
            self.assertEqual(answer.json, body)
        return answer

    def expect_detail(self, answer, status, *words):
        """Checks that the answer is an error of the server: one readable line that contains the
        words."""
        self.expect(answer, status)
        self.assertEqual(list(answer.json), ["detail"], answer)
        detail = answer.json["detail"]
        self.assertIsInstance(detail, str, answer)
        self.assertNotIn("\n", detail)
        for word in words:
            self.assertIn(word, detail)
        return detail

    wait_until = staticmethod(wait_until)

    def wait_for_log(self, server, text):
        """Waits for a text that may come after the answer that it belongs to."""
        self.wait_until(lambda: text in server.log(), server.log)

    def wait_for_health(self, server, status):
        self.wait_until(lambda: server.get("/healthz").status == status, f"health {status}")

    def wait_for_failure(self, server, job):
        return self.wait_until(lambda: server.get(f"/jobs/{job.id}").json["failure"], "it fails")

    def end(self, server, job):
        for rank in range(job.size):
            self.expect(server.post(f"/end/{job.id}", {"rank": rank}), 200)

    def wait_for_waiting(self, server, job, count):
        """Waits until the server counts this number of held requests, instead of waiting for a
        time."""
        self.wait_until(lambda: server.get(f"/jobs/{job.id}").json["ranks_waiting"] == count,
                        f"{count} ranks wait")


class Job:
    """A job as its ranks know it. The ranks' places are in the order tp, pp, dp."""

    def __init__(self, job_id, pp, dp, tp):
        self.id, self.pp, self.dp, self.tp = job_id, pp, dp, tp
        self.size = pp * dp * tp

    def rank(self, rank):
        return {"rank": rank, "dp_rank": rank // (self.pp * self.tp),
                "pp_rank": rank // self.tp % self.pp, "tp_rank": rank % self.tp,
                "available_frequencies": [1740, 1200, 810]}


def plan_for(lists):
    return [[("forward", 1740 - 15 * i), ("backward", 1200 + 15 * i), ("forward", 0)]
            for i in range(lists)]


def schedule_of(plan, rank, stage=None):
    """Returns a rank's part of a plan."""
    return {"rank": rank, "frequencies": [list(e) for e in plan[rank if stage is None else stage]]}


def job_info(pp=1, dp=1, tp=1, **more):
    return dict({"job_id": "", "pp_degree": pp, "dp_degree": dp, "tp_degree": tp,
                 "world_size": pp * dp * tp, "job_metadata": None}, **more)


def result_of(rank, round_=0):
    time_s = 1.5 + rank + round_ / 8
    return {"rank": rank, "iter_time": [time_s, time_s], "iter_energy": [200.25, 201.5],
            "time_breakdown": {"forward": [[0.5, 0.25], [0.5, 0.25]]},
            "energy_breakdown": {"forward": [[50.0, 25.0], [50.0, 25.5]]}}


def register(server, pp=1, dp=1, tp=1, ranks=True, **more):
    answer = server.post("/register_job", job_info(pp, dp, tp, **more))
    assert answer.status == 200, answer
    job = Job(answer.json, pp, dp, tp)
    for rank in range(job.size if ranks else 0):
        answer = server.post(f"/register_rank/{job.id}", job.rank(rank))
        assert answer.status == 200 and answer.json is None, answer
    return job


def register_many(server, count, pp=1, headers=None, **more):
    """Registers jobs without ranks on one connection. Returns their ids in this order."""
    connection = server.connect()
    answers = [connection.send("POST", "/register_job", job_info(pp, **more), headers).receive()
               for _ in range(count)]
    connection.close()
    assert all(answer.status == 200 for answer in answers), answers
    return [answer.json for answer in answers]


__all__ = ["Answer", "Connection", "HARPE", "Job", "LIMIT_S", "Server", "ServerTest",
           "clean_environment", "hanging_files", "job_info", "json", "make_certificate", "os", "plan_for",
           "register",
           "register_many", "result_of", "run_harpe", "schedule_of", "signal",
           "socket", "subprocess", "threading", "time", "unittest", "wait_until"]
