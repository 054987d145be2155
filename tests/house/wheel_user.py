#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses an installed wheel as its user does: plans, draws, serves with and without TLS, trains on
emulated GPUs, runs a rank of a job, and runs a script under `harpe run`. wheel.py runs this file in
environments that have Python and the wheel, and nothing else of Harpe. It prints one JSON object with
what must be the same everywhere.

Usage: wheel_user.py <version> <folder with my_scheduler.py> <certificate of localhost> <its key>
"""
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request

LIMIT_S = 600
MICROBATCHES = 4
RANK = """
import sys, time
from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
url, ca_file = sys.argv[1:]
optimizer = PipelineFrequencyOptimizer(rank=0, dp_rank=0, pp_rank=0, tp_rank=0, device_id=0, dp_degree=1,
                                       pp_degree=1, tp_degree=1, world_size=1, server_url=url,
                                       ca_file=ca_file, strict=True)
optimizer.wait_for_round(0, 600)
for _ in range(3):
    optimizer.on_step_begin()
    for kind in ["forward", "backward"] * 4:
        optimizer.on_instruction_begin(kind)
        time.sleep(0.002)
        optimizer.on_instruction_end(kind)
    optimizer.on_step_end()
until = time.monotonic() + 600
while optimizer.status().clock_writes == 0:
    assert time.monotonic() < until, optimizer.status()
    time.sleep(0.01)
optimizer.close()
"""
MONITOR = """
import time
from harpe.monitor import ZeusMonitor
monitor = ZeusMonitor(gpu_indices=[0, 1])
monitor.begin_window("all")
time.sleep(0.5)
window = monitor.end_window("all")
print(len(window.gpu_energy), window.total_energy > 0)
"""
TRAINER = """
class TrainerCallback:
    pass
class Handler:
    def __init__(self):
        self.callbacks = []
class Trainer:
    def __init__(self):
        self.callback_handler = Handler()
    def add_callback(self, callback):
        self.callback_handler.callbacks.append(callback)
    def train(self):
        return [type(one).__module__ for one in self.callback_handler.callbacks]
    def evaluate(self):
        pass
"""
TRAIN = "from transformers.trainer import Trainer; print(Trainer().train())"


def run(*command, code=0, **options):
    result = subprocess.run([*map(str, command)], text=True, timeout=LIMIT_S, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, **options)
    assert result.returncode == code, f"{command}: {result.returncode}: {result.stdout}{result.stderr}"
    return result.stdout, result.stderr


class Server:
    """A server on a free port. It ends with the block."""

    def __init__(self, folder, *arguments, scheme="http"):
        self.log = folder / f"serve-{time.monotonic_ns()}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["harpe", "serve", "--port", "0", "--no-dump", *map(str, arguments)], cwd=folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.scheme = scheme

    def __enter__(self):
        until = time.monotonic() + LIMIT_S
        start = f"{self.scheme}://127.0.0.1:"
        while start not in (text := self.log.read_text()):
            assert self.process.poll() is None and time.monotonic() < until, text
            time.sleep(0.05)
        port = text.split(start)[1].split()[0].strip("/,;.")
        self.url = f"{self.scheme}://127.0.0.1:{port}"  # an empty system does not know localhost
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LIMIT_S)


def get(url, ca_file=None):
    context = ssl.create_default_context(cafile=ca_file) if ca_file else None
    with urllib.request.urlopen(url, timeout=LIMIT_S, context=context) as answer:
        return answer.status, answer.headers.get_content_type(), answer.read()


def plans(folder):
    """The program and the package make the same plans. Returns digests of the pictures."""
    run("harpe", "synth", "-n", 2, "-q", "-o", folder / "profile.csv")
    out, err = run("harpe", "plan", "-i", folder / "profile.csv", "-m", MICROBATCHES, "-p", 80,
                   "--output-dir", folder / "plans", "--json")
    assert not err, err
    import harpe.plan
    frontier = harpe.plan.solve(str(folder / "profile.csv"), num_microbatches=MICROBATCHES,
                                blocking_power=80)
    theirs = json.loads(out)["summary"]["all_maximum"]
    ours = frontier.problem.all_maximum
    assert abs(ours.time - theirs["time_s"]) < 1e-9 * ours.time, (ours, theirs)
    pictures = sorted((folder / "plans").glob("*.svg"))
    assert len(pictures) >= 4 and (folder / "plans" / "report.html").stat().st_size > 10000
    run("harpe", "plan", "-i", folder / "profile.csv", "-m", 1, "-p", 80, "--output-dir",
        folder / "one", "--no-pictures")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in pictures}


def serves(folder, certificate, key):
    plan = sorted((folder / "plans").glob("freqs_*.py"))[0]
    arguments = ["--scheduler", "PointSolution", "--scheduler-args",
                 json.dumps({"solution_path": str(plan)})]
    with Server(folder, *arguments) as server:
        assert get(f"{server.url}/healthz")[0] == 200
        status, kind, page = get(f"{server.url}/")
        assert (status, kind) == (200, "text/html") and b"<html" in page, page[:200]
    with Server(folder, "--scheduler", "python:my_scheduler.LowestClock", "--scheduler-args",
                json.dumps({"num_microbatches": MICROBATCHES})) as server:
        assert get(f"{server.url}/healthz")[0] == 200
    one = folder / "one.py"
    one.write_text(repr([[("forward", 1005), ("backward", 1200)] * MICROBATCHES]), encoding="utf-8")
    with Server(folder, "--tls-cert", certificate, "--tls-key", key, *arguments[:3],
                json.dumps({"solution_path": str(one)}), scheme="https") as server:
        assert get(f"{server.url}/healthz", certificate)[0] == 200
        run("harpe", "emulate", "--gpus", "1xA100", "--", sys.executable, "-c", RANK, server.url,
            certificate)
        return refuses_unknown_authority(server.url, certificate)


def refuses_unknown_authority(url, certificate):
    """A client that is given no certificates uses the system's. Returns whether the system has any."""
    result = subprocess.run(["harpe", "jobs", "--server", url], text=True, check=False, timeout=LIMIT_S,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    err = result.stderr
    assert result.returncode != 0 and len(err.splitlines()) == 1 and "is not trusted" in err, err
    run("harpe", "jobs", "--server", url, "--ca-file", certificate)
    has_authorities = os.path.exists("/etc/ssl/certs/ca-certificates.crt")
    if not has_authorities:
        run("harpe", "jobs", "--server", url, env=dict(os.environ, SSL_CERT_FILE=str(certificate)))
    return has_authorities


def trains(folder):
    out, _ = run("harpe", "train-sim", "-i", folder / "profile.csv", "--pp", 2, "--num-mbs",
                 MICROBATCHES, "--offline", "--steps", 3, "--json", "-q")
    result = json.loads(out)
    before, after = (result["measured"][name]["energy_j"] for name in ("highest_clocks", "plan"))
    assert after < before, result["measured"]
    out, _ = run("harpe", "agent", "--help")
    assert "--state-dir" in out, out
    out, _ = run("harpe", "emulate", "--gpus", "2xA100", "--", "nvidia-smi", "-L")
    assert len(out.splitlines()) == 2, out
    out, _ = run("harpe", "emulate", "--gpus", "2xA100", "--", sys.executable, "-c", MONITOR)
    assert out.split() == ["2", "True"], out


def describes(folder):
    """The commands of the description work, except the one that needs a script of the user."""
    text = importlib.metadata.metadata("harpe").get_payload()
    commands = [shlex.split(line) for line in re.findall(r"^    (harpe .*)$", text, re.MULTILINE)]
    place = folder / "described"
    place.mkdir()
    for command in commands:
        if "train.py" not in command:
            run(*command, cwd=place)
    assert len(commands) > 3, commands
    code, = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    out, _ = run(sys.executable, "-c", code, cwd=place)
    assert len(out.split()) == 2, out


def hooks(folder):
    """`harpe run` brings the callback into a Trainer that stands in for that of transformers."""
    package = folder / "standin" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from transformers.trainer import TrainerCallback\n",
                                         encoding="utf-8")
    (package / "trainer.py").write_text(TRAINER, encoding="utf-8")
    out, err = run("harpe", "run", "--", sys.executable, "-c", TRAIN,
                   env=dict(os.environ, PYTHONPATH=str(package.parent)))
    assert out == "['harpe.integrations.transformers']\n", (out, err)
    assert err == "harpe run: the Trainer of Transformers: its log gets the energy\n", err


def main():
    version, folder, certificate, key = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
    import harpe
    from harpe._library import lib
    release = version.partition("+")[0]
    assert harpe.version() == release, harpe.version()
    package = pathlib.Path(harpe.__file__).resolve().parent
    assert pathlib.Path(lib.path) == package / "_bundled" / "lib" / "libharpe.so.0", lib.path
    for command in (["harpe"], [sys.executable, "-m", "harpe"]):
        out, _ = run(*command, "--version")
        assert out.splitlines()[0] == f"harpe {version}", out
    assert harpe.__version__ == release, harpe.__version__
    digests = plans(folder)
    has_authorities = serves(folder, certificate, key)
    trains(folder)
    hooks(folder)
    describes(folder)
    print(json.dumps({"pictures": digests, "program": shutil.which("harpe"),
                      "python": sys.version.split()[0], "authorities": has_authorities}))


if __name__ == "__main__":
    main()
