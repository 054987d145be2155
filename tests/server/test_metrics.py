# SPDX-License-Identifier: Apache-2.0
"""/metrics of single jobs, read as Prometheus reads them: the energy that ranks reported, the
savings with their uncertainty, plan and phase. If promtool is installed, it checks the text."""
import os
import pathlib
import re

from exposition import of_job, parse, promtool
from online_job import Online, job_info, register, register_many, result_of, unittest


class Metrics(Online):
    def metrics(self, server):
        text = server.get("/metrics").body.decode()
        self.assertEqual(promtool("check", "metrics", text=text), "")
        return parse(text)

    def of_job(self, server, job_id):
        """Returns {name or name phase: value}."""
        self.metrics(server)  # checks their form
        return of_job(server.get("/metrics").body.decode(), job_id, "phase")

    def test_an_online_job_has_energy_savings_plan_and_phase(self):
        server = self.start_online(num_microbatches=6)
        job = self.pipeline(server, 4, 6, noise=0.003)
        self.assertEqual(self.metrics(server)["harpe_jobs_left_out"], {(): 0})
        used_j = used_s = rounds = 0
        phases = []
        for _ in range(40):
            job.run_round()
            used_j += job.energy_j
            used_s += job.time_s
            rounds += 1
            frontier = job.frontier()
            phases.append(frontier["phase"])
            if phases[-8:].count("plan") == 8:
                break
        found = self.of_job(server, job.id)
        self.assertAlmostEqual(found["energy_joules_total"] / used_j, 1, delta=1e-9)
        self.assertAlmostEqual(found["iteration_seconds_total"] / used_s, 1, delta=0.02)
        self.assertEqual(found["iterations_total"], rounds)
        self.assertAlmostEqual(found["power_watts"] * job.time_s / job.energy_j, 1, delta=0.02)
        saved = frontier["saved"]
        self.assertEqual(found["energy_saved_joules"], saved["energy"])
        self.assertEqual(found["energy_saved_uncertainty_joules"], saved["energy_uncertainty"])
        self.assertEqual(found["energy_baseline_joules"], saved["energy_baseline"])
        self.assertEqual(found["time_lost_seconds"], saved["time"])
        self.assertEqual(found["time_lost_uncertainty_seconds"], saved["time_uncertainty"])
        self.assertGreater(found["energy_saved_joules"], found["energy_saved_uncertainty_joules"])
        self.assertEqual(found["plan"], frontier["current"])
        plan = frontier["plans"][frontier["current"]]
        self.assertAlmostEqual(found["plan_iteration_seconds"] / plan["time"], 1, delta=0.02)
        self.assertAlmostEqual(found["plan_iteration_joules"] / plan["energy"], 1, delta=0.02)
        most = max(plan["time"], frontier["all_maximum"]["time"]) * (1 + 1e-9)
        one = min((one for one in frontier["one_clock"] if one["time"] <= most), key=lambda one: one["energy"])
        more = found["plan_iteration_joules"] - plan["energy"], found["plan_iteration_seconds"] - plan["time"]
        self.assertAlmostEqual(found["one_clock_iteration_joules"] / (one["energy"] + more[0]), 1, 9)
        self.assertAlmostEqual(found["one_clock_iteration_seconds"] / (one["time"] + more[1]), 1, 9)
        self.assertEqual([found[f"phase {name}"] for name in ("count", "sweep", "explore", "plan", "hold")],
                         [0, 0, 0, 1, 0])
        listed = server.get("/jobs").json["jobs"][0]["figures"]
        self.assertEqual(listed["saved"]["energy"], saved["energy"])
        self.assertEqual(listed["phase"], "plan")
        self.assertEqual(listed["plan"]["number"], frontier["current"])

    def test_a_number_in_the_metadata_that_cannot_be_used_is_told(self):
        server = self.start_online()
        for number, word in enumerate(("num_microbatches=abc", "num_microbatches=0", "tokens_per_step=-3",
                                       "num_microbatches=99999999999")):
            job = register(server, job_metadata=f"x {word},y")
            self.wait_for_log(server, f"{job.id}: {word} in the job's metadata is ignored: it is not a number from 1 to 10")
            self.assertEqual(server.log().count("is ignored: it is not a number"), number + 1)
        register(server, job_metadata="num_microbatches=4 tokens_per_step=5 num=x")
        self.assertEqual(server.log().count("is ignored: it is not a number"), 4)

    def test_a_job_that_has_ended_draws_no_power_and_runs_no_plan(self):
        server = self.start_online(num_microbatches=4)
        job = self.pipeline(server, 2, 4)
        job.run_until_planned()
        job.frontier()  # after the scheduler has observed the results
        before = self.of_job(server, job.id)
        self.assertEqual((before["phase plan"], before["power_watts"] > 0), (1, True))
        self.end(server, job)
        after = self.of_job(server, job.id)
        self.assertEqual({name for name in after if "plan" in name or "phase" in name or "power_watts" in name},
                         set())
        self.assertEqual(after["energy_joules_total"], before["energy_joules_total"])
        self.assertEqual(after["energy_saved_joules"], before["energy_saved_joules"])

    def test_before_a_baseline_nothing_is_claimed(self):
        server = self.start_online(num_microbatches=4)
        job = self.pipeline(server, 2, 4)
        job.ask()
        job.receive()
        found = self.of_job(server, job.id)
        self.assertEqual(found["energy_joules_total"], 0)
        self.assertNotIn("energy_saved_joules", found)
        self.assertNotIn("plan", found)
        job.report()
        job.frontier()  # after the scheduler has observed the results
        self.assertEqual(self.of_job(server, job.id)["energy_saved_joules"], 0)

    def test_a_given_plan_has_energy_but_no_savings(self):
        server = self.start()
        job = register(server, pp=1, job_metadata='quote" back\\slash\nline')
        for round_ in range(3):
            self.expect(server.get(f"/schedule/{job.id}?rank=0&round={round_}"), 200)
            result = dict(result_of(0), iter_time=[2.0, 2.5], iter_energy=[300.0, 350.5])
            self.expect(server.post(f"/result/{job.id}?round={round_}", result), 200)
        found = self.of_job(server, job.id)
        self.assertEqual(found["energy_joules_total"], 3 * 650.5)
        self.assertEqual(found["iteration_seconds_total"], 13.5)
        self.assertEqual(found["iterations_total"], 6)
        self.assertEqual(found["power_watts"], 650.5 / 4.5)
        self.assertEqual({name for name in found if "saved" in name or "plan" in name}, set())
        figures = server.get(f"/jobs/{job.id}").json["figures"]
        self.assertIsNone(figures["saved"])
        self.assertIsNone(figures["phase"])

    def test_only_the_newest_thousand_jobs_have_metrics(self):
        server = self.start()
        jobs = register_many(server, 1003)
        metrics = self.metrics(server)
        self.assertEqual(metrics["harpe_jobs_left_out"], {(): 3})
        told = {dict(labels)["job_id"] for labels in metrics["harpe_job_energy_joules_total"]}
        self.assertEqual(told, set(jobs[3:]))


class OfTheServer(Metrics):
    def test_who_runs_a_job_can_be_joined_with_its_metrics(self):
        server = self.start_online()
        known = register(server, job_metadata='a "b" user=eve slurm_job=7 node=n1 model=gpt fleet_group=g')
        bare = register(server)
        found = {dict(labels)["job_id"]: dict(labels) for labels in self.metrics(server)["harpe_job_info"]}
        self.assertEqual({name: found[known.id][name] for name in ("user", "slurm_job", "node", "model", "group", "gpus")},
                         {"user": "eve", "slurm_job": "7", "node": "n1", "model": "gpt", "group": "g",
                          "gpus": str(known.size)})
        self.assertIn('a "b" user=eve', found[known.id]["name"])
        self.assertEqual((found[bare.id]["user"], found[bare.id]["group"]), ("", ""))

    def test_version_health_and_space_are_told(self):
        server = self.start_online()
        register(server)
        found = self.metrics(server)
        version = server.get("/info").json["version"]
        self.assertEqual(found["harpe_build_info"], {(("version", version),): 1})
        self.assertEqual(found["harpe_healthy"], {(): 1})
        self.assertEqual(found["harpe_http_failures_total"], {(): 0})
        disk = os.statvfs(self.path)
        (free,) = found["harpe_store_free_bytes"].values()
        self.assertAlmostEqual(free / (disk.f_bavail * disk.f_frsize), 1, delta=0.3)

    def test_alerts_and_scrapes_are_prometheus_own(self):
        folder = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "prometheus"
        rules = folder / "harpe-serve.rules.yml"
        self.assertEqual(promtool("check", "rules", rules), "")
        self.assertEqual(promtool("check", "config", "--syntax-only", folder / "harpe-serve.scrape.yml"), "")
        self.assertEqual(promtool("test", "rules", pathlib.Path(__file__).with_name("rules_test.yml")), "")
        exported = set(self.metrics(self.start_online()))
        asked = set(re.findall(r"\bharpe_(?!fleet_)[a-z_]+", rules.read_text(encoding="utf-8")))
        self.assertLessEqual(asked, exported)  # those of the fleet need a fleet: test_fleet.py compares them

    def test_a_store_that_cannot_be_written_is_unhealthy_and_counted(self):
        server = self.start_online()
        (self.path / "harpe.db").rename(self.path / "elsewhere.db")
        self.assertEqual(server.post("/register_job", job_info()).status, 503)
        found = self.metrics(server)
        self.assertEqual(found["harpe_healthy"], {(): 0})
        self.assertGreaterEqual(found["harpe_http_failures_total"][()], 1)


if __name__ == "__main__":
    unittest.main()
