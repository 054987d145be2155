# SPDX-License-Identifier: Apache-2.0
"""Importing the package: quickly, and without the library, a framework or a driver."""
import json
import statistics
import time
import unittest

import world

MODULES = ["harpe", "harpe.callback", "harpe.distributed", "harpe.monitor", "harpe.optimizer.power_limit",
           "harpe.integrations"]
WITHIN_S = 0.05  # more than a bare Python takes


def seconds(script):
    """How long a Python with this script runs; the median of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        result = world.python(script)
        times.append(time.perf_counter() - start)
        assert result.returncode == 0, result.stderr
    return statistics.median(times)


class Import(unittest.TestCase):
    def test_it_is_quick(self):
        for _ in range(5):  # on a machine that is busy for a moment
            bare, imported = seconds("pass"), seconds("import harpe")
            if imported - bare < WITHIN_S:
                return
        self.fail(f"import harpe took {imported - bare:.3f} s more than the {bare:.3f} s of a bare Python")

    def test_it_loads_no_framework_and_no_library(self):
        result = world.python(
            "import json, sys\n"
            f"for name in {MODULES!r}: __import__(name)\n"
            "import harpe\n"
            "print(json.dumps([sorted({name.partition('.')[0] for name in sys.modules}),\n"
            "                  open('/proc/self/maps').read()]))")
        self.assertEqual(result.returncode, 0, result.stderr)
        modules, maps = json.loads(result.stdout)
        self.assertFalse({"torch", "numpy", "jax", "transformers", "mpi4py"} & set(modules))
        for library in ("libharpe", "libnvidia-ml", "libcuda"):
            self.assertNotIn(library, maps)

    def test_the_first_call_loads_the_library_or_says_what_to_do(self):
        result = world.python("import harpe; print(harpe.version())")
        self.assertRegex(result.stdout, r"^\d+\.\d+\.\d+")
        result = world.python("import harpe; harpe.version()", HARPE_LIBRARY="/nowhere/libharpe.so.0")
        self.assertRegex(result.stderr, "UnavailableError: .*nowhere.*HARPE_LIBRARY")


if __name__ == "__main__":
    unittest.main()
