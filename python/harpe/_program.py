# SPDX-License-Identifier: Apache-2.0
"""The command `harpe` of the wheel, and `python -m harpe`: runs the program that belongs to this
package."""
from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import Iterator

_PACKAGE = pathlib.Path(__file__).resolve().parent


def _places() -> Iterator[pathlib.Path]:
    """Yields where the program may be: in the wheel, in the build tree, or in the prefix of an
    installed package."""
    yield _PACKAGE / "_bundled" / "bin" / "harpe"
    yield _PACKAGE.parents[1] / "build" / "release" / "harpe"
    for folder in _PACKAGE.parents:
        if folder.name.startswith("lib"):
            yield folder.parent / "bin" / "harpe"


def main() -> None:
    """Replaces this process by the program. Schedulers written in Python then run in this Python,
    which has the package and the user's modules."""
    program = next((str(path) for path in _places() if os.access(path, os.X_OK)),
                   None) or shutil.which("harpe")
    if program is None:
        sys.exit("harpe: the program harpe is neither near this package nor in PATH: install the "
                 "wheel of Harpe, or run make install")
    os.environ.setdefault("HARPE_PYTHON", sys.executable)
    try:
        os.execv(program, ["harpe", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"harpe: cannot run {program}: {error.strerror}; install Harpe again")
