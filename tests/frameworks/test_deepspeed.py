# SPDX-License-Identifier: Apache-2.0
"""The adapter for DeepSpeed against the real DeepSpeed, on CPUs and emulated GPUs: jobs of several
processes that train with its pipeline engines (deepspeed_job.py). Needs a Python with deepspeed and
PyTorch; without them the tests are skipped. `make check` does not run them."""
import importlib.util
import types
import unittest

import jobs  # appends the directory of the next import to the path

from harpe import plan as harpe_plan  # noqa: E402
from harpe.integrations import deepspeed as harpe_deepspeed  # noqa: E402
from harpe.integrations import torch_pipelining  # noqa: E402

WHY_NOT = None if importlib.util.find_spec("deepspeed") else "deepspeed is not installed"
HIGHEST_MHZ = 1410  # of the emulated A100
COMPUTED = ("forward", "backward")  # what a layer of the job notes
NO_DUALPIPE_V = "this version of deepspeed has no DualPipeV"


def has_dualpipe_v():
    """Looks for the file, because importing DeepSpeed takes seconds."""
    found = importlib.util.find_spec("deepspeed")
    return found and any((jobs.pathlib.Path(path) / "runtime" / "pipe" / "dualpipev.py").exists()
                         for path in found.submodule_search_locations)


def plan_for(stages, schedule, microbatches=None):
    """Returns a plan that Harpe makes for stages of which each needs more time than the one
    before: [(instruction, MHz), ...] for each rank."""
    rows = [(stage, name, mhz, seconds * (1 + stage / 2) * HIGHEST_MHZ / mhz,
             seconds * (1 + stage / 2) * (50 + 250 * (mhz / HIGHEST_MHZ) ** 2))
            for stage in range(stages) for name, seconds in (("forward", .05), ("backward", .1))
            for mhz in range(900, HIGHEST_MHZ + 1, 30)]
    frontier = harpe_plan.solve(rows, num_microbatches=microbatches, blocking_power=60,
                                schedule=schedule)
    return frontier.choose(max_slowdown=1.05).frequencies


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Job(jobs.JobTest):
    def run_planned(self, plan, scheduler="PointSolution", replicas=1, **settings):
        """Runs a job with this plan, and checks that the optimizer was told of every step, and of
        the plan's instructions while they computed; each of them waits until its clock is there.
        Nothing of Harpe is saved or remains."""
        self.assertGreater(len({entry for rank in plan for entry in rank}), 2 * len(plan),
                           "the instructions of a rank have different clocks")
        started = self.start(plan=plan, scheduler=scheduler)
        results = self.run_ranks(
            "deepspeed_job.py", len(plan) * replicas, url=f"http://127.0.0.1:{started.port}",
            ranks=len(plan), rounds=1,
            clocks=[[mhz for name, mhz in rank if name in COMPUTED] for rank in plan],
            highest=HIGHEST_MHZ, folder=str(self.path / "checkpoint"), **settings)
        for result in results:
            self.assertEqual(torch_pipelining.order_of(result["csv"]),
                             [[name for name, _ in rank if name in COMPUTED] for rank in plan])
            # DeepSpeed's neighbouring ranks are the replicas of a stage.
            self.assert_result(result, [name for name, _ in plan[result["rank"] // replicas]])

    def assert_result(self, result, order):
        expected = [event for name in order for event in (
            f"instruction_begin {name}", *([f"ran {name}"] if name in COMPUTED else []),
            f"instruction_end {name}")]
        self.assertEqual(result["first"], ["step_begin", *expected, "step_end"])
        self.assertTrue(result["all_the_same"])
        self.assertEqual(result["misfits"], 0)
        self.assertEqual(set(result["evaluation"]), {"instruction_begin forward", "ran forward",
                                                     "instruction_end forward"})
        self.assertEqual(result["uninstalled"], [f"ran {name}" for name in order if name in COMPUTED])
        self.assertEqual(result["left"], [])
        self.assertEqual(result["naming"], [])
        self.assertTrue(result["loaded"])
        self.assertLess(result["losses"][1], result["losses"][0])

    def test_1f1b_runs_as_it_was_planned(self):
        self.run_planned(plan_for(4, "1f1b", 6), module="PipelineModule", layers=4, microbatches=6)

    def test_two_pipelines_are_one_job(self):
        self.run_planned(plan_for(2, "1f1b", 4), "PointSolution3D", replicas=2,
                         module="PipelineModule", layers=2, microbatches=4)

    def test_the_end_of_a_step_is_an_instruction_of_the_plan(self):
        plan = [[*rank, ("optimizer", 915)] for rank in plan_for(2, "1f1b", 3)]
        self.run_planned(plan, "PointSolution3D", replicas=2, module="PipelineModule", layers=2,
                         microbatches=3, epilogue="optimizer")

    @unittest.skipUnless(has_dualpipe_v(), NO_DUALPIPE_V)
    def test_dualpipe_v_runs_as_it_was_planned(self):
        from deepspeed.runtime.pipe.schedule import DualPipeVSchedule
        engine = types.SimpleNamespace(micro_batches=5, num_stages=2,
                                       _train_schedule=lambda: DualPipeVSchedule(5, 2, 0))
        path = self.path / "order.csv"
        harpe_deepspeed.write_csv(engine, path)
        self.run_planned(plan_for(4, path), module="DualPipeVModule", layers=4, microbatches=5)
