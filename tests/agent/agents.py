# SPDX-License-Identifier: Apache-2.0
"""Starts node agents and jobs on emulated GPUs, and reads the state of the GPUs with the emulated
nvidia-smi. The tests of the agent and bench/kill_jobs use it."""
import array
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
LIMIT_S = 120  # how long the tests wait; they check whether something happens, and not how fast
IDLE_MHZ, HIGHEST_MHZ = 210, 1410  # clocks of an emulated A100 without a lock and without work
DEFAULT_W = 400
NOT_EXIST_UID = 64007  # a user without privileges and without a name


def wait_until(reached, within_s=LIMIT_S, pause_s=0.002):
    """Returns the seconds until reached() is true, or None."""
    start = time.monotonic()
    while not reached():
        if time.monotonic() - start > within_s:
            return None
        time.sleep(pause_s)
    return time.monotonic() - start


def open_files(process):
    """Returns what the descriptors of a process refer to, such as a path or "socket:[1234]". The
    process may open and close files meanwhile."""
    found = set()
    for descriptor in os.listdir(f"/proc/{process}/fd"):
        try:
            found.add(os.readlink(f"/proc/{process}/fd/{descriptor}"))
        except FileNotFoundError:  # it is closed since the list was read
            pass
    return found


class Machine:
    """Emulated GPUs with a name of their own, and a directory for the sockets of agents."""
    count = 0

    def __init__(self, gpus="2xA100", build=BUILD, time_scale=1):
        Machine.count += 1
        self.build = build
        self.harpe = build / "harpe"
        self.folder = tempfile.TemporaryDirectory(prefix="harpe-agent-test-")
        self.path = pathlib.Path(self.folder.name)
        os.chmod(self.path, 0o755)
        self.socket = self.path / "agent.sock"
        self.state = self.path / "state"
        self.cluster = f"agent-{os.getpid()}-{Machine.count}"
        names = ("HARPE_EMULATOR_FAULTS", "HARPE_EMULATOR_FAULTS_FILE", "CUDA_VISIBLE_DEVICES",
                 "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT", "ZEUSD_TOKEN", "NOTIFY_SOCKET", "WATCHDOG_USEC")
        self.environment = {name: value for name, value in os.environ.items() if name not in names}
        self.environment.update(HARPE_NVML_LIBRARY=str(build / "emulator" / "libnvidia-ml.so.1"),
                                HARPE_EMULATOR_GPUS=gpus, HARPE_EMULATOR_CLUSTER=self.cluster,
                                HARPE_EMULATOR_TIME_SCALE=str(time_scale),
                                HARPE_PROGRAM=str(self.harpe), HARPE_AGENT_SOCKET=str(self.socket))
        self.faults = self.path / "faults"
        self.faults.write_text("")
        # A process that keeps the emulated machine on. Without such a process, GPUs lose their
        # locks.
        self.keeper = self.start("agent", "hold", "--clock", HIGHEST_MHZ, "--", "sleep", "infinity",
                                 gpu_environment={"HARPE_EMULATOR_CLUSTER": self.cluster + "-other",
                                                  "HARPE_AGENT_SOCKET": ""})

    def variables(self, **changes):
        return dict(self.environment, **changes)

    def start(self, *arguments, gpu_environment=None, **popen):
        variables = self.variables(**(gpu_environment or {}))
        return subprocess.Popen([self.harpe, *map(str, arguments)], env=variables, text=True,
                                start_new_session=True, **popen)

    def run(self, *arguments, **changes):
        return subprocess.run([self.harpe, *map(str, arguments)], env=self.variables(**changes), text=True,
                              capture_output=True, timeout=LIMIT_S, check=False)

    def query(self, *names):
        """Returns the values of each GPU, as nvidia-smi prints them."""
        smi = self.build / "emulator" / "bin" / "nvidia-smi"
        done = subprocess.run([smi, "--query-gpu=" + ",".join(names), "--format=csv,noheader,nounits"],
                              env=self.environment, text=True, capture_output=True, timeout=LIMIT_S, check=True)
        return [[value.strip() for value in line.split(",")] for line in done.stdout.splitlines()]

    def clocks(self):
        return [int(row[0]) for row in self.query("clocks.gr")]

    def limits(self):
        return [float(row[0]) for row in self.query("power.limit")]

    def limits_of(self, uuid):
        return next(float(limit) for found, limit in self.query("uuid", "power.limit") if found == uuid)

    def uuids(self):
        return [row[0] for row in self.query("uuid")]

    def processes(self, word):
        """Returns the processes of this machine that have this argument."""
        mine = f"HARPE_EMULATOR_CLUSTER={self.cluster}".encode()
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (word.encode() in (folder / "cmdline").read_bytes().split(b"\0") and
                        mine in (folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def helpers(self):
        return self.processes("--controller-process") + self.processes("--guard-process")

    def close(self):
        os.killpg(self.keeper.pid, signal.SIGKILL)
        self.keeper.wait()
        for name in (self.cluster, self.cluster + "-other"):
            pathlib.Path(f"/dev/shm/harpe-emulator-{os.getuid()}-{name}").unlink(missing_ok=True)
        self.folder.cleanup()


def unexpected(stderr):
    """Returns the lines of a command that should have printed none. On a busy machine a command may
    say that it does not wait longer for the restored GPU, which is no fault."""
    return [line for line in stderr.splitlines() if "has not reported in 3 s that the GPU is restored" not in line]


class Agent:
    """A running agent. `rules` is the text of its configuration."""

    def __init__(self, machine, *arguments, rules="", ready=True, **changes):
        self.machine = machine
        self.config = machine.path / "agent.conf"
        self.config.write_text(rules)
        self.log_path = machine.path / "agent.log"
        self.log_file = open(self.log_path, "a", encoding="utf-8")
        self.process = machine.start("agent", "--config", self.config, "--state-dir", machine.state, *arguments,
                                     gpu_environment=dict({"HARPE_EMULATOR_FAULTS_FILE": str(machine.faults)},
                                                          **changes),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log_file)
        if ready and wait_until(lambda: self.status() is not None or self.process.poll() is not None) is None:
            raise RuntimeError("the agent does not start: " + self.log())

    def log(self):
        return self.log_path.read_text(encoding="utf-8")

    def ask(self, request, files=()):
        """Sends one request and returns the answer, or None if nobody answers."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as own:
            own.settimeout(LIMIT_S)
            try:
                own.connect(str(self.machine.socket))
                return exchange(own, request, files)
            except OSError:
                return None

    def status(self):
        return self.ask({"version": 1, "request": "status"})

    def leases(self):
        return self.status()["leases"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def close(self):
        if self.process.poll() is None:
            self.stop()
        self.log_file.close()


class AgentTest(unittest.TestCase):
    """Tests of agents on the GPUs of one machine."""
    gpus = "2xA100"

    def setUp(self):
        self.machine = Machine(self.gpus)
        self.addCleanup(self.machine.close)

    def agent(self, *arguments, **options):
        agent = Agent(self.machine, *arguments, **options)
        self.addCleanup(agent.close)
        return agent

    def wait(self, condition, what):
        if wait_until(condition) is None:
            log = self.machine.path / "agent.log"
            self.fail(f"never: {what}\n{log.read_text() if log.exists() else ''}")

    def wait_for_clock(self, mhz, gpu=0):
        self.wait(lambda: self.machine.clocks()[gpu] == mhz, f"GPU {gpu} at {mhz} MHz")

    def wait_for_limit(self, watts, gpu=0):
        self.wait(lambda: self.machine.limits()[gpu] == watts, f"GPU {gpu} at {watts} W")

    def check_restored(self, agent=None):
        self.wait(lambda: set(self.machine.clocks()) == {IDLE_MHZ} and
                  set(self.machine.limits()) == {float(DEFAULT_W)}, "every GPU is restored")
        self.wait(lambda: not self.machine.helpers(), "no helper process is left")
        if agent:
            self.wait(lambda: agent.leases() == [], "no lease is left")
            self.assertLessEqual(set(os.listdir(self.machine.state)), {"agent.lock"})

    def connect(self):
        own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(own.close)
        own.settimeout(LIMIT_S)
        own.connect(str(self.machine.socket))
        return own

    def memory(self, request, size=None, seals=0x0007):
        """Returns memory with the seals that the library sets: F_SEAL_SEAL, F_SEAL_SHRINK,
        F_SEAL_GROW. `request` asks for clocks."""
        number = os.memfd_create("slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, number)
        os.ftruncate(number, size or self.slot_size(request))
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, seals)
        return number

    def slot_size(self, request):
        """Returns the size that the agent names when it refuses memory."""
        answer = exchange(self.connect(), request)
        return int(answer["message"].split("sealed memory of ")[1].split()[0])


def send(own, request, files=()):
    """Sends a request, an object or bytes, with descriptors."""
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    own.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else [])


def exchange(own, request, files=()):
    """Sends a request with descriptors. Returns the answer."""
    send(own, request, files)
    answer, received, _, _ = own.recvmsg(1 << 20, socket.CMSG_SPACE(16))
    for level, kind, content in received:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers = array.array("i")
            numbers.frombytes(content[:len(content) - len(content) % numbers.itemsize])
            for number in numbers:
                os.close(number)
    return json.loads(answer) if answer else None
