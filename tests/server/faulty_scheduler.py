#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A scheduler program (JSON lines) with the fault that the job's metadata names: "FAULT" at the
first request, "FAULT later" at the second. Without a fault it answers without end: its clock is
1000 MHz plus the number of rounds that it has observed. It starts no process unless the fault is in
CHILDREN."""
import json
import os
import signal
import subprocess
import sys
import time


def write_for_ever(stream):
    while True:
        stream.write("garbage " * 1000)


def leave_everything():
    """Starts a process without a parent, in a session of its own, that ignores signals and holds no
    pipe."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(1, 32):
                if number not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(number, signal.SIG_IGN)
            os.closerange(0, 64)
            while True:
                time.sleep(3600)
        os._exit(0)
    os.wait()


def many_children():
    for _ in range(20):
        subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; sleep 3600 & sleep 3600"],
                         start_new_session=True, stdin=subprocess.DEVNULL)


def ignore_all():
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)


def stop_yourself():
    subprocess.Popen(["sleep", "3600"], stdin=subprocess.DEVNULL)
    os.kill(os.getpid(), signal.SIGSTOP)


def loop():
    while True:
        signal.pause()


def sleep_deaf():
    ignore_all()
    while True:
        time.sleep(3600)


def die(number):
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)


def half_an_answer(status):
    sys.stdout.write('{"schedules": [{"rank": 0, "freq')
    sys.stdout.flush()
    os._exit(status)


def answer_with(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def schedule(*frequencies, rank=0):
    return {"schedules": [{"rank": rank, "frequencies": list(frequencies)}]}


def raise_error():
    raise ValueError("the power of GPU \u00e9\u00df is no number")


def allocate():
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    lists = []
    while True:
        lists.append(bytearray(1 << 26))


# Faults that run without end or leave processes behind.
CHILDREN = {
    "stop": stop_yourself, "loop": loop, "deaf": sleep_deaf,
    "escape": lambda: (leave_everything(), sleep_deaf()),
    "family": lambda: (many_children(), sleep_deaf()),
    "escape-and-exit": lambda: (leave_everything(), os._exit(3)),
    "escape-and-go-on": leave_everything,
}

FAULTS = {
    "raise": raise_error,
    "memory": allocate,
    "exit 0": lambda: os._exit(0),
    "exit 3": lambda: os._exit(3),
    "half": lambda: half_an_answer(7),
    "segfault": lambda: die(signal.SIGSEGV),
    "abort": lambda: die(signal.SIGABRT),
    "garbage": lambda: answer_with("\x1b[2J garbage"),
    "binary": lambda: (sys.stdout.buffer.write(b"\xff\x00\xfe\n"), sys.stdout.flush()),
    "flood": lambda: write_for_ever(sys.stdout),
    "lines": lambda: answer_with("{}\n" * 1000),
    "list": lambda: answer_with("[1, 2]"),
    "NaN": lambda: answer_with(json.dumps(schedule(["forward", float("nan")]))),
    "infinite": lambda: answer_with('{"schedules": [{"rank": 0, "frequencies": '
                                    '[["forward", 1e999]]}]}'),
    "negative": lambda: answer_with(json.dumps(schedule(["forward", -1200]))),
    "fraction": lambda: answer_with(json.dumps(schedule(["forward", 1200.5]))),
    "huge": lambda: answer_with(json.dumps(schedule(["forward", 10 ** 30]))),
    "text": lambda: answer_with(json.dumps(schedule(["forward", "12oo"]))),
    "pair": lambda: answer_with(json.dumps(schedule(["forward", 1200, 3]))),
    "rank": lambda: answer_with(json.dumps(schedule(["forward", 1200], rank=1))),
    "no rank": lambda: answer_with(json.dumps(schedule(["forward", 1200], rank=-1))),
    "object": lambda: answer_with('{"schedules": {"rank": 0}}'),
}


def misbehave(fault, is_later, number):
    """Returns true if the request was answered."""
    name = fault[:-len(" later")] if fault.endswith(" later") else fault
    if fault.endswith(" later") != is_later or number > 2:
        return False
    if name in CHILDREN:
        CHILDREN[name]()
    elif name in FAULTS:
        FAULTS[name]()
    return name in FAULTS


def main():
    rounds, fault, world_size = 0, "", 1
    for number, line in enumerate(sys.stdin, 1):
        message = json.loads(line)
        if "init" in message:
            info = message["init"]["job_info"]
            fault, world_size = info["job_metadata"] or "", info["world_size"]
        else:
            rounds += 1
        if misbehave(fault, "init" not in message, number):
            continue
        schedules = [{"rank": rank, "frequencies": [["forward", 1000 + rounds]]}
                     for rank in range(world_size)]
        print(json.dumps({"schedules": schedules, "finished": fault == f"finish {rounds}"}),
              flush=True)


if __name__ == "__main__":
    main()
