# SPDX-License-Identifier: Apache-2.0
"""bench/run measured: a training of GPT-3 175B on 512 H100 whose power was measured every 2 s
(docs/measured-job.md). Fits three numbers of a simulated job to the series, compares the rest, and
shows what plans would save, and how that depends on what the series does not tell."""
import argparse
import bisect
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from search.dwell import Pipeline
from search.library import Library
from search.power_series import (GROUPS as RANKS, ROW_S, describe, find_period, since_dip,
                                 training_blocks)
from tables import Table

DATA = pathlib.Path(os.environ.get(
    "HARPE_DATA", pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"))
SERIES = DATA / "mlperf_gpt3" / "power_by_8_nodes.csv"
CHUNKS, MICROBATCHES, GPUS = 12, 64, 512  # a group of nodes holds a rank of all replicas
HIGHEST_MHZ, KNEE, BACKWARD = 1980, 0.72, 1.95  # as harpe synth --gpu H100 has them
# The base, which is that of harpe synth, or of the model's arithmetic for the head; the lowest and
# the highest value; and others to try.
ASSUMPTIONS = {
    "busy power of a GPU, W": (676, 620, 700),
    "clock reached, MHz": (1980, 1605, 1980),
    "static share of the busy power": (0.21, 0.12, 0.30),
    "voltage at the knee, of the highest": (0.73, 0.65, 0.85),
    "share of the time that follows the clock": (0.80, 0.70, 1.00),
    "language model head, layers": (0.35, 0.0, 0.7, 0.16),
    "blocking power, W": (115, 80, 250),
}
BASE = {name: values[0] for name, values in ASSUMPTIONS.items()}
SLOWDOWNS, LATENCIES_S = (0.0, 0.01, 0.02, 0.05), (0.0, 0.025, 0.1)
CURVES = ("measured", "simulated", "plan")


def write_profile(folder, forward_s, assumed, lowest=0.65):
    """Writes the profile of a layer for each chunk; the last also has the head. Returns what
    Library.plan needs to know."""
    busy_w, reached, static, volt, follows, head, _ = (assumed[name] for name in ASSUMPTIONS)
    path = pathlib.Path(folder) / "job.csv"

    def power(mhz):
        x = mhz / HIGHEST_MHZ
        volts = volt + (1 - volt) * max(0, (x - KNEE) / (1 - KNEE))
        return static + (1 - static) * x * volts ** 2
    lines = ["stage,instruction,frequency,time,energy"]
    for stage in range(RANKS * CHUNKS):
        work_s = forward_s * (1 + head * (stage == RANKS * CHUNKS - 1))
        for name, times in (("forward", 1), ("backward", BACKWARD)):
            for mhz in range(int(reached), int(lowest * reached) - 1, -15):
                taken_s = work_s * times * (follows * reached / mhz + 1 - follows)
                used_j = taken_s * busy_w * power(mhz) / power(reached)
                lines.append(f"{stage},{name},{mhz},{taken_s:.9f},{used_j:.9f}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"profile": str(path), "schedule": "interleaved-1f1b", "ranks": RANKS, "chunks": CHUNKS,
            "microbatches": MICROBATCHES, "blocking_w": assumed["blocking power, W"]}


class Wave:
    """The power of one GPU of each rank over a pipeline with a plan."""

    def __init__(self, pipeline, mhz):
        chosen, start, end = pipeline.timeline(mhz)
        self.time_s, self.waiting_w = max(end), pipeline.power_w[0]
        self.ranks = [([], [0.0]) for _ in range(RANKS)]  # moments, joules above waiting until then
        for index, (_, taken_s, used_j) in enumerate(chosen):
            moments, joules = self.ranks[pipeline.rank[index]]
            moments += [start[index], end[index]]
            joules += [joules[-1], joules[-1] + used_j - self.waiting_w * taken_s]

    def _joules(self, rank, until_s, period_s):
        whole, until_s = divmod(until_s, period_s)
        moments, joules = self.ranks[rank]
        at = bisect.bisect_right(moments, until_s)
        used_j = joules[at and -1]
        if 0 < at < len(moments):
            share = (until_s - moments[at - 1]) / max(moments[at] - moments[at - 1], 1e-12)
            used_j = joules[at] + share * (joules[at + 1] - joules[at])
        return whole * joules[-1] + used_j

    def mean_w(self, rank, from_s, until_s, period_s=1e9):
        """Returns the mean power between two moments of equal steps."""
        return self.waiting_w + (self._joules(rank, until_s, period_s)
                                 - self._joules(rank, from_s, period_s)) / (until_s - from_s)

    def blocks(self, count, fitted):
        """Returns rows as meters show them: each node's own moments make a sum a mean of 2 s."""
        return [[[GPUS // RANKS * (fitted["outside_w"] + self.mean_w(
            rank, ROW_S * i, ROW_S * (i + 1), fitted["period_s"])) for rank in range(RANKS)]
                 for i in range(62 * block, 62 * (block + 1))] for block in range(count)]


def fit(period_s, seen, assumed, library, folder):
    """Fits the time of a forward, the power outside of the GPUs and the end of a step."""
    job = write_profile(folder, 0.0045, assumed, lowest=1)
    pipeline = Pipeline(library.graph(job, folder))
    wave = Wave(pipeline, [0] * len(pipeline.rank))  # the only option
    steady_w, all_w = (statistics.fmean(wave.mean_w(rank, a * wave.time_s, b * wave.time_s)
                                        for rank in range(RANKS)) for a, b in ((0.2, 0.8), (0, 1)))
    outside_w = seen["middle_w"] / GPUS - steady_w  # of a node, for each of its GPUs
    end_s = period_s * (all_w + outside_w - seen["mean_w"] / GPUS) / (all_w - wave.waiting_w)
    return {"forward_s": 0.0045 * (period_s - end_s) / wave.time_s, "end_s": end_s,
            "outside_w": outside_w, "period_s": period_s, "mean_w": seen["mean_w"]}


def saved(fitted, highest, plan):
    """Returns the share of a step's energy of all nodes that (time, energy) of a plan for one GPU
    of each rank saves. A longer step costs the power outside of the GPUs."""
    saved_j = GPUS // RANKS * (highest[1] - plan[1])
    longer_j = GPUS * fitted["outside_w"] * (plan[0] - highest[0])
    return (saved_j - longer_j) / (fitted["mean_w"] * fitted["period_s"])


def savings(library, job, fitted, latencies):
    """Returns for each slowdown what the bound and the best clock for all GPUs save; for each
    latency what plans save; and (time, energy) at the highest clocks."""
    limits = [(1 + slowdown) * fitted["period_s"] - fitted["end_s"] + 1e-6
              for slowdown in SLOWDOWNS]  # profiles are rounded
    first = library.plan(job, bound_only=True, with_one_clock=True, times=limits)
    highest = min(first["one_clock"])

    def best(plans):
        return [max(saved(fitted, highest, plan) for plan in plans if plan[0] <= limit_s)
                for limit_s in limits]
    bounds = {"bound": [saved(fitted, highest, one) for one in zip(limits, first["bounds_j"])],
              "one": best(first["one_clock"])}
    plans = {}
    for latency_s in latencies:
        found = library.plan(job, times=limits, latency_s=latency_s, threads=1)["plans"]
        plans[latency_s] = best([highest] + [(one["time_s"], one["energy_j"]) for one in found])
    return bounds, plans, highest


def run_world(library, job, lists, latency_s, folder):
    """Runs the job in the world. Returns (time, energy) of a step without and with a plan."""
    plan, physics = pathlib.Path(folder) / "plan.py", pathlib.Path(folder) / "physics.json"
    plan.write_text(repr(lists) + "\n", encoding="utf-8")
    physics.write_text(json.dumps({"switch_call_s": min(0.003, latency_s),
                                   "switch_latency_s": max(0, latency_s - 0.003)}))
    words = f"--gpu H100 --pp {RANKS} --chunks {CHUNKS} --schedule {job['schedule']} --steps 2 " \
        f"--num-mbs {MICROBATCHES} --p2p-power {job['blocking_w']} --anticipate --json --quiet"
    done = subprocess.run([library.folder / "harpe", "train-sim", *words.split(), "-i",
                           job["profile"], "--plan", plan, "--physics", physics],
                          stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)["measured"]
    return [(found[name]["mean_time_s"], found[name]["mean_energy_j"])
            for name in ("highest_clocks", "plan")]


def drawn(seed):
    """Returns values of all assumptions, more likely near the base."""
    source = random.Random(f"harpe measured {seed}")
    return {name: source.triangular(low, high, base)
            for name, (base, low, high, *_) in ASSUMPTIONS.items()}


def percent(value):
    return f"{100 * value:+.2f} %"


def compare(fitted, columns):
    """Returns the table of the series beside the simulation."""
    table = Table("The series and the simulated job", "", ["", *CURVES, "simulated is"])
    table.add("time of a step", *[f"{fitted['period_s']:.3f} s"] * 3,
              f"fitted: a forward of {1e3 * fitted['forward_s']:.2f} ms")
    for text, key, scale, unit, how in (
            ("mean power", "mean_w", 1e-3, "kW", f"fitted: {fitted['end_s']:.2f} s of waiting"),
            ("power in the middle of a step", "middle_w", 1e-3, "kW",
             f"fitted: {GPUS // 64 * fitted['outside_w']:.0f} W of a node outside of its GPUs"),
            ("depth of the dip between steps", "dip", 100, "%", "predicted"),
            ("width of the dip", "width_s", 1, "s", "predicted"),
            ("change from row to row, mean", "change_w", 1e-3, "kW", "predicted"),
            ("change from row to row, most", "most_w", 1e-3, "kW", "predicted")):
        table.add(text, *[f"{scale * one[key]:.2f} {unit}" for one in columns], how)
    for rank in range(RANKS):
        table.add(f"group {rank + 1} against the mean",
                  *[percent(one["groups"][rank]) for one in columns], "predicted")
    return table


def list_savings(base, plans, draws, noise):
    """Returns the table of what would be saved. Ranges are those of the draws, whose plans are
    taken to save the same share of what their bound allows as the plan of the base."""
    table = Table(f"Saved, of the energy of all nodes; noise {percent(noise)}", "", [
        "latency, slowdown", "plan", "range", "one clock", "range", "plan against it", "range", ""])
    for latency_s, index in ((a, b) for a in plans for b in range(len(SLOWDOWNS))):
        reached = plans[latency_s][index] / base["bound"][index]
        pairs = [(reached * one["bound"][index], one["one"][index]) for one in [base, *draws]]
        cells = []
        for values in (*zip(*pairs), [(plan - one) / (1 - one) for plan, one in pairs]):
            cells += [percent(values[0]), f"{percent(min(values))} to {percent(max(values))}"]
        note = "within noise" if pairs[0][0] < noise else \
            "partly within noise" if min(pairs)[0] < noise else ""
        table.add(f"{1e3 * latency_s:.0f} ms, +{100 * SLOWDOWNS[index]:.0f} %", *cells, note)
    return table


def main(words, add_builds):
    parser = argparse.ArgumentParser(prog="bench/run measured", description=__doc__)
    add_builds(parser)
    parser.add_argument("--series", type=pathlib.Path, default=SERIES, help="the measured rows")
    parser.add_argument("--draws", type=int, default=10, help="jobs with drawn assumptions (10)")
    parser.add_argument("--fast", action="store_true", help="no single assumptions, and no world")
    parser.add_argument("--curves", help="write 60 s of power for scripts/picture_of_power.py")
    chosen = parser.parse_args(words)
    if not chosen.series.exists():
        print(f"bench: measured: skipped, {chosen.series} is missing", file=sys.stderr)
        return chosen, [], 0
    blocks = training_blocks(chosen.series)
    period_s = find_period(blocks)
    seen = describe(blocks, period_s)
    single = Table("Allowed by the bound", "", ["one assumption", "value", "same speed", "+2 %"])
    world = Table("In the world, same speed", "", ["latency", "slower", "plan says", "saved"])
    with Library(chosen.build) as library, tempfile.TemporaryDirectory() as folder:
        def study(assumed, latencies=()):
            fitted = fit(period_s, seen, assumed, library, folder)
            job = write_profile(folder, fitted["forward_s"], assumed)
            return savings(library, job, fitted, latencies) + (fitted, job)
        draws = [study(drawn(seed))[0] for seed in range(chosen.draws)]
        for name, (base, *others) in () if chosen.fast else ASSUMPTIONS.items():
            for value in sorted(set(others) - {base}):
                bound = study(BASE | {name: value})[0]["bound"]
                single.add(name, value, percent(bound[0]), percent(bound[2]))
        base, saving, highest, fitted, job = study(BASE, LATENCIES_S)
        graph = library.graph(job, folder)
        pipeline = Pipeline(graph)
        plans = {late_s: library.plan(job, times=[highest[0]], latency_s=late_s, threads=1,
                                      with_clocks=True)["plans"][0] for late_s in LATENCIES_S}
        series = [blocks, *(Wave(pipeline, mhz).blocks(len(blocks), fitted) for mhz in (
            [0] * len(pipeline.rank), plans[LATENCIES_S[1]]["mhz"]))]
        tables = [compare(fitted, [describe(own, period_s) for own in series]),
                  list_savings(base, saving, draws, seen["noise"]), single, world]
        if chosen.curves:
            pathlib.Path(chosen.curves).write_text(json.dumps(
                {name: since_dip(own[-1], period_s) for name, own in zip(CURVES, series)}))
        names = [one["name"].rsplit(".")[-1] for one in graph["activities"]]
        for late_s, plan in () if chosen.fast else plans.items():
            lists = [[(name, mhz) for name, rank, mhz in zip(names, pipeline.rank, plan["mhz"])
                      if rank == own] for own in range(RANKS)]
            before, after = run_world(library, job, lists, late_s, folder)
            world.add(f"{1e3 * late_s:.0f} ms", percent((after[0] - before[0]) / period_s),
                      *[percent(saved(fitted, before, one)) for one in (
                          (plan["time_s"], plan["energy_j"]), after)])
    return chosen, tables if not chosen.fast else tables[:2], 0
