# SPDX-License-Identifier: Apache-2.0
"""What the tests of several folders need."""
import importlib.util
import pathlib
import tempfile
import unittest


def folder(add_cleanup):
    """Returns an empty folder. `add_cleanup` is addCleanup of a test or addClassCleanup of a class, at
    whose end the folder is removed."""
    holder = tempfile.TemporaryDirectory(prefix="harpe-test-")
    add_cleanup(holder.cleanup)
    return pathlib.Path(holder.name)


def needs(*packages):
    """Skips a test if one of these packages is not installed."""
    missing = next((name for name in packages if importlib.util.find_spec(name) is None), None)
    return unittest.skipIf(missing, f"{missing} is not installed")
