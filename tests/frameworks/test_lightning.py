# SPDX-License-Identifier: Apache-2.0
"""Energy and power limits in real training loops of Lightning (lightning_job.py), on emulated GPUs.
The emulator's own account is the oracle."""
import os
from unittest import mock

import energy_checks
import jobs
from fixtures import needs

installed = needs("torch", "lightning")


@installed
class Job(energy_checks.EnergyChecks, jobs.JobTest):
    def run_job(self, ranks):
        results = self.run_ranks("lightning_job.py", ranks, job="training",
                                 folder=str(self.path / "out"))
        first = results[0]
        self.assert_accounted(results)
        self.assertEqual(first["steps"], 12)
        rows = [one for one in first["rows"] if "power_w" in one]
        self.assertEqual([one["step"] for one in rows], [1, 3, 5, 7, 9, 11])
        self.assert_rising(rows, ranks if ranks > 1 else 4)
        tokens = 2 * 2 * 8 * ranks  # an update: two batches of two, of eight tokens each
        self.assert_rates(rows, "energy_per_token_j", lambda one: tokens * one["step"])
        self.validations(first)
        self.resumed(first, tokens)
        self.the_next_training_begins_anew(first, ranks)
        for one in results:
            self.assertFalse([line for line in one["lines"] if "training goes on" in line])
            self.assertEqual([limit for limit, _, _ in one["measurements"]], [400, 100])
        for gpu in range(4):
            self.assertEqual(self.machine.limit(gpu), 400000)
        return first

    def validations(self, first):
        logs = [one for one in first["rows"] if "val_energy_j" in one]
        self.assertEqual(len(logs), 4)
        for one in logs:
            self.assertIn("val_loss", one)
            self.assertGreater(one["val_energy_j"], 0)
        total_j = sum(one["val_energy_j"] for one in logs)
        self.assertLess(abs(total_j - first["totals"]["evaluation_energy_j"]),
                        0.5 * first["totals"]["evaluation_energy_j"])

    def resumed(self, first, tokens):
        saved = first["checkpoint"]
        self.assertEqual(saved["tokens"], 4 * tokens)
        again, last = first["resumed"]["totals"], first["resumed"]["rows"][-1]
        self.assertEqual(first["resumed"]["steps"], 12)
        self.assertEqual(again["tokens"], 12 * tokens)
        self.assertGreater(last["train_energy_j"], 0)
        self.assertAlmostEqual(last["energy_j"], saved["energy_j"] + last["train_energy_j"], 3)
        self.assertAlmostEqual(last["train_energy_per_token_j"] * 8 * tokens,
                               last["train_energy_j"], 3)

    def the_next_training_begins_anew(self, first, ranks):
        last = first["after"]["rows"][-1]
        self.assertEqual(last["energy_j"], last["train_energy_j"])
        self.assertEqual(first["after"]["totals"]["samples"], 24 * 2 * ranks)
        self.assertAlmostEqual(last["train_energy_per_sample_j"] * 24 * 2 * ranks,
                               last["train_energy_j"], 3)

    def test_one_rank(self):
        self.assertEqual(self.run_job(1)["exception"], "this batch is broken")

    def test_two_ranks_add_up(self):
        self.run_job(2)

    def test_without_a_gpu_training_goes_on(self):
        with mock.patch.dict(os.environ, {"HARPE_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1"}):
            one, = self.run_ranks("lightning_job.py", 1, job="faulty",
                                  folder=str(self.path / "out"))
        self.assertEqual(one["steps"], 12)
        for row in one["rows"]:
            self.assertFalse([name for name in row if "energy" in name or "power" in name], row)
        self.assertEqual(len(one["lines"]), 2, one["lines"])
        self.assertIsNone(one["optimizer"])
