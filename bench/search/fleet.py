# SPDX-License-Identifier: Apache-2.0
"""Measures the split of a power budget over many jobs: processor time and gap at several sizes, and
the weighted slowdown beside one power cap for all GPUs and beside stopping jobs. The fleets are
generated; one family has the plans of `harpe plan` from generated profiles."""
import argparse
import csv
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

from tables import Table, seconds

SIZES = [(10, 100, 1), (100, 100, 1), (1000, 100, 1), (10000, 100, 1), (1000, 100, 20),
         (10000, 100, 200)]
JOBS = 100
SHARE = 0.75  # of the power of the fastest plans
# Model, stages, gpus of a stage, imbalance: the pipelines of the planned family.
PIPELINES = [("A100", 4, 8, 1.02), ("A100", 8, 8, 1.1), ("A40", 8, 4, 1.3), ("H100", 4, 8, 1.05),
             ("H100", 8, 16, 1.2), ("A100", 6, 4, 1.5), ("H100", 6, 8, 1.1), ("A40", 4, 8, 1.1)]


def law(rng, alike):
    """Returns the plans of a job with 8 to 512 GPUs. Its power, beyond what it draws at any speed,
    falls with a power of its time. The exponent (0.8 to 4) and the part that it draws at any speed
    (0.1 to 0.4) are assumptions."""
    gpus = 2 ** rng.randint(3, 9)
    power = gpus * (500 if alike else rng.uniform(350, 650))
    exponent = 2 if alike else rng.uniform(0.8, 4)
    idle = 0.15 if alike else rng.uniform(0.1, 0.4)
    time = rng.uniform(0.5, 20)
    plans = [{"time": time * s, "power": power * (idle + (1 - idle) / s ** exponent)}
             for s in (1 + k / 40 for k in range(41))]
    return gpus, plans


def planned(harpe, folder, rng):
    """Returns the plans of pipelines that `harpe plan` has planned: a list of (gpus, plans)."""
    found = []
    for number, (model, stages, gpus, imbalance) in enumerate(PIPELINES):
        profile, plans = folder / f"{number}.csv", folder / f"plans{number}"
        flags = ["synth", "--gpu", model, "--stages", stages, "--imbalance", imbalance, "--seed",
                 rng.randrange(10 ** 6), "--output", profile, "--quiet"]
        subprocess.run([harpe, *map(str, flags)], check=True)
        flags = ["plan", "--inst-profile", profile, "--num-mbs", 3 * stages, "--p2p-power", 84,
                 "--plans", 60, "--no-pictures", "--quiet", "--output-dir", plans]
        subprocess.run([harpe, *map(str, flags)], check=True, stdout=subprocess.DEVNULL)
        with open(plans / "frontier.csv", encoding="utf-8", newline="") as stream:
            rows = sorted((float(row["time_s"]), float(row["energy_j"]))
                          for row in csv.DictReader(stream))
        found.append((stages * gpus, [{"time": time, "power": gpus * energy / time}
                                      for time, energy in rows]))
    return found


def fleet(rng, kind, pool):
    jobs = []
    for number in range(JOBS):
        gpus, plans = rng.choice(pool) if pool else law(rng, kind == "alike")
        weight = gpus * (rng.choice([0.25, 0.5, 1, 2, 4]) if kind == "weights" else 1)
        jobs.append({"name": f"job{number}", "gpus": gpus, "weight": weight, "plans": plans,
                     "priority": rng.randint(0, 2)})
    total = sum(job["plans"][0]["power"] for job in jobs)
    least = sum(min(plan["power"] for plan in job["plans"]) for job in jobs)
    # Plans of least energy may draw more than the share; then half of what can be given up.
    watts = max(SHARE * total, (total + least) / 2) if pool else SHARE * total
    return {"jobs": jobs, "budgets": [{"watts": watts}], "horizon": 3600}, watts / total


FAMILIES = [("mixed", "mixed jobs, weight: GPUs"),
            ("weights", "mixed jobs, weight: GPUs x 0.25 to 4"),
            ("alike", "jobs with the same law and GPU"),
            ("planned", "plans of `harpe plan`, weight: GPUs")]


def slowdowns(harpe, path):
    done = subprocess.run([harpe, "fleet", "simulate", path, "--json"], check=True, text=True,
                          stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    return [found[policy]["weighted_slowdown"] for policy in ("split", "uniform_cap")] + [
        found[policy]["lost_s"] for policy in ("split", "stop_lowest")]


def time_table(build):
    table = Table("Time of the split", "Processor time. A change is a new description of one job, "
                  "and a budget is a change of the watts of the whole fleet; both are medians and "
                  "contain the new solution.",
                  ["jobs x plans", "groups with budgets", "building", "first solution", "change",
                   "budget", "gap"])
    for jobs, plans, groups in SIZES:
        done = subprocess.run([build / "bench" / "bench_fleet", str(jobs), str(plans), str(groups),
                               "41", "1"], check=True, text=True, stdout=subprocess.PIPE)
        found = json.loads(done.stdout)
        table.add(f"{jobs:,} x {plans}", 1 if groups == 1 else 1 + groups,
                  *(seconds(found[key]) for key in ("build_s", "solve_s", "change_s", "watts_s")),
                  f"{100 * found['gap']:.4f} %")
    return table


def ratio_table(build, fleets):
    table = Table("Beside one power cap for all GPUs",
                  f"{JOBS} jobs at {SHARE:.0%} of the power of their fastest plans, {fleets} fleets "
                  "of each family: weighted slowdown under the cap divided by that of the split. "
                  "The last column has the weighted lost time with the jobs of lowest priority "
                  "stopped, divided by that of the split.",
                  ["family", "budget", "median ratio", "least", "greatest", "stopping, median"])
    for kind, text in FAMILIES:
        ratios, stops, shares = [], [], []
        for seed in range(fleets):
            rng = random.Random(f"{kind} {seed}")
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                pool = planned(build / "harpe", folder, rng) if kind == "planned" else None
                made, share = fleet(rng, kind, pool)
                (folder / "fleet.json").write_text(json.dumps(made))
                ours, cap, lost, stopped = slowdowns(build / "harpe", folder / "fleet.json")
            ratios.append(cap / ours)
            stops.append(stopped / lost)
            shares.append(share)
        table.add(text, f"{100 * statistics.median(shares):.0f} %",
                  f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}",
                  f"{statistics.median(stops):.1f}")
    return table


def main(words, add_builds):
    parser = argparse.ArgumentParser(prog="bench/run fleet", description=__doc__)
    parser.add_argument("--fleets", type=int, default=30, help="fleets of each family (default 30)")
    add_builds(parser)
    chosen = parser.parse_args(words)
    build = pathlib.Path(chosen.build).resolve()
    return chosen, [time_table(build), ratio_table(build, chosen.fleets)], 0
