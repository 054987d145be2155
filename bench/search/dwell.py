# SPDX-License-Identifier: Apache-2.0
"""bench/run dwell: plans in which each clock holds for a minimum time, beside two simpler searches:
one clock for each rank, and a greedy search with one clock for each group of instructions. Neither
may find a plan that needs less energy."""
import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from search import profiles
from search.library import Library
from tables import Table, count

DWELLS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
FACTORS = (1.0, 1.02, 1.04, 1.06, 1.08, 1.10, 1.12)
# A plan is worse if it needs more than this share of energy more.
ROUNDING = 1e-6
# Times are whole picoseconds in the library.
PICOSECOND = 1e-12
MEASURED = {name: f"pipeline/{name}_a100.csv" for name in ("bloom-176b", "gpt3-175b")}
DATA = pathlib.Path(os.environ.get(
    "HARPE_DATA", pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"))
# ranks and microbatches of the generated jobs of the family
FAMILY_SIZES = ((4, 16), (8, 12), (6, 24), (4, 8))


class Pipeline:
    """The graph of a job, with the arithmetic of plans."""

    def __init__(self, graph):
        self.power_w = [one["blocking_power"] for one in graph["resources"]]
        ranks = {one["name"]: rank for rank, one in enumerate(graph["resources"])}
        activities = graph["activities"]
        at = {one["name"]: index for index, one in enumerate(activities)}
        self.rank = [ranks[one["resource"]] for one in activities]
        self.after = [[at[wait if isinstance(wait, str) else wait["name"]]
                       for wait in one.get("after", ())] for one in activities]
        self.options = [[(option["frequency"], option["time"], option["energy"])
                         for option in one["options"]] for one in activities]
        self.order = self._order()

    def _order(self):
        left = [len(waits) for waits in self.after]
        behind = [[] for _ in self.after]
        for index, waits in enumerate(self.after):
            for wait in waits:
                behind[wait].append(index)
        ready = [index for index, number in enumerate(left) if number == 0]
        for index in ready:
            for other in behind[index]:
                left[other] -= 1
                if left[other] == 0:
                    ready.append(other)
        return ready

    def text(self):
        """Returns the input of bench_groups."""
        kinds = {}
        for options in self.options:
            kinds.setdefault(tuple(options), len(kinds))
        waits = [(wait, index) for index, own in enumerate(self.after) for wait in own]
        lines = [f"{len(self.power_w)} {len(kinds)} {len(self.rank)} {len(waits)}",
                 " ".join(map(repr, self.power_w))]
        for options in kinds:
            lines.append(f"{len(options)} " + " ".join(f"{f} {t!r} {e!r}" for f, t, e in options))
        lines += [f"{rank} {kinds[tuple(options)]}"
                  for rank, options in zip(self.rank, self.options)]
        lines += [f"{wait} {index}" for wait, index in waits]
        return "\n".join(lines) + "\n"

    def timeline(self, mhz):
        """Returns the chosen option, the start and the end of each activity of a plan."""
        chosen = [next((one for one in options if one[0] == clock), options[0])
                  for clock, options in zip(mhz, self.options)]
        start, end = [0.0] * len(mhz), [0.0] * len(mhz)
        for index in self.order:
            start[index] = max((end[wait] for wait in self.after[index]), default=0.0)
            end[index] = start[index] + chosen[index][1]
        return chosen, start, end

    def evaluate(self, mhz):
        """Returns time, energy and shortest dwell time of a plan. The dwell time is that between
        two changes of a rank's clock; it is infinite without changes."""
        chosen, start, end = self.timeline(mhz)
        time = max(end)
        energy = sum(self.power_w) * time
        for rank, (_, taken, used) in zip(self.rank, chosen):
            energy += used - self.power_w[rank] * taken
        return time, energy, min(self._dwell(rank, mhz, start, time)
                                 for rank in range(len(self.power_w)))

    def _dwell(self, rank, mhz, start, time):
        own = [index for index, other in enumerate(self.rank) if other == rank]
        begins = [start[own[0]]] + [start[b] for a, b in zip(own, own[1:]) if mhz[a] != mhz[b]]
        if len(begins) == 1:
            return float("inf")
        lengths = [b - a for a, b in zip(begins, begins[1:])] + [time + begins[0] - begins[-1]]
        if mhz[own[0]] == mhz[own[-1]]:  # the last clock goes on in the next iteration
            lengths[0] += lengths.pop()
        return min(lengths)


def jobs(chosen):
    """Yields the jobs, each with its kind."""
    for kind in profiles.LIKES:
        for seed in range(chosen.likes):
            yield kind, profiles.job_like(kind, chosen.seed + seed)
    for number in range(chosen.instances):
        source = random.Random(f"harpe dwell {chosen.seed} {number}")
        ranks, microbatches = FAMILY_SIZES[number % len(FAMILY_SIZES)]
        gpu = profiles.shape_gpu(source, profiles.SHAPES[number % len(profiles.SHAPES)])
        work = profiles.work_of(source, ranks, source.choice((0.9, 1.1, 1.5)), 0.03)
        rows = profiles.measured_rows(
            source, gpu, profiles.clock_list(source.choice((8, 20, 38)), gpu.highest_mhz), ranks,
            work, ("forward", "backward"), source.choice((0.001, 0.01)), 0.05)
        yield "generated", profiles.Job(f"family {number}", rows, "1f1b", ranks, microbatches, {})


def measured_jobs():
    """Yields the measured profiles, if they are present."""
    for name, path in MEASURED.items():
        if (DATA / path).exists():
            yield name, {"profile": str(DATA / path), "schedule": "1f1b", "ranks": 8,
                         "microbatches": 24, "blocking_w": 83.64}
        else:
            print(f"dwell: {name} is left out: {DATA / path} does not exist", file=sys.stderr)


def simple_searches(program, pipeline, queries):
    """Returns for each (deadline, dwell) the energy with one clock per rank, and that of the greedy
    search; None if there is no such plan."""
    text = pipeline.text() + "".join(f"{t!r} {dwell!r}\n" for t, dwell in queries)
    done = subprocess.run([program], input=text, text=True, stdout=subprocess.PIPE, check=True)
    found = []
    for line in done.stdout.splitlines():
        rank_s, rank_j, greedy_s, greedy_j = map(float, line.split())
        found.append((rank_j if rank_s >= 0 else None, greedy_j if greedy_s >= 0 else None))
    return found


def check(pipeline, plan, deadline_s, dwell_s, what):
    """Recomputes a plan. Returns the errors."""
    time, energy, dwell = pipeline.evaluate(plan["mhz"])
    errors = []
    if abs(time - plan["time_s"]) > 1e-9 * time or abs(energy - plan["energy_j"]) > 1e-7 * energy:
        errors.append(f"{what}: time or energy are not {time} s, {energy} J")
    if time > deadline_s + 2 * PICOSECOND:
        errors.append(f"{what}: takes {time} s, not at most {deadline_s} s")
    if dwell < dwell_s * (1 - 1e-9):
        errors.append(f"{what}: a clock holds for {dwell} s only")
    return errors


def measure(kind, name, job, libraries, chosen, folder):
    """Returns the rows of a job, one for each dwell time and factor, and the errors."""
    now = libraries["now"]
    pipeline = Pipeline(now.graph(job, folder))
    first = now.plan(job, plans=1, with_one_clock=True)
    maximum = first["maximum"]
    times = [factor * maximum["time_s"] + PICOSECOND for factor in chosen.factors]
    queries = [(t, dwell) for dwell in chosen.dwells for t in times]
    simple = iter(simple_searches(chosen.build / "bench" / "bench_groups", pipeline, queries))
    rows, errors = [], []
    for dwell in chosen.dwells:
        plans = {build: library.plan(job, times=times, min_dwell_s=dwell,
                                     with_clocks=True)["plans"]
                 for build, library in libraries.items()}
        for index, (factor, t) in enumerate(zip(chosen.factors, times)):
            what = f"{name}, {dwell:g} s, {factor:g} times the time"
            row = {"kind": kind, "name": name, "dwell": dwell, "factor": factor,
                   "maximum_j": maximum["energy_j"], "now": plans["now"][index]["energy_j"]}
            errors += check(pipeline, plans["now"][index], t, dwell, what)
            row["ranks"], row["greedy"] = next(simple)
            row["one"] = min((energy for time, energy in first["one_clock"] if time <= t * (1 + 1e-9)),
                             default=None)
            if "before" in plans:  # a plan that does not keep the times is none
                is_wrong = bool(check(pipeline, plans["before"][index], t, dwell, what))
                row["before"] = None if is_wrong else plans["before"][index]["energy_j"]
                row["is_wrong_before"] = is_wrong
            rows.append(row)
    return rows, errors


def saved(row, key):
    return None if row.get(key) is None else 100 * (1 - row[key] / row["maximum_j"])


def worse_by(row, key):
    """Returns by how many percent our plan needs more energy, or 0."""
    if row.get(key) is None or row["now"] <= row[key] * (1 + ROUNDING):
        return 0.0
    return 100 * (row["now"] / row[key] - 1)


def mean_text(values):
    values = [value for value in values if value is not None]
    return f"{statistics.fmean(values):.2f} %" if values else "-"


def against(rows, key):
    worse = [value for value in (worse_by(row, key) for row in rows) if value > 0]
    if not any(row.get(key) is not None for row in rows):
        return "-"
    return "never" if not worse else f"{len(worse)}, by up to {max(worse):.3f} %"


def comparison_table(rows, has_before):
    columns = [("one", "one clock for all GPUs"), ("ranks", "one clock per rank"), ("greedy", "greedy")]
    if has_before:
        columns.append(("before", "before"))
    header = ["jobs, dwell time", "plans", "saved"]
    header += [f"saved, {text}" for _, text in columns]
    header += [f"worse than {text}" for _, text in columns]
    header += ["wrong before"] if has_before else []
    table = Table(
        "Minimum dwell times beside simpler searches",
        "The plans of `--min-dwell` for 1.00 to 1.12 times the time of all instructions at the "
        "highest clock, beside the best plan with one clock for all GPUs within the same time, which "
        "needs no planner, the best plan that coordinate search finds with one clock for each rank, and the greedy search with one clock for each group of neighbouring instructions. "
        "Savings are means, relative to the highest clock. A greedy search or one clock per rank "
        "finds no plan where even its fastest clocks are too slow; its mean leaves these cases "
        "out." + (" The last column counts plans of the build before in which a clock does not "
                  "hold long enough; they are left out too." if has_before else ""), header)
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    groups = [(f"{kind}, {dwell:g} s", [row for row in rows
                                        if row["kind"] == kind and row["dwell"] == dwell])
              for kind in kinds for dwell in sorted({row["dwell"] for row in rows})]
    for name, own in groups + [("all", rows)]:
        table.add(name, count(len(own)), mean_text([saved(row, "now") for row in own]),
                  *(mean_text([saved(row, key) for row in own]) for key, _ in columns),
                  *(against(own, key) for key, _ in columns),
                  *([count(sum(row["is_wrong_before"] for row in own))] if has_before else []))
    return table


def factor_table(rows, has_before):
    """Shows the savings of the first measured or Bloom-like job by time factor at 2 s."""
    dwell = 2.0 if any(row["dwell"] == 2.0 for row in rows) else rows[0]["dwell"]
    names = [row["name"] for row in rows]
    name = next((one for one in names if one.startswith("bloom")), names[0])
    own = [row for row in rows if row["name"] == name and row["dwell"] == dwell]
    header = ["time factor", "saved", "one clock for all GPUs", "one clock per rank", "greedy"]
    table = Table(f"Savings with a dwell time of {dwell:g} s, {name}",
                  "The rows are limits of the iteration time, as multiples of the time of all "
                  "instructions at the highest clock.",
                  header + (["before"] if has_before else []))
    keys = ["now", "one", "ranks", "greedy"] + (["before"] if has_before else [])
    for row in own:
        table.add(f"{row['factor']:.2f}", *(mean_text([saved(row, key)]) for key in keys))
    return table


def numbers(text):
    return [float(word) for word in text.split(",")]


def arguments(words, builds):
    parser = argparse.ArgumentParser(
        prog="bench/run dwell", description="Compares plans with a minimum dwell time with simpler "
        "searches. Exits with status 1 if one of them finds a plan that needs less energy.")
    builds(parser)
    parser.add_argument("--instances", type=int, default=4, metavar="N",
                        help="generated jobs of several sizes (default 4)")
    parser.add_argument("--likes", type=int, default=2, metavar="N",
                        help="Bloom-like and GPT-3-like profiles, each (default 2)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default 1")
    parser.add_argument("--dwells", type=numbers, default=list(DWELLS_S), metavar="S,S",
                        help="dwell times in seconds (default 0.1 to 5)")
    parser.add_argument("--factors", type=numbers, default=list(FACTORS), metavar="X,X",
                        help="multiples of the time at the highest clock (default 1.00 to 1.12)")
    parser.add_argument("--no-measured", action="store_true",
                        help="leave out the measured profiles of $HARPE_DATA or ../shared/data")
    chosen = parser.parse_args(words)
    chosen.build = pathlib.Path(chosen.build)
    if not (chosen.build / "bench" / "bench_groups").exists():
        parser.error(f"{chosen.build}/bench/bench_groups was not built: run make build")
    return chosen


def main(words, builds):
    """Returns the tables and the exit status."""
    chosen = arguments(words, builds)
    libraries = {"now": Library(chosen.build)}
    if chosen.before:
        libraries["before"] = Library(chosen.before)
    rows, errors = [], []
    with tempfile.TemporaryDirectory(prefix="harpe-bench-") as name:
        folder = pathlib.Path(name)
        cases = [] if chosen.no_measured else [
            ("measured", *one) for one in measured_jobs()]
        cases += [(kind, job.name, job.write(folder)) for kind, job in jobs(chosen)]
        for kind, what, job in cases:
            own, wrong = measure(kind, what, job, libraries, chosen, folder)
            rows += own
            errors += wrong
    for library in libraries.values():
        library.close()
    for row in rows:
        for key, text in (("one", "one clock for all GPUs"), ("ranks", "one clock per rank"), ("greedy", "the greedy search")):
            if worse_by(row, key) > 0:
                errors.append(f"{row['name']}, {row['dwell']:g} s, {row['factor']:g} times the "
                              f"time: {text} needs {worse_by(row, key):.3f} % less")
    for error in errors:
        print(f"dwell: {error}", file=sys.stderr)
    tables = [comparison_table(rows, bool(chosen.before)), factor_table(rows, bool(chosen.before))]
    return chosen, tables, 1 if errors else 0
