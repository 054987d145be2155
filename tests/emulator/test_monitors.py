#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs third-party monitors on emulated GPUs: gpustat, nvitop, GPUtil and codecarbon, from PyPI.
HARPE_MONITORS_PYTHON names a Python that has them. Otherwise they are installed into a virtual
environment in the build folder if possible. A missing monitor is skipped with a line."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from nvml_client import HARPE

BUILD = pathlib.Path(os.environ.get("HARPE_MONITORS_BUILD", "build"))
# codecarbon is large, and is tested only if it is already installed.
PACKAGES = {"gpustat": "gpustat", "nvitop": "nvitop", "GPUtil": "gputil"}
MODULES = (*PACKAGES, "codecarbon")
TIMEOUT_S = 240


def environment(**more):
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith(("HARPE_", "LD_PRELOAD", "CUDA_"))}
    return {**kept, "COLUMNS": "200", **more}


def has(python, module):
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def make_python():
    """Creates a virtual environment with the monitors that pip can install."""
    folder = BUILD / "venv"
    python = folder / "bin" / "python3"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
    for module, package in (*PACKAGES.items(), ("setuptools", "setuptools")):
        # GPUtil needs distutils, which setuptools provides in Python 3.12
        if not has(python, module):
            subprocess.run([python, "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "20",
                            package], capture_output=True, timeout=TIMEOUT_S, check=False)
    return str(python)


def find_python():
    named = os.environ.get("HARPE_MONITORS_PYTHON")
    if named or all(has(sys.executable, module) for module in PACKAGES):
        return named or sys.executable
    try:
        return make_python()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no virtual environment: {error}", file=sys.stderr)
        return sys.executable


PYTHON = find_python()
FOUND = {module for module in MODULES if has(PYTHON, module)}
for missing in set(MODULES) - FOUND:
    print(f"skipped: {missing} is not installed, and pip cannot bring it here", file=sys.stderr)
if not FOUND:
    sys.exit(77)

# Real GPUs of a model differ.
PHYSICS = os.environ.get("HARPE_TEST_PHYSICS", "ideal")
IDLE_W = (55, 85) if PHYSICS == "ideal" else (40, 105)

# Keeps GPU 1 busy while a program reads.
BUSY = """
import ctypes, os, subprocess, sys
nvml = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])
nvml.harpe_emulator_open_context(1, ctypes.c_uint64(5 << 30))
nvml.nvmlInit_v2()
result = subprocess.run(sys.argv[1:])
sys.exit(result.returncode)
"""


class MonitorsTest(unittest.TestCase):
    def emulate(self, *command, gpus="2xA100"):
        result = subprocess.run([HARPE, "emulate", "-g", gpus, "--physics", PHYSICS, "--", *command],
                                capture_output=True, text=True, timeout=TIMEOUT_S,
                                env=environment(), check=False)
        self.assertEqual(result.returncode, 0, (result.stdout, result.stderr))
        return result.stdout

    def python(self, code, **options):
        return self.emulate(PYTHON, "-c", code, **options)

    @unittest.skipUnless("gpustat" in FOUND, "gpustat is missing")
    def test_gpustat_shows_gpus_and_who_uses_them(self):
        out = self.emulate(PYTHON, "-c", BUSY, PYTHON, "-m", "gpustat", "--json")
        gpus = json.loads(out)["gpus"]
        self.assertEqual([gpu["name"] for gpu in gpus], ["NVIDIA A100-SXM4-80GB"] * 2)
        self.assertEqual([gpu["enforced.power.limit"] for gpu in gpus], [400, 400])
        self.assertTrue(all(IDLE_W[0] < gpu["power.draw"] < IDLE_W[1] for gpu in gpus), gpus)
        self.assertEqual([len(gpu["processes"]) for gpu in gpus], [0, 1])
        self.assertEqual(gpus[1]["processes"][0]["gpu_memory_usage"], 5 << 10)

    @unittest.skipUnless("nvitop" in FOUND, "nvitop is missing")
    def test_nvitop_shows_gpus_once(self):
        out = self.emulate(PYTHON, "-c", BUSY, PYTHON, "-m", "nvitop", "--once", "--ascii",
                           gpus="A100,H100")
        self.assertIn("570.86.15", out)
        self.assertIn("H100", out)
        self.assertRegex(out, r"\d+W / 700W")
        self.assertRegex(out, r"5\.00GiB|5120(\.0)?MiB")

    @unittest.skipUnless("GPUtil" in FOUND, "GPUtil is missing")
    def test_gputil_reads_the_emulators_nvidia_smi(self):
        out = self.python("import GPUtil, json\nprint(json.dumps([[g.id, g.uuid, g.load, g.memoryTotal, "
                          "g.memoryUsed, g.driver, g.name, g.temperature] for g in GPUtil.getGPUs()]))",
                          gpus="V100,2xA40")
        gpus = json.loads(out)
        self.assertEqual([gpu[0] for gpu in gpus], [0, 1, 2])
        self.assertEqual([gpu[3] for gpu in gpus], [32768, 49152, 49152])
        self.assertEqual({gpu[2] for gpu in gpus}, {0})
        self.assertEqual(gpus[1][6], "NVIDIA A40")
        self.assertTrue(all(20 < gpu[7] < 60 for gpu in gpus), gpus)

    @unittest.skipUnless("codecarbon" in FOUND, "codecarbon is missing")
    def test_codecarbon_measures_what_the_gpus_draw(self):
        out = self.python(
            "import time, logging\nfrom codecarbon.core.gpu import *\n"
            "from codecarbon.core.units import Time\n"
            "all = AllGPUDevices()\nall.start() if hasattr(all, 'start') else None\n"
            "begin = time.monotonic(); time.sleep(2)\n"
            "seconds = time.monotonic() - begin\n"
            "delta = all.get_delta(Time.from_seconds(seconds))\n"
            "print([d['delta_energy_consumption'].kWh * 3.6e6 / seconds for d in delta])")
        powers = json.loads(out.strip().splitlines()[-1])
        self.assertEqual(len(powers), 2)
        for power_w in powers:  # counters move every 50 ms
            self.assertTrue(IDLE_W[0] < power_w < IDLE_W[1] + 2, powers)
