# SPDX-License-Identifier: Apache-2.0
"""`harpe plan --graph` and `--export-graph` from the outside: the files of a plan directory, a pipeline
compared with its own graph; and bad input. tests/python/test_graph.py compares the files of plans with
plans that were computed by hand."""
import json

from program import ProgramTest, rows

JOB = {
    "resources": [{"name": "gpu0", "blocking_power": 70}, {"name": "gpu1", "blocking_power": 60.5}],
    "activities": [
        {"name": "f1", "resource": "gpu1", "after": [{"name": "send", "lag": 0.001}],
         "options": [{"time": 0.080, "energy": 31.0, "frequency": 1410},
                     {"time": 0.090, "energy": 26.0, "frequency": 1200}]},
        {"name": "send", "time": 0.002, "after": ["f0"]},
        {"name": "f0", "resource": "gpu0",
         "options": [{"time": 0.066, "energy": 14.6, "frequency": 990},
                     {"time": 0.050, "energy": 20.0, "frequency": 1410},
                     {"time": 0.056, "energy": 16.5, "frequency": 1200}]},
        {"name": "optimizer", "resource": "gpu0", "after": ["f0"], "release": 0.1, "time": 0.02,
         "energy": 5},
        {"name": "log", "time": 0.2, "release": 0.001}],
}


class Graph(ProgramTest):
    def write_job(self, job, name="job.json"):
        (self.path / name).write_text(json.dumps(job))

    def setUp(self):
        super().setUp()
        self.write_job(JOB)

    def plan(self, *more, graph="job.json", directory="plans"):
        return self.succeed("plan", "--graph", graph, "--output-dir", directory, *more)

    def test_the_directory_is_complete(self):
        self.plan()
        found = {path.name for path in (self.path / "plans").iterdir()}
        table = rows(self.path / "plans" / "frontier.csv")
        plans = {f"plan_{number:05d}.json" for number in range(len(table))}
        self.assertEqual(found, plans | {
            "frontier.csv", "bound.csv", "plan.json", "report.html", "frontier.svg",
            "pipeline_fastest.svg", "pipeline_minimum_energy.svg", "cost_model_resource_00.svg",
            "cost_model_resource_01.svg"})

    def test_report_speaks_of_resources(self):
        self.plan()
        page = (self.path / "plans" / "report.html").read_text().split("<script")[0]
        for words in ("each lane is a resource", "gpu1", "5 activities on 2 resources",
                      "plan_0000", "Activities without a resource"):
            self.assertIn(words.lower(), page.lower())
        for word in ("freqs_pipeline", "rank", "microbatch"):
            self.assertNotIn(word, page)

    def test_choose_reads_the_directory(self):
        self.plan()
        chosen = self.succeed("choose", "plans", "--min-energy")
        self.assertTrue(chosen.out.endswith("\nplans/plan_00000.json\n"), chosen.out)
        straggler = self.succeed("choose", "plans", "--straggler", 3, "--json").json()
        plan = json.loads((self.path / "plans" / "plan_00000.json").read_text())
        waiting = (straggler["iteration_time_s"] - plan["time_s"]) * 130.5
        self.assertAlmostEqual(straggler["waiting_energy_j"], waiting, places=9)

    def test_force_replaces_the_directory(self):
        self.plan()
        self.plan("--force", "--plans", "3")
        self.refuse(1, "plans: already exists", "plan", "--graph", "job.json", "-o", "plans")

    def test_json_tells_what_was_planned(self):
        said = self.plan("--json", "--no-pictures").json()
        self.assertEqual(said["arguments"]["graph"], "job.json")
        self.assertEqual(said["problem"]["resources"], ["gpu0", "gpu1"])
        self.assertEqual(said["problem"]["activities"], 5)
        self.assertEqual(said["problem"]["blocking_power_w"], [70, 60.5])

    def test_a_graph_without_resources(self):
        self.write_job({"activities": [{"name": "a", "options": [{"time": 1, "energy": 5},
                                                             {"time": 2, "energy": 1}]},
                                   {"name": "b", "time": 1.5}]})
        self.plan()
        self.succeed("choose", "plans", "--max-slowdown", 1.5)
        plan = json.loads((self.path / "plans" / "plan_00000.json").read_text())
        self.assertEqual((plan["time_s"], plan["energy_j"]), (2, 1))
        self.assertEqual(plan["activities"]["a"],
                         {"option": 1, "frequency": None, "start_s": 0, "slack_s": 0})

    def test_a_graph_without_energies(self):
        self.write_job({"activities": [{"name": "a", "time": 0.1}]})
        self.plan()
        chosen = self.succeed("choose", "plans", "--min-energy", "--json").json()
        self.assertEqual((chosen["time_s"], chosen["energy_j"]), (0.1, 0))

    def test_deadlines_are_met(self):
        """f1 may end at 0.148 s at the latest, which its slow option does not if f0 is slow, too."""
        job = json.loads(json.dumps(JOB))
        job["activities"][0]["deadline"] = 0.148
        self.write_job(job)
        self.plan("--plans", "all", "--verify", "--no-pictures")
        for path in (self.path / "plans").glob("plan_0*.json"):
            runs = json.loads(path.read_text())["activities"]
            time = JOB["activities"][0]["options"][runs["f1"]["option"]]["time"]
            self.assertLessEqual(runs["f1"]["start_s"] + time + runs["f1"]["slack_s"], 0.148 + 1e-9)
        with_deadline = rows(self.path / "plans" / "frontier.csv")
        self.write_job(JOB)
        self.plan("--plans", "all", "--no-pictures", "--force")
        free = rows(self.path / "plans" / "frontier.csv")
        self.assertLess(float(free[-1]["energy_j"]), float(with_deadline[-1]["energy_j"]))

    def test_a_pipeline_and_its_graph_have_the_same_frontier(self):
        self.succeed("synth", "--stages", 3, "-o", "profile.csv", "--quiet")
        pipeline = ["plan", "--inst-profile", "profile.csv", "--num-mbs", 4, "--p2p-power", 84]
        self.succeed(*pipeline, "--export-graph", "graph.json")
        self.assertFalse((self.path / "plans").exists())
        self.refuse(1, "graph.json: already exists", *pipeline, "--export-graph", "graph.json")
        self.succeed(*pipeline, "--export-graph", "graph.json", "--force", "--output-dir",
                     "pipeline", "--no-pictures")
        self.plan("--no-pictures", graph="graph.json", directory="graph")
        bounds = [rows(self.path / name / "bound.csv") for name in ("pipeline", "graph")]
        self.assertEqual(*bounds)
        exported = json.loads((self.path / "graph.json").read_text())
        self.assertEqual([r["name"] for r in exported["resources"]], ["rank0", "rank1", "rank2"])
        self.assertEqual(exported["activities"][0]["name"], "0.0.forward")
        self.assertEqual(len(exported["activities"]), 24)

    def test_bad_graphs_name_the_activity(self):
        a = {"name": "a", "time": 1}
        for activities, words in [
                ([dict(a, after=["b"]), dict(a, name="b", after=["a"])],
                 "activity 'a' can never start: it waits for 'b', which waits for 'a'"),
                ([dict(a, time=-1)], "activity 'a': its time is -1"),
                ([dict(a, after=["b"])], "activity 'a' waits for 'b', which does not exist"),
                ([{"name": "a"}], "activity 'a': has neither \"options\" nor a \"time\""),
                ([a, a], "two activities have the name 'a'"),
                ([dict(a, deadline=0.5)], "activity 'a' cannot end at its deadline, 0.5 s")]:
            self.write_job({"activities": activities})
            result = self.refuse(1, words, "plan", "--graph", "job.json", "-o", "plans")
            self.assertIn("job.json: ", result.err)
        self.assertEqual(self.files(), ["job.json"])

    def test_usage(self):
        graph = ["plan", "--graph", "job.json", "--output-dir", "plans"]
        for more, flag in [(["--num-mbs", 4], "--num-mbs"), (["--p2p-power", 70], "--p2p-power"),
                           (["--schedule", "gpipe"], "--schedule"),
                           (["--inst-profile", "x"], "--inst-profile")]:
            self.refuse(2, f"--graph and {flag}: a graph needs no {flag}", *graph, *more)
        self.refuse(2, "--min-dwell", *graph, "--min-dwell", 1)
        self.refuse(2, "--export-graph", *graph, "--export-graph", "x")
        self.refuse(2, "--output-dir is missing", "plan", "--graph", "job.json")
        self.refuse(1, "nothing.json", "plan", "--graph", "nothing.json", "-o", "plans")
