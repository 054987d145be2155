# SPDX-License-Identifier: Apache-2.0
"""The common part of the tests of the Python package: the package, the built library, emulated GPUs
in a cluster of their own, and a monitor that replays a measured log."""
import csv
import os
import pathlib
import re
import socket
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", SOURCE / "build" / "release")).resolve()
DATA = pathlib.Path(os.environ.get("HARPE_DATA", SOURCE.parent / "shared" / "data"))
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "tests" / "power_limit")]
sys.path.append(str(SOURCE / "tests"))
os.environ["PYTHONPATH"] = str(SOURCE / "python")
os.environ["HARPE_LIBRARY"] = str(BUILD / "libharpe.so.0")

import kills  # noqa: E402


def machine(gpus="4xA40", time_scale=1000):
    """Emulated GPUs for this process and its children. The caller closes them."""
    return kills.Machine(BUILD, gpus, time_scale)


class MachineTest(unittest.TestCase):
    """One emulated machine for all tests of a class."""

    gpus, time_scale = "4xA40", 1000

    @classmethod
    def setUpClass(cls):
        cls.machine = machine(cls.gpus, cls.time_scale)
        cls.addClassCleanup(cls.machine.close)


def python(script, *arguments, **environment):
    """Runs a script in a separate Python. Returns the completed process."""
    return subprocess.run([sys.executable, "-c", script, *map(str, arguments)], text=True, timeout=600,
                          env=dict(os.environ, **environment), capture_output=True, check=False)


def reserve_port(test):
    """Returns a port of 127.0.0.1 that no other program gets before the test ends. The processes of the
    test can listen on it with SO_REUSEADDR, as PyTorch does."""
    reserved = socket.socket()
    test.addCleanup(reserved.close)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return str(reserved.getsockname()[1])


def run_ranks(test, count, command, environment=os.environ, **options):
    """Runs the processes as torchrun does. Returns what each has written to standard output and error."""
    port = reserve_port(test)
    ranks = [subprocess.Popen([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=dict(environment, OMP_NUM_THREADS="1", RANK=str(rank), LOCAL_RANK=str(rank),
                                       WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=port), **options)
             for rank in range(count)]
    try:
        written = [rank.communicate(timeout=900) for rank in ranks]
    finally:
        [rank.kill() for rank in ranks]
    for rank, (_, errors) in zip(ranks, written):
        test.assertEqual(rank.returncode, 0, errors)
    return written


class ReplayMonitor:
    """Returns the log's values for the window's power limit, as if they had been measured now."""

    def __init__(self, path):
        from harpe.monitor import Measurement
        self.windows, self.open = {}, None
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                energy = {int(name[3:-7]): float(value) for name, value in row.items()
                          if re.fullmatch(r"gpu\d+_energy", name)}
                self.windows[row["window_name"]] = Measurement(float(row["elapsed_time"]), energy)
        self.gpu_indices = sorted(energy)

    def begin_window(self, key, sync_execution=True):
        assert self.open is None, self.open
        self.open = key

    def end_window(self, key, sync_execution=True, cancel=False):
        assert self.open == key, (self.open, key)
        self.open = None
        return self.windows[key]
