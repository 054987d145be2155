#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the laws of time and power of emulated workloads to measurements, and prints the errors.

    bench/workload_laws.py              # the table of constants and errors
    bench/workload_laws.py --rows       # the rows of emulator/workloads.c

The measurements are those of EnergAIzer (ISPASS 2026, MIT licence): 20 workloads on an A100-PCIE-40GB at 10
or 11 clocks, and 56 on an H100 SXM at 1830 MHz. They are read from $HARPE_DATA or ../shared/data.

With x = clock / highest clock, and the idle power W(x) of a GPU with a context, which was measured too:

    GPU time  = compute / x + rest
    time      = the larger of the floor and the GPU time
    busy      = static + dynamic x (V/V1)^2
    power     = (GPU time busy + (time - GPU time) W(x)) / time

A workload has a floor only if its time does not fall over several clocks: the host launches its kernels
too slowly. Two hosts were used; the slower one needed 1.27 times the floor of the other. A row is counted
for the host that is nearer."""
import collections
import csv
import itertools
import math
import os
import re
import statistics
import sys

HIGHEST_MHZ, H100_HIGHEST_MHZ = 1410, 1980
SLOWER_HOST = 1.27
# The artifact's supply_voltage.json: 693.75 mV up to 1020 MHz, then rising to 893.75 mV at 1410 MHz.
A100_KNEE, A100_KNEE_VOLTAGE = 0.728, 0.776
H100_KNEE, H100_KNEE_VOLTAGE = 0.72, 0.73  # of emulator/models.c
# Its idle_power.json: the rise of idle power with the clock, as in emulator/models.c.
A100_IDLE = ((0.149, 0), (0.362, 0.035), (0.574, 0.1), (0.723, 0.181),
             (0.809, 0.321), (0.894, 0.516), (0.957, 0.745), (1, 1))
A100_IDLE_W, A100_LOADED_W = 44.5, 67.3
H100_IDLE_W_AT_1830 = 126  # of emulator/models.c; the artifact has 118
# Workloads whose time does not fall over several clocks, and those that are so at all clocks. GPU time and
# busy power of the latter are not separate in the data, so their busy power is the median of the others.
HAVE_FLOOR = ("bert-large-bf16-b8-s128", "gpt2-bf16-b8-s128", "opt-1.3b-bf16-b2-s128", "qwen2-1.5b-bf16-b1-s128",
              "qwen2-1.5b-bf16-b8-s128")
# 8 sequences took half of the time of 1, at less than half of the power, and on the H100 eight times as long:
# this was not a whole iteration, perhaps because 40 GB of memory were full. It is not compared with the H100.
IMPLAUSIBLE = ("qwen2-1.5b-bf16-b8-s4096",)
ALWAYS_AT_FLOOR = ("gpt2-bf16-b8-s128", "qwen2-1.5b-bf16-b1-s128")

Row = collections.namedtuple("Row", "x time_s power_w")
Law = collections.namedtuple("Law", "floor_s compute_s rest_s static_w dynamic_w")


def switching(x, knee, knee_voltage):
    voltage = knee_voltage + (1 - knee_voltage) * max(0, (x - knee) / (1 - knee))
    return x * voltage * voltage


def idle_w(x):
    rise = 0
    for (low, low_rise), (high, high_rise) in itertools.pairwise(A100_IDLE):
        if x > low:
            rise = low_rise + (high_rise - low_rise) * min(1, (x - low) / (high - low))
    return A100_IDLE_W + (A100_LOADED_W - A100_IDLE_W) * rise


def predict(law, x, measured_s):
    """Returns the time and the power, on the host that is nearer to the measured time."""
    gpu_s = law.compute_s / x + law.rest_s
    time_s = min((max(law.floor_s * host, gpu_s) for host in (1, SLOWER_HOST)),
                 key=lambda s: abs(math.log(s / measured_s)))
    busy_w = law.static_w + law.dynamic_w * switching(x, A100_KNEE, A100_KNEE_VOLTAGE)
    return time_s, (gpu_s * busy_w + (time_s - gpu_s) * idle_w(x)) / time_s


def cost(law, rows):
    if min(law) < 0:
        return math.inf
    predicted = ((*predict(law, row.x, row.time_s), row) for row in rows)
    return sum(math.log(time_s / row.time_s) ** 2 + math.log(power_w / row.power_w) ** 2
               for time_s, power_w, row in predicted)


def minimize(function, start, steps=3000):
    """The method of Nelder and Mead. Returns the least value and its place."""
    size = len(start)
    simplex = [start] + [[v * (1.1 if i == k else 1) for k, v in enumerate(start)] for i in range(size)]
    points = [(function(point), point) for point in simplex]
    for _ in range(steps):
        points.sort()
        if points[-1][0] - points[0][0] < 1e-13:
            break
        centre = [sum(column) / size for column in zip(*(point for _, point in points[:-1]))]
        at = lambda factor: [c + factor * (p - c) for c, p in zip(centre, points[-1][1])]
        value = lambda point: (function(point), point)
        reflected = value(at(-1))
        if reflected < points[0]:
            points[-1] = min(reflected, value(at(-2)))
        elif reflected < points[-2]:
            points[-1] = reflected
        elif (contracted := value(at(0.5))) < points[-1]:
            points[-1] = contracted
        else:
            best = points[0][1]
            points = points[:1] + [value([(b + p) / 2 for b, p in zip(best, point)])
                                   for _, point in points[1:]]
    return min(points)


def fit(name, rows, typical):
    """Fits 4 constants; with a floor 5; always at the floor 3, with the `typical` static and dynamic power."""
    least_s = min(row.time_s for row in rows)
    if name not in HAVE_FLOOR:
        law = lambda p: Law(0, *p)
        starts = [[a * least_s, (1 - a) * least_s, 60, 250] for a in (0.5, 0.8)]
    elif name in ALWAYS_AT_FLOOR:
        law = lambda p: Law(*p, *typical)
        starts = [[least_s, a * b * least_s, (1 - a) * b * least_s] for a in (0.4, 0.7) for b in (0.7, 0.4, 0.2)]
    else:
        law = lambda p: Law(*p)
        starts = [[least_s, a * b * least_s, (1 - a) * b * least_s, 60, d]
                  for a in (0.4, 0.7) for b in (1, 0.7, 0.4) for d in (150, 250)]
    return law(min(minimize(lambda p: cost(law(p), rows), start) for start in starts)[1])


def short_name(text):
    """Returns the name in the emulator of a file name of the artifact, and its clock in MHz."""
    match = re.match(r"(bert|gpt2|opt|qwen2)model_(\w+?)(?:-(\w+))?_p(\w+?)_b(\d+)_s(\d+)_.*_freq(\d+)_", text)
    if not match:
        return None, 0
    family, variant, size, precision, batch, sequence, mhz = match.groups()
    model = {"gpt2": "gpt2", "bert": f"bert-{variant}"}.get(family, f"{family}-{(size or '').replace('p', '.')}")
    return f"{model}-{precision}-b{batch}-s{sequence}", int(mhz)


def read(folder, name, highest_mhz):
    rows = collections.defaultdict(list)
    with open(os.path.join(folder, "workloads", name), encoding="utf-8") as file:
        for row in csv.DictReader(file):
            workload, _ = short_name(row["workload"])
            time_s = float(row["time"]) / 1e3
            rows[workload].append(Row(float(row["avg_freq"]) / highest_mhz, time_s, float(row["energy"]) / time_s))
    return {name: sorted(rows[name]) for name in sorted(rows, key=str)}


def errors(law, rows):
    pairs = [(predict(law, row.x, row.time_s), row) for row in rows]
    return ([abs(time_s / row.time_s - 1) for (time_s, _), row in pairs],
            [abs(power_w / row.power_w - 1) for (_, power_w), row in pairs])


def show(title, laws, measured):
    times, powers = [], []
    print(f"{title}\n{'':27}floor  compute    rest  static  dynamic   error of time   error of power")
    print(f"{'':27}   ms       ms      ms       W        W   mean   worst   mean   worst")
    for name, law in laws.items():
        time, power = errors(law, measured[name])
        times.append((name, time))
        powers.append((name, power))
        figures = "  ".join(f"{100 * f(e):4.1f} %" for e in (time, power) for f in (statistics.mean, max))
        print(f"{name:24}{law.floor_s * 1e3:8.2f} {law.compute_s * 1e3:8.2f} {law.rest_s * 1e3:7.2f} "
              f"{law.static_w:7.1f}  {law.dynamic_w:7.1f}  {figures}")
    for what, all_errors in (("time", times), ("power", powers)):
        kept = [(max(e), name, e) for name, e in all_errors if name not in IMPLAUSIBLE]
        flat = [e for _, _, errors_of_one in kept for e in errors_of_one]
        print(f"{what}, without {IMPLAUSIBLE[0]}: mean {100 * statistics.mean(flat):.2f} %, "
              f"worst {100 * max(flat):.1f} % ({max(kept)[1]})")


def scale_to_h100(laws, measured):
    """Fits three factors for an H100: of the GPU's speed, of the host's, and of the busy power."""
    both = [(laws[name], measured[name][0]) for name in laws
            if name in measured and name not in IMPLAUSIBLE]

    def predict_h100(p, law, row):
        gpu_s = (law.compute_s / row.x + law.rest_s) / p[0]
        time_s = max(law.floor_s / p[1], gpu_s)
        busy_w = p[2] * (law.static_w + law.dynamic_w * switching(row.x, H100_KNEE, H100_KNEE_VOLTAGE))
        return time_s, (gpu_s * busy_w + (time_s - gpu_s) * H100_IDLE_W_AT_1830) / time_s

    def errors_of(p):
        pairs = [(predict_h100(p, law, row), row) for law, row in both]
        return ([abs(math.log(t / row.time_s)) for (t, _), row in pairs],
                [abs(math.log(w / row.power_w)) for (_, w), row in pairs])

    _, p = minimize(lambda p: math.inf if min(p) <= 0 else sum(map(sum, errors_of(p))), [3, 2, 2])
    time, power = errors_of(p)
    print(f"H100 at 1830 MHz, {len(both)} of these workloads: GPU {p[0]:.2f} times as fast, host {p[1]:.2f} times, "
          f"busy power {p[2]:.2f} times")
    for what, e in (("time", time), ("power", power)):
        print(f"{what}: mean {100 * statistics.mean(e):.1f} %, worst {100 * max(e):.1f} %")


def main():
    folder = os.environ.get("HARPE_DATA", os.path.join(os.path.dirname(__file__), "../../shared/data"))
    measured = read(folder, "energaizer_dvfs.csv", HIGHEST_MHZ)
    laws = {name: fit(name, rows, None) for name, rows in measured.items() if name not in ALWAYS_AT_FLOOR}
    typical = [statistics.median(getattr(law, key) for law in laws.values()) for key in ("static_w", "dynamic_w")]
    laws.update({name: fit(name, measured[name], typical) for name in ALWAYS_AT_FLOOR})
    laws = dict(sorted(laws.items()))
    if sys.argv[1:] == ["--rows"]:
        for name, law in laws.items():
            print(f'    {{"{name}", {law.floor_s * 1e3:.4g}, {law.compute_s * 1e3:.4g}, {law.rest_s * 1e3:.4g}, '
                  f"{law.static_w:.1f}, {law.dynamic_w:.1f}}},")
        return
    show("A100-PCIE-40GB, 510 to 1410 MHz", laws, measured)
    print(f"median of the workloads that fill the GPU: static {typical[0]:.1f} W, dynamic {typical[1]:.1f} W")
    limited = [row.power_w for rows in measured.values() for row in rows if row.power_w > 238]
    print(f"{len(limited)} rows at the power limit of 250 W: {statistics.mean(limited):.1f} W")
    scale_to_h100(laws, read(folder, "energaizer_h100.csv", H100_HIGHEST_MHZ))


if __name__ == "__main__":
    main()
