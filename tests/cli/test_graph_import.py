# SPDX-License-Identifier: Apache-2.0
"""`harpe graph import` from the outside. The traces come from a simulated pipeline, so the times of
the graph are known: as in the trace, and at other clocks as in a second simulation. The last part
imports damaged and odd traces."""
import gzip
import json
import random

from pipeline_traces import CHAKRA_WRITERS, Pipeline, chakra_protobuf, delimited, field
from program import ProgramTest, rows

A100_MHZ = [1410 - 15 * k for k in range(38)]  # down to 60 % of the highest clock
A100_BLOCKING_W = 84


def a100_power_w(mhz):
    """The law of `harpe synth`: static power, and dynamic power with the square of the voltage."""
    x = mhz / 1410
    voltage = 0.75 + 0.25 * max(0, (x - 0.76) / 0.24)
    return 98 + 290 * x * voltage ** 2


def longest_path(graph, index=lambda activity: 0):
    """The time of an iteration in which activity a runs with option `index(a)`."""
    activities = {activity["name"]: activity for activity in graph["activities"]}
    ends = {}

    def time_of(activity):
        if "time" in activity:
            return activity["time"]
        return activity["options"][min(index(activity), len(activity["options"]) - 1)]["time"]

    def end_of(name):
        if name not in ends:
            activity = activities[name]
            ready = [activity.get("release", 0)]
            for wait in activity.get("after", []):
                other, lag = (wait, 0) if isinstance(wait, str) else (wait["name"], wait["lag"])
                ready.append(end_of(other) + lag)
            ends[name] = max(ready) + time_of(activity)
        return ends[name]

    return max(end_of(name) for name in activities)


class ImportTest(ProgramTest):
    def import_graph(self, paths, *options):
        self.succeed("graph", "import", *paths, "--output", "job.json", "--force", "--quiet",
                     *options)
        return json.loads((self.path / "job.json").read_text())

    def traces_of(self, pipeline, form, **options):
        if form == "kineto":
            return pipeline.write_kineto(self.path, **options)
        return pipeline.write_chakra(self.path, form)


FORMS = ["kineto", *CHAKRA_WRITERS]


class Times(ImportTest):
    def test_graph_takes_as_long_as_the_trace(self):
        pipeline = Pipeline([30000, 34000, 28000], [60000, 65000, 70000], 4)
        for form in FORMS:
            for options in ([], ["--gpu", "A100"], ["--min-activity", "0"],
                            ["--min-activity", "0.1"], ["--min-activity", "100"]):
                with self.subTest(form=form, options=options):
                    graph = self.import_graph(self.traces_of(pipeline, form), *options)
                    self.assertAlmostEqual(longest_path(graph), pipeline.makespan * 1e-6, 8)

    def test_plan_of_the_graph_begins_at_the_time_of_the_trace(self):
        pipeline = Pipeline([30000, 34000], [60000, 65000], 3)
        for form in FORMS:
            with self.subTest(form=form):
                self.import_graph(self.traces_of(pipeline, form), "--gpu", "A100")
                self.succeed("plan", "--graph", "job.json", "--output-dir", form, "--plans", "3")
                fastest = min(float(row["time_s"]) for row in rows(self.path / form / "frontier.csv"))
                self.assertAlmostEqual(fastest, pipeline.makespan * 1e-6, 8)

    def test_plan_without_a_gpu_model_is_the_trace(self):
        pipeline = Pipeline([30000, 34000], [60000, 65000], 2)
        self.import_graph(self.traces_of(pipeline, "kineto"))
        self.succeed("plan", "--graph", "job.json", "--output-dir", "plans")
        frontier = rows(self.path / "plans" / "frontier.csv")
        self.assertEqual(len(frontier), 1)
        self.assertAlmostEqual(float(frontier[0]["time_s"]), pipeline.makespan * 1e-6, 8)

    def test_clocks_of_other_machines_differ(self):
        pipeline = Pipeline([30000, 34000, 31000], [60000, 65000, 50000], 3)
        for skew in (7777.5, -123456, 1.7e15):
            with self.subTest(skew=skew):
                graph = self.import_graph(pipeline.write_kineto(self.path, skew=skew))
                self.assertAlmostEqual(longest_path(graph), pipeline.makespan * 1e-6, 5)

    def test_other_clocks_take_as_long_as_another_simulation(self):
        """With a compute share of 1, a clock of x MHz makes each instruction 1410 / x times longer."""
        choice = random.Random(7)
        for trial in range(12):
            ranks = choice.randint(2, 4)
            forward = [choice.randrange(20000, 40000, 4) for _ in range(ranks)]
            backward = [choice.randrange(40000, 80000, 4) for _ in range(ranks)]
            clocks = [choice.randrange(len(A100_MHZ)) for _ in range(ranks)]

            def stretch(rank, _kind, _microbatch):
                return 1410 / A100_MHZ[clocks[rank]]

            messages = choice.randint(1, 5)
            slow = Pipeline(forward, backward, messages, stretch=stretch).makespan * 1e-6
            for form in FORMS:
                with self.subTest(trial=trial, form=form):
                    pipeline = Pipeline(forward, backward, messages)
                    graph = self.import_graph(self.traces_of(pipeline, form), "--gpu", "A100",
                                              "--compute-share", "1",
                                              "--min-activity", "0")
                    ours = longest_path(graph, lambda activity: clocks[int(activity["resource"][4:])])
                    if form == "kineto":  # waits that are not visible are assumed
                        self.assertGreaterEqual(ours, slow - 1e-8)
                        self.assertLessEqual(ours, 1.1 * slow)
                    else:
                        self.assertAlmostEqual(ours, slow, 8)


def named(name, start, time, **args):
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": time, "args": args}


class Activities(ImportTest):
    def test_options_follow_the_laws_of_the_gpu(self):
        pipeline = Pipeline([30000], [50000], 1)
        graph = self.import_graph(pipeline.write_kineto(self.path, shift=100), "--gpu", "A100",
                                  "--compute-share", "0.7")
        self.assertEqual([r["blocking_power"] for r in graph["resources"]], [A100_BLOCKING_W])
        activity = graph["activities"][0]
        self.assertEqual([option["frequency"] for option in activity["options"]], A100_MHZ)
        gaps = 6 * 100e-6  # three pauses of 100 us in each of the two instructions
        for option in activity["options"]:
            mhz = option["frequency"]
            busy = (0.08 - gaps) * (0.7 * 1410 / mhz + 0.3)
            self.assertAlmostEqual(option["time"], busy + gaps, 9)
            self.assertAlmostEqual(option["energy"],
                                   a100_power_w(mhz) * busy + A100_BLOCKING_W * gaps, 6)

    def test_short_activities_keep_the_highest_clock(self):
        pipeline = Pipeline([30000, 10000], [60000, 20000], 1)
        graph = self.import_graph(pipeline.write_kineto(self.path), "--gpu", "A100",
                                  "--min-activity", "0.035", "--blocking-power", "50")
        for activity in graph["activities"]:
            options = activity.get("options", [])
            if options:
                self.assertEqual(len(options), 38 if options[0]["time"] >= 0.035 else 1, activity)
        self.assertEqual(graph["resources"][0]["blocking_power"], 50)
        self.assertAlmostEqual(longest_path(graph), pipeline.makespan * 1e-6, 8)

    def test_short_pieces_are_grouped(self):
        """Forty kernels of 1 ms with collectives of 0.2 ms between them: a clock change takes
        longer than one of them."""
        events, at = [], 0.0
        for k in range(40):
            events.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": at, "dur": 1000,
                           "args": {"stream": 7}})
            events.append({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce",
                           "ts": at + 1000, "dur": 200,
                           "args": {"stream": 9, "Collective name": "allreduce",
                                    "Process Group Name": "tp", "Seq": k}})
            at += 1200
        paths = [self.write(f"tp{rank}.json", json.dumps({"traceEvents": events}))
                 for rank in range(2)]
        result = self.succeed("graph", "import", *paths, "--output", "tp.json", "--gpu", "H100",
                              "--json")
        summary = result.json()
        graph = json.loads((self.path / "tp.json").read_text())
        computing = [a for a in graph["activities"] if "resource" in a]
        self.assertEqual(summary["computing"], len(computing))
        self.assertEqual(summary["communications"] + summary["inside"], 40)
        self.assertEqual(summary["with_several_clocks"], 4)
        for activity in computing:
            self.assertGreaterEqual(activity["options"][0]["time"], 0.002)
        self.assertAlmostEqual(longest_path(graph), 0.048, 9)

    def test_overlapped_communication_needs_no_time(self):
        """The second kernel runs while the gradients of the first are reduced."""
        group = {"Collective name": "allreduce", "Process Group Name": "0"}
        events = [named("a", 0, 50000), named("b", 50000, 60000), named("c", 110000, 40000),
                  named("nccl", 50000, 30000, stream=3, **group)]
        paths = [self.write(f"r{rank}.json", json.dumps(events)) for rank in range(2)]
        graph = self.import_graph(paths, "--gpu", "A100", "--compute-share", "1")
        self.assertAlmostEqual(longest_path(graph), 0.150, 9)
        self.assertEqual(len([a for a in graph["activities"] if "resource" not in a]), 1)
        # At a lower clock the reduction still hides behind the second kernel.
        self.assertAlmostEqual(longest_path(graph, lambda a: 10), 0.150 * 1410 / A100_MHZ[10], 9)

    def test_one_step_is_imported(self):
        events = []
        for step, base in ((3, 0), (4, 1e6), (5, 3e6)):
            events.append({"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{step}",
                           "ts": base, "dur": 900000})
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}",
                           "ts": base + 5e6, "dur": 1})
            events.append({"ph": "X", "cat": "kernel", "name": "k", "ts": base + 1000,
                           "dur": 100000 * step, "args": {}})
        self.write("steps.json", json.dumps({"traceEvents": events}))
        for options, step in (([], 5), (["--step", "3"], 3), (["--step", "4"], 4)):
            graph = self.import_graph(["steps.json"], *options)
            self.assertAlmostEqual(longest_path(graph), 0.1 * step, 9)
        self.write("empty.json", json.dumps(events[:1]))
        self.refuse(1, "none of its 1 events is on a GPU",
                    "graph", "import", "empty.json", "--output", "x.json")
        events[2]["ts"] = 1e9
        self.write("late.json", json.dumps(events[:3]))
        self.refuse(1, "none of its 1 events on the GPU starts in step 3, which takes 0.9 s",
                    "graph", "import", "late.json", "--output", "x.json")
        self.refuse(1, "there is no step 9", "graph", "import", "steps.json", "--step", "9",
                    "--output", "x.json")

    def test_categories_of_old_versions(self):
        """PyTorch 1.8 to 1.11."""
        events = [{"ph": "X", "cat": category, "name": name, "ts": start, "dur": time, "args": {"stream": 7}}
                  for category, name, start, time in (
                      ("Operator", "ProfilerStep#3", 0, 200000), ("Operator", "ProfilerStep#4", 500000, 200000),
                      ("Kernel", "k", 1000, 90000), ("Memcpy", "Memcpy HtoD", 500000, 10000),
                      ("Kernel", "k", 510000, 60000), ("Memset", "Memset", 570000, 30000),
                      ("Runtime", "cudaMemcpyAsync", 400000, 500000))]
        self.write("old.json", json.dumps({"traceEvents": events}))
        graph = self.import_graph(["old.json"], "--gpu", "A100", "--compute-share", "1")
        self.assertAlmostEqual(longest_path(graph), 0.1, 9)
        self.assertAlmostEqual(longest_path(graph, lambda a: 10), 0.04 + 0.06 * 1410 / A100_MHZ[10], 9)

    def test_gzip_and_order_of_files(self):
        pipeline = Pipeline([30000] * 12, [50000] * 12, 1)
        paths = []
        for path in pipeline.write_kineto(self.path):
            packed = path.with_suffix(".json.gz")
            data = path.read_bytes()
            packed.write_bytes(gzip.compress(data[:1000]) + gzip.compress(data[1000:]))
            paths.append(packed)
        graph = self.import_graph(sorted(paths, key=str))  # 0, 1, 10, 11, 2 ...
        self.assertEqual([r["name"] for r in graph["resources"]], [f"rank{r}" for r in range(12)])
        self.assertAlmostEqual(longest_path(graph), pipeline.makespan * 1e-6, 8)
        whole = paths[0].read_bytes()
        self.write("cut0.json.gz", whole[:len(whole) // 2])
        self.refuse(1, "cut0.json.gz: it cannot be unpacked", "graph", "import", "cut0.json.gz",
                    "--output", "x.json")

    def test_rank_in_the_name(self):
        trace = json.dumps([{"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 9}])
        for name, rank in (("rank3.json", 3), ("trace.4.json", 4), ("rank_5.1740461679.pt.trace.json", 5),
                           ("rank12_2026-11-28_pid3456.json", 12), ("trace_rank0_step5.json", 0),
                           ("host_1234.RANK-7.17404616790000.json", 7), ("worker0_rank03_8.json", 3),
                           ("local_rank1_rank6.json", 6), ("rank9-pp.rank1.json", 9),
                           ("step_rank2_of_8.json", 2), ("ranks8_rank1.json", 1), ("rank7/trace2.json", 2),
                           ("frank_2.json", 2), ("rank20261128_4.json", 4), ("run_20261128.json", 0),
                           ("local_rank4.json", 4), ("rank.json", 0), ("rank", 0)):
            with self.subTest(name=name):
                (self.path / name).parent.mkdir(exist_ok=True)
                self.write(name, trace)
                self.assertEqual(self.import_graph([name])["resources"][0]["name"], f"rank{rank}")

    def test_communications_without_a_partner_are_counted(self):
        pipeline = Pipeline([30000, 34000], [60000, 65000], 2)
        whole = pipeline.write_kineto(self.path)
        for paths, expected in ((whole, 0), (whole[:1], 5), (whole[1:], 5)):
            result = self.succeed("graph", "import", *paths, "--output", "job.json", "--force",
                                  "--json")
            self.assertEqual(result.json()["communications"], 5)
            self.assertEqual(result.json()["without_partner"], expected)
        # Sends and receives in one call have no single partner.
        for path in whole:
            path.write_text(path.read_text().replace('"send"', '"coalesced"')
                            .replace('"recv"', '"coalesced"'))
        result = self.succeed("graph", "import", *whole, "--output", "job.json", "--force", "--json")
        self.assertEqual(result.json()["without_partner"], 8)
        graph = json.loads((self.path / "job.json").read_text())
        self.assertAlmostEqual(longest_path(graph), pipeline.makespan * 1e-6, 8)

    def test_forms_of_chakra_give_the_same_graph(self):
        pipeline = Pipeline([30000, 34000], [60000, 65000], 3)
        graphs = [self.import_graph(pipeline.write_chakra(self.path, form), "--gpu", "V100")
                  for form in CHAKRA_WRITERS]
        self.assertEqual(graphs[0], graphs[1])
        self.assertEqual(graphs[0], graphs[2])

    def test_an_iteration_ends_with_the_last_event(self):
        """A communication beside short kernels that lasts longer than they do."""
        group = {"Collective name": "allreduce", "Process Group Name": "dp"}
        events = [named("a", 0, 5000), named("nccl", 5000, 19500, stream=20, **group),
                  named("b", 5100, 100)]
        self.write("tail.json", json.dumps(events))
        for options in ((), ("--min-activity", 0), ("--gpu", "A100")):
            graph = self.import_graph(["tail.json"], *options)
            self.assertAlmostEqual(longest_path(graph), 0.0245, 9)
        names = [activity["name"] for activity in graph["activities"]]
        self.assertIn("rank0.end", names)
        self.succeed("plan", "--graph", "job.json", "--bound-only")

    def test_nodes_of_the_cpu_take_their_time(self):
        node = {"type": "COMP_NODE", "attributes": {"is_cpu_op": False}}
        load = {"id": 2, "name": "load", "time": 30000, "waits": [], "type": "COMP_NODE",
                "attributes": {"is_cpu_op": True}}
        first = {**node, "id": 0, "name": "a", "time": 50000, "waits": []}
        second = {**node, "id": 1, "name": "b", "time": 40000, "waits": [0, 2]}
        late = {**load, "time": 70000}
        last = {**load, "time": 100000, "waits": [1]}
        self.write("cpu.0.et", chakra_protobuf([first, {**second, "waits": [0]}, last]))
        self.assertAlmostEqual(longest_path(self.import_graph(["cpu.0.et"])), 0.19, 9)
        for cpu, expected in ((load, 0.09), (late, 0.11)):
            self.write("cpu.0.et", chakra_protobuf([cpu, first, second]))
            self.assertAlmostEqual(longest_path(self.import_graph(["cpu.0.et"])), expected, 9)


def kernel(start, time, stream=7, **more):
    return {"ph": "X", "cat": "kernel", "name": "gemm", "ts": start, "dur": time, "tid": stream,
            "args": {"stream": stream}, **more}


class OddTimes(ImportTest):
    def seconds(self, *events, note=None, name="odd.json"):
        """Imports the events and returns the time of the graph. `note` is a part of the only note."""
        self.write(name, json.dumps({"traceEvents": list(events)}))
        result = self.succeed("graph", "import", name, "-o", "job.json", "-f", "--json")
        self.assertEqual(len(result.json()["notes"]), 0 if note is None else 1, result)
        if note is not None:
            self.assertIn(f"{name}: {note}", result.json()["notes"][0])
            self.assertEqual(result.err, f"harpe graph: {result.json()['notes'][0]}\n")
        return round(longest_path(json.loads((self.path / "job.json").read_text())), 9)

    def test_kernels_of_a_stream_do_not_overlap(self):
        row = [kernel(1.74e15 + 10000 * k, 10000) for k in range(20)]
        self.assertEqual(self.seconds(*row), 0.2)
        for at, time in ((0, 1.6e6), (7, 1.6e6), (18, 1.6e6), (3, 15000), (3, 20000), (3, 195000)):
            with self.subTest(at=at, time=time):
                events = [dict(event) for event in row]
                events[at]["dur"] = time
                note = (f'traceEvents[{at}] ("gemm", "ts": {events[at]["ts"]:.0f}) takes {time / 1e6:g} s, but '
                        "the next event of its stream starts after 0.01 s: it is cut there")
                self.assertEqual(self.seconds(*events, note=note), 0.2)
                events.reverse()
                self.assertEqual(self.seconds(*events, note=f"traceEvents[{19 - at}]"), 0.2)
        row[3]["dur"] = row[5]["dur"] = row[6]["dur"] = 16e5
        self.assertEqual(self.seconds(*row, note="traceEvents[3]"), 0.2)
        self.assertIn("cut there, as are 2 more",
                      self.succeed("graph", "import", "odd.json", "-o", "job.json", "-f").err)
        self.assertEqual(self.succeed("graph", "import", "odd.json", "-o", "job.json", "-fq").err, "")

    def test_overlap_that_may_be(self):
        """Small overlaps, other streams, unknown streams."""
        for overlap in (0.4, 15):
            self.assertEqual(self.seconds(kernel(0, 100 + overlap), kernel(100, 10000)), 0.0101)
        self.assertEqual(self.seconds(kernel(0, 100900), kernel(100000, 100000)), 0.2)
        self.assertEqual(self.seconds(kernel(0, 100000), kernel(20000, 70000, stream=9),
                                      kernel(100000, 100000)), 0.2)
        unknown = [{key: event[key] for key in ("ph", "cat", "name", "ts", "dur")}
                   for event in (kernel(0, 100000), kernel(20000, 70000))]
        self.assertEqual(self.seconds(*unknown), 0.1)

    def test_communication_is_cut(self):
        events = [kernel(0, 50000), kernel(50000, 16e5, 9, name="nccl"), kernel(60000, 100000, 9)]
        self.assertEqual(self.seconds(*events, note='traceEvents[1] ("nccl", "ts": 50000)'), 0.16)

    def test_events_without_times(self):
        row = [kernel(1740461679e6 + 50000 * k, 50000) for k in range(4)]
        none = kernel(0, 0)
        for events, first, more in (([none, *row], 0, ""), ([*row, none], 4, ""),
                                    ([*row[:2], *[none] * 1000, *row[2:]], 2, ", as are 999 more")):
            self.assertEqual(self.seconds(*events, note=f'traceEvents[{first}] has no times ("ts": 0, "dur": 0): '
                                                        f"it is left out{more}"), 0.2)
        step = {**kernel(row[0]["ts"], 200000), "cat": "user_annotation", "name": "ProfilerStep#1"}
        self.assertEqual(self.seconds(step, none, *row), 0.2)

    def test_starts_far_away(self):
        row = [kernel(1740461679e6 + 50000 * k, 50000) for k in range(4)]
        for events, message in (
                ([*row, kernel(0, 10)], 'traceEvents[4] ("gemm", "ts": 0): 1740461679 s before all other'),
                ([kernel(1, 0), kernel(5, 0), *row], 'traceEvents[0] ("gemm", "ts": 1) and 1 more: '),
                ([*row, kernel(1.9e15, 10)], 'traceEvents[4] ("gemm", "ts": 1900000000000000): 159538321 s after'),
                ([row[0], kernel(-3e14, 10), *row[1:]], 'traceEvents[1] ("gemm", "ts": -300000000000000)')):
            self.write("far.json", json.dumps(events))
            result = self.refuse(1, message, "graph", "import", "far.json", "--output", "x.json")
            self.assertIn("far.json: ", result.err)
        early = kernel(1740461379e6, 10000)
        self.assertEqual(self.seconds(*row, early, note="nothing runs on the GPU in 299.99 of 300.2 s, after "
                                                        'traceEvents[4] ("gemm", "ts": 1740461379000000)'), 300.2)
        late = kernel(1740461689e6, 10000)
        self.assertEqual(self.seconds(*row, late, note="nothing runs on the GPU in 9.8 of 10.01 s, before "
                                                       "traceEvents[4]"), 10.01)
        self.assertEqual(self.seconds(*row[:2], kernel(row[3]["ts"] + 49000, 50000)), 0.249)


class Communications(ImportTest):
    """Communication of other libraries than NCCL."""

    def seconds(self, *ranks, options=(), communications, alone=0, note=None):
        for rank, events in enumerate(ranks):
            self.write(f"c.{rank}.json", json.dumps(events))
        result = self.succeed("graph", "import", *(f"c.{rank}.json" for rank in range(len(ranks))),
                              "-o", "job.json", "-f", "--json", "--gpu", "A100", *options).json()
        self.assertEqual((result["communications"], result["without_partner"]), (communications, alone))
        self.assertEqual(len(result["notes"]), 0 if note is None else 1, result)
        self.assertIn(note or "", str(result["notes"]))
        self.graph = json.loads((self.path / "job.json").read_text())
        return round(longest_path(self.graph), 9)

    @staticmethod
    def rank(name, work, at=1.74e15, **args):
        """100 ms until all have come, 30 ms of communication, and 100 ms of work."""
        said = {"ph": "X", "cat": "kernel", "name": name, "ts": at + work, "dur": 130000 - work,
                "args": {"stream": 20, **args}}
        return [kernel(at, work), said, kernel(at + 130000, 100000)]

    def test_the_name_makes_no_difference(self):
        graphs = []
        for name, args in (("ncclDevKernel_AllReduce", {"Collective name": "x", "Process Group Name": "0"}),
                           ("ncclDevKernel_AllReduce", {}), ("void deep_ep::internode::combine<8>(x)", {}),
                           ("vllm::cross_device_reduce_1stage<half>", {})):
            ranks = [self.rank(name, work, **args) for work in (100000, 40000, 70000)]
            self.assertEqual(self.seconds(*ranks, communications=1), 0.23)
            text = json.dumps(self.graph)
            for activity in self.graph["activities"]:
                if "resource" not in activity:
                    text = text.replace(activity["name"], "c")
            graphs.append(text)
        self.assertEqual(set(graphs), {graphs[0]})

    def test_kernels_named_by_the_user(self):
        ranks = [self.rank("a::exchange_tokens<8>", 100000), self.rank("b::exchange_tokens<8>", 40000)]
        self.assertEqual(self.seconds(*ranks, communications=0,
                                      note="'b::exchange_tokens<8>' (0.09 s), 'a::exchange_tokens<8>' (0.03 s)"), 0.23)
        for options in (["^(a|b)::exchange"], ["^a::", "b::exc.*<[0-9]>$"]):
            options = [word for regex in options for word in ("--communication", regex)]
            self.assertEqual(self.seconds(*ranks, options=options, communications=2, alone=2), 0.23)
        self.assertEqual(self.seconds(*ranks, options=["--communication", "exchange", "--communication", "all"],
                                      communications=2, alone=2, note="'all': no kernel has such a name"), 0.23)
        self.refuse(2, "--communication: '(' is not a POSIX extended regular expression",
                    "graph", "import", "c.0.json", "-o", "x.json", "--communication", "(")

    def test_groups_without_names(self):
        """Two groups of two ranks communicate in turn; ranks of two groups do not belong together."""
        def rank(group, work):
            first, second = (kernel(0, 30000 + 20000 * group), kernel(90000, 60000))
            said = [{**kernel(at + work, time - work, 20), "name": "vllm::cross_device_reduce_2stage"}
                    for at, time in ((first["dur"], 20000), (150000, 20000 + 20000 * group))]
            return [first, *said, second]
        ranks = [rank(group, work) for group in range(2) for work in (0, 9000)]
        self.assertEqual(self.seconds(*ranks, options=["--min-activity", "0"], communications=4), 0.19)

    def test_machines_with_other_clocks(self):
        ranks = [self.rank("nvshmem_x", 100000), self.rank("nvshmem_x", 100000, at=5e15)]
        self.assertEqual(self.seconds(*ranks, communications=2, alone=2), 0.23)

    def test_chakra(self):
        nodes = [{"id": number, "name": name, "type": "COMP_NODE", "time": 50000, "waits": [number - 1] * (number > 1),
                  "attributes": {"is_cpu_op": False}}
                 for number, name in enumerate(("gemm", "void deep_ep::intranode::dispatch<8>(x)", "gemm"), 1)]
        for form in CHAKRA_WRITERS:
            if form == "feeder":
                nodes = [{**node, "id": node["id"] + (1 << 63), "waits": [w + (1 << 63) for w in node["waits"]]}
                         for node in nodes]
            self.write("c.et", CHAKRA_WRITERS[form](nodes))
            told = self.succeed("graph", "import", "c.et", "-o", "job.json", "-f", "--json").json()
            self.assertEqual((told["communications"], told["computing"], told["longest_s"]), (1, 2, 0.15))


class Streams(ImportTest):
    """Chakra's converter lets a kernel wait only for the call that launched it."""

    @staticmethod
    def node(number, time, waits=(), kind="COMP_NODE", **more):
        first = {"start": more.pop("start")} if "start" in more else {}
        return {"id": (1 << 63) + number, "name": f"n{number}", "type": kind, "time": time, **first,
                "waits": [(1 << 63) + wait for wait in waits],
                "attributes": {"is_cpu_op": number < 10, **more}}

    def seconds(self, form, *ranks, note=None):
        """`note`: a part of the only note."""
        for rank, nodes in enumerate(ranks):
            self.write(f"s.{rank}.et", CHAKRA_WRITERS[form](nodes))
        files = [f"s.{rank}.et" for rank in range(len(ranks))]
        result = self.succeed("graph", "import", *files, "-o", "job.json", "-f", "--json").json()
        self.assertEqual(len(result["notes"]), 0 if note is None else 1, result)
        self.assertIn(note or "", str(result["notes"]))
        return round(longest_path(json.loads((self.path / "job.json").read_text())), 9)

    def test_nodes_of_a_stream_follow_each_other(self):
        node, group = self.node, {"pg_name": "0", "comm_type": 0}
        launches = [node(1, 10), node(2, 10, [1]), node(3, 10, [2])]

        def work(**stream):
            return [node(11, 100000, [1], **stream),
                    node(12, 20000, [2], "COMM_COLL_NODE", **group, **stream), node(13, 100000, [3], **stream)]

        def started(starts):
            return [{**one, "start": start} for one, start in zip(work(stream=7), starts)]

        seven = work(stream=7)
        for form in CHAKRA_WRITERS:
            with self.subTest(form=form):
                for nodes in (launches + seven, seven + launches, launches[::-1] + started((5, 9, 12)),
                              started((9, 12, 15))[::-1] + launches):
                    self.assertEqual(self.seconds(form, nodes, nodes), 0.22001)
                chained = [seven[0], {**seven[1], "waits": seven[1]["waits"] + [seven[0]["id"]]},
                           {**seven[2], "waits": seven[2]["waits"] + [seven[1]["id"]]}]
                for nodes in (launches + chained, chained[::-1] + launches[::-1]):
                    self.assertEqual(self.seconds(form, nodes, nodes), 0.22001)
                told = f"node {seven[1]['id']}" if form != "feeder" else "node 12"
                self.assertEqual(self.seconds(form, launches + work(), launches + work(), note=told), 0.20001)
                self.assertIn("(1 more trace: the same)", self.run_harpe(
                    "graph", "import", "s.0.et", "s.1.et", "-o", "job.json", "-f").err)
                apart = [seven[0], {**seven[1], "attributes": {**seven[1]["attributes"], "stream": 20}}, seven[2]]
                self.assertEqual(self.seconds(form, launches + apart, note=told), 0.20001)

    def test_streams_run_beside_each_other(self):
        """A communication beside a kernel, and nodes of the CPU with the stream that they launch on."""
        group = {"pg_name": "0", "comm_type": 0}
        nodes = [self.node(1, 10, stream=7), self.node(11, 50000, [1], stream=7),
                 self.node(12, 40000, [11], "COMM_COLL_NODE", stream=9, **group), self.node(2, 10, [1], stream=7),
                 self.node(13, 100000, [2], stream=7), self.node(14, 10000, [2], stream=9)]
        for form in CHAKRA_WRITERS:
            self.assertEqual(self.seconds(form, nodes), 0.16001)

    def test_exchange_on_one_stream(self):
        """Both ranks send first. The two messages run at once, as NCCL joins them."""
        def rank(own):
            ends = ({"comm_src": own, "comm_dst": 1 - own}, {"comm_src": 1 - own, "comm_dst": own})
            return [self.node(11, 50000, stream=7),
                    self.node(12, 20000, [], "COMM_SEND_NODE", stream=7, comm_tag=own, **ends[0]),
                    self.node(13, 20000, [], "COMM_RECV_NODE", stream=7, comm_tag=1 - own, **ends[1]),
                    self.node(14, 30000, stream=7)]
        for form in CHAKRA_WRITERS:
            self.assertEqual(self.seconds(form, rank(0), rank(1)), 0.1)

    def test_order_that_the_dependencies_contradict(self):
        """The node that the file names last runs first."""
        nodes = [self.node(11, 50000, [12], stream=7, start=1), self.node(12, 20000, [13], stream=7, start=2),
                 self.node(13, 30000, stream=7, start=3), self.node(14, 5000, [11], stream=7, start=0)]
        for form in CHAKRA_WRITERS:
            self.assertEqual(self.seconds(form, nodes), 0.105)


class BadInput(ImportTest):
    def refuse_import(self, message, *arguments, code=1):
        result = self.refuse(code, message, "graph", "import", *arguments, "--output", "x.json")
        return result

    def refuse_trace(self, message, content):
        self.write("bad.json", content)
        self.assertIn("bad.json", self.refuse_import(message, "bad.json").err)

    def refuse_events(self, message, *events):
        self.refuse_trace(message, json.dumps({"traceEvents": list(events)}))

    def test_usage(self):
        self.write("a.json", "{}")
        self.refuse(2, "an action is missing", "graph")
        self.refuse(2, "ACTION: expected import", "graph", "export")
        self.refuse(2, "import needs the traces", "graph", "import", "--output", "x.json")
        self.refuse(2, "import needs --output", "graph", "import", "a.json")
        self.refuse(2, "--gpu: expected V100", "graph", "import", "a.json", "--gpu", "B200")
        self.refuse(2, "--compute-share", "graph", "import", "a.json", "--compute-share", "1.1")
        self.refuse(2, "--min-activity", "graph", "import", "a.json", "--min-activity", "-1")
        self.refuse(1, "already exists", "graph", "import", "a.json", "--output", "a.json")
        self.refuse_import("No such file", "missing.json")

    def test_kineto(self):
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 5}
        self.refuse_trace("bad.json:1:", '{"traceEvents": [')
        self.refuse_trace("not JSON", "[" * 100000)
        self.refuse_trace("bad.json:1:0: not JSON, or not complete", "")
        self.refuse_trace("traceEvents", '{"traceEvents": 5}')
        self.refuse_events("none of its 0 events is on a GPU")
        self.refuse_events("none of its 1 events is on a GPU", {**kernel, "cat": "cpu_op"})
        self.refuse_events("traceEvents[1]: a GPU event without a duration", kernel,
                           {key: kernel[key] for key in ("ph", "cat", "name", "ts")})
        self.refuse_events('traceEvents[0]: a GPU event without a time', {**kernel, "ts": None})
        self.refuse_events("is not between 0 and", {**kernel, "dur": -1})
        self.refuse_events("is not between 0 and", {**kernel, "dur": 1e300})
        self.refuse_events("traceEvents[1]: the trace has events of two GPUs",
                           {**kernel, "pid": 0}, {**kernel, "pid": 1})
        self.refuse_events("the graph has no activity that takes", {**kernel, "ts": 1, "dur": 0})
        self.refuse_events("traceEvents[0]: no event on the GPU has a time", {**kernel, "dur": 0})

    def test_chakra(self):
        node = {"id": 5, "name": "n", "type": "COMP_NODE", "time": 50, "waits": [],
                "attributes": {}}
        good = chakra_protobuf([node])
        self.refuse_trace("neither JSON nor a Chakra trace", b"\x7fELF\0\0\0")
        self.refuse_trace("message 1 (the first is 0): it is cut off", good[:-3])
        self.refuse_trace("message 1 (the first is 0): it is not a Chakra node",
                          delimited(field(1, b"")) + delimited(b"\xff\xff\xff"))
        self.refuse_trace("the dependencies of the node are damaged",
                          delimited(b"") + delimited(field(1, 1) + field(5, b"\xff")))
        self.refuse_trace("an attribute is damaged",
                          delimited(b"") + delimited(field(1, 1) + field(10, b"\x0a\xff")))
        self.refuse_trace("two nodes have the id 5", chakra_protobuf([node, node]))
        self.refuse_trace("node 5 waits for node 18446744073709551615",
                          chakra_protobuf([{**node, "waits": [5, 2 ** 64 - 1]}]))
        # The first is a control dependency, the others are data dependencies.
        self.refuse_trace("can never start", chakra_protobuf([{**node, "waits": [5, 5]}]))
        self.refuse_trace("can never start", chakra_protobuf(
            [{**node, "waits": [5, 6]}, {**node, "id": 6, "waits": [5, 5]}]))
        self.refuse_trace("its duration is", chakra_protobuf([{**node, "time": 2 ** 64 - 1}]))
        self.refuse_trace("its type is 99", delimited(b"") + delimited(field(1, 1) + field(3, 99)))
        self.refuse_trace("the graph has no activity that takes", chakra_protobuf([{**node, "time": 0}]))
        self.refuse_trace("chakra_converter", '{"schema": "1.1.1", "nodes": []}')
        self.refuse_trace('"workload_graph" must be a list', '{"workload_graph": 5}')
        self.refuse_trace("must contain objects", '{"workload_graph": [5]}')
        self.refuse_trace('"id" must be a whole number',
                          '{"workload_graph": [{"Id": -1}]}')
        self.refuse_trace('"type" is not a type', '{"version": "1"}{"id": "1", "type": "X"}')
        self.refuse_trace('"data_deps" must contain ids',
                          '{"version": "1"}{"dataDeps": ["18446744073709551616"]}')

    def test_chakra_parents(self):
        """Chakra's converter leaves out the threads, which are the parents of their first calls. A
        call may wait for what it calls; then parents mean no order."""
        nodes = [{"id": number, "name": f"n{number}", "type": "COMP_NODE", "time": 30000, "waits": waits,
                  "attributes": {"is_cpu_op": False}} for number, waits in
                 ((10, [3]), (11, [3, 10]), (12, [11, 11]))]
        self.write("good.et", chakra_protobuf(nodes))
        told = self.succeed("graph", "import", "good.et", "-o", "job.json", "--json").json()
        self.assertEqual(told["without_ctrl_deps"], 0)
        self.assertAlmostEqual(told["longest_s"], 0.09)
        nodes[0]["waits"] = [12]
        self.write("cycle.et", chakra_protobuf(nodes))
        told = self.succeed("graph", "import", "cycle.et", "-o", "cycle.json", "--json").json()
        self.assertEqual(told["without_ctrl_deps"], 1)
        self.assertAlmostEqual(told["longest_s"], 0.09)
        self.assertIn("ctrl_deps are not used in 1 trace",
                      self.succeed("graph", "import", "cycle.et", "-o", "cycle.json", "-f").out)

    def test_traces_that_do_not_fit(self):
        pipeline = Pipeline([30000, 34000], [60000, 65000], 2)
        kineto = pipeline.write_kineto(self.path)
        chakra = pipeline.write_chakra(self.path, "protobuf")
        self.refuse_import("another format", kineto[0], chakra[1])
        self.refuse_import("a trace of rank 1, as is", kineto[1], kineto[1])
        self.refuse_import("it may be a Kineto trace", kineto[0], "--format", "chakra")
        self.refuse_import("it may be a Chakra trace", chakra[0], "--format", "kineto")

    def test_ranks_that_wait_for_each_other(self):
        """Rank 0 first sends a and then receives b; rank 1 first sends b and then receives a."""
        def trace(rank):
            send = {"id": 1, "name": "s", "type": "COMM_SEND_NODE", "time": 10, "waits": [2],
                    "attributes": {"comm_src": rank, "comm_dst": 1 - rank, "comm_tag": 0}}
            receive = {"id": 2, "name": "r", "type": "COMM_RECV_NODE", "time": 10, "waits": [],
                       "attributes": {"comm_src": 1 - rank, "comm_dst": rank, "comm_tag": 0}}
            return self.write(f"dead.{rank}.et", chakra_protobuf([send, receive]))

        self.refuse_import("can never start", trace(0), trace(1))

    def test_traces_that_contradict_each_other(self):
        """Two ranks run two all-reduces in opposite orders."""
        def event(name, start, **args):
            return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": 40000,
                    "args": args}

        def trace(rank, order):
            events = []
            for k, sequence in enumerate(order):
                events.append(event("gemm", k * 100000))
                events.append(event("nccl", k * 100000 + 50000, Seq=sequence,
                                    **{"Collective name": "allreduce", "Process Group Name": "0"}))
            return self.write(f"order{rank}.json", json.dumps(events))

        self.refuse_import("do all traces show the same step?", trace(0, [1, 2]), trace(1, [2, 1]))


class RandomDamage(ImportTest):
    def test_no_damage_ends_the_program(self):
        """Whatever is changed, the program ends with a graph or with one line."""
        pipeline = Pipeline([30000, 34000], [60000, 65000], 2)
        choice = random.Random(11)
        for form in FORMS:
            whole = self.traces_of(pipeline, form)[0].read_bytes()
            for _ in range(25):
                data = bytearray(whole)
                for _ in range(choice.randint(1, 4)):
                    data[choice.randrange(len(data))] = choice.randrange(256)
                del data[choice.choice([len(data), choice.randrange(len(data))]):]
                self.write("damaged.json", bytes(data))
                result = self.run_harpe("graph", "import", "damaged.json", "--output", "d.json",
                                        "--force", "--quiet")
                self.assertIn(result.code, (0, 1), result)
                self.assertEqual(result.err.count("\n"), result.code, result)
