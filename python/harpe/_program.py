# SPDX-License-Identifier: Apache-2.0
"""The command `harpe` of the wheel: runs the program that the wheel brings. `make install` and the
Debian packages install the program itself."""
from __future__ import annotations

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).resolve().parent / "_bundled" / "bin" / "harpe"


def main() -> None:
    """Replaces this process by the program. Schedulers written in Python then run in this Python,
    which has the package and the user's modules."""
    os.environ.setdefault("HARPE_PYTHON", sys.executable)
    try:
        os.execv(PROGRAM, ["harpe", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"harpe: cannot run {PROGRAM}: {error.strerror}; install the wheel of Harpe again")
