# SPDX-License-Identifier: Apache-2.0
"""bench/run measured on series whose truth is known: what it finds in a series, what it fits, and
what it says without a series. HARPE_BINARY_DIR names the build."""
import contextlib
import csv
import io
import os
import pathlib
import random
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR",
                                     pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", SOURCE / "build" / "release"))
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "bench"))
from search import commands, measured, power_series  # noqa: E402
from search.library import Library  # noqa: E402

PERIOD_S, WAITING_S, HIGH_W, LOW_W = 9.5, 0.8, 56000.0, 20000.0
THIRD = 1.01  # the third group draws more than the others
BLOCK_ROWS, EVALUATION_ROWS, BLOCKS = 70, 7, 6


def mean_w(from_s):
    """Returns the mean power of a group over 2 s, from the square wave of its steps."""
    fine = [(from_s + 0.01 * i) % PERIOD_S for i in range(200)]
    return sum(LOW_W if moment < WAITING_S else HIGH_W for moment in fine) / len(fine)


def write_series(path):
    source = random.Random("measured job")
    rows = []
    for block in range(BLOCKS):
        phase_s = source.uniform(0, PERIOD_S)
        rows += [mean_w(2.0 * i + phase_s) for i in range(BLOCK_ROWS)]
        rows += [0.91 * HIGH_W] * EVALUATION_ROWS
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["time_s", *[f"group_{g}_w" for g in range(8)], "all_w"])
        for index, power in enumerate(rows):
            groups = [power * (THIRD if g == 2 else 1) * source.gauss(1, 0.002) for g in range(8)]
            out.writerow([2 * index, *groups, sum(groups)])


class Measured(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.series = self.folder / "series.csv"
        write_series(self.series)
        for name, value in (("CHUNKS", 4), ("MICROBATCHES", 32)):
            patch = mock.patch.object(measured, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_finds_the_truth_of_a_series(self):
        blocks = power_series.training_blocks(self.series)
        self.assertEqual(len(blocks), BLOCKS)
        period_s = power_series.find_period(blocks)
        self.assertAlmostEqual(period_s, PERIOD_S, delta=0.002 * PERIOD_S)
        seen = power_series.describe(blocks, period_s)
        each = (7 + THIRD) * (HIGH_W - (HIGH_W - LOW_W) * WAITING_S / PERIOD_S)
        self.assertAlmostEqual(seen["mean_w"], each, delta=0.005 * each)
        self.assertAlmostEqual(seen["middle_w"], (7 + THIRD) * HIGH_W, delta=0.005 * 8 * HIGH_W)
        lacking_s = WAITING_S * (1 - LOW_W / HIGH_W)  # seconds of the power in the middle
        self.assertAlmostEqual(seen["dip"] * seen["width_s"], lacking_s, delta=0.05 * lacking_s)
        self.assertAlmostEqual(seen["groups"][2], 7 / 8 * 0.01, delta=0.001)
        self.assertAlmostEqual(seen["groups"][5], -0.01 / 8, delta=0.001)

    def test_fits_what_a_simulated_series_was_made_of(self):
        truth = {"outside_w": 205.0, "end_s": 0.7}
        even = measured.BASE | {"language model head, layers": 0.0}
        with Library(BUILD) as library:
            job = measured.write_profile(self.folder, 0.02, even, lowest=1)
            pipeline = measured.Pipeline(library.graph(job, self.folder))
            wave = measured.Wave(pipeline, [0] * len(pipeline.rank))
            truth["period_s"] = wave.time_s + truth["end_s"]
            blocks = wave.blocks(8, truth)
            period_s = power_series.find_period(blocks)
            fitted = measured.fit(period_s, power_series.describe(blocks, period_s), even,
                                  library, self.folder)
        self.assertAlmostEqual(period_s, truth["period_s"], delta=0.002 * truth["period_s"])
        # Ranks also wait after their first forwards, which is in the middle of this short step.
        self.assertAlmostEqual(fitted["forward_s"], 0.02, delta=0.0003)
        self.assertAlmostEqual(fitted["outside_w"], truth["outside_w"], delta=7)
        self.assertAlmostEqual(fitted["end_s"], truth["end_s"], delta=0.12)

    def test_shows_what_plans_save(self):
        curves = self.folder / "curves.json"
        head = "language model head, layers"
        few = {name: (base,) * 3 for name, (base, *_) in measured.ASSUMPTIONS.items()}
        few[head] = (few[head][0], 0.0, few[head][0])
        with mock.patch.object(measured, "LATENCIES_S", (0.0, 0.1)), \
                mock.patch.object(measured, "ASSUMPTIONS", few):
            chosen, (compared, saved, single, world), status = measured.main(
                ["--series", str(self.series), "--draws", "1", "--build", str(BUILD),
                 "--curves", str(curves)], commands.add_builds)
        self.assertEqual((chosen.draws, status), (1, 0))
        self.assertEqual(compared.rows[0][1], compared.rows[0][2])  # the time of a step is fitted
        self.assertEqual(len(saved.rows), 2 * len(measured.SLOWDOWNS))
        for _, plan, _, one, *_ in saved.rows:
            self.assertGreaterEqual(float(plan.split()[0]), float(one.split()[0]))
        self.assertEqual([row[0] for row in single.rows], [head])
        for _, slower, planned, seen in world.rows:
            self.assertLess(abs(float(slower.split()[0])), 0.5)
            self.assertAlmostEqual(float(seen.split()[0]), float(planned.split()[0]), delta=0.5)
        self.assertIn("simulated", curves.read_text(encoding="utf-8"))

    def test_is_skipped_without_a_series(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            _, tables, status = measured.main(["--series", str(self.folder / "none.csv")],
                                              commands.add_builds)
        self.assertEqual((tables, status, said.getvalue().count("\n")), ([], 0, 1))
        self.assertIn("skipped", said.getvalue())
