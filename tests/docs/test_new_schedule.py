#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Follows docs/adding-a-schedule.md in a copy of the tree: adds one new file and one table row, and
nothing else. Then builds the program and plans with the new schedule."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from test_documents import SOURCE, marked_blocks

COPIED = ["CMakeLists.txt", "LICENSE", "cmake", "include", "packaging", "src", "web", "docs/man"]
OFF = ["TESTS", "HOUSE_TESTS", "FUZZ", "BENCH", "EXAMPLES"]


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


class NewScheduleTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="harpe-schedule-")
        self.addCleanup(holder.cleanup)
        self.tree = pathlib.Path(holder.name) / "tree"
        self.build = pathlib.Path(holder.name) / "build"
        for name in COPIED:
            source = SOURCE / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            copy(source, self.tree / name)

    def follow_the_page(self):
        page = SOURCE / "docs" / "adding-a-schedule.md"
        blocks = {block.kind: block for block in marked_blocks(page)}
        new_file = self.tree / blocks["file"].argument
        self.assertFalse(new_file.exists())
        new_file.write_text(blocks["file"].text, encoding="utf-8")
        header = self.tree / blocks["row"].argument
        table = "#define HARPE_SCHEDULE_KINDS(ROW) \\\n"
        text = header.read_text(encoding="utf-8")
        self.assertEqual(text.count(table), 1)
        header.write_text(text.replace(table, table + blocks["row"].text), encoding="utf-8")

    def test_one_file_and_one_row_make_a_schedule(self):
        self.follow_the_page()
        run("cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
            "-DHARPE_WERROR=ON", *(f"-DHARPE_{name}=OFF" for name in OFF))
        run("cmake", "--build", self.build, "--target", "harpe")
        harpe = self.build / "harpe"
        self.assertIn("eager-1f1b", run(harpe, "plan", "--help"))
        run(harpe, "synth", "--stages", "4", "--quiet", "--output", "profile.csv", cwd=self.build)
        printed = run(harpe, "plan", "-i", "profile.csv", "-m", "8", "-p", "70", "-o", "plans",
                      "-s", "eager-1f1b", "--no-pictures", "--plans", "5", "--verify",
                      cwd=self.build)
        self.assertIn("schedule eager-1f1b", printed)
        # Rank 0 of 4 starts with 6 forwards, then alternates.
        first_rank = next(line for line in (self.build / "plans" / "freqs_pipeline_00000.py")
                          .read_text().splitlines() if "forward" in line)
        order = "".join("B" if "backward" in word else "F" for word in first_rank.split("(")[1:])
        self.assertEqual(order, "FFFFFFFBFBBBBBBB")
