#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the example dashboards for Grafana in packaging/grafana: harpe.json with a running server,
harpe-fleet.json with a server that steers a fleet, harpe-agent.json with a running node agent. Every metric of a dashboard is in /metrics, and a panel
shows every metric. HARPE names the program, HARPE_EMULATOR the emulated driver library,
HARPE_SOURCE_DIR the source tree."""
import json
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "server"), str(HERE.parent / "agent")]
from exposition import promtool  # noqa: E402
from metrics_agent import AgentTest  # noqa: E402
from server import ServerTest, unittest  # noqa: E402

DASHBOARDS = HERE.parent.parent / "packaging" / "grafana"
METRIC = re.compile(r"\bharpe_[a-z0-9_]+")


class Dashboard:
    """The checks. A class of tests gives the file's name and reads /metrics."""
    file = None

    def read_metrics(self):
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        path = DASHBOARDS / self.file
        self.dashboard = json.loads(path.read_text(encoding="utf-8"))
        self.asked = set()
        for panel in self.dashboard["panels"]:
            for target in panel["targets"]:
                self.asked.update(METRIC.findall(target["expr"]))
        text = self.read_metrics()
        # The parts of a histogram or summary have names of their own: _bucket, _sum, _count. The
        # metrics of single jobs have their header without a job, too; tests/server/test_metrics.py
        # has jobs.
        self.types = dict(re.findall(r"^# TYPE (harpe_\w+) (\w+)$", text, re.MULTILINE))
        self.exported = set(re.findall(r"^(harpe_\w+)", text, re.MULTILINE)) | set(self.types)

    def test_every_metric_of_the_dashboard_is_exported(self):
        variables = {name for variable in self.dashboard["templating"]["list"]
                     for name in METRIC.findall(json.dumps(variable))}
        self.assertEqual((self.asked | variables) - self.exported, set())

    def test_every_exported_metric_is_on_the_dashboard(self):
        for name in self.types:
            self.assertTrue(any(asked.startswith(name) for asked in self.asked),
                            f"{name} is in /metrics, but on no panel of {self.file}")

    def test_only_counters_are_asked_for_their_rate(self):
        for panel in self.dashboard["panels"]:
            for target in panel["targets"]:
                for name in METRIC.findall(target["expr"]):
                    if self.types.get(name) in ("counter", "gauge"):
                        is_rate = re.search(r"\b(rate|increase)\(", target["expr"]) is not None
                        self.assertEqual(is_rate, self.types[name] == "counter", target["expr"])

    def test_prometheus_can_read_every_query(self):
        rules = []
        for panel in self.dashboard["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$__range", "1h").replace("$__rate_interval", "1m")
                rules.append({"record": "query", "labels": {"number": str(len(rules))},
                              "expr": query})
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            json.dump({"groups": [{"name": "queries", "rules": rules}]}, file)  # JSON is YAML
            file.flush()
            self.assertEqual(promtool("check", "rules", file.name), "")

    def test_panels_lie_beside_each_other(self):
        taken = set()
        for panel in self.dashboard["panels"]:
            place = panel["gridPos"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertNotIn((x, y), taken, panel["title"])
                    self.assertLess(x, 24)
                    taken.add((x, y))


class ServersDashboard(Dashboard, ServerTest):
    file = "harpe.json"

    def read_metrics(self):
        return self.start().get("/metrics").body.decode()


class FleetDashboard(Dashboard, ServerTest):
    file = "harpe-fleet.json"

    def read_metrics(self):
        server = self.start()
        for method, target, body in (
                ("PUT", "/fleet/groups/row1", {}),
                ("PUT", "/fleet/budget", {"watts": 5000, "overhead": 1.2}),
                ("PUT", "/fleet/budget", {"watts": 3000, "group": "row1"}),
                ("PUT", "/fleet/prices", {"currency": "EUR", "series": [
                    {"at": 0, "energy_per_kwh": 0.2, "carbon_g_per_kwh": 300}]}),
                ("PUT", "/fleet/loads/cooling", {"watts": 100}),
                ("PUT", "/fleet/members/job", {"group": "row1", "plans": [
                    {"time": 1, "power": 500}, {"time": 1.2, "power": 400}]}),
                ("POST", "/fleet/events", {"duration_s": 3600, "share": 0.1})):
            self.expect(server.call(method, target, body), 200)
        text = self.text = server.get("/metrics").body.decode()
        # The metrics of the server are on harpe.json. A part of them is on this dashboard too.
        self.others = set(re.findall(r"^# TYPE (harpe_(?!fleet_)\w+)", text, re.MULTILINE))
        return text

    def setUp(self):
        super().setUp()
        self.types = {name: kind for name, kind in self.types.items() if name not in self.others}
        self.assertGreater(len(self.types), 20)

    def test_metrics_have_samples_as_soon_as_a_fleet_is_set(self):
        """Except those of energy that a job has reported, and of an event that had to be met."""
        with_samples = set(re.findall(r"^(harpe_\w+)", self.text, re.MULTILINE))
        self.assertEqual({name for name in self.types if name not in with_samples}
                         - {"harpe_fleet_event_highest_watts", "harpe_fleet_cost",
                            "harpe_fleet_cost_saved", "harpe_fleet_carbon_grams_total",
                            "harpe_fleet_carbon_saved_grams"}, set())


class AgentsDashboard(Dashboard, AgentTest):
    file = "harpe-agent.json"

    def read_metrics(self):
        _, agent = self.start_agent("A100,GH200")
        return agent.page()


unittest.main()
