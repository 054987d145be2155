# SPDX-License-Identifier: Apache-2.0
"""`harpe plan --replicas`: a plan for each GPU of a job. Times and energies are computed again from
the profile with a simulation of each replica."""
import ast

from program import ProgramTest, json, rows

STAGES, MICROBATCHES = 3, 4


def run_1f1b(lists, time_of):
    """Runs the ranks' lists of (instruction, clock), without Harpe. `time_of(rank, instruction, clock)`
    is a time in seconds. Returns a row (rank, instruction, clock, ready, start) for each instruction, and
    the end of each rank. From `ready` to `start` the rank waits."""
    runs, done, ends, places = [], {}, [0.0] * len(lists), [0] * len(lists)
    while len(runs) < sum(map(len, lists)):
        for rank, instructions in enumerate(lists):
            if places[rank] == len(instructions):
                continue
            name, clock = instructions[places[rank]]
            microbatch = sum(other == name for other, _ in instructions[:places[rank]])
            if name == "forward":
                needs = [(name, rank - 1, microbatch)] if rank > 0 else []
            else:
                needs = [("forward", rank, microbatch)]
                needs += [(name, rank + 1, microbatch)] if rank + 1 < len(lists) else []
            if not all(need in done for need in needs):
                continue
            start = max([ends[rank], *(done[need] for need in needs)])
            runs.append((rank, name, clock, ends[rank], start))
            done[name, rank, microbatch] = ends[rank] = start + time_of(rank, name, clock)
            places[rank] += 1
    return runs, ends


class Replicas(ProgramTest):
    def job(self, *flags, replicas=3, peers=2):
        self.succeed("synth", "--stages", STAGES, "--replicas", replicas, "--gpus-per-stage", peers,
                     "--output", "gpus.csv", *flags)
        self.measured = {}
        for row in rows(self.path / "gpus.csv"):
            place = int(row["replica"]), int(row["stage"]), int(row["gpu"])
            point = float(row["time"]), float(row["energy"])
            self.measured[(*place, row["instruction"], int(row["frequency"]))] = point
            self.measured[place] = float(row["blocking_power"])

    def plan(self, *flags):
        return self.succeed("plan", "--inst-profile", "gpus.csv", "--replicas", "--num-mbs",
                            MICROBATCHES, "--output-dir", "plans", "--verify", "--json",
                            *flags).json()

    def run_replica(self, replica, lists, peers):
        """Returns the time of a replica, and its energy until `until`, as a function."""
        power = sum(self.measured[replica, s, g] for s in range(STAGES) for g in range(peers))
        stages = [[(names[0], clocks) for names, clocks in
                   (zip(*entries) for entries in zip(*lists[s * peers:(s + 1) * peers]))]
                  for s in range(STAGES)]

        def points(s, name, clocks):
            return [self.measured[replica, s, g, name, clock] for g, clock in enumerate(clocks)]

        runs, ends = run_1f1b(stages, lambda *place: max(time for time, _ in points(*place)))
        energy = sum(used - self.measured[replica, s, g] * time for s, name, clocks, _, _ in runs
                     for g, (time, used) in enumerate(points(s, name, clocks)))
        return max(ends), lambda until: energy + power * until

    def read_plan(self, name):
        return ast.literal_eval((self.path / "plans" / name).read_text())

    def check(self, said, replicas, peers):
        job = self.read_plan("job.py")
        self.assertEqual(len(job), replicas * STAGES * peers)
        own = said["summary"]["own_plans"]
        table, total = rows(self.path / "plans" / "replicas.csv"), 0
        self.assertEqual([int(row["replica"]) for row in table], list(range(replicas)))
        for replica, row in enumerate(table):
            size = STAGES * peers
            lists = job[replica * size:(replica + 1) * size]
            self.assertEqual(self.read_plan(row["plan"]), lists)
            time, energy = self.run_replica(replica, lists, peers)
            self.assertAlmostEqual(float(row["time_s"]), time, 9)
            self.assertAlmostEqual(float(row["energy_j"]), energy(own["time_s"]), 6)
            self.assertLessEqual(float(row["lower_bound_j"]), float(row["energy_j"]) * (1 + 1e-9))
            self.assertAlmostEqual(said["replicas"][replica]["energy_j"], float(row["energy_j"]), 6)
            total += energy(own["time_s"])
        self.assertAlmostEqual(own["energy_j"], total, 5)
        self.assertAlmostEqual(own["time_s"], max(float(row["time_s"]) for row in table), 9)

    def test_numbers_are_those_of_a_simulation(self):
        self.job()
        said = self.plan()
        self.check(said, 3, 2)
        summary = said["summary"]
        self.assertTrue(summary["verified"])
        self.assertGreater(summary["own_plans"]["savings_percent"],
                           summary["one_plan"]["savings_percent"])
        self.assertAlmostEqual(summary["own_plans"]["time_s"], summary["fastest_s"], 9)
        bound = rows(self.path / "plans" / "bound.csv")
        self.assertAlmostEqual(float(bound[0]["time_s"]), summary["fastest_s"], 9)
        self.assertAlmostEqual(float(bound[0]["lower_bound_j"]), summary["lower_bound_j"], 4)
        self.assertAlmostEqual(float(bound[-1]["time_s"]), summary["minimum_energy_s"], 9)
        self.assertEqual(json.loads((self.path / "plans" / "plan.json").read_text())["summary"],
                         summary | {"seconds": summary["seconds"]})

    def test_longer_times_need_less_energy(self):
        self.job(replicas=2, peers=1)
        fast = self.plan()["summary"]
        slow = self.plan("--force", "--slowdown", 1.1)
        self.check(slow, 2, 1)
        slow = slow["summary"]["own_plans"]
        self.assertLess(slow["energy_j"], fast["own_plans"]["energy_j"])
        self.assertLessEqual(slow["time_s"], 1.1 * fast["fastest_s"] * (1 + 1e-9))
        same = self.plan("--force", "--time", 1.1 * fast["fastest_s"])["summary"]["own_plans"]
        self.assertAlmostEqual(same["energy_j"], slow["energy_j"], 6)

    def test_a_file_for_each_replica_is_the_same_as_one_for_all(self):
        self.job(replicas=2, peers=1)
        one = self.plan()["summary"]
        table = rows(self.path / "gpus.csv")
        columns = [name for name in table[0] if name not in ("replica", "gpu")]
        for replica in range(2):
            lines = [",".join(row[name] for name in columns) for row in table
                     if row["replica"] == str(replica)]
            (self.path / f"{replica}.csv").write_text("\n".join([",".join(columns), *lines, ""]))
        files = self.succeed("plan", "-i", "0.csv", "--replica", "1.csv", "--num-mbs", MICROBATCHES,
                             "--output-dir", "files", "--json").json()["summary"]
        self.assertEqual(files["own_plans"], one["own_plans"])
        self.refuse(2, "give one file with the column replica", "plan", "-i", "0.csv", "--replica",
                    "1.csv", "--replicas", "-m", 4, "-o", "x")

    def test_smoothing_is_said_to_be_done(self):
        self.job("--noise", 0.02, "--variability", 0.05, replicas=4, peers=1)
        rough, smooth = self.plan(), self.plan("--force", "--smooth")
        self.assertIsNone(rough["arguments"]["smooth"])
        self.assertEqual(smooth["arguments"]["smooth"], 0.03)
        self.assertNotEqual(rough["summary"]["own_plans"], smooth["summary"]["own_plans"])

    def test_people_see_the_comparison(self):
        self.job()
        shown = self.succeed("plan", "-i", "gpus.csv", "--replicas", "-m", 4, "-o", "plans").out
        for words in ("3 replicas x 3 stages x 2 GPUs (18 GPUs) x 4 microbatches",
                      "all at maximum frequency", "one plan for all GPUs", "a plan for each GPU",
                      "3 replicas, 3 different", "Slowest replica: ", "Written: plans"):
            self.assertIn(words, shown)
        self.assertNotIn("-0.00", shown)

    def one_clock_total(self, mhz, replicas, peers):
        """Returns time and energy of the job if all GPUs have one clock."""
        lists = [[(name, mhz) for name, _ in gpu] for gpu in self.read_plan("job.py")]
        size = STAGES * peers
        runs = [self.run_replica(r, lists[r * size:(r + 1) * size], peers) for r in range(replicas)]
        time = max(time for time, _ in runs)
        return time, sum(energy(time) for _, energy in runs)

    def test_one_clock_for_all_gpus(self):
        self.job("--variability", 0.04)
        for flags in ((), ("--slowdown", 1.05)):
            summary = self.plan("--force", *flags)["summary"]
            clocks = {place[-1] for place in self.measured if len(place) == 5}
            totals = {mhz: self.one_clock_total(mhz, 3, 2) for mhz in clocks}
            for name in ("all_maximum", "own_plans"):
                limit = max(summary[name]["time_s"], summary["all_maximum"]["time_s"]) * (1 + 1e-9)
                best = min((mhz for mhz in totals if totals[mhz][0] <= limit), key=lambda mhz: totals[mhz][1])
                shown = summary["one_clock"][name]
                self.assertEqual(shown["frequency_mhz"], best)
                self.assertAlmostEqual(shown["time_s"], totals[best][0], 9)
                self.assertAlmostEqual(shown["energy_j"], totals[best][1], 6)
                self.assertAlmostEqual(summary[name]["one_clock_savings_percent"],
                                       100 * (1 - summary[name]["energy_j"] / totals[best][1]), 6)
                self.assertAlmostEqual(shown["one_clock_savings_percent"], 0, 9)
        out = self.succeed("plan", "-i", "gpus.csv", "--replicas", "-m", 4, "-o", "people",
                           "--slowdown", 1.05).out
        self.assertRegex(out, "savings +vs one clock")
        self.assertIn(f"one clock, {best} MHz", out)

    def test_limits_and_later_starts_are_said(self):
        self.job(replicas=2, peers=1)
        free = self.plan()
        self.assertEqual({}, free["summary"]["power_limits"])
        flags = ("--slowdown", 1.2, "--max-swing", "15%")
        limited = self.plan("--force", *flags)
        self.assertEqual({"max_swing_share": 0.15, "plans_keep_them": True},
                         limited["summary"]["power_limits"])
        later = sum(one["start_s"] > 0 for one in limited["replicas"])
        self.assertGreater(later, 0)
        out = self.succeed("plan", "-i", "gpus.csv", "--replicas", "-m", MICROBATCHES, "-o", "people", *flags).out
        self.assertIn("\nAll plans keep the limits on power: swing 15 % of the mean; the other rows need not\n"
                      f"Replicas that must begin later: {later} (start_s in replicas.csv). Nothing in Harpe "
                      "delays them: your training job must.\n", out)

    def test_doubtful_rows_are_told(self):
        rows = [f"0,{name},{mhz},{0.05 * 1400 / mhz:.6f},{20 * (10 if (name, mhz) == ('forward', 1300) else 1)},70"
                for name in ("forward", "backward") for mhz in (1400, 1350, 1300, 1250)]
        header = "stage,instruction,frequency,time,energy,blocking_power"
        (self.path / "one.csv").write_text("\n".join([header, *rows]))
        (self.path / "two.csv").write_text("\n".join(
            [f"replica,{header}", *(f"{replica},{row}" for replica in range(2) for row in rows)]))
        for options in (["-i", "one.csv", "--replica", "one.csv"], ["-i", "two.csv", "--replicas"]):
            err = self.succeed("plan", *options, "-m", 4, "-o", "odd", "--force").err
            self.assertRegex(err, rf"^harpe plan: warning: {options[1]}:4: stage 0 'forward' at 1300 MHz: the energy")
            self.assertEqual(err.count("\n"), 1, err)
            self.assertEqual(self.succeed("plan", *options, "-m", 4, "-o", "odd", "--force", "--quiet").err, "")

    def test_wrong_calls_are_refused(self):
        self.job(replicas=2, peers=1)
        usual = ["plan", "-i", "gpus.csv", "--replicas", "-m", 4, "-o", "plans"]
        for message, flags in (("--plans cannot", ["--plans", 5]),
                               ("--min-dwell and costs of changes cannot", ["--min-dwell", 1]),
                               ("--bound-only cannot", ["--bound-only"]),
                               ("--gpus-per-stage cannot", ["--gpus-per-stage", 2]),
                               ("--cost-model cannot", ["--cost-model", "exponential"]),
                               ("give one of them", ["--time", 3, "--slowdown", 2]),
                               ("--wait-powers", ["--wait-powers", "gpus.csv"]),
                               ("--slowdown", ["--slowdown", 0.5])):
            self.refuse(2, message, *usual, *flags)
        self.refuse(1, "the slowest replica", *usual, "--time", 0.01)
        self.refuse(2, "need --replicas or --replica", "plan", "-i", "gpus.csv", "-m", 4, "-o", "x",
                    "--slowdown", 1.1)
        (self.path / "plain.csv").write_text("stage,instruction,frequency,time,energy\n"
                                             "0,forward,1,1,1\n0,backward,1,1,1\n")
        self.refuse(2, "no blocking_power for stage 0, gpu 0 of replica 0", "plan", "-i",
                    "plain.csv", "--replica", "plain.csv", "-m", 4, "-o", "x")
        self.assertFalse((self.path / "plans").exists())
