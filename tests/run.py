# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a file: run.py FILE [unittest's arguments]. The file is imported by its name, as other
tests and their processes import it. If the tests hang, it says where, shortly before ctest ends them."""
import faulthandler
import importlib
import pathlib
import sys
import unittest

if __name__ == "__main__":  # a process that multiprocessing starts reads this file once more
    file = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(file.parent))  # before this folder, which has what all tests share
    sys.dont_write_bytecode = True
    faulthandler.dump_traceback_later(3500, exit=True)
    unittest.main(importlib.import_module(file.stem), argv=sys.argv[1:])
