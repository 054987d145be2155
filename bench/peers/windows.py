# SPDX-License-Identifier: Apache-2.0
"""Measures the windows of a monitor: windows.py MODULE, with the module `zeus` or `harpe`. Both have
the same interface, so this is the same script. Prints the processor time of a begin and an end."""
import importlib
import json
import sys
import time

WINDOWS = 2000


def main():
    monitor = importlib.import_module(f"{sys.argv[1]}.monitor").ZeusMonitor()

    def pass_windows(count):
        for _ in range(count):
            monitor.begin_window("step", sync_execution=False)
            monitor.end_window("step", sync_execution=False)

    pass_windows(100)
    began_s = time.process_time()
    pass_windows(WINDOWS)
    print(json.dumps({"window_us": (time.process_time() - began_s) / WINDOWS * 1e6}))


if __name__ == "__main__":
    main()
