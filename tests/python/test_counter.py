# SPDX-License-Identifier: Apache-2.0
"""What the hook of `harpe tune` counts in programs that name nothing of Harpe (torch_loops.py)."""
import importlib.util
import json
import os
import subprocess
import sys
import unittest

import world
from counted import HERE, LIMIT_S, LOOPS, STEPS, CountedTest

HARPE = os.environ.get("HARPE", str(world.BUILD / "harpe"))
HAS_TORCH = importlib.util.find_spec("torch") is not None
IS_OLD = True
if HAS_TORCH:
    import torch
    IS_OLD = torch.__version__.startswith("1.")


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Loops(CountedTest):
    def test_updates(self):
        self.check("train", STEPS, "updates", extra=1)

    def test_accumulated_gradients_are_one_update(self):
        self.check("accumulated", STEPS, "updates", extra=4)

    def test_an_evaluation_has_no_counts(self):
        self.check("evaluated", STEPS, "updates", extra=1)

    def test_workers_of_a_data_loader_count_nothing(self):
        self.check("with_workers", STEPS, "updates", extra=1)

    def test_a_schedule_of_the_learning_rate(self):
        self.check("with_a_schedule", STEPS, "updates", extra=1)

    def test_each_of_two_optimizers_counts(self):
        self.check("two_optimizers", 2 * STEPS, "updates", extra=1)

    def test_an_optimizer_of_the_program_itself(self):
        self.check("own_optimizer", STEPS, "updates", extra=1)

    def test_a_skipped_update_is_missing(self):
        self.check("skipped", STEPS - 2, "updates", extra=2)

    @unittest.skipIf(IS_OLD, "PyTorch 1 has no updates in the backward: tests/frameworks, transformers")
    def test_updates_in_the_backward_count_for_each_parameter(self):
        self.check("in_the_backward", 4 * STEPS, "updates", extra=1)

    def test_batches_without_an_optimizer(self):
        self.check("no_optimizer", STEPS, "batches")

    def test_calls_of_a_model(self):
        self.check("infer", STEPS, "forwards")

    def test_calls_within_a_call_count_nothing(self):
        self.check("infer_two", STEPS, "forwards")

    def test_calls_that_fail_count_nothing(self):
        self.check("infer_that_fails", STEPS, "forwards")

    def test_calls_in_threads(self):
        self.check("infer_in_threads", 4 * STEPS, "forwards")

    @unittest.skipIf(IS_OLD, "PyTorch 1 has no torch.compile: tests/frameworks, transformers")
    def test_a_compiled_model(self):
        self.check("compiled", STEPS, "forwards")
        self.check("compiled_in_place", 2 * STEPS, "forwards")

    def test_what_a_program_saves_and_traces_is_unchanged(self):
        self.check("saved", STEPS, "updates", extra=1)

    def test_a_forked_child(self):
        self.check("forked", STEPS, "updates", extra=1)

    def test_all_ranks_add_up(self):
        self.run_ranks("ddp", 2)
        self.assertEqual(self.memory.source, "updates")
        self.assertIn(self.memory.steps, range(2 * STEPS, 2 * STEPS + 3))

    def test_marks_of_the_program_come_first(self):
        (self.path / "marks.py").write_text(
            "import sys\n"
            f"sys.path[:0] = [{str(HERE)!r}, {str(world.SOURCE / 'python')!r}]\n"
            "import torch_loops\nfrom harpe import lib\n"
            "lib.harpe_power_limit_mark_step()\ntorch_loops.train()\n")
        self.run_python("marks.py")
        self.assertEqual((self.memory.steps, self.memory.source), (1, "marks"))

    def test_a_source_that_has_ended_gives_way(self):
        (self.path / "phases.py").write_text(
            "import sys, time\n"
            f"sys.path.insert(0, {str(HERE)!r})\n"
            "import torch_loops\nfrom harpe._run import counter\n"
            "torch_loops.train()\n"
            "real = time.monotonic\n"
            "time.monotonic = lambda: real() + 601\n"
            "for _ in range(6):\n    torch_loops.infer()\n")
        self.run_python("phases.py")
        self.assertEqual(self.memory.source, "forwards")
        self.assertEqual(self.memory.steps, STEPS + 1 + 6 * STEPS - 99)

    def test_harpe_tune_counts_a_program_that_marks_nothing(self):
        done = subprocess.run([HARPE, "emulate", "--gpus", "1xA100", "--", HARPE, "tune", "--json", "--",
                               sys.executable, "-W", "ignore", str(LOOPS), "train"], text=True, timeout=LIMIT_S,
                              cwd=self.path, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual((report["meter"], report["work"]), ("steps of the program's optimizer", STEPS + 1))

    def test_harpe_run_within_power_limit_run_counts_too(self):
        done = subprocess.run([HARPE, "power-limit", "run", "--json", "--", HARPE, "run", "--", sys.executable,
                               "-W", "ignore", str(LOOPS), "train"], text=True, timeout=LIMIT_S, cwd=self.path,
                              env=dict(os.environ, HARPE_NVML_LIBRARY="/nowhere/libnvidia-ml.so.1"),
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'"steps": {STEPS + 1}', done.stdout)
        self.assertNotIn("no known framework", done.stderr)


class Hook(CountedTest):
    """The hook without PyTorch."""

    def test_it_says_nothing_of_a_program_that_it_does_not_know(self):
        self.assertEqual(self.run_python("-c", "print(1)"), "")

    def test_it_installs_no_adapter(self):
        (self.path / "transformers").mkdir()
        (self.path / "transformers" / "__init__.py").touch()
        (self.path / "transformers" / "trainer.py").write_text("class Trainer:\n    def train(self): pass\n")
        self.assertEqual(self.run_python("-c", "import sys; sys.path.insert(0, '.')\n"
                                         "from transformers.trainer import Trainer; Trainer().train()"), "")

    def test_a_pytorch_that_it_cannot_count_runs_unchanged(self):
        (self.path / "torch.py").write_text("value = 7\n")
        said = self.run_python("-c", "import sys; sys.path.insert(0, '.'); import torch; assert torch.value == 7")
        self.assertRegex(said, "^harpe tune: torch: .*; it stays unchanged\n$")

    def test_without_a_memory_nothing_is_watched(self):
        (self.path / "torch.py").write_text("value = 7\n")
        del self.environment["HARPE_STEP_MEMORY"]
        self.assertEqual(self.run_python("-c", "import sys; sys.path.insert(0, '.'); import torch"), "")
