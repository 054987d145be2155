# SPDX-License-Identifier: Apache-2.0
"""What the tests of several folders need."""
import pathlib
import tempfile


def folder(add_cleanup):
    """Returns an empty folder. `add_cleanup` is addCleanup of a test or addClassCleanup of a class, at
    whose end the folder is removed."""
    holder = tempfile.TemporaryDirectory(prefix="harpe-test-")
    add_cleanup(holder.cleanup)
    return pathlib.Path(holder.name)
