# SPDX-License-Identifier: Apache-2.0
"""bench/run latency: plans for GPUs whose clocks change late, beside the ideal plan that a
controller runs which asks for a clock only when an instruction begins, as the published one does.
Both are evaluated with `harpe evaluate`; a test compares this evaluation with a simulation."""
import argparse
import csv
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from search import profiles
from tables import Table

LATENCIES_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
MEASURED = {"gpt3-175b": "pipeline/gpt3-175b_a100.csv", "bloom-176b": "pipeline/bloom-176b_a100.csv"}
DATA = pathlib.Path(os.environ.get(
    "HARPE_DATA", pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"))
# Share of the ideal plan's saving that must be left, and that is aimed at, in percent.
GOALS = {0.01: (90, 95), 0.025: (80, 90), 0.1: (60, 75)}
# A plan may take this share more time than the ideal one.
MORE_TIME = 0.005
# Times and energies of two commands are printed with this relative error.
ROUNDING = 1e-9
# schedule, ranks, microbatches, clocks, noise, balance
FAMILY = (("1f1b", 4, 16, 38, 0.003, "even"), ("1f1b", 1, 6, 20, 0.01, "even"),
          ("zb-h1", 4, 12, 14, 0.003, "last stage 10 % longer"),
          ("interleaved-1f1b", 4, 8, 20, 0.003, "last stage 50 % longer"),
          ("gpipe", 6, 12, 5, 0.03, "last stage 10 % shorter"),
          ("1f1b", 8, 8, 80, 0.0, "even"))


def harpe(build, *words):
    done = subprocess.run([pathlib.Path(build) / "harpe", *map(str, words), "--quiet"],
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"latency: harpe {' '.join(map(str, words))} failed")
    return done.stdout


def of_target(mhz, latency_s):
    """The latency of a change to a clock if they differ: from a quarter of the highest to all of
    it. The pattern is an assumption; measured ones differ by GPU model (arXiv 2502.20075)."""
    return latency_s * (1 + (mhz // 15) % 4) / 4


class Case:
    """A profile with its schedule, and the ideal plan."""

    def __init__(self, build, folder, name, profile, schedule, ranks, microbatches, blocking_w):
        self.build, self.folder, self.name = build, folder, name
        self.profile = pathlib.Path(profile)
        self.words = ["--num-mbs", microbatches, "--p2p-power", blocking_w, "--schedule", schedule,
                      "--num-stages", ranks]
        self.ideal, self.ideal_time, self.ideal_energy, written = self.plan(0, self.profile)
        self.highest = written["summary"]["all_maximum"]
        self.ideal_saving = self.highest["energy_j"] - self.ideal_energy
        limit = max(self.ideal_time, self.highest["time_s"]) * (1 + ROUNDING)
        self.one_clock = min((row for row in written["one_clock"] if row["time_s"] <= limit),
                             key=lambda row: row["energy_j"])

    def profile_with(self, latency_s):
        """Writes the profile with latencies that differ by clock."""
        path = self.folder / f"latencies_{len(list(self.folder.iterdir()))}.csv"
        with open(self.profile, newline="", encoding="utf-8") as old, \
                open(path, "w", newline="", encoding="utf-8") as new:
            rows = csv.DictReader(old)
            out = csv.DictWriter(new, [*rows.fieldnames, "switch_latency"])
            out.writeheader()
            for row in rows:
                out.writerow({**row, "switch_latency":
                              of_target(int(float(row["frequency"])), latency_s)})
        return path

    def plan(self, latency, profile):
        """Returns file, time and energy of the fastest plan, and the numbers of the highest
        clocks."""
        out = self.folder / f"plans_{len(list(self.folder.iterdir()))}"
        harpe(self.build, "plan", "--inst-profile", profile, *self.words, "--output-dir", out,
              "--no-pictures", "--plans", 12, "--switch-latency", latency)
        written = json.loads((out / "plan.json").read_text())
        with open(out / "frontier.csv", newline="", encoding="utf-8") as file:
            plans = [row for row in csv.DictReader(file) if row["plan"]]
        best = min(plans, key=lambda row: float(row["time_s"]))
        path = out / f"freqs_pipeline_{int(best['plan']):05d}.py"
        return path, float(best["time_s"]), float(best["energy_j"]), written

    def evaluate(self, plan, latency, profile):
        found = json.loads(harpe(self.build, "evaluate", "--inst-profile", profile, *self.words,
                                 "--plan", plan, "--switch-latency", latency,
                                 "--json"))["plans"][0]
        if latency == 0:  # nothing is late
            for way in ("with_switching", "asking_ahead"):
                found |= {f"time_{way}_s": found["time_s"], f"energy_{way}_j": found["energy_j"]}
            found["late_instructions"] = 0
        return found

    def measure(self, latency_s, differs):
        """Returns a row: the ideal plan and the plan for this latency, with both controllers."""
        profile = self.profile_with(latency_s) if differs else self.profile
        latency = "profile" if differs and latency_s > 0 else latency_s
        plan, time, energy, _ = self.plan(latency, profile)
        ideal, own = (self.evaluate(one, latency, profile) for one in (self.ideal, plan))
        saved = {key: 100 * (self.highest["energy_j"] - found) / self.ideal_saving
                 for key, found in (("published", ideal["energy_with_switching_j"]),
                                    ("ahead", ideal["energy_asking_ahead_j"]),
                                    ("own", own["energy_asking_ahead_j"]),
                                    ("one", self.one_clock["energy_j"]))}
        slower = {key: 100 * (found / self.ideal_time - 1)
                  for key, found in (("published", ideal["time_with_switching_s"]),
                                     ("ahead", ideal["time_asking_ahead_s"]),
                                     ("own", own["time_asking_ahead_s"]))}
        errors = []
        if abs(own["time_asking_ahead_s"] / time - 1) > ROUNDING or \
                abs(own["energy_asking_ahead_j"] / energy - 1) > ROUNDING or \
                own["late_instructions"]:
            errors.append("the plan's clocks do not come in time")
        if time > max(self.ideal_time, self.highest["time_s"]) * (1 + ROUNDING):
            errors.append("the plan is slower than the ideal one and than the highest clocks")
        if latency_s == 0 and plan.read_text() != self.ideal.read_text():
            errors.append("the plan differs from the ideal one without latency")
        return {"name": self.name, "latency": latency_s, "differs": differs, "saved": saved,
                "slower": slower, "writes": own["clock_writes"], "errors":
                [f"{self.name}, {latency_s:g} s: {error}" for error in errors]}


def goal_text(row):
    """Whether a row meets its goal, which is for measured profiles and equal latencies."""
    if row["latency"] not in GOALS:
        return ""
    need, aim = GOALS[row["latency"]]
    if row["slower"]["own"] > 100 * MORE_TIME or row["saved"]["own"] < need:
        return f"NO ({need} %)"
    return f"yes ({need} %{f', and {aim} %' if row['saved']['own'] >= aim else ''})"


def share(value, digits):
    return f"{round(value, digits) + 0.0:.{digits}f} %"  # without a negative zero


def table(title, note, rows):
    made = Table(title, note, ["job, latency", "saved of the ideal plan's saving", "more time",
                               "changes", "goal met", "one clock for all GPUs: saved",
                               "ideal plan, published controller: saved",
                               "more time", "ideal plan, asking ahead: saved", "more time"])
    for row in rows:
        saved, slower = row["saved"], row["slower"]
        made.add(f"{row['name']}, {1e3 * row['latency']:g} ms", share(saved['own'], 1),
                 share(slower['own'], 2), row["writes"], goal_text(row),
                 share(saved['one'], 1), share(saved['published'], 1), share(slower['published'], 2),
                 share(saved['ahead'], 1), share(slower['ahead'], 2))
    return made


def family(build, folder, seed):
    for number, (schedule, ranks, microbatches, clocks, noise, balance) in enumerate(FAMILY):
        source = random.Random(f"harpe latency {seed} {number}")
        gpu = profiles.shape_gpu(source, profiles.SHAPES[number % len(profiles.SHAPES)])
        stages = ranks * (2 if schedule in profiles.TWO_CHUNKS else 1)
        work = profiles.work_of(source, stages, profiles.BALANCES[balance], 0.05)
        rows = profiles.measured_rows(
            source, gpu, profiles.clock_list(clocks, gpu.highest_mhz), stages, work,
            profiles.PARTS, noise, (0.01, 0.05, 0.2)[number % 3])
        job = profiles.Job(f"{schedule} {ranks} x {microbatches}", rows, schedule, ranks,
                           microbatches, {})
        path = job.write(folder)["profile"]
        yield Case(build, folder, job.name, path, schedule, ranks, microbatches, job.blocking_w)


def arguments(words, builds):
    parser = argparse.ArgumentParser(
        prog="bench/run latency", description="Measures plans for clocks that change late, beside "
        "the ideal plan with a controller that does not look ahead. Fails if a change of a plan "
        "comes late, or if a plan is slower than the ideal one and than the highest clocks.")
    parser.add_argument("--latencies", metavar="S,...", default=",".join(map(str, LATENCIES_S)),
                        help="seconds from the request to the new clock (default %(default)s)")
    parser.add_argument("--microbatches", metavar="N", type=int, default=24,
                        help="of the measured jobs (default 24)")
    parser.add_argument("--no-measured", action="store_true",
                        help="leave out the measured profiles")
    parser.add_argument("--instances", metavar="N", type=int, default=len(FAMILY),
                        help="generated jobs (default: all)")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="of the generated jobs")
    builds(parser)
    chosen = parser.parse_args(words)
    try:
        chosen.latencies = [float(one) for one in chosen.latencies.split(",")]
    except ValueError:
        parser.error(f"--latencies: not a list of numbers: {chosen.latencies}")
    if not all(0 <= one <= 3600 for one in chosen.latencies):
        parser.error("--latencies: each is 0 to 3600 s")
    if chosen.before:
        parser.error("--before: this part compares no builds")
    return chosen


def main(words, builds):
    """Returns the arguments, the tables and the exit status."""
    chosen = arguments(words, builds)
    rows = {"measured": [], "differs": [], "generated": []}
    with tempfile.TemporaryDirectory(prefix="harpe-bench-") as name:
        folder = pathlib.Path(name)
        for label, path in ({} if chosen.no_measured else MEASURED).items():
            if not (DATA / path).exists():
                print(f"latency: no {path}; it is left out", file=sys.stderr)
                continue
            case = Case(chosen.build, folder, label, DATA / path, "1f1b", 8, chosen.microbatches,
                        83.64)
            rows["measured"] += [case.measure(one, False) for one in chosen.latencies]
            rows["differs"] += [case.measure(one, True) for one in chosen.latencies]
        for number, case in enumerate(family(chosen.build, folder, chosen.seed)):
            if number >= chosen.instances:
                break
            rows["generated"] += [case.measure(one, number % 2 == 1) for one in chosen.latencies]
    found = [row for own in rows.values() for row in own]
    errors = [error for row in found for error in row["errors"]]
    for error in errors:
        print(f"latency: {error}", file=sys.stderr)
    titles = {"measured": "Late clocks, measured profiles",
              "differs": "Late clocks, latencies that differ by clock",
              "generated": "Late clocks, generated jobs"}
    notes = {"measured": "", "generated": "Every second job has latencies that differ by clock.",
             "differs": "The latency of a clock is a quarter, a half, three quarters or all of the "
             "latency shown."}
    tables = [table(titles[key], notes[key], own) for key, own in rows.items() if own]
    return chosen, tables, 1 if errors else 0
