# SPDX-License-Identifier: Apache-2.0
"""Starts jobs that have a lease of an emulated GPU, and kills all processes of each job at a random
moment: some jobs during slow driver calls, some together with the agent, and some with the agent
and its helper processes. Measures when the GPU is restored. The tests and bench/kill_jobs use it."""
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "client"))
import kills

SLOW_SET = "slow_set=100"  # ms


class World:
    """A machine with one emulated GPU and an agent. `path` is an empty directory."""

    def __init__(self, build, path):
        self.machine = kills.Machine(build)
        self.path = pathlib.Path(path)
        self.machine.environment["HARPE_AGENT_SOCKET"] = str(self.path / "agent.sock")
        self.faults = self.path / "faults"
        self.faults.write_text("")
        self.groups = Groups(self.path.name)
        self.start_agent()

    def start_agent(self):
        """Starts an agent, and returns the time of the start."""
        log = open(self.path / "agent.log", "a", encoding="utf-8")
        started_at = time.monotonic()
        self.agent = subprocess.Popen([self.machine.build / "harpe", "agent", "--state-dir", self.path / "state"],
                                      env=dict(self.machine.environment, HARPE_EMULATOR_FAULTS_FILE=str(self.faults)),
                                      stderr=log, start_new_session=True)
        log.close()
        return started_at

    def wait_for_agent(self):
        reached = lambda: subprocess.run([self.machine.build / "harpe", "agent", "status"], capture_output=True,
                                         env=self.machine.environment, check=False).returncode == 0
        if self.machine.wait_until(reached, kills.LIMIT_S) is None:
            raise RuntimeError("the agent does not answer")

    def helpers(self):
        return self.machine.controllers()

    def close(self):
        self.agent.terminate()
        status = self.agent.wait(kills.LIMIT_S)
        self.machine.close()
        self.groups.close()
        return status


class Groups:
    """Kills all processes of a job at once: with cgroup.kill if it can make cgroups, and otherwise
    with one signal to the process group."""

    def __init__(self, name):
        self.folder = pathlib.Path("/sys/fs/cgroup") / f"harpe-{name}"
        try:
            self.folder.mkdir()
            self.is_possible = (self.folder / "cgroup.kill").exists()
        except OSError:
            self.is_possible = False

    def join(self, process):
        if self.is_possible:
            (self.folder / "cgroup.procs").write_text(str(process.pid))

    def kill(self, process):
        if self.is_possible:
            (self.folder / "cgroup.kill").write_text("1")
        else:
            os.killpg(process.pid, signal.SIGKILL)

    def close(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class Outcome:
    def __init__(self, within_s):
        self.within_s = within_s
        self.kinds = {}

    def add(self, kind, took_s):
        self.kinds.setdefault(kind, []).append(took_s)

    def failures(self):
        return sum(took is None or took > self.within_s for times in self.kinds.values() for took in times)

    def never(self):
        return sum(took is None for times in self.kinds.values() for took in times)

    def __str__(self):
        lines = []
        for kind, times in sorted(self.kinds.items()):
            known = sorted(took for took in times if took is not None)
            middle = known[len(known) // 2] * 1e3 if known else float("nan")
            longest = known[-1] * 1e3 if known else float("nan")
            late = sum(took is None or took > self.within_s for took in times)
            lines.append(f"{kind}: {len(times)} jobs, restored after {middle:.0f} ms at the median and {longest:.0f} ms "
                         f"at most, {late} later than {self.within_s:g} s")
        return "\n".join([*lines, f"{self.never()} left changed"])


def kill_once(world, outcome, choose, slow_set, with_agent, with_helpers):
    """Starts a job, kills all its processes, and waits until the GPU is restored. Measures the time
    from the kill, or from the start of the next agent if the agent was killed."""
    machine = world.machine
    world.faults.write_text(SLOW_SET if slow_set else "")
    process = machine.start()
    world.groups.join(process)
    process.stdout.readline()  # "starting"
    if choose.random() < 0.8:
        process.stdout.readline()  # "training"; otherwise also kills during the start
        process.stdin.write("train\n")
    time.sleep(choose.uniform(0, 0.7 if slow_set else 0.15))
    victims = ([world.agent.pid] if with_agent else []) + (world.helpers() if with_helpers else [])
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):  # a helper process that has just ended
            os.kill(victim, signal.SIGKILL)
    world.groups.kill(process)
    begun_at = time.monotonic()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    if with_agent:
        world.agent.wait()
        begun_at = world.start_agent()
    is_back = machine.wait_until(machine.is_restored, kills.LIMIT_S) is not None
    took_s = time.monotonic() - begun_at
    # A controller that was still starting may change the GPU once more before it restores it.
    is_quiet = machine.wait_until(lambda: not world.helpers(), kills.LIMIT_S) is not None
    if not machine.is_restored():
        machine.wait_until(machine.is_restored, kills.LIMIT_S)
        took_s = time.monotonic() - begun_at
    kind = "job, agent and helpers" if with_helpers else "job and agent" if with_agent else "job"
    outcome.add(kind + (", slow calls" if slow_set else ""),
                took_s if is_back and is_quiet and machine.is_restored() else None)
    if with_agent:
        world.wait_for_agent()


def kill_many(world, count, seed, within_s, progress=lambda done: None):
    """Kills many jobs. A quarter of the jobs have slow driver calls. A fifth of the jobs are killed
    together with the agent, and half of these also with the helper processes."""
    choose = random.Random(seed)
    outcome = Outcome(within_s)
    world.wait_for_agent()
    for done in range(count):
        with_agent = done % 5 == 4
        kill_once(world, outcome, choose, done % 4 == 3, with_agent, with_agent and done % 10 == 9)
        progress(done + 1)
    return outcome
