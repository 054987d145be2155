# SPDX-License-Identifier: Apache-2.0
"""Tests what the processes of the node agent carry: the libraries that they map, and the privileges
that they keep. Both are ceilings by name, so a new library or a new capability makes a test fail.
SECURITY.md gives the reason for each entry."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

import agents
from process_groups import end_group

# What the loader maps for harpe-agent.
LINKED = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libc.so.6", "libjansson.so.4", "libm.so.6",
          "linux-vdso.so.1", "libssl.so.3", "libcrypto.so.3"}
# What a running agent loads besides: the driver's library, which is the emulator here, and the modules
# that /etc/nsswitch.conf names for users and groups, with their libraries.
DRIVER = {"libnvidia-ml.so.1"}
KEPT = {"cap_sys_admin": 21}
SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
PROGRAM = agents.BUILD / "harpe-agent"
ZEUSD = pathlib.Path(os.environ.get("HARPE_ZEUSD_DAEMON", agents.BUILD / "tests" / "zeusd_daemon"))


def ldd(file):
    """Returns the names of the libraries that a program or library needs, those of its libraries included."""
    listed = subprocess.run(["ldd", file], text=True, capture_output=True, check=True).stdout
    return {os.path.basename(line.split()[0]) for line in listed.splitlines()}


def mapped(process):
    """Returns the paths of the libraries that a process maps."""
    lines = pathlib.Path(f"/proc/{process}/maps").read_text().splitlines()
    return {line.split(None, 5)[5] for line in lines if ".so" in line}


def is_one_of(path, names):
    """Returns true for a file with one of the names. The file of libc.so.6 may be libc.so.6.1."""
    name = os.path.basename(path)
    return any(name == one or name.startswith(one + ".") for one in names)


def status(process):
    """Returns the lines of /proc/PID/status by name."""
    lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def names_of_users():
    """Returns the modules for names of users that a process of this machine may map, with their libraries."""
    found = {path.name: path for path in pathlib.Path("/lib").glob("*/libnss_*.so.2")}
    return set(found).union(*map(ldd, found.values()))


class Processes(unittest.TestCase):
    """An agent, and a helper process of each kind."""

    def setUp(self):
        self.machine = agents.Machine("1xA100")
        self.addCleanup(self.machine.close)
        self.agent = agents.Agent(self.machine)
        self.addCleanup(self.agent.close)
        self.holder = self.machine.start("agent", "hold", "--clock", 900, "--power-limit", 300, "--",
                                         "sh", "-c", "echo held; exec sleep infinity", stdout=subprocess.PIPE)
        self.addCleanup(end_group, self.holder)
        self.assertEqual(self.holder.stdout.readline(), "held\n")
        helpers = [lease["helper"] for lease in self.agent.leases()]
        self.assertEqual(len(helpers), 2)
        self.processes = [self.agent.process.pid, *helpers]

    def test_each_process_is_the_agent_s_own_program(self):
        for process in self.processes:
            self.assertEqual(os.readlink(f"/proc/{process}/exe"), str(PROGRAM))

    def test_each_process_maps_only_the_libraries_it_needs(self):
        allowed = LINKED | DRIVER | names_of_users()
        for process in self.processes:
            found = mapped(process)
            self.assertTrue(any(is_one_of(path, DRIVER) for path in found))  # the list is that of the process
            self.assertEqual([path for path in found if not is_one_of(path, allowed)], [])

    def test_each_process_keeps_only_the_privileges_it_needs(self):
        wanted = sum(1 << number for number in KEPT.values())
        own = int(status("self")["CapEff"], 16)
        for process in self.processes:
            found = status(process)
            self.assertEqual(found["NoNewPrivs"], "1")
            for name in SETS:
                # Without CAP_SETPCAP the bounding set stays; without new privileges it gives nothing.
                if name != "CapBnd" or own:
                    self.assertEqual(int(found[name], 16) & ~wanted, 0, f"{process}: {name} {found[name]}")
            self.assertEqual(int(found["CapEff"], 16), own & wanted)


class Program(unittest.TestCase):
    def test_it_is_linked_with_the_libraries_it_needs(self):
        self.assertEqual(ldd(PROGRAM) - LINKED, set())

    def test_harpe_agent_is_this_program(self):
        for arguments, code in (("--help", 0), ("--usage", 0), ("--zeusd-key=x", 2), ("nothing", 2), ("--nothing", 2)):
            by_name = subprocess.run([agents.BUILD / "harpe", "agent", arguments], text=True, capture_output=True)
            itself = subprocess.run([PROGRAM, arguments], text=True, capture_output=True)
            self.assertEqual((by_name.returncode, by_name.stdout, by_name.stderr),
                             (code, itself.stdout, itself.stderr))
            self.assertNotIn("harpe-agent:", itself.stderr)

    def test_a_missing_program_is_named(self):
        with agents.tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(agents.BUILD / "harpe", folder)
            done = subprocess.run([alone, "agent"], text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"^harpe agent: the program harpe-agent is neither in .*\n$")

    def test_a_document_gives_the_reason_for_each_capability(self):
        text = (pathlib.Path(os.environ["HARPE_SOURCE_DIR"]) / "SECURITY.md").read_text(encoding="utf-8")
        listed = set(re.findall(r"^\| (CAP_\w+) \|", text, re.MULTILINE))
        self.assertEqual(listed, {name.upper() for name in KEPT})


class DeadZeusd(unittest.TestCase):
    def test_a_change_through_zeusd_is_restored_through_the_driver(self):
        machine = agents.Machine("1xA100")
        self.addCleanup(machine.close)
        address = machine.path / "zeusd.sock"
        # A zeusd of others does not claim GPUs, so the claims of this one are in another place.
        own = machine.variables(LD_PRELOAD=str(agents.BUILD / "tests" / "private_records.so"),
                                HARPE_TEST_RECORDS=str(machine.path / "records"))
        zeusd = subprocess.Popen([ZEUSD, "--unix", address, "--no-restore"], env=own, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(end_group, zeusd)
        self.assertRegex(zeusd.stdout.readline(), "^ready")
        job = machine.start("agent", "hold", "--clock", 900, "--", "sh", "-c", "echo held; exec sleep infinity",
                            stdout=subprocess.PIPE,
                            gpu_environment={"ZEUSD_SOCK_PATH": str(address), "HARPE_AGENT_SOCKET": "",
                                             "HARPE_EMULATOR_FAULTS": "no_permission"})
        self.addCleanup(end_group, job)
        self.assertEqual(job.stdout.readline(), "held\n")
        controller, = machine.helpers()
        os.kill(controller, signal.SIGSTOP)  # so that it does not see the end of the job
        os.killpg(job.pid, signal.SIGKILL)
        os.kill(controller, signal.SIGKILL)
        zeusd.kill()
        self.assertEqual(machine.clocks(), [900])
        agent = agents.Agent(machine)
        self.addCleanup(agent.close)
        self.assertEqual(machine.clocks(), [agents.IDLE_MHZ])
        self.assertIn("restored what process", agent.log())


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
class Administrators(unittest.TestCase):
    def test_root_with_only_what_the_agent_keeps_is_no_administrator(self):
        machine = agents.Machine("1xA100")
        self.addCleanup(machine.close)
        agent = agents.Agent(machine)
        self.addCleanup(agent.close)
        restore = [machine.harpe, "agent", "restore"]
        kept = ",".join("+" + name.removeprefix("cap_") for name in KEPT)
        less = ["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all"]
        done = subprocess.run([*less, *restore], env=machine.environment, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("only root may end", done.stderr)
        done = subprocess.run(restore, env=machine.environment, text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
