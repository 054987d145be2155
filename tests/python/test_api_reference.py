# SPDX-License-Identifier: Apache-2.0
"""`make docs` makes a page for each public module, and its search knows every public name. It fetches
pdoc from PyPI, and is skipped if that cannot be reached."""
import inspect
import subprocess
import unittest

import test_docstrings
import world


class Reference(unittest.TestCase):
    def test_every_public_name_is_found(self):
        made = subprocess.run([world.SOURCE / "scripts" / "make_docs.sh"], text=True, timeout=600,
                              capture_output=True, check=False)
        if "pip cannot install it" in made.stderr:
            self.skipTest("PyPI cannot be reached")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        pages = world.SOURCE / "build" / "docs" / "python"
        search = (pages / "search.js").read_text(encoding="utf-8")
        count = 0
        for module in test_docstrings.modules():
            page = pages.joinpath(*module.__name__.split(".")).with_suffix(".html")
            self.assertTrue(page.is_file(), page)
            for name in getattr(module, "__all__", ()):
                thing = getattr(module, name)
                # A name that is found when it is first used is on the page of its own module.
                if (inspect.isclass(thing) or inspect.isfunction(thing)) and name in vars(module) \
                        and thing.__module__ == module.__name__:
                    count += 1
                    self.assertIn(f'"{module.__name__}.{name}"', search)
        self.assertGreater(count, 100)
