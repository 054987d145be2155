# SPDX-License-Identifier: Apache-2.0
"""Online jobs that are more than a pipeline of forwards and backwards on GPUs of one model: stages
with different clocks, an end of the iteration, phases without a pipeline, microbatches that differ.
A real server, over real sockets. The ranks answer each schedule like a small simulated job, and
`harpe plan` makes the same plan offline from the true costs. Needs only Python's standard
library."""
import csv

from online_job import *

A100 = list(range(1410, 800, -60))
H100 = list(range(1980, 800, -90))


def pipeline_costs(stage, scale=1.0):
    return {"forward": (0.10 * scale, 0.8, 90 + 40 * stage, 250 + 150 * stage),
            "backward": (0.21 * scale, 0.8, 90 + 40 * stage, 250 + 150 * stage)}


class Jobs(Online):
    def job(self, *args, **more):
        return self.pipeline(*args, kind=Job, **more)

    def offline(self, job, *options):
        """Returns {time: energy} of the plans that `harpe plan` makes from the true costs."""
        profile, plans = self.path / "true.csv", self.path / f"plans{job.id}"
        profile.write_text(job.profile(), encoding="ascii")
        run_harpe("plan", "-i", profile, "-o", plans, "--no-pictures", "--quiet", *options, check=True)
        with open(plans / "frontier.csv", encoding="ascii") as file:
            return {float(row["time_s"]): float(row["energy_j"]) for row in csv.DictReader(file)}

    def assert_as_good_as_offline(self, job, allowed_s, *options):
        plans = self.offline(job, *options)
        slowest_s = max(time_s for time_s in plans if time_s <= allowed_s * (1 + 1e-9))
        self.assertLessEqual(job.time_s, allowed_s * 1.001)
        self.assertAlmostEqual(job.energy_j / plans[slowest_s], 1, delta=0.01)

    def plan(self, job):
        """Runs a round of the job's plan. Returns the time and the energy at the highest clocks."""
        job.run_round()
        highest = job.time_s, job.energy_j
        job.run_until_planned()
        job.run_round()
        return highest

    # ---- GPUs of several models ----

    def mixed(self, server):
        costs = 2 * [pipeline_costs(0)] + 2 * [pipeline_costs(1, 0.6)]
        return self.job(server, [A100, A100, H100, H100], costs, [None] * 4, [70, 70, 115, 115])

    def test_each_stage_is_tried_and_planned_at_its_own_clocks(self):
        server = self.start_online(num_microbatches=6)
        job = self.mixed(server)
        job.run_round()
        highest_s, highest_j = job.time_s, job.energy_j
        self.assertEqual([set(job.clocks_of(rank)) for rank in range(4)],
                         [{1410}, {1410}, {1980}, {1980}])
        job.run_round()
        self.assertEqual([set(job.clocks_of(rank)) for rank in range(4)],
                         [{1350}, {1350}, {1890}, {1890}])
        tried = [set() for _ in range(4)]
        while job.frontier()["phase"] != "plan":
            job.run_round()
            for rank in range(4):
                tried[rank].update(job.clocks_of(rank))
        self.assertLessEqual({990, 930}, tried[0])
        self.assertIn(1080, tried[3])
        job.run_round()
        self.assertLess(job.time_s, 1.001 * highest_s)
        self.assertLess(job.energy_j, 0.9 * highest_j)
        for rank, clocks in enumerate([A100, A100, H100, H100]):
            self.assertLessEqual(set(job.clocks_of(rank)), set(clocks))
        self.assertGreater(len(set(job.clocks_of(2))), 1)
        self.assert_as_good_as_offline(job, highest_s, "-m", 6)
        # The mean of both models, which were told apart.
        self.assertAlmostEqual(job.frontier()["blocking_power"], (70 + 115) / 2, delta=0.5)
        for _ in range(5):
            job.run_round()
        self.assertNotIn("drift", server.log())
        saved = job.frontier()["saved"]["recent"]
        self.assertAlmostEqual(saved["energy"], 1 - job.energy_j / highest_j, delta=0.005)

    def test_a_kill_in_the_sweep_of_several_models_changes_nothing(self):
        server = self.start_online(num_microbatches=4)
        unbroken, broken = self.mixed(server), self.mixed(server)
        unbroken.run_until_planned()
        unbroken.run_round()
        port = server.port
        for round_ in range(unbroken.round):
            broken.run_round()
            if round_ % 4 == 1:
                server.kill()
                server = self.start_online(num_microbatches=4, port=port)
                broken.connect(server)
        self.assertEqual(broken.schedules, unbroken.schedules)

    def test_blocking_powers_may_be_given_by_rank(self):
        server = self.start_online(num_microbatches=4, blocking_power=[70, 70, 115, 115])
        job = self.mixed(server)
        job.run_until_planned()
        job.run_round()
        plan = job.frontier()["plans"][0]
        self.assertAlmostEqual(job.energy_j / plan["energy"], 1, delta=1e-6)
        self.assertAlmostEqual(job.frontier()["blocking_power"], 92.5, places=9)

    def test_a_list_of_another_length_is_told(self):
        server = self.start_online(num_microbatches=4, blocking_power=[70, 70])
        with self.assertRaises(AssertionError) as raised:
            job = self.mixed(server)
            job.ask()
            job.receive()
        self.assertIn("blocking_power of Perseus has 2 numbers, but this job has 4 pipeline ranks",
                      str(raised.exception) + server.log())

    def test_gpus_of_several_models_in_one_stage_run_their_common_clocks(self):
        server = self.start_online(num_microbatches=2)
        job = self.job(server, [[1410, 1200, 1005]], [pipeline_costs(0)], [None], [70], replicas=1)
        job.run_until_planned()
        answer = server.post("/register_job", job_info(1, 2))
        for rank, clocks in enumerate(([1410, 1200], [1980, 1740])):
            told = server.post(f"/register_rank/{answer.json}",
                               {"rank": rank, "dp_rank": rank, "pp_rank": 0, "tp_rank": 0,
                                "available_frequencies": clocks})
        told = server.get(f"/schedule/{answer.json}?rank=0&round=0") if told.status == 200 else told
        self.assertEqual(told.status, 500, told)
        self.assertIn("a sweep needs GPUs of one model in each stage", told.body.decode())

    # ---- The iteration's end ----

    def with_end(self, server, replicas=1):
        end = {"all_reduce": (0.15, 0.0, 90, 60), "optimizer": (0.08, 0.1, 100, 150)}
        costs = [dict(pipeline_costs(0), **end), dict(pipeline_costs(0, 0.9), **end)]
        names = ["forward", "forward", "backward", "backward", "all_reduce", "optimizer"]
        return self.job(server, [A100, A100], costs, [names, names], [75, 75], replicas=replicas)

    def test_the_end_of_the_iteration_is_part_of_the_plan(self):
        server = self.start_online(epilogue=["all_reduce", "optimizer"])  # counts the microbatches
        job = self.with_end(server, replicas=2)
        job.run_round()
        highest_s, highest_j = self.plan(job)
        names = [name for name, _ in job.schedules[-1][0]["frequencies"]]
        self.assertEqual(names, ["forward", "forward", "backward", "backward", "all_reduce",
                                 "optimizer"])
        self.assertLess(job.time_s, 1.001 * highest_s)
        self.assertLess(job.energy_j, 0.95 * highest_j)
        # A clock does not change the all-reduce, so that its clock is the lowest.
        self.assertEqual(job.clocks_of(0, "all_reduce"), [A100[-1]])
        self.assert_as_good_as_offline(job, highest_s, "-m", 2, "--epilogue",
                                       "all_reduce,optimizer")
        self.assertAlmostEqual(job.frontier()["outside"][0], 0, delta=1e-6)

    def test_a_measured_profile_has_all_that_the_planner_needs(self):
        server = self.start_online("InstructionProfiler", num_microbatches=3,
                                   epilogue=["all_reduce", "optimizer"])
        end = {"all_reduce": (0.15, 0.0, 90, 60), "optimizer": (0.08, 0.1, 100, 150)}
        job = self.job(server, [A100, H100], [dict(pipeline_costs(0), **end),
                                              dict(pipeline_costs(1, 0.6), **end)],
                       [None] * 2, [70, 115], replicas=2)
        while job.frontier()["phase"] != "hold":
            job.run_round()
        path = self.path / "dump" / job.id / "profile.csv"
        self.wait_until(path.exists, "the profile is written")
        with open(path, encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["stage"]: round(float(row["blocking_power"]), 6) for row in rows},
                         {"0": 70, "1": 115})
        for row in rows:
            time_s, energy_j = job.cost(int(row["stage"]), row["instruction"],
                                        int(row["frequency"]))
            self.assertAlmostEqual(float(row["time"]) / time_s, 1, places=9)
            self.assertAlmostEqual(float(row["energy"]) / energy_j, 2, places=9)  # of two GPUs
        self.expect(server.post(f"/straggler/{job.id}", {"slowdown": 1.2}), 409)
        true = self.offline(job, "-m", 3, "--epilogue", "all_reduce,optimizer")
        job.profile = lambda: path.read_text(encoding="ascii")
        job.id += "-measured"
        measured = self.offline(job, "-m", 3, "--epilogue", "all_reduce,optimizer")
        self.assertAlmostEqual(min(measured) / min(true), 1, places=6)
        self.assertAlmostEqual(measured[min(measured)] / true[min(true)], 1, delta=0.005)

    # ---- No pipeline ----

    PHASES = {"forward": (0.20, 0.85, 95, 250), "backward": (0.42, 0.85, 95, 260),
              "reduce": (0.18, 0.0, 95, 70), "optimizer": (0.06, 0.05, 100, 160)}

    def test_a_data_parallel_job_by_phases_keeps_its_slowdown(self):
        server = self.start_online(num_microbatches=1, epilogue=["reduce", "optimizer"],
                                   slowdown=1.05)
        job = self.job(server, [A100], [self.PHASES], [None], [70], replicas=4)
        highest_s, highest_j = self.plan(job)
        self.assertGreater(job.time_s, 1.01 * highest_s)
        self.assertLessEqual(job.time_s, 1.05 * highest_s)
        self.assertLess(job.energy_j, 0.88 * highest_j)
        self.assertEqual(job.clocks_of(0, "reduce"), [A100[-1]])
        self.assertLess(job.clocks_of(0, "optimizer")[0], min(job.clocks_of(0, "backward")))
        self.assert_as_good_as_offline(job, 1.05 * highest_s, "-m", 1, "--epilogue",
                                       "reduce,optimizer")
        for _ in range(4):
            job.run_round()
        self.assertNotIn("drift", server.log())

    def test_phases_of_a_file_may_have_any_names(self):
        schedule = self.path / "fsdp.csv"
        schedule.write_text(":all_gather,0F0,0B0,:reduce_scatter,:clip,:optimizer\n",
                            encoding="ascii")
        names = ["all_gather", "forward", "backward", "reduce_scatter", "clip", "optimizer"]
        costs = {name: self.PHASES.get(name, (0.07, 0.0, 95, 80)) for name in names}
        server = self.start_online(schedule={"csv": str(schedule)}, slowdown=1.03)
        job = self.job(server, [A100], [costs], [names], [70], replicas=2)
        highest_s, _ = self.plan(job)
        self.assertEqual([name for name, _ in job.schedules[-1][1]["frequencies"]], names)
        self.assertLessEqual(job.time_s, 1.03 * highest_s)
        for name in ("all_gather", "reduce_scatter", "clip"):
            self.assertEqual(job.clocks_of(1, name), [A100[-1]])
        self.assert_as_good_as_offline(job, 1.03 * highest_s, "-s", schedule)

    # ---- Microbatches that differ ----

    def test_microbatches_of_two_lengths_have_their_own_curves(self):
        schedule = self.path / "packed.csv"
        schedule.write_text(
            "0F0:forward_long,0F1,0B0:backward_long,0F2:forward_long,0B1,0B2:backward_long\n"
            "1F0:forward_long,1B0:backward_long,1F1,1B1,1F2:forward_long,1B2:backward_long\n",
            encoding="ascii")
        costs = {}
        for kind, (time_s, *rest) in pipeline_costs(0).items():
            costs[kind], costs[f"{kind}_long"] = (time_s, *rest), (1.7 * time_s, *rest)
        server = self.start_online(schedule={"csv": str(schedule)})
        job = self.job(server, [A100, A100], [costs, costs], [None] * 2, [75, 75])
        highest_s, highest_j = self.plan(job)
        self.assertEqual([name for name, _ in job.schedules[-1][1]["frequencies"]],
                         ["forward_long", "backward_long", "forward", "backward", "forward_long",
                          "backward_long"])
        self.assertLess(job.energy_j, highest_j)
        self.assert_as_good_as_offline(job, highest_s, "-s", schedule)


if __name__ == "__main__":
    unittest.main()
