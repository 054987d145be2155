# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark programs and prints their results as tables, for a terminal, as Markdown or as
JSON. The programs measure the times. This file selects the cases, reads the published frontiers for
the comparison, and contains the targets. The part `peers` also runs the published programs. The
parts in search/ have their own arguments."""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from peers import beside  # noqa: E402
from search import commands  # noqa: E402
from tables import Table, count, mebibytes, met, percent, seconds  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("HARPE_BUILD", ROOT / "build" / "release"))
DATA = pathlib.Path(os.environ.get("HARPE_DATA", ROOT.parent / "shared" / "data"))
DOCUMENT = ROOT / "docs" / "benchmarks.md"
# Where the tables of all parts but `peers` are in the document, and those of `peers`.
PLACES = {False: ("<!-- bench/run writes from here -->", "<!-- to here -->"),
          True: ("<!-- bench/run peers writes from here -->", "<!-- to here: peers -->")}

# Blocking power of each data set, in watts.
SYNTHETIC_W, MEASURED_W = 70, 83.64

# stages, microbatches, runs, target in seconds
SOLVER_CASES = [
    (4, 8, 15, 0.010),
    (4, 32, 15, 0.020),
    (8, 64, 9, 0.15),
    (8, 128, 9, 0.3),
    (16, 128, 3, 2.0),
    (32, 256, 1, 60.0),
]
MEASURED = [("gpt3-175b", "pipeline/gpt3-175b_a100.csv"),
            ("bloom-176b", "pipeline/bloom-176b_a100.csv")]
MEASURED_MICROBATCHES = [12, 24, 48, 96]
# Number of published points that are compared per frontier, evenly spread.
POINTS_PER_FRONTIER = 200
# Two energies are equal if their difference is smaller. Published energies have this many digits.
EQUAL_J = 1e-3


class Skipped(Exception):
    """A part of the benchmark lacks a file or program that it needs."""


def run(program, *flags, text=None):
    """Returns the JSON object that one benchmark program prints."""
    path = BUILD / "bench" / f"bench_{program}"
    if not path.exists():
        reason = "is Clp installed?" if program == "lp" else "run: make build"
        raise Skipped(f"{path} was not built; {reason}")
    done = subprocess.run([path, *map(str, flags)], input=text, text=True, stdout=subprocess.PIPE,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {path.name} {' '.join(map(str, flags))} failed")
    return json.loads(done.stdout)


def data(name):
    path = DATA / name
    if not path.exists():
        raise Skipped(f"no {name} in {DATA_NAME}")
    return path


DATA_NAME = "$HARPE_DATA" if "HARPE_DATA" in os.environ else "../shared/data (or $HARPE_DATA)"


def synthetic_flags(stages, microbatches):
    """Returns the profiles of the data that were generated from models. The case with 32 stages
    contains the 16 stages of the largest file twice."""
    source = data(f"synthetic/a100_{min(stages, 16)}s.csv")
    return ["--profile", source, "--stages", stages, "--microbatches", microbatches,
            "--blocking", SYNTHETIC_W]


def measured_flags(name, microbatches):
    return ["--profile", data(name), "--microbatches", microbatches, "--blocking", MEASURED_W]


def read_columns(path, *names):
    """Returns columns of a plain CSV file as tuples of numbers."""
    lines = path.read_text().split("\n")
    header = lines[0].strip().split(",")
    at = [header.index(name) for name in names]
    return [tuple(float(line.split(",")[i]) for i in at) for line in lines[1:] if line.strip()]


# ---- The parts: each gives its tables and its raw results ---------------------------------------

def part_solver():
    table = Table(
        "The exact frontier",
        "Harpe computes the whole frontier of the relaxation (`--bound-only`) in one thread. The "
        f"times are medians of several runs. The profiles were made by a model. The blocking power is {SYNTHETIC_W} W. The "
        "profile with 32 stages is the 16-stage file twice in a row. *Peak* is the largest "
        "resident set of the process.",
        # A pivot exchanges one arc of the tree; a degenerate pivot moves no flow. "events moved"
        # and "path steps" count the passes of the two hot loops. "solver" is the size of its arrays.
        ["stages x microbatches", "instructions", "vertices", "pivots", "degenerate",
         "events moved", "path steps", "build", "solve", "total", "fastest run", "target", "met",
         "ns per unit of work", "solver", "peak"],
        ("instructions", "degenerate", "events moved", "path steps", "build", "solve",
         "fastest run", "met", "ns per unit of work", "solver"))
    results = []
    for stages, microbatches, runs, target in SOLVER_CASES:
        case = f"{stages} x {microbatches}"
        found = run("frontier", *synthetic_flags(stages, microbatches), "--runs", runs)
        first = found["runs"][0]
        build, solve, total = (statistics.median(r[key] for r in found["runs"])
                               for key in ("build_s", "solve_s", "total_s"))
        units = first["nodes_moved"] + first["path_steps"]
        table.add(case, count(found["instructions"]), count(found["vertices"]),
                  count(first["pivots"]),
                  f"{100 * first['degenerate_pivots'] / first['pivots']:.0f} %",
                  count(first["nodes_moved"]), count(first["path_steps"]), seconds(build),
                  seconds(solve), seconds(total),
                  seconds(min(r["total_s"] for r in found["runs"])), f"{target:g} s",
                  met(total, target), f"{1e9 * solve / units:.1f}",
                  mebibytes(first["memory_bytes"]), mebibytes(found["peak_memory_bytes"]))
        results.append({**found, "case": case, "median_total_s": total, "target_s": target})
    return [table], results


def exponent(points):
    """Returns the least-squares slope of log y over log x: y is proportional to x to that power."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x = statistics.fmean(x for x, _ in logs)
    mean_y = statistics.fmean(y for _, y in logs)
    return (sum((x - mean_x) * (y - mean_y) for x, y in logs) /
            sum((x - mean_x) ** 2 for x, _ in logs))


def grow(table, name, cases):
    results = []
    for label, size, stages, microbatches in cases:
        is_end = size in (cases[0][1], cases[-1][1])
        runs = 5 if stages * microbatches <= 1024 else 3 if stages * microbatches <= 2048 else 1
        found = run("frontier", "--stages", stages, "--microbatches", microbatches, "--runs", runs)
        total = statistics.median(r["total_s"] for r in found["runs"])
        pivots = found["runs"][0]["pivots"]
        table.add(label, count(found["vertices"]), count(pivots), seconds(total),
                  only_terminal=not is_end)
        results.append({"size": size, "stages": stages, "microbatches": microbatches,
                        "vertices": found["vertices"], "pivots": pivots, "total_s": total})
    fitted = {key: exponent([(r["size"], r[key]) for r in results])
              for key in ("vertices", "pivots", "total_s")}
    table.add(f"**fitted exponent in {name}**", *(f"{fitted[key]:.2f}" for key in fitted))
    return {"points": results, "exponent": fitted}


def part_growth():
    table = Table(
        "Growth of the work",
        "The profiles are synthetic (`harpe synth --noise 0.01`), so this part needs no data. Each "
        "number of stages has its own profile, so the exponent in N is a rough estimate.",
        ["stages x microbatches", "vertices", "pivots", "time"])
    return [table], {
        "microbatches": grow(table, "M",
                             [(f"8 x {m}", m, 8, m) for m in (8, 16, 32, 64, 128, 256, 512)]),
        "stages": grow(table, "N", [(f"{n} x 64", n, n, 64) for n in (2, 4, 8, 16, 32)]),
    }


def is_between(case):
    """Returns true for the measured profiles' numbers of microbatches between the ends."""
    return case.endswith(tuple(f"8 x {m}" for m in MEASURED_MICROBATCHES[1:-1]))


def part_quality():
    table = Table(
        "Plans: energy above the lower bound",
        "The default plans of a profile are about 100 plans. "
        "The gap is 100 (energy - bound) / bound at the plan's own time. `harpe_plan_verify` "
        "checks every plan. The column *time* contains the frontier and all plans.",
        ["profile, stages x microbatches", "plans", "mean gap (target 0.05 %)",
         "worst gap (0.20 %)", "targets met",
         "largest savings", "time"], ("plans", "targets met", "largest savings"))
    cases = [(f"{name}, 8 x {m}", measured_flags(path, m))
             for name, path in MEASURED for m in MEASURED_MICROBATCHES]
    cases += [(f"synthetic, {n} x {m}", synthetic_flags(n, m))
              for n, m, *_ in SOLVER_CASES if n * m <= 2048]
    results = []
    for case, flags in cases:
        found = run("plans", *flags)
        mean, worst = found["mean_gap_percent"], found["worst_gap_percent"]
        table.add(case, found["plans"], percent(mean), percent(worst),
                  f"{met(mean, 0.05)} / {met(worst, 0.20)}",
                  f"{found['largest_savings_percent']:.1f} %", seconds(found["total_s"]),
                  only_terminal=is_between(case))
        results.append({"case": case, **found})
    return [table], results


def spread(items, most):
    """Returns at most this many of the values, evenly spread, with the first and the last."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def mean_or_none(values):
    return statistics.fmean(values) if values else None


def compare(flags, points):
    """Compares published points (time, energy) with Harpe's frontier: which of these points are
    possible, and how much energy Harpe's plans need at the same time."""
    bounds = run("times", *flags, "--runs", 0, text="".join(f"{t:.9f}\n" for t, _ in points))
    achievable = [(t, e) for (t, e), bound in zip(points, bounds["lower_bound_j"])
                  if bound is not None and e >= bound - EQUAL_J]
    taken = spread(achievable, POINTS_PER_FRONTIER)
    ours = run("times", *flags, text="".join(f"{t:.9f}\n" for t, _ in taken)) if taken else {}
    pairs = [(t, our, e) for our, (t, e) in zip(ours.get("energy_j", []), taken)]
    wins = sum(our <= e + EQUAL_J for _, our, e in pairs)
    useful = [100 * (our / e - 1) for t, our, e in pairs if t <= bounds["minimum_energy_s"]]
    slower = [100 * (our / e - 1) for t, our, e in pairs if t > bounds["minimum_energy_s"]]
    return {"points": len(points), "achievable": len(achievable), "compared": len(taken),
            "no_more": wins,
            "up_to_minimum_energy": len(useful), "mean_percent": mean_or_none(useful),
            "mean_beyond_percent": mean_or_none(slower),
            "worst_percent": max(useful + slower, default=None)}


def signed(value):
    return "-" if value is None else f"{value:+.3f} %"


def add_comparison(table, case, found):
    table.add(case, count(found["points"]),
              count(found["points"] - found["achievable"]), count(found["achievable"]),
              f"{found['no_more']} of {found['compared']}", signed(found["mean_percent"]),
              signed(found["mean_beyond_percent"]), signed(found["worst_percent"]),
              only_terminal=is_between(case))
    return {"case": case, **found}


def part_published():
    table = Table(
        "Published frontiers",
        "Harpe's plans beside the published solver's own predictions for the measured profiles. "
        "The predictions are optimistic, because energies are fitted and times are rounded down "
        "to 1 ms: no plan can reach a point below Harpe's lower bound. Up to "
        f"{POINTS_PER_FRONTIER} of the other points are compared with Harpe's plan for the same "
        "time. A negative difference means that Harpe needs less energy. The last row uses the "
        "published tool's real plans, evaluated with the profile.",
        ["frontier", "points", "below the bound", "achievable", "Harpe needs no more",
         "mean up to T*", "mean beyond T*", "worst"], ("points", "achievable", "mean beyond T*"))
    results = []
    for name, path in MEASURED:
        for m in MEASURED_MICROBATCHES:
            points = read_columns(data(f"frontiers/{name}_a100_mb{m}.csv"), "time", "energy")
            found = compare(measured_flags(path, m), points)
            results.append(add_comparison(table, f"{name}, 8 x {m}", found))
    points = read_columns(data("synthetic/published_tool_4x8/plans.csv"), "real_time",
                          "real_energy")
    found = compare(synthetic_flags(4, 8), points)
    results.append(add_comparison(table, "synthetic, 4 x 8, real plans", found))
    return [table], results


def part_lp():
    table = Table(
        "Against a general LP solver",
        "Clp (C interface, default settings) solves one point in the middle of the frontier; Harpe "
        "solves the whole frontier. Both find the same optimum; the last column is the relative "
        "difference. The figures are medians of 3 runs. The time of Clp for every vertex is an "
        "estimate, without warm starts.",
        ["stages x microbatches", "LP rows x columns", "one point, Clp",
         "every vertex, Harpe", "vertices", "every vertex, Clp", "difference"],
        ("LP rows x columns", "vertices"))
    results = []
    for stages, microbatches, *_ in SOLVER_CASES:
        if stages * microbatches > 2048:
            continue
        found = [run("lp", *synthetic_flags(stages, microbatches)) for _ in range(3)]
        lp, ours = (statistics.median(f[key] for f in found) for key in ("lp_s", "frontier_s"))
        first = found[0]
        table.add(f"{stages} x {microbatches}",
                  f"{count(first['lp_rows'])} x {count(first['lp_columns'])}", seconds(lp),
                  seconds(ours), count(first["vertices"]), seconds(lp * first["vertices"]),
                  f"{first['relative_difference']:.0e}")
        results.append({**first, "lp_s": lp, "frontier_s": ours})
    return [table], results


# profile, stages, microbatches, blocking power, runs
PEER_CASES = [
    ("synthetic, 4 x 4", "synthetic/a100_4s.csv", 4, 4, SYNTHETIC_W, 3),
    ("synthetic, 4 x 8", "synthetic/a100_4s.csv", 4, 8, SYNTHETIC_W, 3),
    ("gpt3-175b, 8 x 4", MEASURED[0][1], 8, 4, MEASURED_W, 3),
]
PEER_RUNS = 3


def beside_lowtime(path, stages, microbatches, blocking_w, runs):
    """Runs lowtime and Harpe in turn. Returns the values of each run, and how far the plans of both
    are above the lower bound."""
    flags = ["--profile", path, "--microbatches", microbatches, "--blocking", blocking_w]
    found = {"lowtime_s": [], "frontier_s": [], "plans_s": []}
    for number in range(runs):
        theirs = beside.lowtime(path, stages, microbatches, blocking_w, has_plans=number == 0)
        found["lowtime_s"].append(theirs["build_cpu_s"] + theirs["solve_cpu_s"])
        times = run("frontier", *flags, "--runs", 9)["runs"]
        found["frontier_s"].append(statistics.median(one["total_s"] for one in times))
        found["plans_s"].append(run("plans", *flags)["total_s"])
        if number == 0:
            found["steps"], points = theirs["steps"], theirs["real"]
    times = run("times", *flags, text="".join(f"{t:.12f}\n" for t, _ in points))
    gaps = {"lowtime": [], "harpe": []}
    for (t, energy), bound, ours in zip(points, times["lower_bound_j"], times["energy_j"]):
        if bound is not None and ours is not None and t <= times["minimum_energy_s"]:
            gaps["lowtime"].append(100 * (energy / bound - 1))
            gaps["harpe"].append(100 * (ours / bound - 1))
    return dict(found, gaps=gaps)


def plain(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def add_pairs(table, what, theirs, ours, show, is_more_better=False):
    """Adds a row of paired runs: the medians, and how many times Harpe is better in each pair."""
    ratios = sorted(our / their if is_more_better else their / max(our, 1e-9)
                    for our, their in zip(ours, theirs))
    table.add(what, show(statistics.median(theirs)), show(statistics.median(ours)),
              plain(statistics.median(ratios)), f"{plain(ratios[0])}-{plain(ratios[-1])}")


def add_lowtime(table):
    results = []
    for case, path, stages, microbatches, blocking_w, runs in PEER_CASES:
        found = beside_lowtime(data(path), stages, microbatches, blocking_w, runs)
        lowtime, ours = found["gaps"]["lowtime"], found["gaps"]["harpe"]
        for key, text in (("frontier_s", "frontier"), ("plans_s", "frontier and 100 plans")):
            add_pairs(table, f"lowtime: {text}, {case}", found["lowtime_s"], found[key], seconds)
        for text, value in (("mean", statistics.fmean), ("worst", max)):
            add_pairs(table, f"lowtime: {text} gap", [value(lowtime)], [value(ours)], percent)
        results.append({"case": case, **found})
    return results


# key, text, whether more is better
SERVER_MEASURES = [
    ("set_up_64_ms", "set-up of 64 ranks, ms", False),
    ("set_up_1024_ms", "set-up of 1024 ranks, ms", False),
    ("set_up_1024_cpu_ms", "processor time for 1024 ranks, ms", False),
    ("rank_kib", "memory for each of 1024 ranks, KiB", False),
    ("results_per_s", "results of a round (5 iterations x 32 microbatches), per second", True),
    ("result_cpu_us", "processor time for a result, us", False),
]
WINDOW_GPUS = ("1xA100", "8xA100")


def add_server(table):
    program = BUILD / "bench" / "bench_server"
    if not program.exists():
        raise Skipped(f"{program} was not built; run: make build")
    ours, theirs = [], []
    for _ in range(PEER_RUNS):
        ours.append(beside.server(program, BUILD / "harpe", False))
        theirs.append(beside.server(program, ROOT / "bench" / "peers" / "published_server", True))
    for key, text, is_more_better in SERVER_MEASURES:
        add_pairs(table, f"server: {text}", [one[key] for one in theirs],
                  [one[key] for one in ours], plain, is_more_better)
    return {"harpe": ours, "published": theirs}


def add_windows(table):
    results = {}
    for gpus in WINDOW_GPUS:
        pairs = [[beside.window_us(BUILD / "harpe", gpus, module) for module in ("zeus", "harpe")]
                 for _ in range(PEER_RUNS)]
        add_pairs(table, f"ZeusMonitor: a window, {gpus}, us", *zip(*pairs), plain)
        results[gpus] = pairs
    return results


def part_peers():
    try:
        beside.python()
    except beside.NotInstalled as reason:
        raise Skipped(str(reason)) from None
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    processor = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    table = Table(
        "Beside the published programs",
        f"One run of `bench/run peers` on {time.strftime('%Y-%m-%d')}: {cores} cores, "
        f"{processor[1] if processor else 'unknown'}, "
        f"load average {load:.0f}. The peers are lowtime 0.3.0 (steps of 1 ms, exponential curves; "
        "its processor time, Harpe's wall time), the server of Zeus 0.16.0 (uvicorn, one worker; "
        "it stores nothing, `harpe serve` stores on disk), and its ZeusMonitor (Python, processor "
        f"time, emulated GPUs). Pairs run in turn, {PEER_RUNS} times. Values and ratios of pairs "
        "are medians; above 1, Harpe is better. Gaps are computed from the profile "
        "for the times of lowtime's plans up to T\\*.",
        ["what", "peer", "Harpe", "ratio", "least-greatest"])
    results = {"lowtime": add_lowtime(table), "server": add_server(table),
               "windows": add_windows(table)}
    return [table], results


PARTS = {"solver": part_solver, "growth": part_growth, "quality": part_quality,
         "published": part_published, "lp": part_lp, "peers": part_peers}


# ---- Output -------------------------------------------------------------------------------------

def update_document(markdown, is_peers):
    begin, end = PLACES[is_peers]
    text = DOCUMENT.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"bench: {DOCUMENT.name} has no place for the tables ({begin} ... {end})")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    DOCUMENT.write_text(f"{before}{begin}\n\n{markdown}\n{end}{after}")


def arguments():
    parser = argparse.ArgumentParser(
        prog="bench/run", description="Measures the planner.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Further parts have their own arguments (bench/run PART --help):\n" +
        "\n".join(f"  {name:<8} {text}" for name, text in commands.COMMANDS.items()))
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help=f"what to measure: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    parser.add_argument("--update-docs", action="store_true",
                        help="write the tables into docs/benchmarks.md (all parts, or only peers)")
    parser.add_argument("--json", metavar="FILE", help="also write all results there")
    chosen = parser.parse_args()
    unknown = [part for part in chosen.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part '{unknown[0]}': choose from {', '.join(PARTS)}")
    if chosen.update_docs and chosen.parts not in ([], ["peers"]):
        parser.error("--update-docs needs all parts, or only peers")
    return chosen


def warn_of_other_work():
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > cores / 2:
        print(f"bench: the machine is busy (load {load:.1f}, {cores} cores): times will be long\n",
              file=sys.stderr)


def main():
    if sys.argv[1:2] and sys.argv[1] in commands.COMMANDS:
        warn_of_other_work()
        sys.exit(commands.run(sys.argv[1], sys.argv[2:]))
    chosen = arguments()
    warn_of_other_work()
    results, markdown, skipped = {}, {False: [], True: []}, []
    for name in chosen.parts or PARTS:
        began = time.monotonic()
        try:
            tables, results[name] = PARTS[name]()
        except Skipped as reason:
            skipped.append(name)
            print(f"{name}: skipped, {reason}\n", file=sys.stderr)
            continue
        markdown[name == "peers"] += [table.markdown() for table in tables]
        if not chosen.markdown:
            print("\n".join(table.plain() for table in tables), flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s\n", file=sys.stderr)
    if chosen.markdown:
        print("\n".join(markdown[False] + markdown[True]))
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(results, indent=1) + "\n")
    if chosen.update_docs:
        if skipped:
            sys.exit("bench: docs/benchmarks.md left alone, parts were skipped")
        for is_peers, texts in markdown.items():
            if texts:
                update_document("\n".join(texts), is_peers)


main()
