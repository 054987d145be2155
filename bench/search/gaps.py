# SPDX-License-Identifier: Apache-2.0
"""bench/run gaps: how far plans are above the lower bound, on generated jobs of many kinds, and the
time that they take. With --before, the same for an older build."""
import argparse
import collections
import csv
import itertools
import pathlib
import statistics
import sys
import tempfile

from search import profiles
from search.library import Library, Refused
from tables import Table, count, percent, seconds

# Goals for 8 x 24, in percent: mean and worst gap.
GOALS = {"Bloom-like": (0.10, 0.30)}
# A plan is near the fastest one if it takes at most this times as long.
NEAR = 1.02
COLUMNS = ("number", "build", "ranks", "microbatches", "instructions", "clock_count", "plans",
           "mean_gap_percent", "worst_gap_percent", "near_gap_percent", "cpu_s", "wall_s")


def gap_of(plan):
    return 100 * (plan["energy_j"] / plan["bound_j"] - 1)


def measure(library, job, folder, **settings):
    """Returns the row of one job and one build, or None if this build refuses the job."""
    written = job.write(folder)
    try:
        found = library.plan(written, **settings)
    except Refused as reason:
        print(f"{job.name}: {job.schedule} {job.ranks} x {job.microbatches}: {reason}",
              file=sys.stderr)
        return None
    gaps = [gap_of(plan) for plan in found["plans"]]
    near = [gap_of(plan) for plan in found["plans"] if plan["time_s"] <= NEAR * found["fastest_s"]]
    return {**job.tags, "ranks": job.ranks, "microbatches": job.microbatches,
            "instructions": found["instructions"], "plans": len(gaps),
            "clock_count": len({row[2] for row in job.rows}),
            "mean_gap_percent": statistics.fmean(gaps), "worst_gap_percent": max(gaps),
            "near_gap_percent": statistics.fmean(near),
            "cpu_s": found["cpu_s"], "wall_s": found["wall_s"]}


def quantile(values, share):
    """Returns the smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def spread(rows, key):
    """Returns median, 90th percentile and maximum as text."""
    values = [row[key] for row in rows]
    return "; ".join(f"{quantile(values, share):.3f}" for share in (0.5, 0.9, 1)) + " %"


def add_group(table, name, builds, rows):
    """Adds one line with the jobs that all builds planned."""
    common = set.intersection(*({row["number"] for row in rows if row["build"] == build}
                                for build in builds))
    if not common:
        return
    cells = []
    for build in builds:
        own = [row for row in rows if row["build"] == build and row["number"] in common]
        cells += [spread(own, "mean_gap_percent"), spread(own, "worst_gap_percent"),
                  spread(own, "near_gap_percent"),
                  seconds(sum(row["cpu_s"] for row in own))]
    table.add(name, count(len(common)), *cells)


def group_table(builds, rows, seed, plans):
    header = ["jobs", "number"]
    for build in builds:
        suffix = "" if len(builds) == 1 else f", {build}"
        header += [f"mean gap{suffix}", f"worst gap{suffix}", f"near the fastest{suffix}",
                   f"processor time{suffix}"]
    table = Table(
        "Gaps on generated jobs",
        f"Each job has a generated profile and one of all schedules (seed {seed}). The planner "
        f"makes about {plans} plans for it. The gap is 100 (energy - bound) / bound at the plan's "
        "own time. A job has a mean gap and a worst gap of its plans, and a mean gap of those that "
        f"take at most {100 * NEAR - 100:.0f} % longer than the fastest. A cell shows three values: "
        "the median of the jobs, the 90th percentile, and the maximum.", header)
    add_group(table, "all", builds, rows)
    for kind in ("schedule", "clocks", "shape", "noise", "balance", "size"):
        for value in sorted({row[kind] for row in rows}, key=lambda v: (len(v), v)):
            add_group(table, f"{kind}: {value}", builds,
                      [row for row in rows if row[kind] == value])
    return table


def run_family(chosen, libraries, folder):
    rows = []
    names = libraries["now"].schedules
    for number in range(chosen.instances):
        job = profiles.job(chosen.seed, number, names, chosen.most_instructions)
        for build, library in libraries.items():
            row = measure(library, job, folder, plans=chosen.plans)
            if row:
                rows.append({"number": number, "build": build, **row})
        (folder / (job.name.replace(" ", "_") + ".csv")).unlink()
    return rows


def add_likes(table, name, build, own, goal):
    """Adds the line of the jobs of one kind. `goal`: mean and worst gap in %, or None."""
    mean = statistics.fmean(row["mean_gap_percent"] for row in own)
    worst = max(row["worst_gap_percent"] for row in own)
    near = statistics.fmean(row["near_gap_percent"] for row in own)
    table.add(name, build, percent(mean), percent(worst), percent(near),
              f"{goal[0]:.2f}; {goal[1]:.2f} %" if goal else "-",
              "-" if not goal else " / ".join("yes" if value <= limit else "NO"
                                              for value, limit in zip((mean, worst), goal)),
              seconds(statistics.median(row["cpu_s"] for row in own)),
              seconds(statistics.median(row["wall_s"] for row in own)))


def like_table(chosen, libraries, folder):
    """Measures jobs that resemble the published profiles, and compares with the goals."""
    table = Table(
        "Gaps on profiles like the published ones",
        f"{chosen.likes} generated profiles of each kind, 8 stages, 24 microbatches, "
        f"{chosen.plans} plans. The mean gap is the mean of all plans of all profiles. All stages "
        "but the last are equal in the published profiles.",
        ["profiles", "build", "mean gap", "worst gap", "near the fastest", "goal", "met",
         "processor time of one", "time of one"])
    rows = []
    for kind, has_equal_stages in itertools.product(profiles.LIKES, (True, False)):
        jobs = [profiles.job_like(kind, chosen.seed + seed, has_equal_stages=has_equal_stages)
                for seed in range(chosen.likes)]
        name = f"{kind}, {'equal' if has_equal_stages else 'unequal'} stages"
        for build, library in libraries.items():
            own = [{"number": seed, "build": build,
                    **measure(library, job, folder, plans=chosen.plans)}
                   for seed, job in enumerate(jobs)]
            add_likes(table, name, build, own, GOALS.get(kind) if build == "now" else None)
            rows += own
    return table, rows


def write_csv(path, rows):
    names = list(COLUMNS) + sorted({key for row in rows for key in row} - set(COLUMNS))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows)


def arguments(words, builds):
    parser = argparse.ArgumentParser(
        prog="bench/run gaps", description="Makes plans for generated jobs, and shows how far they "
        "are above the lower bound.")
    builds(parser)
    parser.add_argument("--instances", type=int, default=90, metavar="N",
                        help="generated jobs (default 90)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default 1")
    parser.add_argument("--plans", type=int, default=40, metavar="N",
                        help="plans for each job (default 40)")
    parser.add_argument("--most-instructions", type=int, default=4096, metavar="N",
                        help="the largest jobs that are generated (default 4096)")
    parser.add_argument("--likes", type=int, default=3, metavar="N",
                        help="Bloom-like and GPT-3-like profiles, each (default 3; 0: none)")
    parser.add_argument("--output", metavar="FILE", help="write one row for each job as CSV")
    chosen = parser.parse_args(words)
    if chosen.instances < 0 or chosen.likes < 0 or chosen.plans < 1:
        parser.error("--instances and --likes must be at least 0, --plans at least 1")
    return chosen


def main(words, builds):
    """Returns the tables."""
    chosen = arguments(words, builds)
    libraries = collections.OrderedDict(now=Library(chosen.build))
    if chosen.before:
        libraries["before"] = Library(chosen.before)
    tables, rows = [], []
    with tempfile.TemporaryDirectory(prefix="harpe-bench-") as name:
        if chosen.instances:
            rows = run_family(chosen, libraries, pathlib.Path(name))
            tables.append(group_table(list(libraries), rows, chosen.seed, chosen.plans))
        if chosen.likes:
            table, own = like_table(chosen, libraries, pathlib.Path(name))
            tables.append(table)
            rows += own
    for library in libraries.values():
        library.close()
    if chosen.output:
        write_csv(chosen.output, rows)
    return chosen, tables, 0
