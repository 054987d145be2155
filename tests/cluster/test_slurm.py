# SPDX-License-Identifier: Apache-2.0
"""Tests the node agent together with Debian's Slurm. Jobs of a user without privileges take leases
from the agent. The GPU's clock is restored whatever way Slurm ends a job. The agent and its
controllers are not part of the job, so Slurm does not end them. The GPUs are emulated."""
import ctypes
import json
import os
import pathlib
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "client")]
import kills
import slurm

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
USER = "nobody"  # the job's user: it has no privilege
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable  # the user may be unable to read another
GPUS = 5
ATTEMPTS = 5
LIMIT_GPU = 4  # of the job that meets its time limit, which is at least a minute long
# The clock of a GPU after a job: an idle A40 without a lock has its lowest clock.
FOUND_MHZ, HELD_MHZ = kills.LOWEST_MHZ, 900


class Emulated:
    """Reads the clocks of the emulated GPUs that the agent controls."""

    def __init__(self, library):
        self.nvml = ctypes.CDLL(str(library))
        if self.nvml.nvmlInit_v2() != 0:
            raise RuntimeError("the emulated driver does not start")
        self.handles = []
        for index in range(GPUS):
            handle = ctypes.c_void_p()
            self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            self.handles.append(handle)

    def clock(self, gpu):
        """Returns the locked clock, or else the lowest one."""
        value = ctypes.c_uint()
        code = self.nvml.nvmlDeviceGetClockInfo(self.handles[gpu], 0, ctypes.byref(value))
        if code != 0:
            raise RuntimeError(f"NVML error {code}")
        return value.value


class Ending(threading.Thread):
    """Notes when the holder of a lease ends, and when the clock of its GPU is restored."""

    def __init__(self, emulated, gpu, holder):
        super().__init__(daemon=True)
        self.emulated, self.gpu = emulated, gpu
        self.pidfd = os.pidfd_open(holder)
        self.ended_at = self.back_at = self.asked_at = None
        self.start()

    def run(self):
        give_up_at = time.monotonic() + 2 * slurm.LIMIT_S
        while time.monotonic() < give_up_at and (self.ended_at is None or self.back_at is None):
            if self.ended_at is None and select.select([self.pidfd], [], [], 0)[0]:
                self.ended_at = time.monotonic()
            if self.emulated.clock(self.gpu) != FOUND_MHZ:
                self.back_at = None
            elif self.back_at is None:
                self.back_at = time.monotonic()
            time.sleep(0.001)
        os.close(self.pidfd)

    def finish(self):
        self.join()
        if self.ended_at is None or self.back_at is None:
            raise AssertionError(f"GPU {self.gpu}: holder ended: {self.ended_at}, clock restored: {self.back_at}")
        return self.back_at - self.ended_at


class SlurmJobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="harpe-slurm-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.folder.chmod(0o755)
        user = pwd.getpwnam(USER)
        (cls.folder / "jobs").mkdir()
        os.chown(cls.folder / "jobs", user.pw_uid, user.pw_gid)
        cls.copy_program()
        cls.cluster = f"slurm-{os.getpid()}"
        cls.environment = {
            "HARPE_AGENT_SOCKET": str(cls.folder / "agent.sock"), "HARPE_EMULATOR_GPUS": f"{GPUS}xA40",
            "HARPE_EMULATOR_CLUSTER": cls.cluster, "HARPE_PROGRAM": str(cls.folder / "program" / "harpe"),
            "HARPE_NVML_LIBRARY": str(cls.folder / "program" / "libnvidia-ml.so.1"),
            "LD_LIBRARY_PATH": str(cls.folder / "program")}
        os.environ.update(cls.environment)
        cls.addClassCleanup(cls.remove_memory)
        cls.emulated = Emulated(cls.environment["HARPE_NVML_LIBRARY"])
        cls.start_agent()
        cls.slurm = slurm.Slurm(cls.folder)
        cls.addClassCleanup(cls.slurm.stop)
        cls.slurm.start()

    @classmethod
    def copy_program(cls):
        """Copies what the job's user needs, because it may be unable to read the build directory."""
        program = cls.folder / "program"
        program.mkdir()
        for file in ("harpe", "harpe-agent", "emulator/libnvidia-ml.so.1"):
            shutil.copy(BUILD / file, program)
        shutil.copy(BUILD / "libharpe.so", program / "libharpe.so")
        shutil.copy(BUILD / "libharpe.so", program / "libharpe.so.0")
        (cls.folder / "trainer.py").write_text(kills.TRAINER)

    @classmethod
    def remove_memory(cls):
        for path in pathlib.Path("/dev/shm").glob(f"harpe-emulator-*-{cls.cluster}"):
            path.unlink(missing_ok=True)

    @classmethod
    def start_agent(cls):
        rules = cls.folder / "agent.conf"
        rules.write_text("allow_users = *\nleases_per_second = 0\n")
        cls.log = cls.folder / "agent.out"
        with open(cls.log, "ab") as output:
            cls.agent = subprocess.Popen([cls.environment["HARPE_PROGRAM"], "agent", "--config", rules,
                                          "--state-dir", cls.folder / "leases"],
                                         stdout=output, stderr=output, start_new_session=True)
        cls.addClassCleanup(cls.stop_agent)
        slurm.wait_until(lambda: "lends" in cls.log.read_text(), "the agent lends GPUs")

    @classmethod
    def stop_agent(cls):
        if cls.agent.poll() is None:
            cls.agent.send_signal(signal.SIGTERM)
        if cls.agent.wait(slurm.LIMIT_S) != 0:
            raise AssertionError(cls.log.read_text())

    # ---- Jobs

    def leases(self):
        done = subprocess.run([self.environment["HARPE_PROGRAM"], "agent", "status", "--json"], check=True,
                              stdout=subprocess.PIPE, text=True, timeout=slurm.LIMIT_S)
        return json.loads(done.stdout)["leases"]

    def lease_of(self, job):
        """Waits until the job has a lease, and returns it."""
        def find():
            return [lease for lease in self.leases() if lease["state"] == "lent" and
                    lease["process"] in self.slurm.processes_of(job)]
        try:
            return slurm.wait_until(find, f"job {job} has a lease")[0]
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self.slurm.job(job)}\n{self.slurm.output(job)}\n"
                                 f"{self.log.read_text()}\n{self.slurm.logs()}") from None

    def submit(self, script, *options):
        # The user cannot change GPUs itself.
        environment = dict(self.environment, HARPE_EMULATOR_FAULTS="no_permission")
        job = self.slurm.submit(USER, script, environment, *options)
        self.addCleanup(self.cancel, job)
        self.jobs.append(job)
        return job

    def cancel(self, job):
        subprocess.run(["scancel", "--quiet", "--signal=KILL", "--full", str(job)], env=self.slurm.environment,
                       stderr=subprocess.DEVNULL)
        slurm.wait_until(lambda: not self.slurm.processes_of(job), f"job {job} has ended")

    def hold(self, gpu, *options, before=""):
        """Submits a job that holds a clock, and waits until the clock is set. On a busy machine, `agent hold`
        may give up after 10 s; then the next job is tried."""
        for _ in range(ATTEMPTS):
            job = self.submit(f"{before}\nexec \"$HARPE_PROGRAM\" agent hold --gpu {gpu} --clock {HELD_MHZ} -- sleep 1000\n",
                              *options)
            if self.is_held(job, gpu, 0):
                break
        return job, self.watch(job, gpu)

    def is_held(self, job, gpu, earlier):
        """Waits until the job's clock is set, or until `agent hold` has given up more often than
        `earlier`."""
        failures = lambda: self.slurm.output(job).count("the clock is not set after")
        slurm.wait_until(lambda: self.emulated.clock(gpu) == HELD_MHZ or failures() > earlier,
                         lambda: f"job {job} holds the clock of GPU {gpu}: {self.slurm.output(job)}")
        return failures() == earlier

    def train(self, gpu, before=""):
        """Submits a job that changes the clock 2000 times a second."""
        job = self.submit(f"{before}\n(echo train; sleep 1000) | CUDA_VISIBLE_DEVICES={gpu} "
                          f"{PYTHON} {self.folder}/trainer.py {self.folder}/program/libharpe.so\n")
        return job, self.watch(job, gpu)

    def watch(self, job, gpu):
        lease = self.lease_of(job)
        self.assertEqual(lease["gpu"], gpu)
        self.assertEqual(lease["uid"], pwd.getpwnam(USER).pw_uid)
        slurm.wait_until(lambda: self.emulated.clock(gpu) != FOUND_MHZ, f"the clock of GPU {gpu} is set")
        return Ending(self.emulated, gpu, lease["process"])

    def check_back(self, way, job, ending):
        took_s = ending.finish()
        text = f"{took_s * 1000:.0f} ms after" if took_s >= 0.001 else "before or within 1 ms of"
        since = f", {(ending.back_at - ending.asked_at) * 1000:.0f} ms after the command" if ending.asked_at else ""
        print(f"{way}: GPU restored {text} the end of its holder{since}", flush=True)
        slurm.wait_until(lambda: not [each for each in self.leases() if each["gpu"] == ending.gpu],
                         "the lease has ended")
        self.assertEqual(self.emulated.clock(ending.gpu), FOUND_MHZ)
        self.assertIsNone(self.agent.poll())

    def slurm_does(self, ending, *command):
        ending.asked_at = time.monotonic()
        self.slurm.call(*command)

    def state(self, job):
        return self.slurm.job(job)["JobState"]

    # ---- Ways in which jobs end

    def test_ways_in_which_slurm_ends_a_job(self):
        self.jobs = []
        limited, ending_of_limited = self.hold(LIMIT_GPU, "--time=1")
        for check in (self.check_lease_names_job, self.check_scancel_of_a_trainer,
                      self.check_scancel_of_a_job_that_ignores_sigterm, self.check_scancel_with_sigkill,
                      self.check_every_process_killed, self.check_every_process_of_a_trainer_killed,
                      self.check_drain_and_requeue):
            self.jobs = []
            with self.subTest(check.__name__):
                check()
            for job in self.jobs:
                self.cancel(job)
        self.check_back("time limit", limited, ending_of_limited)
        slurm.wait_until(lambda: self.state(limited) == "TIMEOUT", "Slurm has ended the job at its time limit")

    def check_lease_names_job(self):
        job, ending = self.hold(0)
        # Without cgroups, only the job itself says to which job a process belongs.
        self.assertEqual(self.lease_of(job)["job"], f"Slurm job {job} (as it says)")
        self.slurm_does(ending, "scancel", str(job))
        self.check_back("scancel", job, ending)

    def check_scancel_of_a_trainer(self):
        job, ending = self.train(1)
        self.slurm_does(ending, "scancel", str(job))
        self.check_back("scancel of a trainer", job, ending)

    def check_scancel_of_a_job_that_ignores_sigterm(self):
        job, ending = self.train(2, before="trap '' TERM CONT")
        self.slurm_does(ending, "scancel", str(job))
        self.check_back("scancel of a trainer that ignores SIGTERM", job, ending)

    def check_scancel_with_sigkill(self):
        job, ending = self.hold(3)
        self.slurm_does(ending, "scancel", "--signal=KILL", "--full", str(job))
        self.check_back("scancel --signal=KILL --full", job, ending)

    def kill_everything(self, way, job, ending):
        processes = self.slurm.processes_of(job)
        # the script or `hold`, what it runs, and slurmstepd
        self.assertGreaterEqual(len(processes), 3)
        ending.asked_at = time.monotonic()
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.check_back(way, job, ending)

    def check_every_process_killed(self):
        self.kill_everything("kill -9 of every process of the job", *self.hold(0))

    def check_every_process_of_a_trainer_killed(self):
        self.kill_everything("kill -9 of every process of a trainer's job", *self.train(1))

    def check_drain_and_requeue(self):
        node = f"NodeName={self.slurm.host}"
        job, ending = self.hold(2, "--requeue")
        self.slurm.call("scontrol", "update", node, "State=DRAIN", "Reason=test")
        self.slurm_does(ending, "scontrol", "requeue", str(job))
        self.check_back("drain and requeue", job, ending)
        slurm.wait_until(lambda: self.state(job) == "PENDING", "the job waits")
        self.slurm.call("scontrol", "update", node, "State=RESUME")
        for failures in range(ATTEMPTS):
            self.slurm.call("scontrol", "update", f"JobId={job}", "StartTime=now")
            if self.is_held(job, 2, failures):
                break
            slurm.wait_until(lambda: self.state(job) == "FAILED", "the job has failed")
            self.slurm.call("scontrol", "requeue", str(job))
            slurm.wait_until(lambda: self.state(job) == "PENDING", "the job waits again")
        again = self.watch(job, 2)  # the job takes the GPU again
        self.slurm_does(again, "scancel", str(job))
        self.check_back("scancel of the requeued job", job, again)


if __name__ == "__main__":
    if slurm.missing():
        print(f"skipped: {slurm.missing()}")
        sys.exit(77)
    unittest.main()
