# SPDX-License-Identifier: Apache-2.0
"""Runs `harpe train-sim` for the tests. Each run has a temporary directory of its own and must leave
nothing behind: no file, no shared memory, no process."""
import time

from program import HARPE, LIMIT_S, ProgramTest, environment, json, os, pathlib, subprocess


def processes_with(mark):
    """Returns the processes whose environment contains the mark of this test."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" "))
        except OSError:
            pass
    return found


class Simulation(ProgramTest):
    count = 0

    def setUp(self):
        super().setUp()
        Simulation.count += 1
        self.mark = f"HARPE_TEST_MARK=train-sim-{os.getpid()}-{Simulation.count}"
        name, value = self.mark.split("=")
        self.variables = environment(TMPDIR=str(self.path), **{name: value})

    def sim(self, *arguments, before=(), stderr=subprocess.PIPE):
        self.process = subprocess.Popen([*before, HARPE, "train-sim", *map(str, arguments)],
                                        env=self.variables, text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=stderr)
        self.addCleanup(self.process.communicate)
        self.addCleanup(self.process.kill)
        return self.process

    def finish(self, code=0):
        out, err = self.process.communicate(timeout=LIMIT_S)
        self.assertEqual(self.process.returncode, code, out + err)
        self.nothing_is_left()
        return out, err

    def nothing_is_left(self):
        until = time.monotonic() + LIMIT_S
        while processes_with(self.mark) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(processes_with(self.mark), [])
        self.assertEqual(self.files(), [])
        memory = f"harpe-emulator-{os.getuid()}-emulate-{self.process.pid}"
        self.assertFalse(os.path.exists(f"/dev/shm/{memory}"))

    def ranks_other_than(self, those, count=4):
        """Waits for `count` ranks that are not in `those`, and returns them. A rank is a child that
        runs no other program."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            found = set()
            for child in self.children():
                try:
                    line = pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
                except OSError:
                    continue
                if b"\0train-sim\0" in line:
                    found.add(child)
            if len(found - those) == count:
                return found - those
            time.sleep(0.01)
        self.fail("no ranks")

    def children(self):
        path = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {int(pid) for pid in path.read_text().split()}

    def report(self, *arguments, **options):
        self.sim("--json", *arguments, **options)
        out, self.err = self.finish()
        return json.loads(out)

    def as_predicted(self, measured, percent=0.01):
        for value in ("time", "energy"):
            self.assertLess(abs(measured[f"{value}_error_percent"]), percent, measured)
