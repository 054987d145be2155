# SPDX-License-Identifier: Apache-2.0
"""Starts the node agent as its systemd unit does: with the unit's capabilities and no others, and
with the protocols for notify services and for the watchdog. Kills it and starts it again. systemd
itself does not run here; the test reads the unit and follows it. The GPUs are emulated."""
import ctypes
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["HARPE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["HARPE_BINARY_DIR"]).resolve()
UNIT = SOURCE / "packaging" / "harpe-agent.service.in"
LIMIT_S = 120
ATTEMPTS = 5
LOWEST_MHZ, HELD_MHZ = 210, 900  # of the emulated A40


def settings():
    """Returns the settings of the unit, with all values of a name that occurs more than once."""
    found = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def wait_until(reached, what):
    give_up_at = time.monotonic() + LIMIT_S
    while not reached():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {LIMIT_S} s: {what}")
        time.sleep(0.02)


def effective_capabilities(process):
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    raise AssertionError("no CapEff")


class Unit(unittest.TestCase):
    def test_the_unit_is_well_formed_and_confined(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze not found: apt-get install systemd")
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            unit = pathlib.Path(folder, "harpe-agent.service")
            unit.write_text(UNIT.read_text().replace("@HARPE_AGENT_PROGRAM@", str(BUILD / "harpe-agent")))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=30", "--no-pager", unit],
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            print(done.stdout.strip().splitlines()[-1])
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_controllers_outlive_the_agent(self):
        unit = settings()
        self.assertEqual(unit["KillMode"], ["process"])
        self.assertEqual(unit["RuntimeDirectory"] + unit["RuntimeDirectoryMode"] + unit["RuntimeDirectoryPreserve"],
                         ["harpe", "0755", "yes"])
        # The agent itself gives up after 60 s.
        self.assertGreater(int(unit["TimeoutStopSec"][0]), 60)


needs_root = unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")


class Machine(unittest.TestCase):
    """An emulated GPU, and the agent as the unit starts it."""

    rules = ""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="harpe-service-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.folder.chmod(0o755)
        (self.folder / "run").mkdir()
        for file in (BUILD / "harpe", BUILD / "harpe-agent", BUILD / "emulator" / "libnvidia-ml.so.1"):
            shutil.copy(file, self.folder)
        self.cluster = f"service-{os.getpid()}"
        self.addCleanup(self.remove_memory)
        self.environment = dict(os.environ, HARPE_AGENT_SOCKET=str(self.folder / "run" / "agent.sock"),
                                HARPE_EMULATOR_GPUS="1xA40", HARPE_EMULATOR_CLUSTER=self.cluster,
                                HARPE_PROGRAM=str(self.folder / "harpe"),
                                HARPE_NVML_LIBRARY=str(self.folder / "libnvidia-ml.so.1"))
        os.environ.update(self.environment)
        self.nvml = ctypes.CDLL(self.environment["HARPE_NVML_LIBRARY"])
        self.assertEqual(self.nvml.nvmlInit_v2(), 0)
        self.addCleanup(self.nvml.nvmlShutdown)
        self.gpu = ctypes.c_void_p()
        self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.gpu))
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.notices.close)
        self.notices.bind(str(self.folder / "notify"))
        self.notices.settimeout(LIMIT_S)

    def remove_memory(self):
        for path in pathlib.Path("/dev/shm").glob(f"harpe-emulator-*-{self.cluster}"):
            path.unlink()

    def clock(self):
        """Returns the locked clock, or else the lowest one."""
        value = ctypes.c_uint()
        self.assertEqual(self.nvml.nvmlDeviceGetClockInfo(self.gpu, 0, ctypes.byref(value)), 0)
        return value.value

    def start_agent(self, **environment):
        allowed = settings()["CapabilityBoundingSet"][0].lower().replace("cap_", "+").replace(" ", ",")
        rules = self.folder / "agent.conf"
        rules.write_text("allow_users = *\n" + self.rules)
        agent = subprocess.Popen(["setpriv", f"--bounding-set=-all,{allowed}", "--inh-caps=-all", "--no-new-privs",
                                  self.folder / "harpe-agent", "--config", rules,
                                  "--state-dir", self.folder / "leases"], stderr=subprocess.DEVNULL,
                                 env=dict(self.environment, NOTIFY_SOCKET=str(self.folder / "notify"), **environment))
        self.addCleanup(self.end, agent)
        while self.notices.recv(100) != b"READY=1":
            pass  # the agent may tell the watchdog first
        return agent

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()

    def start_job(self):
        """Starts a job of a user without privileges, and waits until its clock is set. On a busy machine,
        `agent hold` may give up, because the clock is not set within 10 s; then the next one is tried."""
        for _ in range(ATTEMPTS):
            job = subprocess.Popen([self.folder / "harpe", "agent", "hold", "--clock", str(HELD_MHZ), "--",
                                    "sh", "-c", "echo held; exec sleep 1000"], stdout=subprocess.PIPE, text=True,
                                   user="nobody", group=pwd.getpwnam("nobody").pw_gid, extra_groups=[],
                                   cwd="/", start_new_session=True,
                                   env=dict(self.environment, HARPE_EMULATOR_FAULTS="no_permission"))
            self.addCleanup(job.stdout.close)
            self.addCleanup(self.end, job)
            self.addCleanup(lambda job=job: os.killpg(job.pid, signal.SIGKILL) if job.poll() is None else None)
            if job.stdout.readline() == "held\n":
                break
        wait_until(lambda: self.clock() == HELD_MHZ, "the clock is set")
        return job


@needs_root
class Service(Machine):
    def test_the_capabilities_of_the_unit_are_enough_for_a_job_of_another_user(self):
        agent = self.start_agent()
        self.assertEqual(effective_capabilities(agent.pid), 1 << 21)  # CAP_SYS_ADMIN and no other
        job = self.start_job()
        os.killpg(job.pid, signal.SIGKILL)
        wait_until(lambda: self.clock() == LOWEST_MHZ, "the clock is restored")

    def test_a_killed_agent_leaves_the_clock_to_the_job_and_the_next_agent_continues(self):
        agent = self.start_agent()
        job = self.start_job()
        agent.kill()  # as KillMode=process does: this process alone
        agent.wait()
        time.sleep(0.5)
        self.assertEqual(self.clock(), HELD_MHZ)
        agent = self.start_agent()
        self.assertEqual(self.clock(), HELD_MHZ)
        status = subprocess.run([self.folder / "harpe", "agent", "status", "--json"], env=self.environment, text=True,
                                stdout=subprocess.PIPE, check=True, timeout=LIMIT_S).stdout
        self.assertIn(f'"process": {job.pid}', status.replace('":', '": ').replace(":  ", ": "))
        os.killpg(job.pid, signal.SIGKILL)
        wait_until(lambda: self.clock() == LOWEST_MHZ, "the clock is restored")

    def test_job_and_agent_killed_together(self):
        agent = self.start_agent()
        job = self.start_job()
        controllers = [int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*") if self.is_controller(path)]
        self.assertEqual(len(controllers), 1)
        for process in (agent.pid, *controllers):
            os.kill(process, signal.SIGKILL)
        os.killpg(job.pid, signal.SIGKILL)
        agent.wait()
        self.assertEqual(self.clock(), HELD_MHZ)
        self.start_agent()
        wait_until(lambda: self.clock() == LOWEST_MHZ, "the next agent restores the clock")

    def is_controller(self, path):
        try:
            return (b"--controller-process" in (path / "cmdline").read_bytes().split(b"\0") and
                    str(self.folder).encode() in (path / "environ").read_bytes())
        except OSError:
            return False

    def test_sigterm_restores_before_the_agent_ends(self):
        agent = self.start_agent()
        self.start_job()
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait(LIMIT_S), 0)
        self.assertEqual(self.clock(), LOWEST_MHZ)
        self.assertEqual(self.notices.recv(100), b"STOPPING=1")

    def test_the_watchdog_hears_of_the_agent(self):
        self.start_agent(WATCHDOG_USEC="200000")
        for _ in range(5):
            self.assertEqual(self.notices.recv(100), b"WATCHDOG=1")


@needs_root
class Container(Machine):
    """Root in a container: it has fewer capabilities than the agent, and may see no device node."""

    IN_CONTAINER = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"]

    def setUp(self):
        super().setUp()
        nodes = self.folder / "dev"
        nodes.mkdir()
        (nodes / "nvidia0").write_text("")
        (nodes / "nvidia0").chmod(0o666)
        self.rules = f"device_directory = {nodes}\n"
        self.start_agent()

    def run_as_root(self, *command):
        return subprocess.run([str(word) for word in command], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)

    def hold(self, *before, command=("true",)):
        """Runs `agent hold` after the words `before`. It runs again if it gives up on a busy machine."""
        for _ in range(ATTEMPTS):
            done = self.run_as_root(*before, self.folder / "harpe", "agent", "hold", "--clock", HELD_MHZ, "--", *command)
            if "the clock is not set after" not in done.stdout:
                break
        return done

    def test_root_without_the_device_node_gets_no_gpu(self):
        hidden = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {self.folder}/dev && exec \"$@\"", "sh"]
        done = self.hold(*hidden, *self.IN_CONTAINER)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cannot open", done.stdout)
        # Another file with the name of the node is not the node.
        other = f"mount -t tmpfs none {self.folder}/dev && : >{self.folder}/dev/nvidia0 && exec \"$@\""
        done = self.hold("unshare", "--mount", "sh", "-c", other, "sh", *self.IN_CONTAINER)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("does not prove", done.stdout)

    def test_root_with_the_device_node_gets_the_gpu(self):
        done = self.hold(*self.IN_CONTAINER)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_read_only_mount_of_the_directory_is_enough(self):
        run = self.folder / "run"
        bound = f"mount --bind {run} {run} && mount -o remount,ro,bind {run} && exec \"$@\""
        done = self.hold("unshare", "--mount", "sh", "-c", bound, "sh",
                         command=("sh", "-c", f"! touch {run}/new"))
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_only_a_full_root_ends_the_leases_of_others(self):
        job = self.start_job()
        restore = [self.folder / "harpe", "agent", "restore"]
        done = self.run_as_root(*self.IN_CONTAINER, *restore)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("only root may end", done.stdout)
        self.assertEqual(self.clock(), HELD_MHZ)
        self.assertIsNone(job.poll())
        done = self.run_as_root(*restore)
        self.assertEqual(done.returncode, 0, done.stdout)
