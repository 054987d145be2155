# SPDX-License-Identifier: Apache-2.0
"""Runs a program beside a busy emulated GPU (test_peers.py starts this under `harpe emulate`). A
process with 5 GiB works on GPU 1, which has a locked clock and a power limit of its own. Prints one
line of JSON: what the emulator's nvidia-smi says before and after, what the program has printed,
and its exit status. If the first argument is "terminal", the program runs in a terminal, and is
ended with the key q when it has printed every text of the JSON list that follows."""
import ctypes
import json
import os
import pty
import select
import subprocess
import sys
import threading
import time

FIELDS = ("index,name,uuid,pci.bus_id,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,"
          "power.limit,power.min_limit,power.max_limit,memory.used,memory.total,utilization.gpu,"
          "temperature.gpu,pstate")
LIMIT_S = 240


def smi(query):
    text = subprocess.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], check=True,
                          text=True, capture_output=True).stdout
    names = query.split("=")[1].split(",")
    return [dict(zip(names, line.split(", "))) for line in text.splitlines()]


def make_busy(nvml):
    handle = ctypes.c_void_p()
    for code in (nvml.nvmlInit_v2(), nvml.harpe_emulator_open_context(1, ctypes.c_uint64(5 << 30)),
                 nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(handle)),
                 nvml.nvmlDeviceSetGpuLockedClocks(handle, 1200, 1200),
                 nvml.nvmlDeviceSetPowerManagementLimit(handle, 500000)):
        if code != 0:
            sys.exit(f"NVML error {code}")
    threading.Thread(target=nvml.harpe_emulator_work, daemon=True,
                     args=(1, ctypes.c_double(1e6), ctypes.c_double(0.8), None)).start()


def in_terminal(wanted, command):
    """Returns the exit status and the output. Ends the program when all texts are there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LINES="50", COLUMNS="160")
        os.execvp(command[0], command)
    import fcntl
    import struct
    import termios
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    output, end, is_told = b"", time.monotonic() + LIMIT_S, False
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            output += os.read(terminal, 1 << 16)
        except OSError:  # it has ended
            break
        if not is_told and all(text.encode() in output for text in wanted):
            os.write(terminal, b"q")
            is_told = True
    else:
        os.kill(pid, 9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.decode(errors="replace")


def main():
    nvml = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])
    make_busy(nvml)
    while smi("--query-gpu=utilization.gpu")[1]["utilization.gpu"] != "100":
        time.sleep(0.05)
    before = smi(f"--query-gpu={FIELDS}")
    if sys.argv[1] == "terminal":
        status, output = in_terminal(json.loads(sys.argv[2]), sys.argv[3:])
    else:
        done = subprocess.run(sys.argv[1:], text=True, stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S)
        status, output = done.returncode, done.stdout
    print(json.dumps({"before": before, "after": smi(f"--query-gpu={FIELDS}"), "status": status,
                      "apps": smi("--query-compute-apps=gpu_uuid,pid,used_memory"),
                      "pid": os.getpid(), "output": output}))


if __name__ == "__main__":
    main()
