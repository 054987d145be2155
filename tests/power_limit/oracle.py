# SPDX-License-Identifier: Apache-2.0
"""The required behaviour of the power limit optimizer, implemented a second time: its state machine
from the table in docs/power-limit.md, and its choice directly from the formulas. Shares nothing
with src/power_limit."""
import csv
import re

WINDOW = re.compile(r"__GlobalPowerLimitOptimizer_(\d+)$")


def read_log(path):
    """Returns {limit in W: (energy in J, time in s)} and the number of GPUs."""
    measured = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            energies = [float(value) for name, value in row.items() if re.match(r"gpu\d+_energy$", name)]
            window = WINDOW.match(row["window_name"])
            if window:
                measured[int(window[1])] = (sum(energies), float(row["elapsed_time"]))
    return measured, len(energies)


def limits_to_try(minimum_w, maximum_w, step_w=25):
    return sorted({minimum_w, *range(maximum_w, minimum_w, -step_w)}, reverse=True)


def optimum(measured, gpu_count, selector):
    """Returns the chosen limit. `selector`: ("energy",), ("time",), ("zeus-cost", eta) or
    ("max-slowdown", factor)."""
    limits = sorted(measured, reverse=True)
    kind, value = (*selector, None)[:2]
    if kind == "max-slowdown":
        slowest_s = value * measured[limits[0]][1]
        return min(w for w in limits if measured[w][1] <= slowest_s)
    costs = {"energy": lambda energy_j, time_s: energy_j,
             "time": lambda energy_j, time_s: time_s,
             "zeus-cost": lambda energy_j, time_s:
                 value * energy_j + (1 - value) * (limits[0] * gpu_count) * time_s}
    # of equal limits the first, which is the highest
    return min(limits, key=lambda w: costs[kind](*measured[w]))


SELECTORS = [*(("zeus-cost", eta) for eta in (0, 0.25, 0.5, 0.75, 1)), ("energy",), ("time",),
             *(("max-slowdown", factor) for factor in (1.0, 1.1, 1.2, 2.0))]


def course(limits, optimum_w, epoch_ends_after, steps, wait=1, warmup=10, profile=40):
    """Returns the events on the device within `steps` steps: ("set", W), ("begin" | "end" |
    "cancel", W), and whether the optimum is set. `epoch_ends_after(step)` tells whether an epoch
    ends after that step, counted from 1."""
    events = [("set", limits[0])]
    at = limits[0]
    waiting = list(limits)
    state, left = "ready", wait + 1

    def hold(limit):
        nonlocal at
        if limit != at:
            events.append(("set", limit))
            at = limit

    for step in range(1, steps + 1):
        if state != "done":
            left -= 1
        # Several states may end at one step: a measurement, then a warm-up of no steps.
        while state != "done" and left <= 0:
            if state == "warmup":
                events.append(("begin", at))
                state, left = "profiling", profile
                continue
            if state == "profiling":
                events.append(("end", at))
                waiting.pop(0)
            hold(waiting[0] if waiting else optimum_w)
            state, left = ("warmup", warmup) if waiting else ("done", 0)
        if epoch_ends_after(step) and state in ("warmup", "profiling"):
            if state == "profiling":
                events.append(("cancel", at))
            hold(limits[0])
            state, left = "ready", 1
    return events, state == "done"
