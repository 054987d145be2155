#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the duration of Python's callbacks: on_step_begin through a CallbackSet and the power
limit optimizer, and a window of the monitor. It uses emulated GPUs, because it measures only
Harpe's own code and not the driver.

    bench/python_overhead.py [BUILD_DIR]      (default: build/release)
"""
import os
import pathlib
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build" / "release").resolve()
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "tests" / "power_limit")]
os.environ["HARPE_LIBRARY"] = str(BUILD / "libharpe.so.0")

import kills  # noqa: E402
from harpe.callback import Callback, CallbackSet  # noqa: E402
from harpe.monitor import Measurement, ZeusMonitor  # noqa: E402
from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer  # noqa: E402
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer  # noqa: E402

CALLS, ROUNDS = 2000, 50


class NoMonitor:
    """A training loop whose steps take no time, so that only the callback is measured."""

    gpu_indices = [0]

    def begin_window(self, key):
        pass

    def end_window(self, key, cancel=False):
        return Measurement(1.0, {0: 100.0})


def show(what, call):
    """Prints the time of one call: median and 99th percentile of single calls, and the lowest
    mean of many calls. That mean does not contain the clock's own cost, nor the work of other
    programs."""
    clock = time.perf_counter_ns
    single, means = [], []
    for _ in range(ROUNDS):
        start = clock()
        for _ in range(CALLS):
            call()
        means.append((clock() - start) / CALLS)
    for _ in range(20 * CALLS):
        start = clock()
        call()
        single.append(clock() - start)
    print(f"{what:58} median {statistics.median(single) / 1000:6.2f} us   "
          f"p99 {statistics.quantiles(single, n=100)[98] / 1000:7.2f} us   "
          f"mean {min(means) / 1000:6.2f} us")


def show_import():
    """Returns the processor time of importing the package in a separate Python, the median of
    ten."""
    script = ("import sys, time; sys.path.insert(0, sys.argv[1]); start = time.process_time(); "
              "import harpe; print(time.process_time() - start)")
    times = [float(subprocess.run([sys.executable, "-c", script, str(SOURCE / "python")], check=True,
                                  capture_output=True, text=True).stdout) for _ in range(10)]
    print(f"{'import harpe':58} median {statistics.median(times) * 1000:6.1f} ms")


def show_instruction():
    """Measures the callbacks of the pipeline frequency optimizer, which has no server here and
    measures nothing yet."""
    optimizer = PipelineFrequencyOptimizer(0, 0, 0, 0, 0, 1, 1, 1, 1, "http://127.0.0.1:9")
    optimizer.on_step_begin()

    def instruction():
        optimizer.on_instruction_begin("forward")
        optimizer.on_instruction_end("forward")

    show("on_instruction_begin and _end, without a schedule", instruction)
    optimizer.on_step_end()
    optimizer.close()


def main():
    show_import()
    machine = kills.Machine(BUILD, "1xA100", 100)
    try:
        show("on_step_begin: a set with an empty callback", CallbackSet([Callback()]).on_step_begin)
        optimizer = GlobalPowerLimitOptimizer(NoMonitor(), wait_steps=10 ** 9 - 1)
        show("on_step_begin: waiting (counts a step)", CallbackSet([optimizer]).on_step_begin)
        optimizer.close()
        optimizer = GlobalPowerLimitOptimizer(NoMonitor(), wait_steps=0, warmup_steps=0, profile_steps=10 ** 9)
        optimizer.on_step_begin()
        show("on_step_begin: profiling (looks at the energy counter)", CallbackSet([optimizer]).on_step_begin)
        optimizer.close()
        optimizer = GlobalPowerLimitOptimizer(NoMonitor(), wait_steps=0, warmup_steps=0, profile_steps=1)
        while not optimizer.is_done:
            optimizer.on_step_begin()
        show("on_step_begin: done (holds the optimum)", CallbackSet([optimizer]).on_step_begin)
        optimizer.close()
        monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], approx_instant_energy=True)

        def window():
            monitor.begin_window("window")
            monitor.end_window("window")

        show("a window: begin_window and end_window, one GPU", window)
        monitor.close()
        show_instruction()
    finally:
        machine.close()


main()
