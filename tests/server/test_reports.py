# SPDX-License-Identifier: Apache-2.0
"""How far the figures of a job can be trusted, in a real server with simulated ranks: the baseline,
spoiled rounds and their reasons, steps as planned, energy counters, energy per token. /jobs, the
events, /metrics and `harpe jobs` say the same, also after kill -9."""
from exposition import of_job
from server import register, result_of, run_harpe, unittest
from online_job import Online

PLANNED = {"steps": 10, "as_planned": 10, "counter_energy": 1000.0, "power_energy": 1001.0,
           "energy_uncertainty": 5.0}


class Reports(Online):
    def job_with_conduct(self, server, conducts, **more):
        """Returns a job whose ranks report the conduct that `conducts` has for the round and the
        rank, and PLANNED otherwise. None: no conduct."""
        job = self.pipeline(server, 2, 4, **more)
        plain = job.results

        def results(schedules):
            found = plain(schedules)
            for rank, result in enumerate(found):
                conduct = conducts.get((job.round, rank), PLANNED)
                if conduct is not None:
                    result["conduct"] = conduct
            return found
        job.results = results
        return job

    def report(self, server, job):
        job.frontier()  # after the scheduler has observed the results
        page = server.get(f"/jobs/{job.id}").json
        self.assertEqual(page["report"]["confidence"], 0.95)
        return page["report"]

    def metrics(self, server, job):
        return of_job(server.get("/metrics").body.decode(), job.id, "reason")

    def words(self, server, job):
        return run_harpe("jobs", "show", job.id, "--server", f"http://127.0.0.1:{server.port}").stdout

    def test_the_baseline_says_how_and_when_it_was_measured(self):
        server = self.start_online(num_microbatches=4)
        job = self.job_with_conduct(server, {}, noise=0.002)
        self.assertIsNone(self.report(server, job)["baseline"])
        job.run_until_planned()
        for _ in range(4):
            job.run_round()
        report = self.report(server, job)
        frontier = job.frontier()
        baseline = frontier["baseline"]
        self.assertEqual(report["baseline"], baseline)
        saved = frontier["saved"]
        self.assertEqual(report["energy_is_significant"], saved["energy_is_significant"])
        self.assertEqual(report["time_is_significant"], saved["time_is_significant"])
        self.assertTrue(report["energy_is_significant"])
        metrics = self.metrics(server, job)
        self.assertEqual(metrics["baseline_iteration_joules"], baseline["energy"])
        self.assertEqual(metrics["baseline_iteration_uncertainty_joules"], baseline["energy_uncertainty"])
        self.assertEqual(metrics["baseline_iteration_seconds"], baseline["time"])
        self.assertEqual(metrics["baseline_iterations"], baseline["iterations"])
        self.assertEqual(metrics["baseline_measured_timestamp_seconds"], baseline["measured_at"][1])
        self.assertEqual(metrics["energy_saved_is_significant"], 1)
        words = self.words(server, job)
        self.assertIn(f"measured in {baseline['iterations']} iterations of rounds "
                      f"{baseline['between_rounds'][0]} to {baseline['between_rounds'][1]} until 20", words)
        self.assertIn("0 of", words)

    def test_spoiled_rounds_and_their_reasons(self):
        server = self.start_online(num_microbatches=4)
        conducts = {
            (1, 0): {**PLANNED, "as_planned": 7, "disobeyed": 3, "left_out": 3, "wanted_mhz": 1200, "held_mhz": 600},
            (2, 1): {**PLANNED, "as_planned": 9, "misfits": 1},  # an evaluation, which is left out
            (3, 1): {**PLANNED, "as_planned": 0, "misfits": 10, "misfits_measured": 5},
            (3, 0): {**PLANNED, "as_planned": 9, "disobeyed": 1, "wanted_mhz": 1300, "held_mhz": 210},
            (4, 0): None, (4, 1): None,                            # clients of an older version
            (5, 0): {**PLANNED, "lost": 2, "left_out": 2},
        }
        job = self.job_with_conduct(server, conducts)
        for _ in range(6):
            job.run_round()
        report = self.report(server, job)
        self.assertEqual(report["rounds"], {"observed": 6, "spoiled": 2, "misfit": 1, "disobeyed": 2, "jitter": 0,
                                            "missing": 0, "impossible": 0, "last": {"round": 3, "rank": 0,
                                                                   "reasons": ["misfit", "disobeyed"]}})
        self.assertEqual(report["steps"], {"run": 100, "as_planned": 100 - 3 - 1 - 10 - 1, "share_as_planned": 0.85,
                                           "misfit": 11, "disobeyed": 4, "lost": 2, "left_out": 5,
                                           "disobedience": {"rank": 0, "wanted_mhz": 1300, "held_mhz": 210}})
        metrics = self.metrics(server, job)
        self.assertEqual(metrics["rounds_observed_total"], 6)
        self.assertEqual(metrics["rounds_spoiled_total"], 2)
        self.assertEqual([metrics[f"rounds_spoiled_by_reason_total {reason}"]
                          for reason in ("misfit", "disobeyed", "jitter", "missing")], [1, 2, 0, 0])
        self.assertEqual([metrics[f"{name}_total"] for name in ("steps", "steps_as_planned", "steps_left_out")],
                         [100, 85, 5])
        words = self.words(server, job)
        self.assertIn("2 of 6 spoiled: steps did not fit the schedule in 1, a GPU did not obey its clock in 2; "
                      "the last was round 3, by rank 0\n", words)
        self.assertIn("85 % ran as planned: 85 of 100, summed over the ranks; 5 left out", words)
        self.assertIn("in 4 steps a GPU did not obey; the last: rank 0 at 210 MHz, set to 1300 MHz\n", words)

    def test_results_show_misfits_jitter_and_missing_ranks_without_a_conduct(self):
        server = self.start_online(num_microbatches=4)
        job = self.job_with_conduct(server, {(r, k): None for r in range(9) for k in range(2)})
        told = job.results

        def results(schedules):
            found = told(schedules)
            time_s = found[0]["iter_time"][0]
            for result in found:
                for name in ("iter_time", "iter_energy"):
                    result[name] = result[name] * 5
                for name in ("time_breakdown", "energy_breakdown"):
                    result[name] = {key: value * 5 for key, value in result[name].items()}
            if job.round == 1:
                found[1]["iter_time"] = [time_s] * 4 + [1.5 * time_s]
            if job.round == 2:  # an even spread is no burst
                found[1]["iter_time"] = [time_s * (1 + 0.1 * i) for i in range(5)]
            if job.round == 3:
                found[0] = {"rank": 0, "iter_time": [], "iter_energy": []}
            if job.round == 4:
                found[1]["time_breakdown"]["forward"][2] = found[1]["time_breakdown"]["forward"][2][:3]
            return found
        job.results = results
        for _ in range(6):
            job.run_round()
        report = self.report(server, job)
        self.assertIsNone(report["steps"])
        self.assertIsNone(report["energy_check"])
        self.assertEqual(report["rounds"], {"observed": 6, "spoiled": 3, "misfit": 1, "disobeyed": 0, "jitter": 1,
                                            "missing": 1, "impossible": 0, "last": {"round": 4, "rank": 1, "reasons": ["misfit"]}})
        self.assertNotIn("steps_total", self.metrics(server, job))
        self.assertNotIn("ran as planned", self.words(server, job))

    def test_energies_that_cannot_be_are_in_no_sum(self):
        server = self.start_online(num_microbatches=4)
        jobs = [self.job_with_conduct(server, {(2, 1): {**PLANNED, "impossible": 1},
                                               (3, 0): None, (3, 1): None}) for _ in range(2)]
        wrong, sound = jobs
        told = wrong.results

        def results(schedules):
            found = told(schedules)
            if wrong.round == 3:
                found[0]["iter_energy"] = [3.6e6 for _ in found[0]["iter_energy"]]
            if wrong.round == 4:  # the iterations look right
                breakdown = found[1]["energy_breakdown"]["forward"]
                breakdown[0][0] = 4294967295.0
            return found
        wrong.results = results
        for _ in range(6):
            for job in jobs:
                job.run_round()
        report = self.report(server, wrong)
        self.assertEqual(report["rounds"], {"observed": 6, "spoiled": 3, "misfit": 0, "disobeyed": 0, "jitter": 0,
                                            "missing": 0, "impossible": 3,
                                            "last": {"round": 4, "rank": 1, "reasons": ["impossible"]}})
        self.assertIn("a GPU had an impossible energy in 3", self.words(server, wrong))
        metrics, other = self.metrics(server, wrong), self.metrics(server, sound)
        self.assertEqual(metrics["rounds_spoiled_by_reason_total impossible"], 3)
        self.assertEqual(other["rounds_spoiled_by_reason_total impossible"], 1)
        self.assertLess(metrics["energy_joules_total"], other["energy_joules_total"])
        self.assertGreater(metrics["energy_joules_total"], 0.8 * other["energy_joules_total"])

    def test_counters_are_compared_with_integrated_power(self):
        server = self.start_online(num_microbatches=4)
        wrong = {**PLANNED, "counter_energy": 1300.0}
        unknown = {name: value for name, value in PLANNED.items() if "energy" not in name}
        late = {**PLANNED, "late_energy": 4.0}
        job = self.job_with_conduct(server, {(1, 1): wrong, (3, 0): unknown, (4, 0): late, (4, 1): late})
        job.run_round()
        check = self.report(server, job)["energy_check"]
        self.assertEqual((check["ranks"], check["agrees"], check["worst"]["agrees"]), (2, True, True))
        self.assertEqual(check["counter"], 2000)
        self.assertAlmostEqual(check["ratio"], 2000 / 2002)
        self.assertAlmostEqual(check["ratio_uncertainty"], 50 ** 0.5 / 2002)
        self.assertEqual(self.metrics(server, job)["energy_counter_agrees"], 1)
        self.assertIn("0.9990 +- 0.0035 times the integrated power: no difference beyond the uncertainty (2 ranks)",
                      self.words(server, job))
        job.run_round()
        check = self.report(server, job)["energy_check"]
        self.assertEqual((check["agrees"], check["worst"]["agrees"], check["worst"]["rank"]), (False, False, 1))
        self.assertAlmostEqual(check["worst"]["ratio"], 1300 / 1001)
        metrics = self.metrics(server, job)
        self.assertEqual(metrics["energy_counter_agrees"], 0)
        self.assertAlmostEqual(metrics["energy_counter_ratio"], 2300 / 2002)
        self.assertIn("rank 1: 1.2987 +- 0.0050 times the integrated power: they differ by more than the uncertainty",
                      self.words(server, job))
        job.run_round()  # the latest comparison counts
        self.assertTrue(self.report(server, job)["energy_check"]["agrees"])
        job.run_round()
        self.assertEqual(self.report(server, job)["energy_check"]["ranks"], 1)
        # Late samples of all ranks show too little power, so this part does not average out.
        job.run_round()
        check = self.report(server, job)["energy_check"]
        self.assertEqual(check["ranks"], 2)
        self.assertAlmostEqual(check["ratio_uncertainty"], (4 + 4 + 2 ** 0.5) / 2002)
        self.assertAlmostEqual(check["worst"]["ratio_uncertainty"], 5 / 1001)

    def test_energy_per_token(self):
        server = self.start_online(num_microbatches=4)
        job = self.job_with_conduct(server, {}, metadata="gpt tokens_per_step=4096")
        job.run_until_planned()
        job.run_round()
        page = server.get(f"/jobs/{job.id}").json
        report, figures = self.report(server, job), page["figures"]
        tokens = report["per_token"]
        self.assertEqual(tokens["tokens_per_step"], 4096)
        self.assertAlmostEqual(tokens["energy"] * 4096 * figures["iterations"] / figures["energy"], 1, delta=0.2)
        self.assertAlmostEqual(tokens["energy"] + tokens["saved"], tokens["baseline"], delta=0.2 * tokens["energy"])
        self.assertGreaterEqual(tokens["saved_uncertainty"], 0)
        self.assertEqual(self.metrics(server, job)["energy_per_token_joules"], tokens["energy"])
        self.assertIn("with 4096 tokens in a step; saved", self.words(server, job))
        for metadata, conducts, wanted in (("tokens_per_step=x", {}, None), ("tokens_per_step=0", {}, None), (None, {}, None),
                                           ("tokens_per_step=7", {(0, 1): {**PLANNED, "tokens_per_step": 99}}, 99)):
            other = self.job_with_conduct(server, conducts, metadata=metadata)
            other.run_round()
            tokens = self.report(server, other)["per_token"]
            self.assertEqual(tokens and tokens["tokens_per_step"], wanted)

    def test_the_report_survives_a_restart(self):
        server = self.start_online(num_microbatches=4)
        conducts = {(1, 0): {**PLANNED, "as_planned": 7, "disobeyed": 3, "wanted_mhz": 1200, "held_mhz": 600}}
        job = self.job_with_conduct(server, conducts, metadata="tokens_per_step=10")
        job.run_until_planned()
        job.run_round()
        before = self.report(server, job)
        port = server.port
        server.kill()
        server = self.start_online(num_microbatches=4, port=port)
        job.connect(server)
        after = self.report(server, job)
        self.assertEqual(after["rounds"], before["rounds"])
        self.assertEqual(after["steps"], before["steps"])
        self.assertEqual(after["energy_check"], before["energy_check"])
        self.assertEqual(after["baseline"], before["baseline"])
        job.run_round()
        self.assertEqual(self.report(server, job)["steps"]["run"], before["steps"]["run"] + 20)

    def test_a_scheduler_that_reads_no_results_has_a_report_too(self):
        server = self.start()
        job = register(server, pp=1)
        for round_ in range(3):
            self.expect(server.get(f"/schedule/{job.id}?rank=0&round={round_}"), 200)
            conduct = {**PLANNED, "as_planned": 8, "disobeyed": 2} if round_ == 1 else PLANNED
            result = dict(result_of(0), iter_time=[2.0, 2.5], iter_energy=[300.0, 350.5], conduct=conduct)
            self.expect(server.post(f"/result/{job.id}?round={round_}", result), 200)
            self.expect(server.post(f"/result/{job.id}?round={round_}", result), 200)  # sent again
        report = server.get(f"/jobs/{job.id}").json["report"]
        self.assertEqual((report["rounds"]["observed"], report["rounds"]["spoiled"], report["rounds"]["disobeyed"]),
                         (3, 1, 1))
        self.assertEqual((report["steps"]["run"], report["steps"]["as_planned"]), (30, 28))
        self.assertTrue(report["energy_check"]["agrees"])
        self.assertIsNone(report["baseline"])

    def test_any_conduct_leaves_the_result_valid(self):
        server = self.start()
        job = register(server, pp=1)
        odd = [None, 7, "x", [], {}, {"steps": -1}, {"steps": 1e300}, {"steps": [1]}, {"steps": 3, "new": {"a": 1}},
               {"a" * 10000: 1}]
        for round_, conduct in enumerate(odd):
            self.expect(server.get(f"/schedule/{job.id}?rank=0&round={round_}"), 200)
            result = dict(result_of(0), conduct=conduct)
            self.expect(server.post(f"/result/{job.id}?round={round_}", result), 200)
        self.assertEqual(server.get(f"/jobs/{job.id}").json["report"]["rounds"]["observed"], len(odd))

    def test_the_conduct_is_in_the_description_of_the_protocol(self):
        schemas = self.start().get("/openapi.json").json["components"]["schemas"]
        self.assertEqual(schemas["ProfilingResult"]["properties"]["conduct"], {"$ref": "#/components/schemas/Conduct"})
        self.assertLessEqual(set(PLANNED), set(schemas["Conduct"]["properties"]))


if __name__ == "__main__":
    unittest.main()
