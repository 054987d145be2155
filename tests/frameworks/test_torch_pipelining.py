# SPDX-License-Identifier: Apache-2.0
"""The adapter for torch.distributed.pipelining against the real package, on CPUs and emulated GPUs:
jobs of several processes that train a tiny GPT (torch_pipelining_job.py). In each of them `harpe
plan` makes the plan from the schedule object's own order, a server distributes it, and the test
compares with it what ran, at which clocks, how long and with how much energy. Needs a Python with
PyTorch 2.5 or newer; without it the tests are skipped. `make check` does not run them."""
import csv
import importlib.metadata
import json
import os
import re
import subprocess
import unittest

import jobs  # appends the directory of the next import to the path
import server
import world

try:
    TORCH = tuple(map(int, re.findall(r"\d+", importlib.metadata.version("torch"))[:2]))
    WHY_NOT = None if TORCH >= (2, 5) else "PyTorch is older than 2.5"
except importlib.metadata.PackageNotFoundError:
    WHY_NOT = "PyTorch is not installed"

RANKS, MICROBATCHES = 2, 4
BLOCKING_W = 84  # of an emulated A100
SAME = 1e-6  # largest relative difference between plan and emulated GPUs
NANOSECONDS = 2e-9  # the emulator counts in ns
COMPUTATION = re.compile(r"\d+[FBIW]\d+|\(.*\)OVERLAP_F_B")
LOOP, V = [[0, 2], [1, 3]], [[0, 3], [1, 2]]

# An order that no class has: the microbatches of both chunks alternate, and rank 1 has no warm-up
# of its own.
OWN_ORDER = ("0F0,0F1,2F0,0F2,2F1,2B0,0F3,2F2,2B1,0B0,2F3,2B2,0B1,2B3,0B2,0B3\r\n"
             "1F0,1F1,3F0,3B0,1F2,3F1,3B1,1B0,1F3,3F2,3B2,1B1,3F3,3B3,1B2,1B3\r\n")

CASES = [
    {"name": "gpipe", "kind": "ScheduleGPipe"},
    {"name": "1f1b", "kind": "Schedule1F1B"},
    {"name": "interleaved", "kind": "ScheduleInterleaved1F1B", "stages": LOOP, "dump": "all.csv"},
    {"name": "looped-bfs", "kind": "ScheduleLoopedBFS", "stages": LOOP},
    {"name": "zero-bubble", "kind": "ScheduleInterleavedZeroBubble", "stages": LOOP},
    {"name": "flexible", "kind": "ScheduleFlexibleInterleaved1F1B", "stages": LOOP},
    {"name": "zbv", "kind": "ScheduleZBVZeroBubble", "stages": V},
    {"name": "dualpipe-v", "kind": "ScheduleDualPipeV", "stages": V},
    {"name": "functions", "kind": "ScheduleDualPipeV", "stages": V, "functions": True},
    {"name": "own-order", "kind": "_PipelineScheduleRuntime", "stages": LOOP,
     "load": {"compute_only": "own.csv"}},
    {"name": "with-communication", "kind": "_PipelineScheduleRuntime", "stages": LOOP,
     "load": {"compute_comms": "all.csv"}, "plan_from": "all.csv"},
]


def profile_rows(stages):
    """Yields (stage, instruction, MHz, s, J) of a pipeline with uneven stages. The first stage has
    no input whose gradient is needed: that instruction takes 20 us and needs almost nothing."""
    for stage in range(stages):
        forward = 0.020 * (1 + 0.25 * ((stage * 3) % 4))
        parts = {"forward": forward, "backward": 2 * forward, "backward_input": 0.9 * forward,
                 "backward_weight": 1.1 * forward, "overlap_f_b": 2.7 * forward}
        if stage == 0:
            parts.update(backward_input=20e-6, backward_weight=2 * forward)
        for name, full_s in parts.items():
            for mhz in range(1410, 840, -15):
                x = mhz / 1410
                volt = 0.75 if x < 0.76 else 0.75 + 0.25 * (x - 0.76) / 0.24
                time_s = full_s * (0.85 / x + 0.15)
                yield stage, name, mhz, time_s, time_s * (98 + 290 * x * volt * volt)


def write_profile(path, stages):
    with open(path, "w", newline="", encoding="ascii") as file:
        writer = csv.writer(file)
        writer.writerow(["stage", "instruction", "frequency", "time", "energy"])
        writer.writerows(profile_rows(stages))


class PipeliningTest(jobs.JobTest):
    gpus = "2xA100"

    @classmethod
    def setUpClass(cls):
        cls.profile = str(world.BUILD / f"pipelining-{os.getpid()}.csv")
        write_profile(cls.profile, 4)
        os.environ["HARPE_EMULATOR_PROFILE"] = cls.profile
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        del os.environ["HARPE_EMULATOR_PROFILE"]
        os.unlink(cls.profile)

    def harpe(self, *arguments):
        result = subprocess.run([server.HARPE, *map(str, arguments)], text=True, check=False,
                                capture_output=True, timeout=600)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def plan_for(self, order, name):
        """Plans with `harpe plan`. Returns the row of a plan that is at most 5 % slower, and the
        plan: for each rank (instruction, MHz)."""
        stages = 1 + max(int(stage) for stage in re.findall(r"(\d+)F", order.read_text()))
        profile, plans = self.path / f"profile-{stages}.csv", self.path / f"plans-{name}"
        write_profile(profile, stages)
        self.harpe("plan", "--inst-profile", profile, "--p2p-power", BLOCKING_W, "--schedule",
                   order, "--output-dir", plans, "--no-pictures", "--quiet", "--verify")
        row = json.loads(self.harpe("choose", plans, "--max-slowdown", 1.05, "--json"))
        text = re.sub("#.*", "", (plans / os.path.basename(row["path"])).read_text())
        return row, eval(text)  # pylint: disable=eval-used


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Schedules(PipeliningTest):
    """Every schedule class in one job, because starting PyTorch takes longer than the steps."""

    def file(self, name, processes):
        """Waits for a file of the ranks."""
        def is_there():
            self.assertFalse([one for one in processes if one.poll()], "a rank has ended")
            return (self.path / name).exists()
        self.wait_until(is_there, f"no {name}")
        return self.path / name

    def answer_all(self, processes):
        known = json.loads(self.file("cases", processes).read_text())
        for case in CASES:
            if case["name"] in known:
                self.answer(case, processes)

    def answer(self, case, processes):
        """Waits for the order of a case and starts a server with its plan."""
        name = case["name"]
        self.file(f"{name}.csv", processes)
        order = self.path / case.get("plan_from", f"{name}.csv")
        row, plan = self.plan_for(order, name)
        started = self.start("--store", self.path / f"{name}.db", plan=plan,
                             scheduler="PointSolution")
        self.answers[name] = (order, row, plan)
        (self.path / "answer").write_text(json.dumps(
            {"url": f"http://127.0.0.1:{started.port}", "plan": plan}))
        os.replace(self.path / "answer", self.path / f"{name}.json")

    def assert_rank(self, result, rank, order, plan):
        cells = [cell for cell in order.read_text().split("\n")[rank].strip().split(",")
                 if COMPUTATION.fullmatch(cell)]
        names, clocks = zip(*plan)
        self.assertEqual([text for text, *_ in result["actions"]], cells)
        self.assertEqual([mhz for _, mhz, _ in result["actions"]], list(clocks))
        times = {(stage, name, mhz): time_s
                 for stage, name, mhz, time_s, _ in profile_rows(4)}
        for (text, mhz, time_s), name in zip(result["actions"], names):
            expected_s = times[int(re.search(r"\d+", text)[0]), name, mhz]
            self.assertAlmostEqual(time_s, expected_s, msg=text,
                                   delta=SAME * expected_s + NANOSECONDS)

        events = [one for one in result["events"] if one != "loss"]
        self.assertEqual(events, ["step_begin", *(
            f"instruction_{what} {name}" for name in names for what in ("begin", "end")),
            "step_end"])
        for index, event in enumerate(result["events"]):
            if event == "loss":  # it belongs to the last stage's forward
                self.assertRegex(result["events"][index - 1], "begin (forward|overlap_f_b)$")
        self.assertEqual(result["misfits"], 0)
        self.assertNotIn("step_begin", result.get("evaluation", []))
        self.assertEqual(set(result["uninstalled"]) - {"loss"}, set())
        if result["losses"]:
            self.assertLess(result["losses"][1], result["losses"][0])

    def assert_case(self, name, results):
        order, row, plan = self.answers[name]
        self.assertTrue(all(result["on_time"] for result in results), "the machine is too busy")
        for rank, result in enumerate(results):
            with self.subTest(schedule=name, rank=rank):
                self.assert_rank(result, rank, order, plan[rank])
        with self.subTest(schedule=name):
            self.assertGreater(len({mhz for rank in plan for _, mhz in rank}), 1)
            self.assertEqual(sum(bool(result["losses"]) for result in results), 1)
            for result in results:
                self.assertAlmostEqual(result["time_s"] / row["time_s"], 1, delta=SAME)
            energy_j = sum(result["energy_j"] for result in results)
            self.assertAlmostEqual(energy_j / row["energy_j"], 1, delta=SAME)
            if os.environ.get("HARPE_TEST_FIGURES"):
                print(f"{name}: time {result['time_s'] / row['time_s'] - 1:+.2e}, "
                      f"energy {energy_j / row['energy_j'] - 1:+.2e}")

    def test_each_runs_as_it_was_planned(self):
        self.answers = {}
        (self.path / "own.csv").write_text(OWN_ORDER)
        (self.path / "ended").write_bytes(bytes(1 << 12))
        outputs = self.run_ranks(
            "torch_pipelining_job.py", RANKS, self.answer_all, directory=str(self.path),
            microbatches=MICROBATCHES, cases=CASES)
        ran = [one["name"] for one in outputs[0]["results"]]
        self.assertEqual(ran, list(self.answers))
        kinds = {case["kind"] for case in CASES if case["name"] in ran}
        self.assertEqual(set(outputs[0]["classes"]) - kinds, set(), "a schedule class is missing")
        for index, name in enumerate(ran):
            self.assert_case(name, [output["results"][index] for output in outputs])


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Meshes(jobs.JobTest):
    """Jobs with more dimensions than their pipeline. The ranks come from the DeviceMesh, or from
    the parameters that FSDP or tensor parallelism have distributed."""

    CASES = [
        {"name": "fsdp", "second": "dp_shard", "gives_mesh": False},
        {"name": "fsdp-mesh", "second": "dp_shard", "gives_mesh": True},
        {"name": "tensor", "second": "tp", "gives_mesh": False},
        {"name": "context", "second": "cp", "gives_mesh": True},
    ]

    def test_its_ranks_are_found(self):
        cases = [case for case in self.CASES  # FSDP of PyTorch 2.5 needs CUDA
                 if TORCH >= (2, 6) or case["second"] != "dp_shard"]
        names = [["forward", "forward", "backward", "backward"],
                 ["forward", "backward", "forward", "backward"]]
        plan = [[(name, 1200 - 15 * stage) for name in names[stage]] for stage in range(2)]
        started = self.start(plan=plan, scheduler="PointSolution3D")
        outputs = self.run_ranks("torch_mesh_job.py", 4, url=f"http://127.0.0.1:{started.port}",
                                 cases=cases)
        for index, case in enumerate(cases):
            for rank, result in enumerate(output[index] for output in outputs):
                with self.subTest(case=case["name"], rank=rank):
                    stage, other = divmod(rank, 2)
                    place = [0, other] if case["second"] == "tp" else [other, 0]
                    self.assertEqual(result["ranks"], [rank, stage, *place])
                    self.assertEqual(result["names"], names[stage] * 4)
                    self.assertEqual(result["misfits"], 0)
                    if stage == 1:
                        self.assertLess(result["losses"][-1], result["losses"][0])
