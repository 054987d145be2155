#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests packaging/version.sh: the version of a build grows with the commits, for dpkg and for pip, and
a tree without git has one, too.

Usage: build_version.py <project root>
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
BASE = re.search(r"^project\(Harpe VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(),
                 re.MULTILINE).group(1)
NEXT = BASE.rpartition(".")[0] + "." + str(int(BASE.rpartition(".")[2]) + 1)


def pip_key(version):
    """Orders the versions of this test as PEP 440 does: a local part that is a word compares as text."""
    release, _, local = version.partition("+")
    return [int(number) for number in release.split(".")], local.split(".") if local else []


@unittest.skipUnless(shutil.which("git"), "no git")
class Version(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="harpe-version-")
        self.addCleanup(folder.cleanup)
        self.tree = self.made(pathlib.Path(folder.name) / "tree")
        self.git("init", "-q")

    def made(self, tree):
        (tree / "packaging").mkdir(parents=True)
        shutil.copy(ROOT / "packaging" / "version.sh", tree / "packaging")
        shutil.copy(ROOT / "CMakeLists.txt", tree)
        return tree

    def git(self, *words, seconds=0):
        when = f"{1796000000 + seconds} +0900"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when, "GIT_CONFIG_GLOBAL": "/dev/null"}
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=self.tree, check=True,
                       env=environment, capture_output=True, timeout=300)

    def commit(self, seconds):
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "x", seconds=seconds)
        return self.version()

    def version(self, tree=None, **variables):
        done = subprocess.run(["sh", (tree or self.tree) / "packaging" / "version.sh"], check=True, text=True,
                              capture_output=True, timeout=300, env=dict(os.environ, **variables))
        self.assertEqual(len(done.stdout.splitlines()), 1)
        return done.stdout.strip()

    def test_it_grows_with_the_commits_and_stays_before_the_next_release(self):
        ordered = [BASE, *(self.commit(seconds) for seconds in (0, 1, 59, 86400, 400 * 86400)), NEXT]
        for version in ordered[1:-1]:
            # The second expression is PEP 440's for a local version in normal form.
            self.assertRegex(version, rf"^{re.escape(BASE)}\+git\d{{14}}\.g[0-9a-f]{{10}}$")
            self.assertRegex(version, r"^[0-9.]+\+[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*$")
        self.assertEqual(sorted(reversed(ordered), key=pip_key), ordered)
        if shutil.which("dpkg"):
            debian = [f"{version}-1" for version in ordered]
            for older, newer in zip(debian, debian[1:]):
                subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True, timeout=300)

    def test_it_depends_on_the_commit_only(self):
        self.commit(0)
        version = self.commit(100)
        self.assertEqual(self.version(TZ="Asia/Kolkata", LC_ALL="C.UTF-8"), version)
        shallow = self.tree.parent / "shallow"
        subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{self.tree}", shallow], check=True,
                       capture_output=True, timeout=300)
        self.assertEqual(self.version(shallow), version)

    def test_a_release_is_the_commit_with_its_tag(self):
        self.commit(0)
        self.git("tag", "other")
        self.assertNotEqual(self.version(), BASE)
        self.git("tag", f"v{BASE}")
        self.assertEqual(self.version(), BASE)
        self.assertIn("+git", self.commit(1))

    def test_a_tree_without_git_has_a_version(self):
        version = self.commit(0)
        plain = self.made(self.tree / "build" / "plain")  # inside of a repository that is not its own
        self.assertEqual(self.version(plain), BASE)
        (plain / "PKG-INFO").write_text(f"Name: harpe\nVersion: {version}\n\nVersion: 7\n")
        self.assertEqual(self.version(plain), version)
        (plain / "PKG-INFO").write_text("Name: harpe\nVersion: 99.0\n")
        self.assertEqual(self.version(plain), BASE)
        shutil.rmtree(self.tree / ".git" / "refs")
        self.assertEqual(self.version(), BASE)  # git does not answer


if __name__ == "__main__":
    unittest.main()
