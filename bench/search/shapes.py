# SPDX-License-Identifier: Apache-2.0
"""bench/run shapes: plans of pipelines of the shapes that production jobs have, for clocks that
change at once and late, beside one clock for each rank and one clock for all GPUs. How much each
saves of what the lower bound allows. The bound knows the latency; what the bound without latency
allows stands beside it."""
import argparse
import concurrent.futures
import csv
import dataclasses
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from search.dwell import Pipeline, simple_searches
from search.gaps import quantile
from search.library import Library
from tables import Table, count, seconds

RANKS = (4, 6, 8, 12, 16)
CHUNKS = (1, 2, 3, 4, 6, 8, 12)
MICROBATCHES = (8, 16, 24, 32, 48, 64, 96, 128)
# Seconds of a forward; a backward takes 1.95 times as long.
FORWARD_S = (0.002, 0.05)
IMBALANCES = (1.0, 1.2)
BLOCKING_W = {"A100": 84, "H100": 115}  # as harpe synth says
LATENCIES_S = (0.0, 0.005, 0.025, 0.1)
SLOWDOWNS = (0.0, 0.01, 0.02, 0.05)
# Of little energy no share can be saved. Below this share of the highest clocks' energy, a shape is
# left out.
FEWEST_ALLOWED = 0.001
ROUNDING = 1e-9
SHARES = (("plan", "plan"), ("ranks", "one clock per rank"), ("one", "one clock for all GPUs"))


@dataclasses.dataclass
class Shape:
    """A pipeline; `harpe synth` makes its profile."""
    number: int
    gpu: str
    ranks: int
    chunks: int
    microbatches: int
    forward_s: float
    imbalance: float

    @property
    def instructions(self):
        return 2 * self.ranks * self.chunks * self.microbatches

    def write(self, build, folder):
        """Writes the profile. Returns what Library.plan needs to know."""
        path = pathlib.Path(folder) / f"shape_{self.number}.csv"
        subprocess.run([pathlib.Path(build) / "harpe", "synth", "--quiet", "--gpu", self.gpu,
                        "--stages", str(self.ranks * self.chunks), "--forward-time",
                        repr(self.forward_s), "--imbalance", repr(self.imbalance), "--seed",
                        str(self.number), "--output", path], stdout=subprocess.DEVNULL, check=True)
        job = {"profile": str(path), "schedule": "1f1b", "ranks": self.ranks,
               "microbatches": self.microbatches, "blocking_w": BLOCKING_W[self.gpu]}
        return job | {"schedule": "interleaved-1f1b", "chunks": self.chunks} \
            if self.chunks > 1 else job


def shape(seed, number, most_instructions):
    """Returns shape `number` of a seed."""
    source = random.Random(f"harpe shapes {seed} {number}")
    while True:
        drawn = Shape(number, source.choice(sorted(BLOCKING_W)), source.choice(RANKS),
                      source.choice(CHUNKS), source.choice(MICROBATCHES),
                      round(math.exp(source.uniform(*map(math.log, FORWARD_S))), 6),
                      round(source.uniform(*IMBALANCES), 4))
        divides = drawn.chunks == 1 or drawn.microbatches % drawn.ranks == 0
        if divides and drawn.instructions <= most_instructions:
            return drawn


def least(plans, limit_s):
    """Returns the least energy of (time, energy) within a time."""
    return min(energy for time, energy in plans if time <= limit_s * (1 + ROUNDING))


def measure(library, drawn, chosen, folder):
    """Returns the rows of a shape, one for each latency and slowdown."""
    job = drawn.write(library.folder, folder)
    first = library.plan(job, bound_only=True, with_one_clock=True)
    highest_s, highest_j = first["maximum"]["time_s"], first["maximum"]["energy_j"]
    times = [highest_s * (1 + slowdown) for slowdown in SLOWDOWNS]
    relaxed_j = library.plan(job, bound_only=True, times=times)["bounds_j"]
    ranks_j = [found[0] for found in simple_searches(
        library.folder / "bench" / "bench_groups", Pipeline(library.graph(job, folder)),
        [(time, 1e9) for time in times])]
    rows = []
    for latency in chosen.latencies:
        found = library.plan(job, times=times, latency_s=latency, threads=1)
        for index, slowdown in enumerate(SLOWDOWNS):
            one_j = least(first["one_clock"], times[index])
            energies = {"plan": found["plans"][index]["energy_j"],
                        "ranks": min(one_j, ranks_j[index] or math.inf), "one": one_j}
            rows.append({**dataclasses.asdict(drawn), "instructions": found["instructions"],
                         "latency_s": latency, "slowdown": slowdown, "cpu_s": found["cpu_s"],
                         "highest_j": highest_j, "bound_j": found["bounds_j"][index],
                         "relaxed_j": relaxed_j[index],
                         "time": found["plans"][index]["time_s"] / highest_s - 1,
                         **{f"{key}_j": value for key, value in energies.items()}})
    pathlib.Path(job["profile"]).unlink()
    return rows


def share(row, key, bound="bound"):
    """Returns how much of what a bound allows is saved, in percent."""
    return 100 * (row["highest_j"] - row[f"{key}_j"]) / (row["highest_j"] - row[f"{bound}_j"])


def spread(values):
    """Returns minimum, 10th percentile, median and 90th percentile as text."""
    return "; ".join(f"{quantile(values, part):.1f}" for part in (0, 0.1, 0.5, 0.9)) + " %"


def is_counted(row):
    return row["highest_j"] - row["bound_j"] >= FEWEST_ALLOWED * row["highest_j"]


def is_worse(row):
    return row["plan_j"] > row["ranks_j"] * (1 + ROUNDING)


def share_table(rows, chosen):
    table = Table(
        "Production shapes",
        f"{chosen.shapes} generated pipelines (seed {chosen.seed}) of at most "
        f"{chosen.most_instructions:,} instructions. Each cell shows how much is saved of what the "
        "lower bound allows within that time: the minimum over the shapes, the 10th percentile, "
        "the median and the 90th percentile.",
        ["latency, time", "shapes", "bound allows, median", "without latency",
         "of that saved, median"] + [name for _, name in SHARES] +
        ["worse than one clock per rank", "processor time for the four times, median", "largest"])
    for latency in chosen.latencies:
        for slowdown in SLOWDOWNS:
            own = [row for row in rows
                   if row["latency_s"] == latency and row["slowdown"] == slowdown]
            used = [row for row in own if is_counted(row)]
            if not used:
                continue
            allowed = statistics.median(100 * (1 - row["bound_j"] / row["highest_j"])
                                        for row in used)
            relaxed = statistics.median(100 * (1 - row["relaxed_j"] / row["highest_j"])
                                        for row in used)
            reached = statistics.median(share(row, "plan", "relaxed") for row in used)
            table.add(f"{1000 * latency:g} ms, +{100 * slowdown:g} %", count(len(used)),
                      f"{allowed:.1f} %", f"{relaxed:.1f} %", f"{reached:.1f} %",
                      *(spread([share(row, key) for row in used]) for key, _ in SHARES),
                      count(sum(is_worse(row) for row in own)),
                      seconds(statistics.median(row["cpu_s"] for row in own)),
                      seconds(max(row["cpu_s"] for row in own)))
    return table


def numbers(text):
    return [float(word) for word in text.split(",")]


def arguments(words, builds):
    parser = argparse.ArgumentParser(
        prog="bench/run shapes", description="Makes plans of production shapes, beside one clock "
        "for each rank and one clock for all GPUs. Exits with status 1 if one of these needs less "
        "energy.")
    builds(parser)
    parser.add_argument("--shapes", type=int, default=200, metavar="N",
                        help="generated shapes (default 200)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default 1")
    parser.add_argument("--latencies", type=numbers, default=list(LATENCIES_S), metavar="S,S",
                        help="seconds until a clock changes (default 0,0.005,0.025,0.1)")
    parser.add_argument("--most-instructions", type=int, default=3072, metavar="N",
                        help="the largest shapes (default 3072)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="shapes that are planned at once (default: the cores)")
    parser.add_argument("--output", metavar="FILE", help="write one row for each plan as CSV")
    chosen = parser.parse_args(words)
    if min(chosen.shapes, chosen.processes) < 1 or chosen.most_instructions < 2 * min(RANKS) * min(MICROBATCHES):
        parser.error("--shapes and --processes must be at least 1, --most-instructions at least "
                     f"{2 * min(RANKS) * min(MICROBATCHES)}")
    if chosen.before:
        parser.error("--before is not for shapes: run both builds, with --output")
    chosen.build = pathlib.Path(chosen.build)
    if not (chosen.build / "bench" / "bench_groups").exists():
        parser.error(f"{chosen.build}/bench/bench_groups was not built: run make build")
    return chosen


def main(words, builds):
    """Returns the table and the exit status."""
    chosen = arguments(words, builds)

    def measure_every(first):
        with tempfile.TemporaryDirectory(prefix="harpe-bench-") as folder, \
                Library(chosen.build) as library:
            return [row for number in range(first, chosen.shapes, chosen.processes)
                    for row in measure(library, shape(chosen.seed, number,
                                                      chosen.most_instructions), chosen, folder)]

    with concurrent.futures.ThreadPoolExecutor(chosen.processes) as pool:
        parts = pool.map(measure_every, range(chosen.processes))
        rows = sorted((row for part in parts for row in part),
                      key=lambda row: (row["number"], row["latency_s"], row["slowdown"]))
    if chosen.output:
        with open(chosen.output, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    worse = [row for row in rows if is_worse(row)]
    for row in worse:
        print(f"shapes: number {row['number']}, {row['latency_s']:g} s, +{row['slowdown']:g}: one "
              f"clock per rank needs {100 * (1 - row['ranks_j'] / row['plan_j']):.4f} % less",
              file=sys.stderr)
    return chosen, [share_table(rows, chosen)], 1 if worse else 0
