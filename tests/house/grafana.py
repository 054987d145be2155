#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the example dashboard for Grafana, packaging/grafana/harpe.json, against a running server:
every metric that it asks for is in /metrics, and every one there is shown by some panel. HARPE names
the program, HARPE_SOURCE_DIR the source tree."""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server"))
from server import ServerTest, unittest  # noqa: E402

DASHBOARD = HERE.parent.parent / "packaging" / "grafana" / "harpe.json"
METRIC = re.compile(r"\bharpe_[a-z0-9_]+")


class DashboardTest(ServerTest):
    def setUp(self):
        super().setUp()
        self.dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        self.asked = set()
        for panel in self.dashboard["panels"]:
            for target in panel["targets"]:
                self.asked.update(METRIC.findall(target["expr"]))
        text = self.start().get("/metrics").body.decode()
        # What a histogram or summary is made of has names of its own: _bucket, _sum, _count. Those of
        # single jobs have their head without a job, too; tests/server/test_metrics.py has some.
        self.types = dict(re.findall(r"^# TYPE (harpe_\w+) (\w+)$", text, re.MULTILINE))
        self.exported = set(re.findall(r"^(harpe_\w+)", text, re.MULTILINE)) | set(self.types)

    def test_every_metric_of_the_dashboard_is_exported(self):
        variables = {name for variable in self.dashboard["templating"]["list"]
                     for name in METRIC.findall(json.dumps(variable))}
        self.assertEqual((self.asked | variables) - self.exported, set())

    def test_every_exported_metric_is_on_the_dashboard(self):
        for name in self.types:
            self.assertTrue(any(asked.startswith(name) for asked in self.asked),
                            f"{name} is in /metrics, but on no panel of {DASHBOARD.name}")

    def test_only_counters_are_asked_for_their_rate(self):
        for panel in self.dashboard["panels"]:
            for target in panel["targets"]:
                for name in METRIC.findall(target["expr"]):
                    if self.types.get(name) in ("counter", "gauge"):
                        is_rate = re.search(r"\b(rate|increase)\(", target["expr"]) is not None
                        self.assertEqual(is_rate, self.types[name] == "counter", target["expr"])

    def test_panels_lie_beside_each_other(self):
        taken = set()
        for panel in self.dashboard["panels"]:
            place = panel["gridPos"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertNotIn((x, y), taken, panel["title"])
                    self.assertLess(x, 24)
                    taken.add((x, y))


unittest.main()
