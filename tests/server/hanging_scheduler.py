#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A scheduler program (JSON lines) that never answers for a job whose metadata is "hang". It first
writes its process number and that of a child to a file in the directory that its argument names."""
import json
import os
import subprocess
import sys
import time


def hang(directory):
    child = subprocess.Popen(["sleep", "3600"], stdin=subprocess.DEVNULL)
    path = os.path.join(directory, f"hanging-{os.getpid()}")
    with open(path + ".new", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(path + ".new", path)
    while True:
        time.sleep(3600)


def main():
    world_size = 0
    for line in sys.stdin:
        message = json.loads(line)
        if "init" in message:
            info = message["init"]["job_info"]
            world_size = info["world_size"]
            if info["job_metadata"] == "hang":
                hang(sys.argv[1])
        schedules = [{"rank": rank, "frequencies": [["forward", 1200]]}
                     for rank in range(world_size)]
        print(json.dumps({"schedules": schedules}), flush=True)


if __name__ == "__main__":
    main()
