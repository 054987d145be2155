# SPDX-License-Identifier: Apache-2.0
"""Energy and power limits in real training loops of Hugging Face transformers and accelerate
(hugging_face_job.py), on emulated GPUs. The emulator's own account is the oracle."""
import os
from unittest import mock

import energy_checks
import jobs
from fixtures import needs

installed = needs("torch", "transformers", "accelerate")


@installed
class TrainerJob(energy_checks.EnergyChecks, jobs.JobTest):
    def run_trainer(self, ranks):
        results = self.run_ranks("hugging_face_job.py", ranks, job="trainer",
                                 folder=str(self.path / "out"))
        first = results[0]
        self.assert_accounted(results)
        self.training_logs(first, ranks)
        self.evaluations(first)
        self.resumed(first, ranks)
        self.the_next_training_begins_anew(first, ranks)
        for one in results:
            self.assertEqual(one["lines"], [])
        return first

    def training_logs(self, first, ranks):
        logs = [one for one in first["history"] if "loss" in one]
        self.assertEqual([one["step"] for one in logs],
                         [step for step in range(2, first["steps"] + 1) if step % 2 == 0])
        self.assert_rising(logs, ranks if ranks > 1 else 4)
        self.assert_rates(logs, "energy_per_token_j", lambda one: one["num_input_tokens_seen"])
        # A reporter that stands before the callback has got the same.
        strip = [{name: value for name, value in one.items() if name != "step"}
                 for one in first["history"]]
        self.assertEqual(first["reported"], strip)

    def evaluations(self, first):
        logs = [one for one in first["history"] if "eval_loss" in one]
        self.assertGreaterEqual(len(logs), 2)
        total_j = sum(one["eval_energy_j"] for one in logs)
        last = first["returned"]
        self.assertAlmostEqual(last["train_evaluation_energy_j"] / total_j, 1, 1)
        self.assertNotIn("energy_j", logs[0])
        for one in logs:
            self.assertGreater(one["eval_energy_j"], 0)

    def resumed(self, first, ranks):
        """The checkpoint has the totals of its step, and a resumed training goes on from them."""
        saved = first["checkpoint"]["attributes"]["saved_totals"]
        log = next(one for one in first["history"] if one["step"] == 4 and "loss" in one)
        self.assertEqual(saved["energy_j"], log["energy_j"])
        self.assertEqual(saved["tokens"], log["num_input_tokens_seen"])
        for restores in ("False", "True"):
            again = first[f"resumed {restores}"]["returned"]
            self.assertGreater(again["train_energy_j"], 0)
            self.assertAlmostEqual(again["energy_j"],
                                   saved["energy_j"] + again["train_energy_j"], 3)
            tokens = again["num_input_tokens_seen"] - saved["tokens"]
            self.assertAlmostEqual(again["train_energy_per_token_j"] * tokens,
                                   again["train_energy_j"], 3)

    def the_next_training_begins_anew(self, first, ranks):
        after = first["after"]
        self.assertEqual(after["returned"]["energy_j"], after["returned"]["train_energy_j"])
        samples = 2 * 2 * ranks  # two steps of a batch of two
        self.assertAlmostEqual(after["returned"]["train_energy_per_sample_j"] * samples,
                               after["returned"]["train_energy_j"], 3)
        self.assertNotIn("energy_per_token_j", after["history"][0])

    def test_one_rank(self):
        first = self.run_trainer(1)
        self.assertEqual(first["exception"], "this sentence is broken")

    def test_two_ranks_add_up(self):
        self.run_trainer(2)

    def test_without_a_gpu_training_goes_on(self):
        with mock.patch.dict(os.environ, {"HARPE_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1"}):
            one, = self.run_ranks("hugging_face_job.py", 1, job="faulty",
                                  folder=str(self.path / "out"))
        self.assertIn("train_loss", one["metrics"])
        for log in (one["metrics"], *one["history"], one["accelerate"]):
            self.assertFalse([name for name in log if "energy" in name or "power" in name], log)
        self.assertIsNone(one["optimizer"])
        self.assertEqual(len(one["lines"]), 3, one["lines"])  # one for each object
        for line, start in zip(one["lines"], ("no energy is measured", "no energy is measured",
                                              "no power limit is changed")):
            self.assertRegex(line, f"^{start}: .*libnvidia-ml.*; training goes on$")


@installed
class LostGpu(jobs.JobTest):
    """On a machine of its own, because the GPU stays lost."""

    def test_a_lost_gpu_does_not_stop_the_training(self):
        faults = str(self.path / "faults")
        with mock.patch.dict(os.environ, {"HARPE_EMULATOR_FAULTS_FILE": faults}):
            one, = self.run_ranks("hugging_face_job.py", 1, job="lost", faults=faults,
                                  folder=str(self.path / "out"))
        self.assertEqual(one["steps"], one["expected_steps"])
        said = [line for line in one["lines"] if "training goes on" in line]
        self.assertEqual(len(said), 1, one["lines"])
        self.assertIn("GPU_IS_LOST", said[0])
        logs = [log["step"] for log in one["history"] if "energy_j" in log]
        self.assertEqual(logs, [1, 2, 3, 4, 5])
        self.assertNotIn("train_energy_j", one["metrics"])


@installed
class AccelerateJob(energy_checks.EnergyChecks, jobs.JobTest):
    def test_two_ranks(self):
        first, second = self.run_ranks("hugging_face_job.py", 2, job="accelerate",
                                       folder=str(self.path / "out"))
        kept = first["kept"]
        self.assertEqual(second["kept"], [])  # trackers are the main process's
        self.assertEqual([one["step"] for one in kept], [1, 3, 5, 7, 9, 11, 1, 1])
        self.assert_rising(kept[:6], 2)
        tokens = 2 * 2 * 2 * 8  # two batches of two on two ranks, of eight tokens each
        self.assert_rates(kept[:6], "energy_per_token_j", lambda one: tokens / 2 * one["step"])
        self.assertNotIn("evaluation_energy_j", kept[0])
        self.assertGreater(kept[1]["evaluation_energy_j"], 0)
        saved, dropped, last = (first[name] for name in ("saved", "dropped", "last"))
        self.assertGreater(dropped["energy_j"], saved["energy_j"])
        self.assertEqual(first["loaded"], saved)
        self.assertEqual(last["tokens"], saved["tokens"] + tokens)
        self.assertGreater(last["energy_j"], saved["energy_j"])
        self.assertEqual([one[0] for one in first["measurements"]], [400, 100])
        self.assertEqual(first["measurements"], second["measurements"])
        self.assertEqual(self.machine.limit(0), 400000)
        self.assertEqual(self.machine.limit(1), 400000)
