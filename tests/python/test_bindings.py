# SPDX-License-Identifier: Apache-2.0
"""harpe/_bindings.py agrees with the public headers: generating it again gives the same text,
structs have the compiler's size and offsets, and the library exports the functions. Needs pycparser
and gcc."""
import ctypes
import importlib.util
import shutil
import subprocess
import sys
import unittest

import world
from fixtures import folder
from harpe import _bindings, lib

PYTHON = world.SOURCE / "python"


def structs():
    return {name: kind for name, kind in vars(_bindings).items()
            if isinstance(kind, type) and issubclass(kind, ctypes.Structure)}


class Bindings(unittest.TestCase):
    def setUp(self):
        self.folder = folder(self.addCleanup)

    @unittest.skipUnless(importlib.util.find_spec("pycparser") and shutil.which("gcc"),
                         "needs pycparser and gcc")
    def test_made_again_they_are_the_same(self):
        again = self.folder / "again.py"
        subprocess.run([sys.executable, PYTHON / "make_bindings.py", world.SOURCE / "include", again],
                       check=True)
        self.assertEqual(again.read_text(encoding="utf-8"),
                         (PYTHON / "harpe" / "_bindings.py").read_text(encoding="utf-8"),
                         "headers have changed: python/make_bindings.py include python/harpe/_bindings.py")

    def test_the_old_name_of_a_member_is_the_same_member(self):
        counts = _bindings.harpe_frequency_controller_counts(clock_requests=7)
        self.assertEqual(counts.wishes, 7)

    @unittest.skipUnless(shutil.which("gcc"), "needs gcc")
    def test_structs_are_laid_out_as_the_compiler_does(self):
        lines, expected = [], []
        for name, kind in structs().items():
            lines.append(f'printf("%zu ", sizeof(struct_{name}));')
            expected.append(ctypes.sizeof(kind))
            for field, *_ in kind._fields_:
                lines.append(f'printf("%zu ", offsetof(struct_{name}, {field}));')
                expected.append(getattr(kind, field).offset)
        headers = sorted(path.name for path in (world.SOURCE / "include" / "harpe").glob("*.h")
                         if path.name != "mpi.h")
        tags = self.tags(structs())
        source = "".join(f"#include <harpe/{name}>\n" for name in headers) + \
            "#include <stddef.h>\n#include <stdio.h>\n" + \
            "".join(f"#define struct_{name} {tags[name]}\n" for name in tags) + \
            "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
        program = self.folder / "layout"
        subprocess.run(["gcc", f"-I{world.SOURCE / 'include'}", "-x", "c", "-", "-o", program],
                       input=source, text=True, check=True)
        output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        self.assertEqual([int(number) for number in output.split()], expected)

    @staticmethod
    def tags(names):
        """Returns the name of each struct in C: its typedef, or its tag if it has none."""
        text = "".join(path.read_text() for path in (world.SOURCE / "include" / "harpe").glob("*.h"))
        return {name: name if f"}} {name};" in text or f"typedef struct {name} {name};" in text
                else f"struct {name}" for name in names}

    def test_the_library_exports_every_function(self):
        for name in _bindings.FUNCTIONS:
            with self.subTest(name):
                self.assertTrue(callable(getattr(lib, name)))
