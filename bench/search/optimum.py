# SPDX-License-Identifier: Apache-2.0
"""bench/run optimum: plans of small jobs beside the true optimum, which HiGHS finds as a mixed
integer program. Shows how much of the gap to the lower bound no plan can close. Needs the package
highspy, which is no dependency of Harpe."""
import argparse
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

from search import profiles
from search.dwell import Pipeline
from search.library import Library
from tables import Table, percent, seconds

SIZES = ((2, 4), (2, 8), (3, 6), (4, 4), (4, 6), (4, 8))
CLOCKS = (8, 14, 38)
LIKE_SIZES = ((4, 4), (8, 2), (4, 8))
# Deadlines between the fastest plan (0) and the plan of least energy (1).
PLACES = (0.2, 0.5, 0.8)
PICOSECOND = 1e-12
# A relative gap at which HiGHS takes an answer as optimal.
PROVEN = 1e-6


def jobs(seed, instances):
    """Yields small jobs of 1F1B, the smallest first."""
    for number in range(instances):
        source = random.Random(f"harpe optimum {seed} {number}")
        ranks, microbatches = SIZES[number % len(SIZES)]
        gpu = profiles.shape_gpu(source, profiles.SHAPES[number % len(profiles.SHAPES)])
        clocks = source.choice(CLOCKS)
        rows = profiles.measured_rows(
            source, gpu, profiles.clock_list(clocks, gpu.highest_mhz), ranks,
            profiles.work_of(source, ranks, source.choice((0.9, 1.1)), 0.03),
            ("forward", "backward"), source.choice((0.001, 0.003, 0.01)), 0.05)
        yield f"{clocks} clocks", profiles.Job(f"small {number}", rows, "1f1b", ranks, microbatches, {})


def bloom_like(seed, instances):
    """Yields small jobs with curves like those published of Bloom 176B."""
    for number in range(instances):
        for ranks, microbatches in LIKE_SIZES:
            job = profiles.job_like("Bloom-like", seed + number, ranks, microbatches)
            job.name += f" {ranks} {microbatches}"
            yield "Bloom-like", job


def useful(options, power_w):
    """Returns the options that no other one beats in both time and energy beyond waiting."""
    kept = []
    for _, taken, used in sorted(options, key=lambda one: (one[1], one[2])):
        saved = used - power_w * taken
        if not kept or saved < kept[-1][1]:
            kept.append((taken, saved))
    return kept


class Program:
    """The mixed integer program of a job with a deadline: one binary variable for each option, and
    a start for each instruction."""

    def __init__(self, highspy, pipeline, deadline_s, limit_s):
        self.pipeline = pipeline
        self.model = highspy.Highs()
        for name, value in (("log_to_console", False), ("output_flag", False),
                            ("time_limit", float(limit_s)), ("threads", 1),
                            ("mip_rel_gap", PROVEN)):
            self.model.setOptionValue(name, value)
        self._highspy, self._infinity = highspy, highspy.kHighsInf
        self._columns = 0
        self.end = self._variable(0, deadline_s, sum(pipeline.power_w))
        self.options = [useful(options, pipeline.power_w[rank])
                        for options, rank in zip(pipeline.options, pipeline.rank)]
        self.start, self.chosen = [], []
        for options in self.options:
            self.chosen.append([self._variable(0, 1, saved, True) for _, saved in options])
            self.start.append(self._variable(0, deadline_s, 0))
        self._add_rows()

    def _variable(self, low, high, cost, is_whole=False):
        column = self._columns
        self._columns += 1
        self.model.addVar(low, high)
        self.model.changeColCost(column, cost)
        if is_whole:
            self.model.changeColIntegrality(column, self._highspy.HighsVarType.kInteger)
        return column

    def _row(self, low, high, entries):
        self.model.addRow(low, high, len(entries), [one[0] for one in entries],
                          [float(one[1]) for one in entries])

    def _add_rows(self):
        """Each instruction has one option, and starts after the ends of those it waits for."""
        taken = [[(column, -t) for column, (t, _) in zip(columns, options)]
                 for columns, options in zip(self.chosen, self.options)]
        waited_for = {wait for waits in self.pipeline.after for wait in waits}
        for index, waits in enumerate(self.pipeline.after):
            self._row(1, 1, [(column, 1) for column in self.chosen[index]])
            for wait in waits:
                self._row(0, self._infinity, [(self.start[index], 1), (self.start[wait], -1),
                                              *taken[wait]])
            if index not in waited_for:
                self._row(0, self._infinity, [(self.end, 1), (self.start[index], -1),
                                              *taken[index]])

    def begin_with(self, mhz):
        """Gives HiGHS a plan to begin with."""
        values = [0.0] * self._columns
        end = [0.0] * len(mhz)
        for index in self.pipeline.order:
            clock, power_w = mhz[index], self.pipeline.power_w[self.pipeline.rank[index]]
            taken, used = next((t, e) for f, t, e in self.pipeline.options[index] if f == clock)
            nearest = min(range(len(self.options[index])),
                          key=lambda k: (self.options[index][k][0] > taken + PICOSECOND,
                                         self.options[index][k][1] - (used - power_w * taken)))
            begins = max((end[wait] for wait in self.pipeline.after[index]), default=0.0)
            end[index] = begins + self.options[index][nearest][0]
            values[self.start[index]] = begins
            values[self.chosen[index][nearest]] = 1.0
        values[self.end] = max(end)
        solution = self._highspy.HighsSolution()
        solution.col_value = values
        self.model.setSolution(solution)

    def solve(self):
        """Returns the energy of the best plan, the proven bound, and the seconds."""
        began_s = time.monotonic()
        self.model.run()
        info = self.model.getInfo()
        return info.objective_function_value, info.mip_dual_bound, time.monotonic() - began_s


def measure(highspy, libraries, job, folder, limit_s):
    now = libraries["now"]
    pipeline = Pipeline(now.graph(job, folder))
    first = now.plan(job, plans=1)
    span_s = first["minimum_energy_s"] - first["fastest_s"]
    times = [first["fastest_s"] + place * span_s + PICOSECOND for place in PLACES]
    found = {build: library.plan(job, times=times, with_clocks=True)
             for build, library in libraries.items()}
    rows = []
    for index, deadline_s in enumerate(times):
        ours = found["now"]["plans"][index]
        program = Program(highspy, pipeline, deadline_s, limit_s)
        program.begin_with(ours["mhz"])
        best_j, proven_j, took_s = program.solve()
        rows.append({"bound": found["now"]["bounds_j"][index], "best": best_j, "proven": proven_j,
                     "solver_s": took_s, "instructions": found["now"]["instructions"],
                     **{build: own["plans"][index]["energy_j"] for build, own in found.items()}})
    return rows


def above(value, reference):
    return 100 * (value / reference - 1)


def add(table, name, rows, has_before):
    builds = ["now"] + (["before"] if has_before else [])
    is_proven = [above(row["best"], row["proven"]) < 100 * 10 * PROVEN for row in rows]
    cells = [percent(statistics.fmean(above(row[build], row["bound"]) for row in rows))
             for build in builds]
    cells += [f"{percent(statistics.fmean(values))}; {percent(max(values))}" for values in (
        [max(0.0, above(row[build], row["best"])) for row in rows] for build in builds)]
    cells += [percent(statistics.fmean(above(max(row["proven"], row["bound"]), row["bound"])
                                       for row in rows)),
              f"{sum(is_proven)} of {len(rows)}",
              seconds(statistics.median(row["solver_s"] for row in rows))]
    table.add(name, len(rows), *cells)


def make_table(groups, has_before, limit_s):
    header = ["jobs", "plans", "above the bound"] + (["before"] if has_before else [])
    header += ["above the best known plan, mean; worst"] + (["before"] if has_before else [])
    header += ["cannot be closed", "optimum proven", "time of HiGHS"]
    table = Table(
        "Distance to the true optimum",
        "Small jobs of 1F1B, each with three deadlines. HiGHS begins with our plan and has "
        f"{limit_s:g} s for each. The best known plan is the optimum where HiGHS has proven it. "
        "The column *cannot be closed* is how far the optimum, or the bound that HiGHS has proven "
        "until then, is above the bound of the relaxation: no plan has a smaller gap. All columns "
        "are means, and times are medians.", header)
    for name, rows in groups:
        add(table, name, rows, has_before)
    if len(groups) > 1:
        add(table, "all", [row for _, rows in groups for row in rows], has_before)
    return table


def arguments(words, builds):
    parser = argparse.ArgumentParser(
        prog="bench/run optimum", description="Compares plans of small jobs with the true optimum. "
        "Needs the Python package highspy (pip install highspy) in the python3 that runs this.")
    builds(parser)
    parser.add_argument("--instances", type=int, default=6, metavar="N",
                        help="generated jobs (default 6)")
    parser.add_argument("--likes", type=int, default=0, metavar="N",
                        help="Bloom-like jobs of each size (default 0)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default 1")
    parser.add_argument("--time-limit", type=float, default=60, metavar="SECONDS",
                        help="for each plan (default 60)")
    return parser.parse_args(words)


def main(words, builds):
    """Returns the tables."""
    chosen = arguments(words, builds)
    try:
        import highspy
    except ImportError:
        print("optimum: skipped, the Python package highspy is missing: pip install highspy",
              file=sys.stderr)
        return chosen, [], 0
    # HiGHS prints a line about itself, which is not a part of the tables: it goes to stderr.
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    libraries = {"now": Library(chosen.build)}
    if chosen.before:
        libraries["before"] = Library(chosen.before)
    groups, status = {}, 0
    with tempfile.TemporaryDirectory(prefix="harpe-bench-") as name:
        folder = pathlib.Path(name)
        for kind, job in [*jobs(chosen.seed, chosen.instances),
                          *bloom_like(chosen.seed, chosen.likes)]:
            rows = measure(highspy, libraries, job.write(folder), folder, chosen.time_limit)
            groups.setdefault(f"{job.ranks} x {job.microbatches}, {kind}", []).extend(rows)
            for row in rows:
                if row["now"] < row["proven"] * (1 - 10 * PROVEN):
                    print(f"optimum: {job.name}: our plan needs less than HiGHS's bound: "
                          f"{row['now']} J, {row['proven']} J", file=sys.stderr)
                    status = 1
    for library in libraries.values():
        library.close()
    table = make_table(list(groups.items()), bool(chosen.before), chosen.time_limit)
    return chosen, [table], status
