#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Joining modules into the single script of report.html (cmake/embed_report.cmake): the same
files give the same bytes, and constructs that would break the script stop the build. CMAKE names
cmake."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
CMAKE = os.environ.get("CMAKE", "cmake")


class EmbedTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="harpe-test-")
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name)
        self.web = self.path / "web"
        shutil.copytree(SOURCE / "web", self.web)

    def embed(self, output="out.c"):
        return subprocess.run([CMAKE, f"-DWEB={self.web}", f"-DOUTPUT={self.path / output}", "-P",
                               SOURCE / "cmake" / "embed_report.cmake"], text=True, timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def refuse(self, file, text, reason):
        with open(self.web / file, "a", encoding="utf-8") as module:
            module.write(text)
        result = self.embed()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(reason, " ".join(result.stderr.split()))
        self.assertFalse((self.path / "out.c").exists())

    def test_same_files_give_the_same_bytes(self):
        for name in ["one.c", "two.c"]:
            result = self.embed(name)
            self.assertEqual(result.returncode, 0, result.stderr)
        made = (self.path / "one.c").read_bytes()
        self.assertEqual(made, (self.path / "two.c").read_bytes())
        self.assertNotIn(os.fsencode(self.path), made)

    def test_one_name_for_two_things_stops_the_build(self):
        self.refuse("timeline.js", "\nfunction describePlan() {}\n",
                    "two modules of the report define describePlan")

    def test_a_module_that_is_not_joined_stops_the_build(self):
        self.refuse("dom.js", '\nimport { get } from "./api.js";\n', "imports api.js")

    def test_an_import_under_another_name_stops_the_build(self):
        self.refuse("timeline.js", '\nimport { h as html } from "./dom.js";\n', "another name")

    def test_an_unknown_kind_of_export_stops_the_build(self):
        self.refuse("dom.js", "\nexport { h as html };\n", "cannot join")

    def test_an_end_of_the_script_within_it_stops_the_build(self):
        self.refuse("dom.js", '\nconst end = "</script>";\n', "may not hold")

    def test_a_style_that_fetches_stops_the_build(self):
        self.refuse("style.css", "\nbody { background: url(x.png); }\n", "may not hold")
