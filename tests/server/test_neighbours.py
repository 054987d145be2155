# SPDX-License-Identifier: Apache-2.0
"""Which local users the server serves. The clients are real processes of other users, so the test
needs root. Run by an ordinary user, it starts itself again with `sudo -n`, or is skipped."""
import json
import os
import pathlib
import pickle
import pwd
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
import unittest

import server

OWNER, OTHER, THIRD, NOBODY = 64001, 64002, 64003, 65534
HERE = pathlib.Path(__file__).resolve().parent
WITHOUT_NETLINK = (sys.executable, HERE / "without_netlink.py")
SECRETS = ("job", "rank", "Perseus", "HighestFrequency", "harpe_http")
PATHS = ("/", "/jobs", "/info", "/metrics", "/openapi.json", "/events", "/jobs/none",
         "/jobs/none/frontier", "/schedule/none?rank=0", "/nothing", "/main.js", "/healthz/",
         "//healthz", "/%68ealthz", "/healthz/../jobs")


def as_user(uid, function, *arguments):
    """Returns the result of the function in a process of this user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            result = (True, function(*arguments))
        except BaseException as fault:  # pylint: disable=broad-except
            result = (False, repr(fault))
        with os.fdopen(write, "wb") as out:
            pickle.dump(result, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as into:
        data = into.read()
    os.waitpid(child, 0)
    is_done, value = pickle.loads(data)
    if not is_done:
        raise AssertionError(f"uid {uid}: {value}")
    return value


def exchange(address, port, request, tls=False):
    """Returns the status and the body of the answer. `address`: "::ffff:127.0.0.1" uses an IPv6
    socket."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as plain:
        plain.settimeout(server.LIMIT_S)
        plain.connect((address, port))
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            plain = context.wrap_socket(plain)
        with plain:
            plain.sendall(request)
            data = b""
            while b"\r\n\r\n" not in data:
                more = plain.recv(65536)
                if not more:
                    return 0, data.decode()
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            length = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
                      if line.startswith(b"content-length:")]
            while length and len(body) < length[0]:
                more = plain.recv(65536)
                if not more:  # an answer to HEAD has no body
                    break
                body += more
    return int(head.split(b" ")[1]), body.decode(errors="replace")


def request_of(method, path, body=b"", more=""):
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def ask(port, method="GET", path="/jobs", address="127.0.0.1", more="", **others):
    return exchange(address, port, request_of(method, path, more=more), **others)


def wait_for_last_byte(port, source=None):
    """Waits until a client (from the port `source`) has shut its side of a connection to `port`, and
    the other end has confirmed it: the state FIN_WAIT2 in the kernel's table."""
    client = ":" if source is None else f":{source:04X}"
    table = pathlib.Path("/proc/net/tcp")
    server.wait_until(lambda: any(
        client in row[1] and row[2].endswith(f":{port:04X}") and row[3] == "05"
        for row in map(str.split, table.read_text().splitlines()[1:])), table.read_text)


@unittest.skipIf(os.geteuid() != 0, "needs root, and sudo -n does not give it")
class World(server.ServerTest):
    def setUp(self):
        super().setUp()
        self.path.chmod(0o755)

    def start(self, *arguments, uid=OWNER, before=(), after=(), **others):
        """`before` and `after`: commands before and after the command that changes to the user."""
        state = self.path / f"state-{time.monotonic_ns()}"
        state.mkdir()
        os.chown(state, uid, uid)
        user = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        running = server.Server(state, "--store", "memory", "--no-dump", "--scheduler",
                                "HighestFrequency", *arguments, before=(*before, *user, *after), **others)
        self.addCleanup(running.kill)
        return running

    def register(self, port, uid=OWNER, more=""):
        return self.post(port, "/register_job", server.job_info(), uid, more)

    def post(self, port, path, body, uid=OWNER, more=""):
        status, answer = as_user(uid, exchange, "127.0.0.1", port,
                                 request_of("POST", path, json.dumps(body).encode(),
                                            more + "Content-Type: application/json\r\n"))
        self.assertEqual(status, 200, answer)
        return json.loads(answer)

    def assert_refused(self, answer, whose):
        status, body = answer
        self.assertEqual(status, 403, body)
        detail = json.loads(body)["detail"]
        self.assertEqual(list(json.loads(body)), ["detail"])
        self.assertIn(whose, detail)
        self.assertIn("--token-file", detail)
        self.assertIn("--insecure", detail)
        self.assertNotIn("\n", detail)
        for secret in SECRETS:
            self.assertNotIn(secret, detail)

    def assert_only_for(self, port, uids, whose, others=(OTHER, NOBODY), **how):
        for uid in uids:
            self.assertEqual(as_user(uid, lambda: ask(port, **how))[0], 200, uid)
        for uid in others:
            self.assert_refused(as_user(uid, lambda: ask(port, **how)), whose)

    def certificate(self):
        certificate, key = server.make_certificate(self.path, "own")
        key.chmod(0o644)
        return ("--tls-cert", certificate, "--tls-key", key)


class TheDefaultServer(World):
    def test_serves_its_user_and_root_only(self):
        nobody = f"{pwd.getpwuid(NOBODY).pw_name} (uid {NOBODY})"
        for uid, others, whose, said in (
                (OWNER, (OTHER, NOBODY), f"uid {OWNER}", f"only the user with uid {OWNER} and root"),
                (0, (OWNER, OTHER, NOBODY), "root (uid 0)", "only user root (uid 0);"),
                (NOBODY, (OTHER,), nobody, "serves only")):
            running = self.start(uid=uid)
            self.assert_only_for(running.port, {uid, 0}, whose, others)
            self.assertIn(said, running.log())
            self.assertIn(f"a connection of the user with uid {others[0]} is refused", running.log())

    def test_tells_others_nothing_by_any_path_and_method(self):
        running = self.start()
        job = self.register(running.port)
        for path in (*PATHS, f"/jobs/{job}", f"/jobs/{job}/events"):
            for method in ("GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS"):
                with self.subTest(path=path, method=method):
                    status, body = as_user(OTHER, ask, running.port, method, path)
                    self.assertEqual(status, 403)
                    if method != "HEAD":
                        self.assert_refused((status, body), f"uid {OWNER}")
        self.assertEqual(as_user(OWNER, ask, running.port, "GET", f"/jobs/{job}")[0], 200)

    def test_health_is_for_everybody_and_names_nothing(self):
        running = self.start()
        self.assertEqual(as_user(OTHER, ask, running.port, "GET", "/healthz"),
                         (200, '{"status":"ok"}'))
        self.assertEqual(as_user(OTHER, ask, running.port, "POST", "/healthz")[0], 405)

    def test_health_tells_a_reason_to_those_who_may_know_it(self):
        token = self.path / "token"
        token.write_text("tok-1\n")
        right = "Authorization: Bearer tok-1\r\n"
        for arguments, mine in ((), {}), (("--token-file", token), {"more": right}):
            with self.subTest(arguments=arguments):
                dumps = self.path / f"dumps-{len(arguments)}"
                dumps.mkdir()
                os.chown(dumps, OWNER, OWNER)
                running = self.start("--set", "dump_data=true", "--dump-dir", dumps, "--set",
                                     "work_deadline=1", *arguments)
                job = self.register(running.port, **mine)
                (dumps / job).mkdir()
                os.mkfifo(dumps / job / "ranks.json")  # a dump whose file never opens
                for path in (dumps / job, dumps / job / "ranks.json"):
                    os.chown(path, OWNER, OWNER)
                self.post(running.port, f"/register_rank/{job}", server.Job(job, 1, 1, 1).rank(0), **mine)
                health = lambda uid, how: as_user(uid, lambda: ask(running.port, path="/healthz", **how))
                self.wait_until(lambda: health(OWNER, mine)[0] == 503, "told")
                self.assertIn(job, health(OWNER, mine)[1])
                status, body = health(OTHER, {})
                self.assertEqual(status, 503)
                self.assertNotIn(job, body)
                self.assertNotIn("dump", body)

    def test_a_request_of_another_user_is_refused_before_its_body(self):
        running = self.start()
        head = b"POST /register_job HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n"
        self.assert_refused(as_user(OTHER, exchange, "127.0.0.1", running.port, head),
                            f"uid {OWNER}")

    def test_other_users_leave_room(self):
        """They may hold some connections, but none of those for the server's own user."""
        running = self.start("--set", "max_connections=600")

        def crowd():
            held = [socket.create_connection(("127.0.0.1", running.port), server.LIMIT_S)
                    for _ in range(700)]
            for one in held:
                one.setblocking(False)
            refused = lambda: sum(map(is_over, held))
            server.wait_until(lambda: refused() >= 700 - 256, lambda: f"{refused()} are refused")
            count = refused()
            for one in held:
                one.close()
            return count

        def is_over(one):
            try:
                return one.recv(1) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        mine = running.connect()
        self.assertEqual(mine.send("GET", "/jobs").receive().status, 200)
        self.assertEqual(as_user(OTHER, crowd), 700 - 256)
        self.assertEqual(mine.send("GET", "/jobs").receive().status, 200)


class EveryWayToConnect(World):
    def check(self, running, **how):
        self.assert_only_for(running.port, (OWNER, 0), f"uid {OWNER}", **how)

    def test_addresses_of_loopback(self):
        for listen, addresses in (((), ("127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1")),
                                  (("--listen", "::1"), ("::1",)),
                                  (("--listen", "127.9.8.7"), ("127.9.8.7",))):
            for before in ((), WITHOUT_NETLINK):
                running = self.start(*listen, before=before)
                for address in addresses:
                    with self.subTest(address=address, before=before):
                        self.check(running, address=address)

    def test_tls(self):
        self.check(self.start(*self.certificate()), tls=True)

    def status_on(self, one, port):
        """Returns the status of an answer on this socket, which it connects."""
        with one:
            one.connect(("127.0.0.1", port))
            one.sendall(request_of("GET", "/jobs"))
            return int(one.recv(65536).split(b" ")[1])

    def test_from_another_address(self):
        running = self.start()

        def ask_from(source):
            one = socket.socket()
            one.bind((source, 0))
            return self.status_on(one, running.port)

        self.assertEqual(as_user(OWNER, ask_from, "127.1.2.3"), 200)
        self.assertEqual(as_user(OTHER, ask_from, "127.1.2.3"), 403)

    def test_multipath_tcp(self):
        running = self.start()

        def ask_multipath():
            try:
                one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
            except OSError:
                return None
            return self.status_on(one, running.port)

        status = as_user(OWNER, ask_multipath)
        if status is None:
            self.skipTest("this kernel has no multipath TCP")
        self.assertEqual((status, as_user(OTHER, ask_multipath)), (200, 403))

    def test_a_client_that_has_sent_its_last_byte(self):
        running = self.start()

        def ask_and_shut():
            with socket.socket() as one:
                one.connect(("127.0.0.1", running.port))
                one.sendall(request_of("GET", "/healthz"))
                one.shutdown(socket.SHUT_WR)
                return int(one.recv(65536).split(b" ")[1])

        # until both the bytes and the end have arrived
        os.kill(running.process.pid, signal.SIGSTOP)
        child = os.fork()
        if child == 0:
            os._exit(as_user(OWNER, ask_and_shut) != 200)
        wait_for_last_byte(running.port)
        os.kill(running.process.pid, signal.SIGCONT)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertNotIn("is refused", running.log())


# Only the attackers connect from this address, so that no other program takes an attacker's port
# between its end and the next connection from that port.
ATTACKER = "127.83.79.68"


def connect_from(source, port):
    """`source`: a port of ATTACKER; 0: any."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((ATTACKER, source))
    one.connect(("127.0.0.1", port))
    return one


def send_and_leave(port, request, how):
    """Connects, sends, and exits: the connection waits to be accepted. Returns its port."""
    one = connect_from(0, port)
    source = one.getsockname()[1]
    if how == "reset":
        one.sendall(request)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif how == "full":  # the end of the connection is queued behind unread data
        one.sendall(request)
        one.setblocking(False)
        try:
            while True:
                one.send(b"\r\n" * 65536)
        except BlockingIOError:
            pass
    else:
        one.sendall(request)
    one.close()
    return source


class ClosedConnections(World):
    """While the server is stopped, the kernel completes connections for it. When the server
    continues, the process that connected may have ended, and another may have its address and
    port."""

    def attack(self, how, uid=OWNER, victim=None, before=()):
        running = self.start(uid=uid, before=before)
        job = self.register(running.port, uid)
        os.kill(running.process.pid, signal.SIGSTOP)
        request = request_of("DELETE", f"/jobs/{job}")
        source = as_user(OTHER, send_and_leave, running.port, request, how)
        # The kernel reports uid 0 for a client that has closed its connection, as soon as the server's
        # side has received the end. A reset would remove the connection, and unread data would delay
        # the end.
        if how == "closed":
            wait_for_last_byte(running.port, source)
        if victim is not None:
            held = self.hold(running.port, source, victim)
        os.kill(running.process.pid, signal.SIGCONT)
        for _ in range(3):  # later connections are accepted later
            self.assertEqual(as_user(uid, ask, running.port)[0], 200)
        status, answer = as_user(uid, ask, running.port, "GET", f"/jobs/{job}")
        self.assertEqual(status, 200, f"{how}: the job was evicted: {answer}")
        if victim is not None:
            held.close()

    def hold(self, port, source, uid):
        """Opens an idle connection of this user from the port. This process keeps it."""
        mine, its = socket.socketpair()

        def connect():
            one = connect_from(source, port)
            socket.send_fds(its, [b"x"], [one.fileno()])
            one.close()

        as_user(uid, connect)
        _, descriptors, _, _ = socket.recv_fds(mine, 1, 1)
        mine.close()
        its.close()
        return socket.socket(fileno=descriptors[0])

    def test_that_were_closed(self):
        for before in ((), WITHOUT_NETLINK):
            for how in ("closed", "reset", "full"):
                for uid in (OWNER, 0):
                    with self.subTest(how=how, uid=uid, before=before):
                        self.attack(how, uid, before=before)

    def test_whose_address_a_permitted_user_has_now(self):
        for before in ((), WITHOUT_NETLINK):
            for victim in (OWNER, 0):
                with self.subTest(victim=victim, before=before):
                    self.attack("reset", OWNER, victim, before)


class OtherSettings(World):
    def test_a_token_lets_in_whoever_has_it(self):
        token = self.path / "token"
        token.write_text("tok-1\n")
        running = self.start("--token-file", token)
        right = "Authorization: Bearer tok-1\r\n"
        for uid in (OWNER, OTHER, 0, NOBODY):
            self.assertEqual(as_user(uid, lambda: ask(running.port, more=right))[0], 200)
            self.assertEqual(as_user(uid, ask, running.port)[0], 401)
        self.assertIn(f"clients need the token in {token}", running.log())

    def test_insecure_lets_everybody_in(self):
        running = self.start("--insecure")
        for uid in (OWNER, OTHER, 0, NOBODY):
            self.assertEqual(as_user(uid, ask, running.port)[0], 200)
        self.assertIn("serves every user of this machine", running.log())
        running = self.start("--insecure", "--listen", "0.0.0.0")
        self.assertEqual(as_user(OTHER, ask, running.port)[0], 200)
        self.assertIn("serves everyone who reaches 0.0.0.0", running.log())

    @unittest.skipUnless(shutil.which("unshare"), "no unshare")
    def test_a_system_that_does_not_tell_is_refused_at_the_start(self):
        hide = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc/$$/net && exec "$@"', "sh")
        line = self.refuse_to_start("--store", "memory", "--no-dump", before=(*hide, *WITHOUT_NETLINK))
        self.assertIn("does not say which user", line)
        self.assertIn("--token-file", line)

    @unittest.skipUnless(shutil.which("unshare"), "no unshare")
    def test_users_that_the_namespace_does_not_map_are_refused(self):
        """In the server's user namespace all of them have the uid of nobody, and root is another
        user."""
        running = self.start(after=("unshare", "-U", "-r"))
        self.assert_only_for(running.port, (OWNER,), "uid 0", (OTHER, NOBODY, 0))


GROUP, MEMBER, STRANGER, THIEF = 64010, 1500, 1501, 1502
TOKEN = "tok+/=%1"
# A copy of /etc with the file of the service's package, for one command.
WITH_TOKEN_FILE = ("unshare", "-m", "sh", "-ec", f"""
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/upper /mnt/work /mnt/upper/harpe
    echo '{TOKEN}' >/mnt/upper/harpe/token
    chown 0:{GROUP} /mnt/upper/harpe/token
    chmod 640 /mnt/upper/harpe/token
    mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
    exec "$@"
    """, "sh")


def member_command(uid, groups, words, before=()):
    """Returns the command that runs the program on a machine with a token of the service."""
    user = ("setpriv", f"--reuid={uid}", f"--regid={uid}",
            f"--groups={groups}" if groups else "--clear-groups")
    return [*WITH_TOKEN_FILE, *map(str, before), *user, server.HARPE, *map(str, words)]


def member_environment(**more):
    return {name: value for name, value in server.clean_environment().items()
            if not name.startswith("HARPE_")} | more


def as_member(uid, groups, *words, before=(), **environment):
    return subprocess.run(member_command(uid, groups, words, before), cwd="/", text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=server.LIMIT_S,
                          env=member_environment(**environment))


class Listener:
    """A process of this user that accepts one request and answers it with an empty list."""

    def __init__(self, uid, address="127.0.0.1", port=0):
        self.read, write = os.pipe()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        ports, tells = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with socket.socket(family) as door:
                door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                door.bind((address, port))
                door.listen(5)
                os.write(tells, b"%d\n" % door.getsockname()[1])
                one, _ = door.accept()
                data = b""
                while b"\r\n\r\n" not in data:
                    data += one.recv(65536)
                body = b'{"jobs": []}'
                one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                            b"Connection: close\r\nContent-Length: %d\r\n\r\n%s"
                            % (len(body), body))
                one.close()
                os.write(write, data)
            os._exit(0)
        os.close(write)
        os.close(tells)
        with os.fdopen(ports, "rb") as into:
            self.port = int(into.readline())

    def request(self):
        with os.fdopen(self.read, "rb") as into:
            data = into.read().decode()
        os.waitpid(self.child, 0)
        return data

    def end(self):
        os.kill(self.child, 9)
        os.waitpid(self.child, 0)
        os.close(self.read)


JOB = {"job_id": "job-1", "state": "online"}
ANSWERS = {"/healthz": (200, {}), "/info": (200, {}), "/jobs/job-1": (200, JOB),
           "/jobs": (200, {"jobs": [JOB], "count": 1, "next": None})}


class Keeper:
    """A process of this user that keeps its connections and answers any number of requests, with
    503 if ANSWERS lacks the path. Writes [uid, request] to `requests` for each."""

    def __init__(self, uid, requests, port=0):
        self.closing, close = socket.socketpair()
        self.child = os.fork()
        if self.child == 0:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            door = socket.socket()
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(("127.0.0.1", port))
            door.listen(5)
            close.send(b"%d" % door.getsockname()[1])
            try:
                self.answer(uid, door, close, requests)
            finally:
                os._exit(0)
        close.close()
        self.closing.settimeout(server.LIMIT_S)
        self.port = int(self.closing.recv(64))

    @staticmethod
    def answer(uid, door, close, requests):
        streams = [door, close]
        while True:
            for one in select.select(streams, [], [])[0]:
                if one is door:
                    streams.append(door.accept()[0])
                    continue
                data = one.recv(65536)
                if one is close:
                    streams.remove(door)
                    door.close()
                    close.send(b"closed")
                    break
                if not data:
                    streams.remove(one)
                    one.close()
                elif data.startswith((b"GET ", b"POST ")):
                    path = data.split(b" ")[1].split(b"?")[0].decode()
                    status, body = ANSWERS.get(path, (503, {"detail": "later"}))
                    body = json.dumps(body).encode()
                    requests.sendall(json.dumps([uid, data.decode()]).encode() + b"\n")
                    one.sendall(b"HTTP/1.1 %d Answer\r\nContent-Type: application/json\r\n"
                                b"Content-Length: %d\r\n\r\n%s" % (status, len(body), body))

    def close_door(self):
        """It continues to answer on its existing connections."""
        self.closing.send(b"close")
        self.closing.recv(64)

    def end(self):
        os.kill(self.child, 9)
        os.waitpid(self.child, 0)
        self.closing.close()


def can_copy_etc():
    if os.geteuid() != 0:
        return False
    return subprocess.run([*WITH_TOKEN_FILE, "true"], capture_output=True).returncode == 0


@unittest.skipUnless(can_copy_etc(), "needs root and overlay file systems")
class TheServiceOfTheMachine(World):
    """The service's package creates a token that members of its group may read. Clients find it
    without options, and send it to no other server."""

    def service(self, *arguments):
        token = self.path / "token"
        token.write_text(TOKEN)
        return self.start("--token-file", token, *arguments)

    def test_members_of_its_group_need_nothing(self):
        running = self.service()
        done = as_member(MEMBER, GROUP, "jobs", "--server", f"http://127.0.0.1:{running.port}")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = as_member(MEMBER, GROUP, "jobs", "--server", f"http://localhost:{running.port}/",
                         before=WITHOUT_NETLINK)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_others_are_told_what_to_do(self):
        running = self.service()
        done = as_member(STRANGER, None, "jobs", "--server", f"http://127.0.0.1:{running.port}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--token-file", done.stderr)
        self.assertIn("group harpe", done.stderr)
        self.assertNotIn(TOKEN, done.stderr)

    def test_a_training_job_needs_nothing(self):
        running = self.service()
        words = ("train-sim", "--server", f"http://127.0.0.1:{running.port}", "--steps", "2",
                 "--time-scale", "50", "--pp", "2", "--num-mbs", "2")
        done = as_member(MEMBER, GROUP, *words, HOME=str(self.path))
        self.assertEqual(done.returncode, 0, done.stderr)
        jobs = as_user(0, ask, running.port, "GET", "/jobs", "127.0.0.1",
                       f"Authorization: Bearer {TOKEN}\r\n")[1]
        self.assertEqual([job["world_size"] for job in json.loads(jobs)["jobs"]], [2])
        done = as_member(STRANGER, None, *words, HOME=str(self.path))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("group harpe", done.stderr)

    def test_it_goes_to_loopback_addresses_where_a_service_listens(self):
        for url, uid, is_sent in (
                ("http://127.0.0.1:{}", 0, True), ("http://127.0.0.1:{}/", OWNER, True),
                ("HTTP://LocalHost:{}", 999, True), ("http://[::1]:{}", 0, True),
                ("http://127.3.2.1:{}", MEMBER, True), ("http://127.0.0.1:{}", THIEF, False),
                ("http://localhost:{}", THIEF, False), ("http://[::1]:{}", THIEF, False),
                ("http://127.0.0.1:{}", NOBODY, False), ("http://127.0.0.1:{}", 65520, False),
                ("http://me@127.0.0.1:{}", 0, False), ("http://127.1:{}", 0, False),
                ("http://2130706433:{}", 0, False), ("http://127.0.0.1.:{}", 0, False),
                ("http://[::ffff:127.0.0.1]:{}", 0, False), ("http://0.0.0.0:{}", 0, False)):
            with self.subTest(url=url, uid=uid):
                address = ("::1" if "[::1]" in url else "127.3.2.1" if "127.3" in url
                           else "127.0.0.1")
                listener = Listener(uid, address)
                try:
                    done = as_member(MEMBER, GROUP, "jobs", "--server", url.format(listener.port))
                    if done.returncode != 0:
                        self.assertFalse(is_sent, done.stderr)
                        listener.end()
                        continue
                    sent = listener.request()
                except BaseException:
                    listener.end()
                    raise
                self.assertEqual(f"Authorization: Bearer {TOKEN}" in sent, is_sent, sent)
                self.assertEqual("bearer" in sent.lower(), is_sent, sent)

    def test_localhost_may_not_be_shared_with_somebody_else(self):
        for mine, its in (("127.0.0.1", "::1"), ("::1", "127.0.0.1")):
            running = self.service("--listen", mine)
            thief = Listener(THIEF, its, running.port)
            done = as_member(MEMBER, GROUP, "jobs", "--server", f"http://localhost:{running.port}")
            if done.returncode == 0:
                self.assertNotIn("uthorization", thief.request())
            else:
                thief.end()

    def check_that_a_kept_connection_gets_no_token(self, path, *words):
        """A thief keeps the client's connection when the service takes its port."""
        read, write = socket.socketpair()
        read.settimeout(server.LIMIT_S)
        requests = read.makefile("r")
        for one in (read, write, requests):
            self.addCleanup(one.close)
        thief = Keeper(THIEF, write)
        self.addCleanup(thief.end)
        words = (*words, "--server", f"http://127.0.0.1:{thief.port}")
        client = subprocess.Popen(member_command(MEMBER, GROUP, words), cwd="/",
                                  env=member_environment(HOME=str(self.path)),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(client.wait)
        self.addCleanup(client.terminate)
        while path not in json.loads(requests.readline())[1]:
            pass
        thief.close_door()
        service = Keeper(0, write, thief.port)
        self.addCleanup(service.end)
        with_token = 0
        while with_token < 4:
            uid, request = json.loads(requests.readline())
            if "uthorization" in request:
                self.assertEqual(uid, 0, request)
                with_token += 1

    def test_a_watch_does_not_send_it_to_a_server_from_before(self):
        self.check_that_a_kept_connection_gets_no_token("/jobs/job-1", "jobs", "watch", "job-1")

    def test_a_training_job_does_not_send_it_to_a_server_from_before(self):
        self.check_that_a_kept_connection_gets_no_token(
            "/register_job", "train-sim", "--steps", "10000", "--time-scale", "1", "--pp", "1",
            "--num-mbs", "2")

    def test_a_given_token_wins(self):
        for given in ("flag", "variable"):
            listener = Listener(0)
            (self.path / "own").write_text("own\n")
            words = ("--token-file", self.path / "own") if given == "flag" else ()
            environment = {"HARPE_TOKEN": "own" if given == "variable" else "neither"}
            as_member(MEMBER, GROUP, "jobs", "--server", f"http://127.0.0.1:{listener.port}",
                      *words, **environment)
            self.assertIn("Authorization: Bearer own\r\n", listener.request())

    def test_the_link_of_the_dashboard_has_it(self):
        running = self.service()
        url = f"http://127.0.0.1:{running.port}"
        done = as_member(MEMBER, GROUP, "jobs", "link", "--server", url)
        self.assertEqual(done.stdout, f"{url}/#token=tok%2B%2F%3D%251\n")
        done = as_member(MEMBER, GROUP, "jobs", "link", "--json", "--server", url)
        self.assertEqual(json.loads(done.stdout), {"link": f"{url}/#token=tok%2B%2F%3D%251"})
        done = as_member(STRANGER, None, "jobs", "link", "--server", url)
        self.assertEqual(done.stdout, f"{url}/\n")


def main():
    if os.geteuid() != 0 and shutil.which("sudo"):
        if subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL,
                          capture_output=True).returncode == 0:
            os.execvp("sudo", ["sudo", "-n", "env", f"HARPE={server.HARPE}",
                               "PYTHONDONTWRITEBYTECODE=1", sys.executable, *sys.argv])
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
