# SPDX-License-Identifier: Apache-2.0
"""Runs the published programs for bench.py's part `peers`: lowtime, and the server and the monitor
of Zeus. pip installs them once, in the versions of requirements.txt, into a virtual environment below build/."""
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "build" / "peers" / "venv"
REQUIREMENTS = HERE / "requirements.txt"
LIMIT_S = 3600
# Prints the processor time of a window of the monitor in argv[1], `zeus` or `harpe`.
WINDOWS = """
import importlib, json, sys, time
monitor = importlib.import_module(sys.argv[1] + ".monitor").ZeusMonitor()
for count in (100, 2000):
    began_s = time.process_time()
    for _ in range(count):
        monitor.begin_window("step", sync_execution=False)
        monitor.end_window("step", sync_execution=False)
print(json.dumps({"window_us": (time.process_time() - began_s) / count * 1e6}))
"""


class NotInstalled(Exception):
    """pip cannot install the programs. The text says why."""


def _installed():
    python, stamp = FOLDER / "bin" / "python", FOLDER / "installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(FOLDER, ignore_errors=True)
    print("bench: installing lowtime and Zeus with pip (about 120 MB)", file=sys.stderr)
    for command in ((sys.executable, "-m", "venv", FOLDER),
                    (python, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary",
                     ":all:", "--retries", "1", "--disable-pip-version-check", "--requirement",
                     REQUIREMENTS)):
        done = subprocess.run([*map(str, command)], text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no message"]
            raise NotInstalled(f"pip cannot install lowtime and Zeus: {lines[-1]}")
    stamp.write_text(wanted)
    return python


def python():
    """Returns the path of a Python that has both. Raises NotInstalled."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{FOLDER}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _installed()


def _json_of(*command, **environment):
    done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, check=False,
                          env=dict(os.environ, **environment), timeout=LIMIT_S)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))} failed")
    return json.loads(done.stdout)


def lowtime(profile, stages, microbatches, blocking_w, has_plans):
    """Returns what lowtime_frontier.py prints."""
    return _json_of(python(), "-W", "ignore", HERE / "lowtime_frontier.py", profile, "--stages",
                    stages, "--microbatches", microbatches, "--blocking", blocking_w,
                    *([] if has_plans else ["--no-plans"]))


def server(bench_server, program, is_published):
    """Returns the medians of one run of the load generator with `program` as the server."""
    environment = {"HARPE_PEERS_PYTHON": str(python())} if is_published else {}
    found = _json_of(bench_server, "--brief", "--runs", "1", "--json", "--harpe", program,
                     **environment)
    return {key: value["median"] for key, value in found.items()}


def window_us(program, gpus, module):
    """Returns the processor time of a window of ZeusMonitor on emulated GPUs. `module` is `zeus` or `harpe`."""
    root = HERE.parent.parent
    return _json_of(program, "emulate", "--gpus", gpus, "--", python(), "-W", "ignore", "-c",
                    WINDOWS, module, PYTHONPATH=str(root / "python"),
                    HARPE_LIBRARY=str(program.parent / "libharpe.so"))["window_us"]
