#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks docs/man/*.md, which docs/man/make_markdown.py creates from the manual pages: they are up
to date, they have the same words as scdoc's output for the same source, and their links have
targets. HARPE_SOURCE_DIR names the source."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR", HERE.parent.parent))
FOLDER = SOURCE / "docs" / "man"
SCRIPT = FOLDER / "make_markdown.py"


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)


def words_of_roff(text):
    """Returns the words of a page from scdoc, without fonts and requests."""
    words = []
    is_table = False
    for line in text.split("\n"):
        is_table = line == ".TS" or (is_table and not line.endswith(".") and line != ".TE")
        if is_table or line.startswith((".TH", ".TE", '.\\"')):
            continue
        if re.match(r"[.'][A-Za-z]", line):
            line = re.sub(r"^\S+", "", line) if line.startswith((".SH", ".SS")) else ""
        line = re.sub(r"^(l ?)+\.$|T\{|T\}", "", line)
        line = re.sub(r"\\f[BIRP]|\\&", "", line)
        line = line.replace("\\*(Aq", "'").replace("\\(aq", "'").replace("\\-", "-")
        words += line.replace("\\\\", "\\").replace("\\e", "\\").split()
    return words


def words_of_markdown(text):
    """Returns the words of one of our Markdown pages, without markup."""
    words = []
    is_literal = False
    for line in text.split("\n")[4:]:
        if line == "```":
            is_literal = not is_literal
            continue
        if not is_literal:
            if re.match(r"^\| ---", line):
                continue
            line = re.sub(r"^(#+|  |- |\| )", "", line)
            line = re.sub(r" \|(?= |$)", "", line)
            line = line.removesuffix("\\")
            line = re.sub(r"\[([^\[\]]*\(\d\))\]\([a-z.0-9-]+\.md\)", r"\1", line)
            line = re.sub(r"(?<!\\)(\*+|</?[bi]>)", "", line)
            line = re.sub(r"\\([^A-Za-z0-9\s])", r"\1", line)
        words += line.split()
    return words


class ManualPagesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="harpe-manual-")
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name)

    def test_pages_are_up_to_date(self):
        done = run("--check")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual({path.stem for path in FOLDER.glob("*.md")},
                         {path.stem for path in FOLDER.glob("*.scd")})

    def test_a_change_of_a_source_is_noticed(self):
        for path in FOLDER.iterdir():
            shutil.copy(path, self.path)
        self.assertEqual(run("--check", self.path).returncode, 0)
        (self.path / "orphan.1.md").write_text("no source\n", encoding="utf-8")
        with open(self.path / "harpe.1.scd", "a", encoding="utf-8") as page:
            page.write("\nOne *more* paragraph.\n")
        done = run("--check", self.path)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^harpe\.1\.md: not up to date")
        self.assertRegex(done.stdout, r"(?m)^orphan\.1\.md: not up to date")
        self.assertEqual(run(self.path).returncode, 0)
        self.assertEqual(run("--check", self.path).returncode, 0)
        self.assertIn("One **more** paragraph.\n", (self.path / "harpe.1.md").read_text())
        self.assertFalse((self.path / "orphan.1.md").exists())

    def test_pages_say_what_scdoc_makes_of_the_source(self):
        if not shutil.which("scdoc"):
            self.skipTest("no scdoc")
        for source in sorted(FOLDER.glob("*.scd")):
            with open(source, encoding="utf-8") as text:
                roff = subprocess.run(["scdoc"], stdin=text, stdout=subprocess.PIPE, text=True,
                                      check=True).stdout
            markdown = source.with_suffix(".md").read_text(encoding="utf-8")
            expected = words_of_roff(roff)
            self.assertGreater(len(expected), 200, source.name)
            self.assertEqual(words_of_markdown(markdown), expected, source.name)

    def test_links_lead_to_pages(self):
        seen = 0
        for page in FOLDER.glob("*.md"):
            for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
                seen += 1
                self.assertTrue((FOLDER / target).is_file(), f"{page.name}: {target}")
        self.assertGreater(seen, 50)

    def refused(self, body, reason):
        (self.path / "harpe-odd.1.scd").write_text(f"harpe-odd(1)\n\n# NAME\n\n{body}\n",
                                                   encoding="utf-8")
        done = run(self.path)
        self.assertNotEqual(done.returncode, 0, body)
        self.assertRegex(done.stdout, r"^harpe-odd\.1\.scd: " + reason)
        self.assertEqual(list(self.path.glob("*.md")), [])

    def test_what_the_script_does_not_read_is_refused(self):
        self.refused("- a list", "a list")
        self.refused("*bold", r"\* is not closed")
        self.refused("*bold _both_*", "_ within")
        self.refused("\tno term", "a description without a term")
        self.refused("|[ one\n:[ two\n|  three", "the rows of a table differ")
        self.refused("text\\", "a backslash at the end")

    def test_markup_survives(self):
        (self.path / "harpe-odd.1.scd").write_text(
            "harpe-odd(1)\n\n# NAME\n\n*a|b*_c_ snake_case \\_x\\_ <y> [*--z*] 2 \\* 3++\n- 5\n\n"
            "*--flag* _N_\n\tWhat it does, see *harpe-odd*(1).\n\n```\na \\\\ b\n```\n",
            encoding="utf-8")
        done = run(self.path)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual((self.path / "harpe-odd.1.md").read_text().split("\n")[6:-1], [
            "<b>a\\|b</b><i>c</i> snake_case \\_x\\_ \\<y\\> \\[**--z**\\] 2 \\* 3\\", "\\- 5", "",
            "- **--flag** *N*", "",
            "  What it does, see [**harpe-odd**(1)](harpe-odd.1.md).", "",
            "```", "a \\ b", "```"])


if __name__ == "__main__":
    unittest.main()
