#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs everything that a change must pass, in parts. `./check --all` calls it.

Usage: check_all.py --all [PART...]    runs the parts that have not passed on the present files, or PART...
       check_all.py --list             names the parts
       check_all.py --changed          names the parts whose folders the last changes touch

--all writes after each part into build/check-all.json: the hash of the tree (as git writes it), the
part, its result and its seconds. The output of a part is also in build/check-all/PART.log. It stops at
the first part that fails.

In the environment:
  CHECK_UNTIL=SECONDS   leaves out the parts that would probably not end before this time (seconds
                        since 1970)
  CI_BASE=COMMIT        --changed: the changes since this commit (default: the commits of the six hours
                        before the newest)
"""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "check-all.json"
LOGS = ROOT / "build" / "check-all"


@dataclasses.dataclass(frozen=True)
class Part:
    """`minutes`: on two idle cores, when built. `packages`: sections of scripts/packages.txt. `folders`: a
    change of a file below them makes .ci/run run the part, too."""
    minutes: float
    what: str
    packages: str
    command: str
    folders: tuple = ()


CHECK = "scripts/check.sh "
PARTS = {
    "check": Part(3, "what ./check runs", "check", CHECK + "check"),
    "processes": Part(6, "all other tests with real processes", "check", CHECK + "processes"),
    "asan": Part(6, "fast tests with AddressSanitizer and UBSan", "check", CHECK + "asan"),
    "asan-processes": Part(8, "tests with processes, with AddressSanitizer and UBSan", "check",
                           CHECK + "asan-processes"),
    "clang": Part(5, "built with clang, fast tests", "check clang", CHECK + "clang", ("src", "emulator", "include")),
    "tsan": Part(12, "fast tests with ThreadSanitizer", "check clang", CHECK + "tsan"),
    "trials": Part(7, "all trials of the fast tests", "check", CHECK + "trials"),
    "times": Part(2, "no test of ./check needs more than 2 s of a processor", "check", "scripts/test_times.py"),
    "world": Part(10, "1,000 seeds of jobs in worlds with faults", "check",
                  "bench/world --first 1 --seeds 1000 --minutes 60"),
    "tidy": Part(8, "clang-tidy over src/", "check tidy", CHECK + "tidy"),
    "fuzz": Part(7, "each fuzz target for 10 s", "check clang", "env FUZZ_SECONDS=10 scripts/fuzz.sh"),
    "browsers": Part(6, "report and dashboard in Chromium and Firefox", "check browsers", CHECK + "browsers",
                     ("web", "tests/web")),
    "postgresql": Part(2, "several servers on PostgreSQL", "check postgresql", CHECK + "postgresql",
                       ("src/server/store", "src/server/lead")),
    "slurm": Part(4, "Slurm, Kubernetes and services", "check slurm", CHECK + "slurm"),
    "pytorch": Part(8, "PyTorch, MPI, NumPy and pip of Debian", "check python", CHECK + "pytorch"),
    "metrics": Part(1, "Prometheus reads the agent's metrics", "check metrics", CHECK + "metrics"),
    "peers": Part(9, "published Zeus, zeusd and monitors from PyPI and crates.io", "check peers",
                  CHECK + "peers"),
    "frameworks": Part(30, "Megatron, DeepSpeed, Lightning, Transformers from PyPI", "check frameworks",
                       "scripts/check_frameworks.sh"),
    "packages": Part(8, "Debian packages, reproducible", "check packages", "make deb reproducible"),
    "wheel": Part(7, "the wheel in every Python", "check wheel", "make wheel", ("packaging/wheel",)),
    "fresh": Part(6, "in an empty Debian 12: ./check as a user, and as root what depends on the user", "",
                  "scripts/fresh_root.sh"),
    "trixie": Part(10, "in an empty Debian 13: both commands", "",
                   "scripts/fresh_root.sh --suite trixie sh -c './demo && ./check'"),
    "load": Part(15, "five rounds of ./check beside four busy processes per core", "check",
                 "scripts/check_load.sh"),
}


def fail(text):
    sys.exit(f"check: {text}")


def git(*arguments, **options):
    """Runs git. Without git it fails as outside of a clone."""
    if not shutil.which("git"):
        return subprocess.CompletedProcess(arguments, 1, "", "")
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, **options)


def tree_hash():
    """Returns the hash of the present files as git writes it, or "" outside of a clone. The index of the
    user is left as it is."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}
        if git("add", "--all", env=environment).returncode != 0:
            return ""
        return git("write-tree", env=environment).stdout.strip()


def read_results():
    try:
        return json.loads(RESULTS.read_text())
    except (OSError, ValueError):
        return []


def write_result(result):
    """Replaces the part's earlier result."""
    results = [old for old in read_results() if old["part"] != result["part"]] + [result]
    RESULTS.parent.mkdir(exist_ok=True)
    new = RESULTS.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1) + "\n")
    new.replace(RESULTS)


def clock(minutes):
    return f"{int(minutes) // 60}:{int(minutes) % 60:02d} h"


def changed_parts():
    """Names the parts whose folders the last changes touch. Without a history that is all of them."""
    newest = git("log", "-1", "--format=%ct").stdout.strip()
    base = os.environ.get("CI_BASE") or (newest and git(
        "rev-list", "-1", f"--before={int(newest) - 6 * 3600}", "HEAD").stdout.strip())
    diff = git("diff", "--name-only", base, "HEAD") if base else None
    if not diff or diff.returncode != 0:
        return [name for name, part in PARTS.items() if part.folders]
    files = diff.stdout.split("\n")
    return [name for name, part in PARTS.items()
            if any(file.startswith(f"{folder}/") for folder in part.folders for file in files)]


def run(name):
    """Runs a part, and prints and logs what it prints. Returns its status. As in continuous integration, a
    proof that cannot be made is a failure."""
    part = PARTS[name]
    command = f"scripts/bootstrap.sh {part.packages} && exec {part.command}" if part.packages else part.command
    LOGS.mkdir(parents=True, exist_ok=True)
    with open(LOGS / f"{name}.log", "wb") as log, subprocess.Popen(
            ["sh", "-c", command], cwd=ROOT, env={**os.environ, "CI": "true"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT) as process:
        while chunk := process.stdout.read1(65536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            log.write(chunk)
    return process.returncode


def run_all(names):
    tree = tree_hash()
    passed = {old["part"] for old in read_results() if tree and old["tree"] == tree and old["result"] == "passed"}
    wanted = names or [name for name in PARTS if name not in passed]
    until = float(os.environ.get("CHECK_UNTIL") or "inf")
    if not wanted:
        print(f"check: every part has passed on the tree {tree}")
    for i, name in enumerate(wanted):
        left = sum(PARTS[other].minutes for other in wanted[i:])
        if time.time() + PARTS[name].minutes * 60 > until:
            print(f"check: part {name} is left out: it takes {PARTS[name].minutes:g} min", flush=True)
            continue
        print(f"== part {i + 1} of {len(wanted)}: {name}: {PARTS[name].what} (about {PARTS[name].minutes:g} min; "
              f"{clock(left)} left)", flush=True)
        began = time.monotonic()
        status = run(name)
        write_result({"tree": tree, "part": name, "result": "passed" if status == 0 else "failed",
                      "seconds": round(time.monotonic() - began), "ended": time.strftime("%Y-%m-%d %H:%M:%S")})
        if status != 0:
            print(f"check: part {name} failed with status {status}; its output is in {LOGS / name}.log",
                  file=sys.stderr)
            return 1
    return 0


def main():
    what, names = (sys.argv + [""])[1], sys.argv[2:]
    if what == "--list":
        for name, part in PARTS.items():
            print(f"{name:15} {part.minutes:3g} min  {part.what}")
        print(f"{'':15} {sum(part.minutes for part in PARTS.values()):3g} min in all, on two idle cores")
        return 0
    if what == "--changed":
        print(*changed_parts())
        return 0
    if what != "--all":
        fail(f"{what}: there is no such option: run ./check --help")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        fail(f"{unknown[0]}: there is no such part: ./check --list names them")
    return run_all(names)


if __name__ == "__main__":
    sys.exit(main())
