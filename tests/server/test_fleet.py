#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Budgets, events and prices of a real `harpe serve`: requests of clients, real jobs of
`harpe train-sim`, an event in the middle, and a server that is killed during it."""
import json
import signal
import subprocess
import time
import unittest

from exposition import parse, promtool
from server import HARPE, LIMIT_S, ServerTest, clean_environment, register
from attempts import ATTEMPTS

# All clocks are measured at once, and a busy machine is no drift.
PERSEUS = {"learning": "sweep", "frequency_stride": 16, "drift_tolerance": 1}
JOBS = 3


class FleetTest(ServerTest):
    def put(self, server, target, **body):
        self.expect(server.call("PUT", target, body), 200)

    def fleet(self, server):
        return self.expect(server.get("/fleet"), 200).json

    def at_once(self, server, method, target, bodies):
        """Sends requests on a connection each before it reads an answer, and returns the answers."""
        connections = [self.connect(server) for _ in bodies]
        for connection, body in zip(connections, bodies):
            connection.send(method, target, body)
        answers = [self.expect(connection.receive(), 200) for connection in connections]
        for connection in connections:
            connection.close()
        return answers

    def wait_for(self, server, holds, what):
        def shown():
            fleet = self.fleet(server)
            return holds(fleet) and fleet
        return self.wait_until(shown, lambda: f"{what}: {json.dumps(self.fleet(server), indent=1)[:6000]}")


class SettingsTest(FleetTest):
    def test_nothing_is_steered_without_budgets(self):
        server = self.start()
        fleet = self.fleet(server)
        self.assertEqual(fleet["state"], "none")
        self.assertEqual((fleet["budgets"], fleet["jobs"], fleet["events"]), ([], [], []))
        self.assertIsNone(fleet["price"])
        self.assertNotIn("harpe_fleet_", server.get("/metrics").body.decode())

    def test_settings_survive_a_kill(self):
        server = self.start()
        self.put(server, "/fleet/groups/room", parent=None)
        self.put(server, "/fleet/groups/row1", parent="room")
        self.put(server, "/fleet/budget", group="row1", watts=1000, margin=0.1, overhead=1.25)
        self.put(server, "/fleet/loads/pumps", watts=120, group="row1")
        self.put(server, "/fleet/members/limit", group="row1", weight=2,
                 plans=[{"time": 1, "power": 500}, {"time": 1.2, "power": 400}])
        self.put(server, "/fleet/prices", currency="EUR", value_per_s=1, carbon_per_kg=0.1,
                 series=[{"at": 0, "energy_per_kwh": 0.2, "carbon_g_per_kwh": 300}])
        event = self.expect(server.post("/fleet/events", {
            "from": time.time() + 1000, "duration_s": 100, "watts": 500, "group": "row1",
            "notice_s": 60, "ramp_s": 30, "note": "grid"}), 200).json
        self.assertEqual(event["promised_w"], 500)
        before = self.wait_for(server, lambda f: f["jobs"] and f["state"] == "within", "settled")
        server.kill()
        server = self.start()
        after = self.fleet(server)
        self.assertEqual(after["price"], before["price"])
        self.assertCountEqual(after["groups"], before["groups"])
        for name in ("group", "watts", "margin", "overhead", "limit_w"):
            self.assertEqual(after["budgets"][0][name], before["budgets"][0][name])
        self.assertCountEqual([job["job_id"] for job in after["jobs"]], ["limit", "pumps"])
        self.assertEqual(after["events"][0]["state"], "planned")
        self.expect(server.call("DELETE", f"/fleet/events/{event['id']}"), 200)
        self.expect(server.call("DELETE", "/fleet/budget?group=row1"), 200)
        self.expect(server.call("DELETE", "/fleet/prices"), 200)
        self.assertEqual(self.fleet(server)["state"], "none")
        server.kill()
        self.assertEqual(self.fleet(self.start())["state"], "none")

    def test_a_budget_keeps_the_margin_and_overhead_that_a_change_does_not_name(self):
        server = self.start()
        def factors(group):
            row, = (one for one in self.fleet(server)["budgets"] if one["group"] == group)
            return row["watts"], row["margin"], row["overhead"]
        for group in (None, "row1"):
            self.put(server, "/fleet/budget", group=group, watts=1300, margin=0.02, overhead=1.05)
            self.put(server, "/fleet/budget", group=group, watts=1700)
            self.assertEqual(factors(group), (1700, 0.02, 1.05))
            self.put(server, "/fleet/budget", group=group, watts=1700, margin=0.1)
            self.assertEqual(factors(group), (1700, 0.1, 1.05))
            self.put(server, "/fleet/budget", group=group, watts=1700, margin=None)
            self.assertEqual(factors(group), (1700, 0, 1.05))
        # A budget that was removed leaves nothing behind.
        self.put(server, "/fleet/budget", group="row1", watts=1700, margin=0.1)
        self.expect(server.call("DELETE", "/fleet/budget?group=row1"), 200)
        self.put(server, "/fleet/budget", group="row1", watts=900)
        self.assertEqual(factors("row1"), (900, 0, 1))

    def test_a_budget_that_cannot_hold_says_what_is_missing(self):
        server = self.start()
        plans = [{"time": 1, "power": 500}, {"time": 1.2, "power": 400}]
        self.put(server, "/fleet/members/a", group="row1", plans=plans)
        for body, missing in (({"watts": 300}, 100), ({"watts": 300, "group": "row1", "margin": 0.2}, 200),
                              ({"watts": 600, "overhead": 1.2}, 0)):
            answer = self.expect(server.call("PUT", "/fleet/budget", body), 200).json
            self.assertAlmostEqual(answer["missing_w"], missing)

    def test_a_kill_during_an_event_keeps_the_split(self):
        server = self.start()
        runs = {name: 0 for name in "abc"}
        for weight, name in enumerate(runs, 1):
            self.put(server, f"/fleet/members/{name}", weight=weight, plans=[
                {"time": 1 + 0.1 * i, "power": 500 - 40 * i} for i in range(5)])
        self.put(server, "/fleet/budget", watts=1500)
        self.expect(server.post("/fleet/events", {"duration_s": 100000, "watts": 200}), 200)

        def is_kept(fleet):
            if fleet["state"] == "within" and fleet["events"][0]["reached_at"] and all(
                    job["state"] == "follows" for job in fleet["jobs"]):
                return True  # without one more report, which may change the plans
            for name, plan in runs.items():
                report = {"plan": plan, "power": 500 - 40 * plan}
                runs[name] = self.expect(server.post(f"/fleet/members/{name}", report), 200).json["plan"]
            return False

        plans = lambda fleet: {job["job_id"]: (job["plan"], job["plans"]) for job in fleet["jobs"]}
        is_silent = lambda fleet: any(job["state"] == "silent" for job in fleet["jobs"])
        for _ in range(ATTEMPTS):
            before = plans(self.wait_for(server, is_kept, "lowered"))
            self.assertTrue(any(plan > 0 for plan, _ in before.values()))
            server.kill()  # no member has reported anything since
            server = self.start()
            again = self.fleet(server)
            # A tick later the split is a new one.
            later = self.wait_for(server, lambda f: f["revision"] > 0 and (f["state"] == "within" or is_silent(f)),
                                  "split")
            if not is_silent(later):  # a busy machine may start the server after members had to report
                break
        self.assertEqual(plans(again), before)
        self.assertEqual(again["events"][0]["state"], "active")
        self.assertEqual(plans(later), before)

    def test_metrics_are_those_of_the_fleet(self):
        server = self.start()
        plans = [{"time": 1, "power": 500}, {"time": 1.25, "power": 400}]
        self.put(server, "/fleet/groups/row", parent=None)
        self.put(server, "/fleet/groups/rack", parent="row")
        self.put(server, "/fleet/members/a", plans=plans, group="rack")
        self.put(server, "/fleet/loads/pump", watts=100)
        self.put(server, "/fleet/budget", watts=700, overhead=1.25)
        self.put(server, "/fleet/budget", watts=300, group="row", margin=0.1)
        self.put(server, "/fleet/prices", currency="EUR", carbon_per_kg=0.1, series=[
            {"at": 0, "energy_per_kwh": 0.36, "carbon_g_per_kwh": 360}])
        event = self.expect(server.post("/fleet/events", {"duration_s": 3600, "watts": 50}), 200).json

        def follows(fleet):
            self.expect(server.post("/fleet/members/a", {"plan": 1, "power": 400}), 200)
            return any(job["state"] == "follows" for job in fleet["jobs"])

        self.wait_for(server, follows, "the slowest plan runs")
        text = server.get("/metrics").body.decode()
        self.assertEqual(promtool("check", "metrics", text=text), "")
        found = {(name.removeprefix("harpe_fleet_"), *(f"{k}={v}" for k, v in labels)): value
                 for name, samples in parse(text).items() for labels, value in samples.items()
                 if name.startswith("harpe_fleet_")}
        fleet = self.fleet(server)
        budgets = {row["group"] or "": row for row in fleet["budgets"]}
        for group, row in budgets.items():
            for metric, member in (("budget", "now_watts"), ("limit", "limit_w"),
                                   ("counted", "counted_w"), ("planned", "power_w"),
                                   ("measured", "measured_w"), ("missing", "missing_w")):
                self.assertAlmostEqual(found[f"{metric}_watts", f"group={group}"], row[member])
        # 400 W at least, with a margin of a tenth: 444 W are needed, and 300 W are there.
        self.assertAlmostEqual(found["missing_watts", "group=row"], 400 / 0.9 - 300)
        self.assertEqual(found["overhead_ratio", "group="], 1.25)
        row, = (job for job in fleet["jobs"] if job["kind"] != "load")
        labels = [label for label in found if label[0] == "job_slowdown"][0][1:]
        self.assertEqual(set(labels), {f"job_id={row['job_id']}", "group=rack"})
        self.assertEqual(found[("job_slowdown", *labels)], 1.25)
        self.assertEqual(found[("job_planned_watts", *labels)], 400)
        self.assertEqual(found[("job_counted_watts", *labels)], row["counted_w"])
        self.assertAlmostEqual(found[("job_gain_per_watt", *labels)] * 1000, row["gain_per_kw"])
        labels = [label for label in found if label[0] == "event_promised_watts"][0][1:]
        self.assertEqual(set(labels), {f"event={event['id']}", "group="})
        self.assertAlmostEqual(found[("event_promised_watts", *labels)], event["promised_w"])
        self.assertAlmostEqual(found[("event_missing_watts", *labels)], event["missing_w"])
        self.assertEqual(sum(value for label, value in found.items() if label[0] == "events"), 1)
        self.assertAlmostEqual(found["energy_price_per_joule", "currency=EUR"], 1e-7)
        self.assertAlmostEqual(found["carbon_intensity_grams_per_joule",], 1e-4)
        self.assertEqual(found["energy_joules_total",], 0)

    def test_the_same_event_posted_twice_at_once_is_one_event(self):
        server = self.start()
        self.put(server, "/fleet/budget", watts=1000)
        for number in range(20):
            body = {"duration_s": 1000, "watts": 1, "key": f"key{number}"}
            ids = {answer.json["id"] for answer in self.at_once(server, "POST", "/fleet/events", 4 * [body])}
            self.assertEqual(len(ids), 1)
        self.assertEqual(len(self.fleet(server)["events"]), 20)

    def test_two_changes_of_a_job_at_once_are_both_kept(self):
        server = self.start()
        job = register(server)
        self.put(server, "/fleet/budget", watts=1000)
        for number in range(1, 21):
            self.at_once(server, "PUT", f"/fleet/jobs/{job.id}", [{"weight": number}, {"priority": number}])
            row, = self.fleet(server)["jobs"]
            self.assertEqual((row["weight"], row["priority"]), (number, number))

    def test_two_changes_of_a_budget_at_once_are_both_kept(self):
        server = self.start()
        for _ in range(20):
            self.put(server, "/fleet/budget", watts=1000, margin=0, overhead=1)
            self.at_once(server, "PUT", "/fleet/budget",
                         [{"watts": 900, "margin": 0.1}, {"watts": 900, "overhead": 1.5}])
            row, = self.fleet(server)["budgets"]
            self.assertEqual((row["margin"], row["overhead"]), (0.1, 1.5))

    def test_the_description_of_the_protocol_has_the_least_values(self):
        server = self.start()
        api = server.get("/openapi.json").json
        bodies = {"FleetBudget": ("PUT", "/fleet/budget", {"watts": 1}),
                  "FleetEvent": ("POST", "/fleet/events", {"duration_s": 60, "watts": 5}),
                  "FleetPrices": ("PUT", "/fleet/prices", {"series": [{"at": 0, "energy_per_kwh": 1}]})}
        for schema, (method, target, body) in bodies.items():
            least = {name: about["minimum"] for name, about in
                     api["components"]["schemas"][schema]["properties"].items() if "minimum" in about}
            self.assertTrue(least)
            for name, minimum in least.items():
                with self.subTest(schema=schema, name=name):
                    self.expect(server.call(method, target, body | {name: minimum}), 200)
                    below = minimum / 2 if minimum > 0 else -1
                    self.expect(server.call(method, target, body | {name: below}), 422)
        (limit,) = api["paths"]["/fleet/audit"]["get"]["parameters"]
        self.assertEqual((limit["name"], limit["in"], limit["required"]), ("limit", "query", False))

    def test_wrong_requests_change_nothing(self):
        server = self.start()
        self.expect_detail(server.call("PUT", "/fleet/budget", {"watts": -1}), 422, "watts")
        self.expect_detail(server.call("PUT", "/fleet/budget", {"wats": 1}), 422, "wats")
        self.expect_detail(server.call("PUT", "/fleet/jobs/none", {"weight": 1}), 404, "none")
        self.expect_detail(server.post("/fleet/members/limit", {}), 404, "limit")
        self.expect_detail(server.call("DELETE", "/fleet/budget"), 404, "whole fleet")
        self.expect_detail(server.post("/fleet/events", {"duration_s": 5}), 422, "share")
        self.expect(server.call("PATCH", "/fleet/budget", {}), 405)
        self.assertEqual(self.fleet(server)["state"], "none")


class JobsTest(FleetTest):
    def setUp(self):
        super().setUp()
        self.jobs = []

    def serve(self, port=0):
        return self.start(scheduler="Perseus", args=PERSEUS, port=port)

    def train(self, server, seed):
        log = open(self.path / f"job{seed}.log", "wb")
        self.addCleanup(log.close)
        self.jobs.append(subprocess.Popen(
            [HARPE, "train-sim", "--server", f"http://127.0.0.1:{server.port}", "--pp", "1",
             "--num-mbs", "2", "--forward-time", "0.1", "--steps", "10000", "--time-scale", "4",
             "--seed", str(seed), "--learning-limit", str(2 * LIMIT_S)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=clean_environment()))
        # Before the server, for which a job would wait.
        self.addCleanup(self.end_jobs)

    def end_jobs(self):
        for job in self.jobs:
            job.send_signal(signal.SIGTERM)
        while self.jobs:
            self.jobs.pop().wait(LIMIT_S)

    def test_event_is_kept_and_survives_a_kill(self):
        server = self.serve()
        for seed in range(JOBS):
            self.train(server, seed)
        self.put(server, "/fleet/budget", watts=100000)
        ready = self.wait_for(
            server, lambda f: len(f["jobs"]) == JOBS and
            all(job["state"] == "follows" and job["plan"] == 0 for job in f["jobs"]), "learnt")
        for job in ready["jobs"]:
            self.assertGreater(job["plans"], 1)
            self.put(server, f"/fleet/jobs/{job['job_id']}", max_slowdown=1.5)
        least_w = self.fleet(server)["budgets"][0]["least_w"]
        full_w = ready["power"]["counted_w"]
        less_w = (full_w - least_w) / 2
        budget_w = 1.05 * full_w
        self.put(server, "/fleet/budget", watts=budget_w)
        event = self.expect(server.post("/fleet/events", {
            "duration_s": 100000, "watts": budget_w - full_w + less_w, "ramp_s": 1}), 200).json
        self.assertEqual(event["missing_w"], 0)
        during = self.wait_for(
            server, lambda f: f["state"] == "within" and f["events"][0]["reached_at"] and
            all(job["state"] == "follows" for job in f["jobs"]), "lowered")
        self.assertLessEqual(during["power"]["counted_w"], event["promised_w"] + 0.01)
        self.assertTrue(any(job["plan"] > 0 for job in during["jobs"]))
        for job in during["jobs"]:
            self.assertLessEqual(job["slowdown"], 1.5)
        server.kill()
        server = self.serve(server.port)
        again = self.fleet(server)
        # Jobs go on meanwhile, and what they measure may change the split.
        self.assertCountEqual([job["job_id"] for job in again["jobs"]],
                              [job["job_id"] for job in during["jobs"]])
        for job in again["jobs"]:
            self.assertGreater(job["plans"], 1)
        self.assertEqual(again["events"][0]["state"], "active")
        self.wait_for(server, lambda f: f["state"] == "within" and
                      all(job["measured_w"] for job in f["jobs"]), "measured after the kill")
        self.expect(server.call("DELETE", f"/fleet/events/{event['id']}"), 200)
        after = self.wait_for(server, lambda f: f["events"][0]["state"] == "cancelled" and
                              all(job["plan"] == 0 and job["state"] == "follows"
                                  for job in f["jobs"]), "back")
        self.assertEqual(after["weighted_slowdown"], 0)
        self.assertGreater(after["energy"]["used_kwh"], 0)
        history = self.expect(server.get("/fleet/history?points=100"), 200).json
        self.assertGreater(len(history["at"]), 0)

    def test_cap_of_a_client_is_the_highest(self):
        server = self.serve()
        self.train(server, 1)
        self.put(server, "/fleet/budget", watts=100000)
        fleet = self.wait_for(server, lambda f: f["jobs"] and
                              f["jobs"][0]["state"] == "follows", "learnt")
        job = fleet["jobs"][0]
        # Planned powers include a factor for what was measured, which caps do not.
        cap_w = job["planned_w"] * 0.75
        self.expect(server.post(f"/power_cap/{job['job_id']}", {"watts": cap_w}), 200, None)
        self.wait_for(server, lambda f: f["jobs"][0]["state"] == "follows" and
                      f["jobs"][0]["plan"] > 0, "capped")
        self.expect(server.call("DELETE", "/fleet/budget"), 200)
        self.wait_for(server, lambda f: f["state"] == "none", "released")
        target = f"/jobs/{job['job_id']}/frontier"
        # The job gets its cap back after the cap is stored.
        own_cap = lambda: self.expect(server.get(target), 200).json["job_requests"]["power_cap"]
        self.wait_until(lambda: abs(own_cap() - cap_w) < 1e-3, "the client's cap is back")
        # A cap that was set before the fleet steers is kept too, and no other term replaces it.
        lower_w = 0.9 * cap_w
        self.put(server, f"/fleet/jobs/{job['job_id']}", most_w=None)
        self.expect(server.post(f"/power_cap/{job['job_id']}", {"watts": lower_w}), 200, None)
        self.put(server, "/fleet/budget", watts=100000)
        self.wait_for(server, lambda f: f["jobs"][0]["state"] == "follows", "steered again")
        self.put(server, f"/fleet/jobs/{job['job_id']}", weight=2)
        self.expect(server.call("DELETE", "/fleet/budget"), 200)
        self.wait_for(server, lambda f: f["state"] == "none", "released again")
        self.wait_until(lambda: abs(own_cap() - lower_w) < 1e-3, "the lower cap is back")


if __name__ == "__main__":
    unittest.main()
