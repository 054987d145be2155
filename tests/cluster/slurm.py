# SPDX-License-Identifier: Apache-2.0
"""Slurm on one machine, for tests: munged, slurmctld and slurmd in a directory of their own, with free
ports and without cgroups. Needs root, because slurmd starts jobs of other users. Needs Debian's
packages munge, slurmctld, slurmd and slurm-client. No service of the machine is used or changed."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

LIMIT_S = 180  # how long a test waits for an event
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol")
SEARCHED = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

CONFIGURATION = """
ClusterName=harpe-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
MailProg=/bin/true
ReturnToService=2
KillWait=2
SlurmctldTimeout=300
SlurmdTimeout=300
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
"""


def missing():
    """Returns why Slurm cannot run here, or None."""
    if os.geteuid() != 0:
        return "Slurm's slurmd needs root"
    absent = [name for name in PROGRAMS if not shutil.which(name, path=SEARCHED)]
    if absent:
        return (f"{', '.join(absent)} not found: apt-get install --no-install-recommends "
                "munge slurmctld slurmd slurm-client")
    try:
        socket.getaddrinfo("127.0.0.1", 1, family=socket.AF_INET, flags=socket.AI_ADDRCONFIG)
    except OSError:
        return "Slurm finds no address: the machine has no network interface besides the loopback"
    return None


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_until(reached, what, within_s=LIMIT_S):
    give_up_at = time.monotonic() + within_s
    while True:
        value = reached()
        if value:
            return value
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {within_s} s: {what() if callable(what) else what}")
        time.sleep(0.02)


class Slurm:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.host = socket.gethostname().split(".")[0]
        self.daemons = []
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"), PATH=SEARCHED)
        for name in list(self.environment):
            if name.startswith(("SLURM_", "SBATCH_")) and name != "SLURM_CONF":
                del self.environment[name]

    def start(self):
        (self.folder / "state").mkdir(mode=0o700)
        (self.folder / "spool").mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        controller_port, node_port = free_ports(2)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            folder=self.folder, host=self.host, controller_port=controller_port, node_port=node_port))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.run_daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                        f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                        f"--seed-file={self.folder}/munged.seed")
        wait_until((self.folder / "munge.socket").exists, "munged's socket")
        self.run_daemon("slurmctld", "-D", "-i")
        self.run_daemon("slurmd", "-D")
        wait_until(lambda: "IDLE" in self.node_state(), lambda: f"the node is idle\n{self.logs()}")

    def run_daemon(self, name, *arguments):
        output = open(self.folder / f"{name}.out", "wb")
        self.daemons.append(subprocess.Popen([shutil.which(name, path=SEARCHED), *arguments], env=self.environment,
                                             stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                             start_new_session=True))
        output.close()

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}"
                         for path in sorted(self.folder.glob("*.out")) + sorted(self.folder.glob("*.log")))

    def call(self, *command, **more):
        done = subprocess.run(command, env=self.environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd=self.folder, timeout=LIMIT_S, **more)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}\n{self.logs()}")
        return done.stdout

    def node_state(self):
        done = subprocess.run(["scontrol", "-o", "show", "node", self.host], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        words = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
        return words.get("State", "")

    def submit(self, user, script, environment, *options):
        """Submits a batch script of a user, and returns the number of the job."""
        path = self.folder / f"job-{time.monotonic_ns()}.sh"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        output = self.folder / "jobs"
        done = subprocess.run(["sbatch", "--parsable", f"--uid={user}", "--ntasks=1", "--cpus-per-task=1",
                               f"--chdir={output}", f"--output={output}/%j.out", "--open-mode=append",
                               *options, str(path)],
                              env={**self.environment, **environment}, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S)
        if done.returncode != 0:
            raise AssertionError(f"sbatch: {done.stdout}\n{self.logs()}")
        return int(done.stdout.split()[-1])

    def job(self, number):
        words = self.call("scontrol", "-o", "show", "job", str(number)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def output(self, number):
        path = self.folder / "jobs" / f"{number}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def processes_of(self, number):
        """Returns the processes of a job: those that have its number in their environment, and the
        slurmstepd processes that started them. The test is root and may read all environments."""
        own = str(self.folder).encode()  # another Slurm on this machine may have a job with this number
        mark = f"SLURM_JOB_ID={number}".encode()
        step = f"slurmstepd: [{number}.".encode()
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes()
                if own in environment and (mark in environment.split(b"\0") or
                                           (folder / "cmdline").read_bytes().startswith(step)):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found
