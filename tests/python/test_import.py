# SPDX-License-Identifier: Apache-2.0
"""Importing the package loads few modules, and neither the library, a framework nor a driver."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import world

MODULES = ["harpe", "harpe.callback", "harpe.distributed", "harpe.monitor", "harpe.optimizer.power_limit",
           "harpe.integrations", "harpe.integrations.deepspeed", "harpe.integrations.megatron",
           "harpe.integrations.torch_pipelining", "harpe.optimizer.pipeline_frequency.optimizer",
           "harpe.optimizer.pipeline_frequency.server.scheduler"]
# modules of the standard library beyond those of a bare Python that make an import slow
MOST_MODULES = 70


class Import(unittest.TestCase):
    def test_it_loads_little(self):
        """bench/python_overhead.py measures the time of the import, because it depends on the
        machine and its load."""
        count = "import sys; before = len(sys.modules); {} print(len(sys.modules) - before)"
        result = world.python(count.format("import harpe;"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(int(result.stdout), range(1, MOST_MODULES))

    def test_it_loads_no_framework_and_no_library(self):
        result = world.python(
            "import json, sys\n"
            f"for name in {MODULES!r}: __import__(name)\n"
            "import harpe\n"
            "print(json.dumps([sorted({name.partition('.')[0] for name in sys.modules}),\n"
            "                  open('/proc/self/maps').read()]))")
        self.assertEqual(result.returncode, 0, result.stderr)
        modules, maps = json.loads(result.stdout)
        self.assertFalse({"torch", "numpy", "jax", "transformers", "mpi4py", "deepspeed", "megatron"} & set(modules))
        for library in ("libharpe", "libnvidia-ml", "libcuda"):
            self.assertNotIn(library, maps)

    def test_errors_have_the_name_that_users_catch_and_can_be_pickled(self):
        result = world.python("import harpe, pickle\n"
                              "for name in harpe.__all__:\n"
                              "    kind = getattr(harpe, name)\n"
                              "    if not isinstance(kind, type): continue\n"
                              "    copy = pickle.loads(pickle.dumps(kind('gone', 3, 4)))\n"
                              "    assert type(copy) is kind, name\n"
                              "    assert (str(copy), copy.status, copy.vendor_code) == ('gone', 3, 4)\n"
                              "raise harpe.NotFoundError('gone')\n")
        self.assertRegex(result.stderr, "(?m)^harpe.NotFoundError: gone$")

    def test_the_module_has_a_version(self):
        result = world.python("import harpe; print(harpe.__version__ == harpe.version())\n"
                              "from harpe import __version__; print(__version__)\nharpe.nosuch")
        self.assertRegex(result.stdout, r"^True\n\d+\.\d+\.\d+")
        self.assertRegex(result.stderr, "AttributeError: module 'harpe' has no attribute 'nosuch'")

    def test_as_a_command_it_is_the_program(self):
        """In the build tree, in a prefix, and with the program in PATH."""
        def run(*arguments, **environment):
            return subprocess.run(
                [sys.executable, "-m", "harpe", *arguments], text=True, capture_output=True,
                check=False, timeout=600, env=dict(os.environ, **environment))
        self.assertRegex(run("--version").stdout, r"^harpe \d+\.\d+\.\d+")
        self.assertEqual(run("nosuch").returncode, 2)
        with tempfile.TemporaryDirectory(prefix="harpe-import-") as folder:
            package = pathlib.Path(folder, "lib", "python3", "dist-packages", "harpe")
            shutil.copytree(world.SOURCE / "python" / "harpe", package,
                            ignore=shutil.ignore_patterns("__pycache__"))
            program = pathlib.Path(folder, "bin", "harpe")
            program.parent.mkdir()
            here = {"PYTHONPATH": str(package.parent), "PATH": "/nowhere"}
            self.assertRegex(run("x", **here).stderr, "^harpe: the program harpe is neither .*\n$")
            program.write_text("#!/bin/sh\necho program \"$@\"\n")
            program.chmod(0o755)
            self.assertEqual(run("a b", "c", **here).stdout, "program a b c\n")
            program.rename(package / "harpe")
            here["PATH"] = f"{package}:/bin"
            self.assertEqual(run("a", **here).stdout, "program a\n")

    def test_the_first_call_loads_the_library_or_says_what_to_do(self):
        result = world.python("import harpe; print(harpe.version())")
        self.assertRegex(result.stdout, r"^\d+\.\d+\.\d+")
        result = world.python("import harpe; harpe.version()", HARPE_LIBRARY="/nowhere/libharpe.so.0")
        self.assertRegex(result.stderr, "UnavailableError: .*nowhere.*HARPE_LIBRARY")
