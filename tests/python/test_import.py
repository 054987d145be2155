# SPDX-License-Identifier: Apache-2.0
"""Importing the package loads few modules, and neither the library, a framework nor a driver."""
import json
import unittest

import world

MODULES = ["harpe", "harpe.callback", "harpe.distributed", "harpe.monitor", "harpe.optimizer.power_limit",
           "harpe.integrations"]
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
        self.assertFalse({"torch", "numpy", "jax", "transformers", "mpi4py"} & set(modules))
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

    def test_the_first_call_loads_the_library_or_says_what_to_do(self):
        result = world.python("import harpe; print(harpe.version())")
        self.assertRegex(result.stdout, r"^\d+\.\d+\.\d+")
        result = world.python("import harpe; harpe.version()", HARPE_LIBRARY="/nowhere/libharpe.so.0")
        self.assertRegex(result.stderr, "UnavailableError: .*nowhere.*HARPE_LIBRARY")


if __name__ == "__main__":
    unittest.main()
