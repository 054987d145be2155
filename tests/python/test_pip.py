# SPDX-License-Identifier: Apache-2.0
"""`pip install ./python` into a virtual environment, without a network. It needs Debian packages
(python3-venv, python3-setuptools, python3-wheel), and is skipped without them."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import world

MISSING = [name for name in ("ensurepip", "setuptools", "wheel") if not importlib.util.find_spec(name)]


def run(*command, **options):
    result = subprocess.run([*map(str, command)], text=True, timeout=600, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    assert result.returncode == 0, f"{command}: {result.stdout}"
    return result.stdout


@unittest.skipIf(MISSING, f"Python's {', '.join(MISSING)} missing: apt install python3-venv "
                          "python3-setuptools python3-wheel")
class Pip(unittest.TestCase):
    def test_what_pip_installed_is_whole_and_uses_the_library_named(self):
        with tempfile.TemporaryDirectory(prefix="harpe-pip-") as folder:
            here = pathlib.Path(folder)
            environment = {name: value for name, value in os.environ.items()
                           if not name.startswith(("PYTHON", "PIP_", "HARPE_"))}
            # A copy, because Harpe ignores a library of another user, and root may test a user's
            # build.
            library = shutil.copy(world.BUILD / "libharpe.so.0", here)
            environment.update(HOME=folder, HARPE_LIBRARY=str(library),
                               PIP_DISABLE_PIP_VERSION_CHECK="1")
            # setuptools builds in the source folder.
            shutil.copytree(world.SOURCE / "python", here / "python",
                            ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
            run(sys.executable, "-m", "venv", "--system-site-packages", here / "venv")
            python = here / "venv" / "bin" / "python"
            run(python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-index",
                here / "python", env=environment, cwd=folder)
            version, path = run(
                python, "-c", "import harpe, harpe.optimizer.pipeline_frequency.server.scheduler\n"
                              "import harpe.integrations.megatron\n"
                              "print(harpe.version(), harpe.__file__)",
                env=environment, cwd="/").split()
            self.assertTrue(path.startswith(str(here / "venv")), path)
            self.assertIn(f"harpe {version}", run(python, "-m", "pip", "list", "--format=freeze",
                                                  env=environment, cwd="/").replace("==", " "))
            # No files of the build are left in the source.
            sources = {str(file.relative_to(world.SOURCE / "python"))
                       for pattern in ("*.py", "py.typed")
                       for file in (world.SOURCE / "python" / "harpe").rglob(pattern)}
            installed = pathlib.Path(path).parents[1]
            self.assertEqual([file for file in sorted(sources) if not (installed / file).is_file()],
                             [])
