# SPDX-License-Identifier: Apache-2.0
"""For scripts whose tests mostly wait: runs each class of tests in a process of its own, all at
once."""
import subprocess
import sys
import unittest


def main():
    """Like unittest.main(). If the command line names tests, only they run, in this process."""
    if any(not word.startswith("-") for word in sys.argv[1:]):
        unittest.main()
    classes = [name for name, one in vars(sys.modules["__main__"]).items()
               if isinstance(one, type) and issubclass(one, unittest.TestCase) and
               unittest.defaultTestLoader.getTestCaseNames(one)]
    runs = [subprocess.Popen([sys.executable, *sys.argv, name], text=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for name in classes]
    for run in runs:
        print(run.communicate()[0], end="", flush=True)
    sys.exit(not runs or any(run.returncode for run in runs))
