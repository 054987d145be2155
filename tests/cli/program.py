# SPDX-License-Identifier: Apache-2.0
"""Runs the program under test. The common part of all files in tests/cli. Each test gets an empty
directory of its own. HARPE names the program."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from fixtures import folder  # noqa: E402
SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR", HERE.parent.parent))
HARPE = os.path.abspath(os.environ.get("HARPE", SOURCE / "build" / "release" / "harpe"))
DATA = pathlib.Path(os.environ.get("HARPE_DATA", SOURCE.parent / "shared" / "data"))
LIMIT_S = 600  # of every wait: far more than a loaded machine needs


def environment(**changes):
    values = dict(os.environ)
    values.update(changes)
    return values


class Result:
    def __init__(self, process, out, err):
        self.code = process.returncode
        self.out = out
        self.err = err

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.path = folder(self.addCleanup)

    def run_harpe(self, *arguments, **popen):
        popen.setdefault("env", environment())
        popen.setdefault("stdout", subprocess.PIPE)
        process = subprocess.Popen([HARPE, *map(str, arguments)], cwd=self.path, text=True,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **popen)
        out, err = process.communicate(timeout=LIMIT_S)
        return Result(process, out, err)

    def succeed(self, *arguments, **popen):
        result = self.run_harpe(*arguments, **popen)
        self.assertEqual(result.code, 0, result)
        return result

    def wait_until(self, condition, what):
        end = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), end, f"never: {what}")
            time.sleep(0.01)

    def files(self):
        """Returns everything below the test's directory, including hidden and temporary files."""
        return sorted(str(p.relative_to(self.path)) for p in self.path.rglob("*"))

    def refuse(self, code, message, *arguments, **popen):
        """Checks that the command fails with this code, prints one line that contains `message` on
        stderr and nothing on stdout, and leaves the files unchanged."""
        before = self.files()
        result = self.run_harpe(*arguments, **popen)
        self.assertEqual(result.code, code, result)
        self.assertEqual(result.out or "", "", result)
        self.assertEqual(result.err.count("\n"), 1, result)
        self.assertTrue(result.err.endswith("\n"), result)
        self.assertTrue(result.err.startswith("harpe"), result)
        self.assertIn(message, result.err)
        self.assertEqual(self.files(), before)
        return result

    def write(self, name, content):
        path = self.path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        return name

    def profile(self, name="profile.csv", stages=4, *more):
        self.succeed("synth", "--stages", stages, "--quiet", "--output", name, *more)
        return name


def rows(path):
    """Returns a CSV file without quotes as a list of dictionaries."""
    lines = pathlib.Path(path).read_text().splitlines()
    names = lines[0].split(",")
    return [dict(zip(names, line.split(","))) for line in lines[1:]]


__all__ = ["DATA", "HARPE", "LIMIT_S", "ProgramTest", "Result", "SOURCE", "environment", "rows",
           "signal", "subprocess", "unittest", "os", "pathlib", "json"]
