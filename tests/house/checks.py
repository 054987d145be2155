#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks scripts/run_tests.py and scripts/check_all.py with stand-ins for ctest and for the parts: why
tests were skipped, when that is a failure, and that the parts can be resumed. Also checks that every test
has one kind, and that tests/kinds.cmake names no test that does not exist.

Usage: checks.py PROJECT_ROOT BUILD_DIRECTORY
"""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
BUILD = sys.argv.pop(1)


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


run_tests, check_all = load("run_tests"), load("check_all")


def block(number, name, output, result="Test Passed."):
    """What ctest logs of a test."""
    line = "-" * 58
    return (f"{number}/9 Testing: {name}\n{number}/9 Test: {name}\nCommand: \"x\"\nOutput:\n{line}\n{output}\n"
            f"<end of output>\nTest time =   0.01 sec\n{line}\n{result}\n")


LOG = "".join((
    block(1, "a_passes", "[       OK ] all is well"),
    block(2, "b_script", "test_x (__main__.X) ... skipped 'PostgreSQL is not installed'\nOK (skipped=1)"),
    block(3, "c_program", "skipped: data: no measured log\n[  SKIPPED ] replay\n"),
    block(4, "d_silent", "[  SKIPPED ] something"),
    block(5, "e_other", "skipped: the moon is full", "Test Skipped."),
    block(6, "f_other", "skipped: the moon is full")))


class Skips(unittest.TestCase):
    def printed(self, log, is_strict, part=None):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            failed = run_tests.print_skips(log, is_strict, part)
        return failed, out.getvalue()

    def test_every_skip_is_told_with_its_reason(self):
        failed, out = self.printed(LOG, False)
        self.assertFalse(failed)
        self.assertEqual(out.splitlines(), [
            "skipped: PostgreSQL is not installed (b_script; ./check --all postgresql proves it)",
            "skipped: data: no measured log (c_program)",
            "skipped: it gives no reason (d_silent)",
            "skipped: the moon is full (e_other, f_other)"])

    def test_what_nothing_else_proves_is_a_failure_in_continuous_integration(self):
        failed, out = self.printed(LOG, True)
        self.assertTrue(failed)
        self.assertEqual([line for line in out.splitlines() if line.startswith("NOT PROVEN")],
                         ["NOT PROVEN: it gives no reason (d_silent)",
                          "NOT PROVEN: the moon is full (e_other, f_other)"])

    def test_the_part_that_must_prove_it_may_not_skip_it(self):
        log = block(2, "b_script", "test_x (__main__.X) ... skipped 'PostgreSQL is not installed'")
        self.assertFalse(self.printed(log, True, "processes")[0])
        self.assertTrue(self.printed(log, True, "postgresql")[0])

    def test_every_part_of_the_table_exists(self):
        known = {*run_tests.ABSENT, "user", *check_all.PARTS}
        self.assertLessEqual({where for _, where in run_tests.SKIPS}, known)

    def test_the_summary_of_ctest_comes_last_and_its_status_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            ctest = pathlib.Path(folder, "ctest")
            log = pathlib.Path(folder, "build/release/Testing/Temporary/LastTest.log")
            log.parent.mkdir(parents=True)
            log.write_text(LOG)
            for status, environment, expected in ((0, {}, 0), (8, {}, 8), (0, {"CI": "true"}, 1)):
                ctest.write_text(f"#!/bin/sh\necho 'Test #1: a'\necho\necho '100% tests passed, of 6'\necho end\n"
                                 f"exit {status}\n")
                ctest.chmod(0o755)
                with mock.patch.object(run_tests, "ROOT", pathlib.Path(folder)), \
                        mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}), \
                        mock.patch.object(sys, "argv", ["run_tests.py", "release", "-L", "fast"]), \
                        contextlib.redirect_stdout(io.StringIO()) as out:
                    os.environ.pop("CI", None)
                    os.environ.update(environment)
                    self.assertEqual(run_tests.main(), expected)
                self.assertEqual(out.getvalue().splitlines()[0], "Test #1: a")
                self.assertEqual(out.getvalue().splitlines()[-2:], ["100% tests passed, of 6", "end"])


class Kinds(unittest.TestCase):
    def test_every_test_has_one_kind_and_every_listed_test_exists(self):
        text = re.sub(r"#.*", "", (ROOT / "tests" / "kinds.cmake").read_text())
        lists = {name: words.split() for name, words in re.findall(r"set\(HARPE_(\w+)([^)]*)\)", text)}
        kinds = set(lists.pop("TEST_KINDS"))
        lists.pop("UNSANITIZED_FOLDERS")
        lists["SMOKE_CLASSES"] = [one.split("=")[0] for one in lists["SMOKE_CLASSES"]]
        shown = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], check=True,
                               stdout=subprocess.PIPE)
        labels = {test["name"]: {label for one in test["properties"] if one["name"] == "LABELS"
                                 for label in one["value"]} for test in json.loads(shown.stdout)["tests"]}
        self.assertEqual([name for words in lists.values() for name in words if name not in labels], [])
        also = {name for key, words in lists.items() if key.startswith("ALSO_") for name in words}
        for name, has in labels.items():
            self.assertTrue(has & kinds, f"{name} has no kind, so no command runs it")
            self.assertTrue(name in also or len(has & kinds) == 1, f"{name}: {has & kinds}")
        usual = {"fast", "smoke", "process"}
        self.assertLessEqual(kinds - usual, set(check_all.PARTS), "a kind that no part runs")


@unittest.skipUnless(shutil.which("git"), "no git")
class Parts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        subprocess.run(["git", "init", "-q", self.folder], check=True)
        (self.folder / ".gitignore").write_text("/build/\n/ran\n/broken\n")
        parts = {name: check_all.Part(1, f"part {name}", "", f"sh -c 'echo {name} >>ran; echo says {name}; "
                                                            f"! grep -q {name} broken'", (name,))
                 for name in ("first", "second", "third")}
        for name, value in (("ROOT", self.folder), ("RESULTS", self.folder / "build/check-all.json"),
                            ("LOGS", self.folder / "build/check-all"), ("PARTS", parts)):
            self.enterContext(mock.patch.object(check_all, name, value))
        self.break_part("nothing")

    def break_part(self, name):
        (self.folder / "broken").write_text(f"{name}\n")

    def run_all(self, *names, expected=0, **environment):
        """Runs the parts. Returns which ones ran."""
        (self.folder / "ran").write_text("")
        out = io.TextIOWrapper(io.BytesIO())
        with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(io.StringIO()) as self.errors:
            self.assertEqual(check_all.run_all(list(names)), expected)
        out.flush()
        self.out = out.buffer.getvalue().decode()
        return (self.folder / "ran").read_text().split()

    def results(self):
        return {one["part"]: one["result"] for one in json.loads((self.folder / "build/check-all.json").read_text())}

    def test_a_failure_stops_and_the_next_call_goes_on(self):
        self.break_part("second")
        self.assertEqual(self.run_all(expected=1), ["first", "second"])
        self.assertRegex(self.errors.getvalue(), "part second failed with status 1.*second.log")
        self.assertEqual(self.results(), {"first": "passed", "second": "failed"})
        self.break_part("nothing")
        self.assertEqual(self.run_all(), ["second", "third"])
        self.assertEqual(self.run_all(), [])
        self.assertEqual(self.results(), {"first": "passed", "second": "passed", "third": "passed"})
        self.assertEqual(self.run_all("first"), ["first"])

    def test_a_changed_file_makes_all_parts_run_again(self):
        self.assertEqual(len(self.run_all()), 3)
        tree = check_all.read_results()[0]["tree"]
        (self.folder / "new").write_text("x")
        self.assertEqual(len(self.run_all()), 3)
        subprocess.run(["git", "-C", self.folder, "add", "--all"], check=True)
        written = subprocess.run(["git", "-C", self.folder, "write-tree"], check=True, stdout=subprocess.PIPE, text=True)
        self.assertEqual({one["tree"] for one in check_all.read_results()}, {written.stdout.strip()})
        self.assertNotEqual(written.stdout.strip(), tree)

    def test_the_output_says_what_runs_and_is_logged(self):
        self.run_all()
        self.assertIn("== part 2 of 3: second: part second (about 1 min; 0:02 h left)\nsays second\n", self.out)
        self.assertEqual((self.folder / "build/check-all/second.log").read_text(), "says second\n")

    def test_parts_that_would_end_too_late_are_left_out(self):
        self.assertEqual(self.run_all(CHECK_UNTIL="1"), [])
        self.assertIn("part third is left out", self.out)
        self.assertEqual(len(self.run_all(CHECK_UNTIL="9999999999")), 3)

    def test_changes_choose_parts_by_folder(self):
        commit = ["git", "-C", self.folder, "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"]
        for name, when in (("first", "2026-01-01T00:00:00"), ("second", "2026-01-01T11:00:00"),
                           ("third", "2026-01-01T12:00:00")):
            (self.folder / name).mkdir()
            (self.folder / name / "file").write_text("x")
            subprocess.run(["git", "-C", self.folder, "add", "--all"], check=True)
            subprocess.run(commit, check=True, env={**os.environ, "GIT_COMMITTER_DATE": when})
        self.assertEqual(check_all.changed_parts(), ["second", "third"])
        with mock.patch.dict(os.environ, {"CI_BASE": "HEAD~1"}):
            self.assertEqual(check_all.changed_parts(), ["third"])
        with mock.patch.dict(os.environ, {"CI_BASE": "unknown"}):
            self.assertEqual(check_all.changed_parts(), ["first", "second", "third"])

    def test_an_unknown_part_is_refused(self):
        for arguments in (["--all", "fourth"], ["--some"]):
            with mock.patch.object(sys, "argv", ["check_all.py", *arguments]), self.assertRaises(SystemExit) as end:
                check_all.main()
            self.assertIn(arguments[-1], str(end.exception.code))


if __name__ == "__main__":
    unittest.main(verbosity=2)
