#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the source distribution and the build backend for pip without compiling: `make wheel` does
that (wheel.py).

Usage: sdist.py <project root>
"""
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "packaging" / "wheel"))
sys.dont_write_bytecode = True
import backend  # noqa: E402


class SourceDistribution(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="harpe-sdist-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.file = cls.folder / backend.build_sdist(cls.folder)
        with tarfile.open(cls.file) as archive:
            cls.names = {name.partition("/")[2] for name in archive.getnames()}
            archive.extractall(cls.folder)
        cls.tree = cls.folder / f"harpe-{backend.version()}"

    def test_it_has_what_a_build_needs_and_nothing_made(self):
        for name in ("PKG-INFO", "pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md",
                     "src/cli/main.c", "src/libharpe.map", "emulator/exports.map", "web/index.html",
                     "docs/man/harpe.1.scd", "python/harpe/__init__.py", "packaging/wheel/backend.py"):
            self.assertIn(name, self.names)
        made = [name for name in self.names
                if name.startswith(("build/", "tests/", ".")) or name.endswith((".pyc", ".o"))]
        self.assertEqual(made, [])
        self.assertTrue((self.tree / "PKG-INFO").read_text().count(f"\nVersion: {backend.version()}\n"))

    def test_a_copy_without_git_makes_the_same_one(self):
        script = ("import sys; sys.dont_write_bytecode = True; sys.path.insert(0, 'packaging/wheel'); "
                  "import backend; backend.build_sdist('..')")
        before = self.file.read_bytes()
        self.file.unlink()
        subprocess.run([sys.executable, "-c", script], cwd=self.tree, check=True, timeout=600)
        self.assertEqual(self.file.read_bytes(), before)

    def test_without_packages_a_build_says_in_one_line_what_to_install(self):
        script = ("import sys; sys.path.insert(0, 'packaging/wheel'); import backend; "
                  "backend.build_wheel('.')")
        result = subprocess.run([sys.executable, "-c", script], cwd=self.tree, text=True,
                                env={"PATH": "/nonexistent"}, capture_output=True, check=False,
                                timeout=600)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertRegex(result.stderr, "apt install gcc cmake .*libcminpack-dev.* libpq-dev")

    def test_the_packages_it_asks_for_are_those_of_the_list(self):
        listed = (ROOT / "scripts" / "packages.txt").read_text().split("[check]")[0]
        for package in [*backend.PROGRAMS.values(), *backend.MODULES.values()]:
            if package != "gzip":  # every Debian has it
                self.assertTrue(re.search(rf"^{re.escape(package)}$", listed, re.MULTILINE), package)


if __name__ == "__main__":
    unittest.main()
