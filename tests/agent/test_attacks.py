# SPDX-License-Identifier: Apache-2.0
"""Attacks on the node agent by a process that may connect to it: descriptors whose close waits,
holders that never read, connections that are passed to other processes, floods. The agent must
still answer, and must restore the GPUs."""
import array
import ctypes
import json
import mmap
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import hanging_files
from agents import DEFAULT_W, LIMIT_S, AgentTest, exchange, send, wait_until

OK, INVALID, NOT_FOUND, ALREADY, DENIED, LIMITED, UNSUPPORTED = 0, 1, 3, 4, 5, 8, 11
POWER_LIMIT = 1  # of harpe_lease_power_request


def receive(own):
    """Returns an answer and its descriptor, or None in place of a missing descriptor."""
    data, received, _, _ = own.recvmsg(1 << 20, socket.CMSG_SPACE(4))
    files = array.array("i")
    for _, _, content in received:
        files.frombytes(content)
    return (json.loads(data) if data else None), (files[0] if files else None)


def socket_whose_close_waits():
    """Returns a TCP socket with SO_LINGER and data that nobody reads, and its peer. The last
    close() of the first socket waits for 10 minutes. The peer must stay open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = socket.create_connection(server.getsockname())
        peer = server.accept()[0]
    own.setblocking(False)
    try:
        while True:
            own.send(b"x" * 65536)
    except BlockingIOError:
        pass
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    return own, peer


class Attack(AgentTest):
    def setUp(self):
        super().setUp()
        self.uuid = self.machine.uuids()[0]

    def request(self, control, **changes):
        return dict({"version": 1, "request": "lease", "gpu": self.uuid, "control": control,
                     "memory": control == "clocks", "node": False, "dwell_ns": 0, "poll_ns": 20000,
                     "wait": False}, **changes)

    def memory(self):
        return super().memory(self.request("clocks"))

    def take(self, control, own=None, files=(), **changes):
        """Takes a lease and returns its socket."""
        own = own or self.connect()
        send(own, self.request(control, **changes), files)
        answer, lease = receive(own)
        self.assertEqual(answer["status"], OK, answer)
        lease = socket.socket(fileno=lease)
        self.addCleanup(lease.close)
        return lease

    def check_answers(self, agent, why):
        """Checks that the agent answers and does not wait for minutes because of an attack."""
        own = self.connect()
        send(own, {"version": 1, "request": "status"})
        readable, _, _ = select.select([own], [], [], LIMIT_S)
        if not readable:
            agent.kill()
            self.fail(f"the agent does not answer any more: {why}")
        self.assertEqual(receive(own)[0]["status"], OK)


class Descriptors(Attack):
    def test_a_descriptor_whose_close_waits(self):
        """The thread that closes the last descriptor of such a socket waits. It must not be the
        thread that answers all clients, whatever the request with the descriptor was."""
        for count, request in ((1, {"version": 1, "request": "status"}), (1, self.request("power", node=True)),
                               (1, self.request("clocks")), (4, b"{"), (20, b"{"), (200, b" " * 9000)):
            with self.subTest(count=count, request=request):
                agent = self.agent()
                slow, peer = socket_whose_close_waits()
                own = self.connect()
                # Stopped, so that this process does not have the last descriptor.
                agent.process.send_signal(signal.SIGSTOP)
                send(own, request, [slow.fileno()] * count)
                slow.close()
                agent.process.send_signal(signal.SIGCONT)
                self.check_answers(agent, "it closes a socket that lingers")
                own.close()
                self.check_answers(agent, "it closes a socket that lingers")
                peer.close()
                self.assertEqual(agent.stop(), 0)

    def test_a_descriptor_in_a_message_that_is_never_read(self):
        agent = self.agent()
        self.machine.faults.write_text("slow_set=300")
        slow, peer = socket_whose_close_waits()
        own = self.connect()
        self.check_answers(agent, "at the start")  # it has accepted the connection
        agent.process.send_signal(signal.SIGSTOP)
        send(own, self.request("power"))
        for _ in range(3):
            send(own, {"version": 1, "request": "x"}, [slow.fileno()])
        slow.close()
        own.close()
        agent.process.send_signal(signal.SIGCONT)
        self.check_answers(agent, "it drops a message with a socket that lingers")
        self.machine.faults.write_text("")
        self.check_restored(agent)
        self.check_answers(agent, "it drops a message with a socket that lingers")
        peer.close()

    def test_descriptors_for_zeusd_s_routes(self):
        path = self.machine.path / "zeusd.sock"
        request = b"GET /discover HTTP/1.1\r\nHost: x\r\n\r\n"
        long_head = request[:-2] + b"X: " + b"x" * 12000
        for first, second in ((request, b""), (request[:20], request[20:]), (b"x", b"x" * 70000), (request, request),
                              (long_head, b"\r\n\r\n")):
            for stays in (True, False):
                agent = self.agent("--zeusd-socket", path)
                slow, peer = socket_whose_close_waits()
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
                    own.connect(str(path))
                    own.setblocking(False)
                    agent.process.send_signal(signal.SIGSTOP)
                    if second:
                        own.send(first)
                    own.sendmsg([second or first], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                                     array.array("i", [slow.fileno()]))])
                    slow.close()
                    if not stays:
                        own.close()
                    agent.process.send_signal(signal.SIGCONT)
                    self.check_answers(agent, "zeusd's routes drop a socket that lingers")
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sound:
                    sound.connect(str(path))
                    sound.settimeout(LIMIT_S)
                    sound.send(request)
                    self.assertIn(b"200", sound.recv(1 << 16))
                self.assertEqual(agent.stop(), 0)
                peer.close()

    def test_no_descriptor_is_left(self):
        agent = self.agent()
        memory = self.memory()
        folder = pathlib.Path(f"/proc/{agent.process.pid}/fd")
        self.wait(lambda: agent.leases() == [], "an answer")
        before = len(list(folder.iterdir()))
        null = os.open("/dev/null", os.O_RDWR)
        self.addCleanup(os.close, null)
        for data in (b"{", b"[]", {"version": 1, "request": "status"}, self.request("power", node=True),
                     self.request("clocks"), self.request("clocks", gpu="x"), b" " * 9000):
            for count in (1, 4, 5, 100, 253):
                own = self.connect()
                try:
                    send(own, data, [memory, null] * (count // 2) + [memory] * (count % 2))
                    _, lease = receive(own)
                    if lease is not None:
                        os.close(lease)
                except ConnectionError:
                    pass
                own.close()
        for order in ([memory, null], [null, memory], [memory] * 4):
            own = self.connect()
            send(own, self.request("clocks", node=True), order)
            _, lease = receive(own)
            own.close()
            if lease is not None:
                os.close(lease)
            self.check_restored(agent)
        self.wait(lambda: len(list(folder.iterdir())) <= before, "the descriptors are closed")


class HangingFileSystem(Attack):
    """A client sends descriptors of a file system that it serves itself, and does not answer."""

    def check_nobody_waits(self, agent):
        self.check_answers(agent, "it uses a file of a file system that hangs")
        self.take("power").close()  # starts and ends a helper process
        self.wait(lambda: not [one for one in agent.leases() if one["gpu"] == 0], "the lease ends")
        for descriptor in pathlib.Path(f"/proc/{agent.process.pid}/fd").iterdir():
            try:
                self.assertFalse(os.readlink(descriptor).endswith("/F"))
            except OSError:  # it has just been closed
                pass

    def test_files_whose_use_waits(self):
        other = self.machine.uuids()[1]  # the client may get this GPU
        requests = ({"version": 1, "request": "status"}, {"version": 1, "request": "node", "gpu": other},
                    self.request("power", node=True, gpu=other), self.request("clocks", gpu=other))
        for hangs_at in (hanging_files.FLUSH, hanging_files.GETATTR, hanging_files.STATFS):
            files = hanging_files.HangingFiles(self.machine.path / "files", hangs_at)
            self.addCleanup(files.close)
            if files.reason:
                self.skipTest(files.reason)
            agent = self.agent()
            for request in requests:
                for copies in (1, 4, 9):
                    sender = files.send(self.machine.socket, json.dumps(request), copies)
                    self.check_nobody_waits(agent)
                    sender.kill()
                    self.check_nobody_waits(agent)
            self.assertEqual(agent.stop(), 0)
            agent = self.agent()  # nobody holds its lock
            self.check_nobody_waits(agent)
            self.assertEqual(agent.stop(), 0)
            files.close()

    def test_a_user_has_few_processes_that_wait(self):
        files = hanging_files.HangingFiles(self.machine.path / "files", hanging_files.FLUSH)
        self.addCleanup(files.close)
        if files.reason:
            self.skipTest(files.reason)
        agent = self.agent()
        for _ in range(20):
            files.send(self.machine.socket, json.dumps(self.request("clocks"))).kill()
        self.check_nobody_waits(agent)
        self.assertEqual(agent.stop(), 0)
        files.close()
        self.wait(lambda: not self.machine.processes("--agent-receiver"), "the receivers end")


class Holders(Attack):
    def test_a_holder_of_a_power_limit_who_reads_no_answers(self):
        """The helper process must not wait for such a holder: when the administrator ends the
        lease, the GPU is restored."""
        for end in ("restore", "stop"):
            agent = self.agent(rules="changes_per_second = 0\n")
            lease = self.take("power")
            lease.setblocking(False)
            sent = 0
            quiet_until = time.monotonic() + 1
            while sent < 100000 and time.monotonic() < quiet_until:
                try:
                    lease.send(struct.pack("II", POWER_LIMIT, 200000 + 1000 * (sent % 2)))
                    sent += 1
                    quiet_until = time.monotonic() + 1
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError:  # the lease has ended
                    break
            if end == "restore":
                self.assertEqual(self.machine.run("agent", "restore").returncode, 0)
                self.check_restored(agent)
            self.assertEqual(agent.stop(), 0)
            self.assertEqual(self.machine.limits(), [DEFAULT_W] * 2)
            self.assertEqual(self.machine.helpers(), [])

    def test_a_holder_of_clocks_who_reads_no_messages(self):
        agent = self.agent(rules="lowest_clock_mhz = 600\nchanges_per_second = 0\n")
        memory = self.memory()
        lease = self.take("clocks", files=[memory])
        with mmap.mmap(memory, 0) as slot:
            for number in range(1, 4000):
                slot[0:8] = struct.pack("<Q", number << 16 | (300 if number % 2 else 900 + 15 * (number // 2 % 2)))
                time.sleep(0.0005)
        self.assertEqual(self.machine.run("agent", "restore").returncode, 0)
        self.check_restored(agent)
        self.assertEqual(agent.stop(), 0)
        lease.close()

    def test_a_connection_whose_process_has_ended(self):
        """A process connects, passes the connection to another process, and ends. The agent cannot
        know which process asks now."""
        agent = self.agent()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = ("import socket, sys, array\n"
                  "own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                  "own.connect(sys.argv[1])\n"
                  "socket.socket(fileno=int(sys.argv[2])).sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, "
                  "array.array('i', [own.fileno()]))])\n")
        with ours, theirs:
            subprocess.run([sys.executable, "-c", script, self.machine.socket, str(theirs.fileno())], check=True,
                           pass_fds=[theirs.fileno()], timeout=LIMIT_S)
            files = array.array("i")
            files.frombytes(ours.recvmsg(1, socket.CMSG_SPACE(4))[1][0][2])
        with socket.socket(fileno=files[0]) as own:
            own.settimeout(LIMIT_S)
            try:
                answer = exchange(own, self.request("power"))
            except ConnectionError:
                answer = None
            self.assertNotEqual(answer and answer["status"], OK, answer)
        self.assertEqual(agent.leases(), [])
        self.assertNotIn("granted", agent.log())

    def test_a_lease_socket_that_outlives_its_holder(self):
        agent = self.agent()
        for control, touch in (("power", True), ("clocks", False)):
            lease, passed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            script = ("import sys, socket, array, os, time\n"
                      "sys.path.insert(0, sys.argv[1])\n"
                      "import test_attacks\n"
                      "case = test_attacks.Floods('test_refusals_do_not_fill_the_log')\n"
                      "case.machine = type('M', (), {'socket': sys.argv[2]})\n"
                      "case.uuid = sys.argv[3]\n"
                      "got = case.take(sys.argv[4], files=[case.memory()] if sys.argv[4] == 'clocks' else [])\n"
                      "out = socket.socket(fileno=int(sys.argv[5]))\n"
                      "out.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [got.fileno()]))])\n"
                      "time.sleep(1000)\n")
            with lease, passed, subprocess.Popen(
                    [sys.executable, "-c", script, pathlib.Path(__file__).resolve().parent, self.machine.socket,
                     self.uuid, control, str(passed.fileno())], pass_fds=[passed.fileno()]) as holder:
                files = array.array("i")
                files.frombytes(lease.recvmsg(1, socket.CMSG_SPACE(4))[1][0][2])
                with socket.socket(fileno=files[0]) as stolen:
                    if touch:
                        stolen.send(struct.pack("II", POWER_LIMIT, 200000))
                        self.wait(lambda: self.machine.limits()[0] == 200, "the limit")
                    holder.kill()
                    holder.wait()
                    self.check_restored(agent)

    def test_requests_without_pause_cost_little(self):
        """A holder stores requests without a pause, and none of them reaches the driver. This must
        not make the helper process run all the time."""
        agent = self.agent(rules="lowest_clock_mhz = 600\n")
        for poll_ns in (20000, -1):
            memory = self.memory()
            lease = self.take("clocks", files=[memory], poll_ns=poll_ns)
            helper, = self.machine.helpers()

            def used_s():
                fields = pathlib.Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            with mmap.mmap(memory, 0) as slot:
                # The child stores requests that are refused, and 0 into is_parked, in a loop.
                child = os.fork()
                if child == 0:
                    view = memoryview(slot)
                    requests, parked = view[0:8].cast("Q"), view[128:132].cast("I")
                    address = ctypes.addressof(ctypes.c_char.from_buffer(slot, 128))
                    number = 0
                    while True:
                        number += 1
                        requests[0] = number << 16 | 300
                        parked[0] = 0
                        if number % 1000 == 0:  # FUTEX_WAKE
                            ctypes.CDLL(None).syscall(202, ctypes.c_void_p(address), 1, 1, None, None, 0)
                start, cpu = time.monotonic(), used_s()
                time.sleep(3)
                share = (used_s() - cpu) / (time.monotonic() - start)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            self.assertLess(share, 0.6)
            lease.close()
            self.check_restored(agent)


class HostileAgent(Attack):
    def test_answers_with_too_many_descriptors(self):
        """A client closes descriptors that it did not expect, or refuses the answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server, open("/dev/null", "rb") as null:
            server.settimeout(LIMIT_S)
            server.bind(str(self.machine.socket))
            server.listen()
            job = self.machine.start("agent", "hold", "--wait", "--clock", 900, "--", "true", stderr=subprocess.DEVNULL)
            self.addCleanup(job.wait)
            self.addCleanup(job.kill)
            counts = []
            own, _ = server.accept()
            with own:  # hold asks for the GPUs first
                own.recv(1 << 16)
                send(own, {"version": 1, "status": 0, "gpus": []}, [null.fileno()] * 3)
            for _ in range(4):
                own, _ = server.accept()
                with own:
                    own.recv(1 << 16)
                    send(own, {"version": 1, "status": 0, "node": None}, [null.fileno()] * 3)
                    own.recv(1 << 16)
                    counts.append(len(os.listdir(f"/proc/{job.pid}/fd")))
                    send(own, {"version": 1, "status": ALREADY, "message": "taken"}, [null.fileno()] * 3)
            self.assertEqual(len(set(counts)), 1, counts)


class StateDirectory(Attack):
    def test_a_state_directory_of_others(self):
        """Other users could write a file there that names any process as a helper process, and the
        agent would end that process when it stops."""
        with subprocess.Popen(["sleep", "infinity"]) as victim:
            self.addCleanup(victim.kill)
            process = {"process": victim.pid, "start_ticks": 0, "namespace": os.stat("/proc/self/ns/pid").st_ino}
            self.machine.state.mkdir()
            (self.machine.state / f"{self.uuid}.clocks.lease").write_text(json.dumps(
                {"lease": 1, "gpu": self.uuid, "control": "clocks", "since_s": 1, "holder": process, "helper": process,
                 "uid": 0, "command": "x", "job": ""}))
            os.chmod(self.machine.state, 0o777)
            agent = self.agent(ready=False)
            code = None
            if wait_until(lambda: agent.process.poll() is not None or agent.status() is not None) is not None:
                code = agent.process.poll() if agent.process.poll() is not None else agent.stop()
            self.assertIsNone(victim.poll(), "the agent has ended a process that another user named")
            self.assertEqual(code, 1)
            self.assertIn("other users can write to this state directory", agent.log())
            victim.kill()


class Floods(Attack):
    def test_refusals_do_not_fill_the_log(self):
        agent = self.agent()
        begin = time.monotonic()
        for number in range(3000):
            if number % 100 == 0:  # the agent closes a connection after a minute
                own = self.connect()
            self.assertNotEqual(exchange(own, self.request("power", gpu=f"GPU-{number}"))["status"], OK)
        lines = agent.log().count("refused process")
        self.assertGreaterEqual(lines, 1)
        # It writes the first five lines and then one line a second.
        self.assertLess(lines, 10 + time.monotonic() - begin, "a line for each refused request")

    def test_what_a_client_sends_makes_no_lines(self):
        agent = self.agent()
        exchange(self.connect(), self.request("power", gpu="x\nharpe: agent: lease 9: \x1b[2J granted\u2028"))
        exchange(self.connect(), self.request("\nharpe: agent: lease 9: granted"))
        for line in agent.log().splitlines():
            self.assertNotIn("\x1b", line)
            self.assertFalse(line.startswith("harpe: agent: lease 9"), agent.log())
