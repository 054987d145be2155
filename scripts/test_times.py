#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each test of ./check (or the tests of another kind) alone, prints the twenty that need most, and
fails if one of ./check needs more than 2 s of a processor, with all its processes.

Usage: test_times.py [KIND...]     (fast smoke)
"""
import ctypes
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_S = 2.0
PR_SET_CHILD_SUBREAPER = 36


def tests(kind):
    listed = subprocess.run(["ctest", "--preset", "release", "--show-only=json-v1", "-L", f"^{kind}$"], cwd=ROOT,
                            check=True, stdout=subprocess.PIPE)
    for test in json.loads(listed.stdout)["tests"]:
        properties = {one["name"]: one["value"] for one in test["properties"]}
        environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
        yield test["name"], test["command"], environment, properties["WORKING_DIRECTORY"]


def measure(command, environment, folder):
    """Runs the command in a process of its own, which adopts and waits for what the command leaves behind.
    Returns its exit status, its wall time and the processor time of all its processes, in seconds."""
    pipe = os.pipe()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        began, ended, status = time.monotonic(), 0, 0
        child = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while ended != child.pid:
            ended, status = os.wait()
        took_s = time.monotonic() - began
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(pipe[1], f"{os.waitstatus_to_exitcode(status)} {took_s} {used.ru_utime + used.ru_stime}".encode())
        os._exit(0)
    os.close(pipe[1])
    with open(pipe[0], encoding="ascii") as answer:
        status, took_s, used_s = answer.read().split()
    os.wait()
    return int(status), float(took_s), float(used_s)


def main():
    kinds = sys.argv[1:] or ["fast", "smoke"]
    rows, failed = [], 0
    for kind in kinds:
        for name, command, environment, folder in tests(kind):
            status, took_s, used_s = measure(command, environment, folder)
            # The time that a virtual machine counts contains what its host takes away from it.
            # Therefore the least of five measurements is used.
            for _ in range(4 if used_s > MOST_S else 0):
                status, took_s, used_s = min((status, took_s, used_s), measure(command, environment, folder), key=lambda one: one[2])
            rows.append((used_s, took_s, name))
            if status not in (0, 77):
                print(f"test-times: {name} ends with status {status}")
                failed += 1
    rows.sort(reverse=True)
    print(f"{'processor':>9} {'wall':>7}   {len(rows)} tests: {', '.join(kinds)}")
    for used_s, took_s, name in [(sum(row[0] for row in rows), sum(row[1] for row in rows), "all"), *rows[:20]]:
        print(f"{used_s:7.2f} s {took_s:5.1f} s   {name}")
    if not sys.argv[1:]:
        for used_s, _, name in rows:
            if used_s > MOST_S:
                print(f"test-times: {name} needs {used_s:.2f} s of a processor; a test of ./check may need {MOST_S:g} s")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
