# SPDX-License-Identifier: Apache-2.0
"""Environment variables that name code do not let a user run code as root (sudo -E). Needs root, to
act as two users, and programs in a directory that another user can read."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from fixtures import folder

SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR", ".")).resolve()
BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", SOURCE / "build" / "release")).resolve()
USER = 65534

# A library that reports that it has been loaded.
LIBRARY = '#include <stdio.h>\n__attribute__((constructor)) static void tell(void) { fputs("LOADED\\n", stderr); }\n'


@unittest.skipIf(os.geteuid() != 0, "needs root, to be two users")
class Trust(unittest.TestCase):
    def setUp(self):
        self.path = folder(self.addCleanup)
        self.path.chmod(0o755)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("HARPE_")}

    def file(self, name, owner, mode=0o755):
        path = self.path / name
        os.chown(path, owner, owner)
        path.chmod(mode)
        return path

    def library(self, owner, mode=0o755):
        if not (self.path / "library.so").exists():
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", self.path / "library.so"], input=LIBRARY,
                           text=True, check=True)
        return self.file("library.so", owner, mode)

    def gpus(self, **environment):
        result = subprocess.run([BUILD / "harpe", "gpus"], env=dict(self.environment, **environment), text=True,
                                capture_output=True)
        return result.stderr

    def program(self, owner, mode=0o755):
        """Returns the effect of HARPE_PROGRAM: the output of a trainer that starts a guard."""
        script = self.path / "harpe-of-user"
        script.write_text(f"#!/bin/sh\ntouch {self.path}/RAN\n")
        path = self.file("harpe-of-user", owner, mode)
        (self.path / "RAN").unlink(missing_ok=True)
        subprocess.run([BUILD / "harpe", "emulate", "--gpus", "1xV100", "--", sys.executable, "-c", f'''
import ctypes
harpe = ctypes.CDLL("{BUILD}/libharpe.so")
gpus, device = ctypes.c_void_p(), ctypes.c_void_p()
assert harpe.harpe_gpus_open(None, ctypes.byref(gpus), None) == 0
if harpe.harpe_power_limit_gpus_new(gpus, True, ctypes.byref(device), None) == 0:
    harpe.harpe_power_limit_gpus_free(device)
'''], env=dict(self.environment, HARPE_PROGRAM=str(path)), check=True)
        return (self.path / "RAN").exists()

    def test_a_library_of_another_user_is_not_loaded(self):
        for variable in ("HARPE_NVML_LIBRARY", "HARPE_AMDSMI_LIBRARY"):
            told = self.gpus(**{variable: str(self.library(USER))})
            self.assertNotIn("LOADED", told)
            self.assertIn(f"{variable} is ignored", told)
            self.assertNotIn("LOADED", self.gpus(**{variable: str(self.library(0, 0o777))}))
            self.assertIn("LOADED", self.gpus(**{variable: str(self.library(0))}))

    def test_a_link_does_not_hide_the_owner(self):
        link = self.path / "link.so"
        link.symlink_to(self.library(USER))
        self.assertNotIn("LOADED", self.gpus(HARPE_NVML_LIBRARY=str(link)))

    def test_a_program_of_another_user_is_not_run(self):
        self.assertFalse(self.program(USER))
        self.assertFalse(self.program(0, 0o777))
        self.assertTrue(self.program(0))

    def test_python_does_not_load_a_library_of_another_user(self):
        for owner, is_loaded in ((USER, False), (0, True)):
            result = subprocess.run([sys.executable, "-c", "import harpe; print(harpe.version())"], text=True,
                                    capture_output=True, env=dict(self.environment, PYTHONPATH=str(SOURCE / "python"),
                                                                  HARPE_LIBRARY=str(self.library(owner))))
            self.assertEqual("LOADED" in result.stderr, is_loaded, result)

    def test_a_user_may_name_files_of_his_own(self):
        program = self.path / "harpe"
        shutil.copy(BUILD / "harpe", program)
        self.file("harpe", 0)
        result = subprocess.run([program, "gpus"], env=dict(self.environment, HARPE_NVML_LIBRARY=str(self.library(USER))),
                                text=True, capture_output=True, user=USER, group=USER)
        self.assertIn("LOADED", result.stderr)

    def test_who_runs_a_program_of_another_user_trusts_him_already(self):
        program = self.path / "harpe"
        shutil.copy(BUILD / "harpe", program)
        self.file("harpe", USER)
        result = subprocess.run([program, "gpus"], env=dict(self.environment, HARPE_NVML_LIBRARY=str(self.library(USER))),
                                text=True, capture_output=True)
        self.assertIn("LOADED", result.stderr)

    def test_a_program_with_more_rights_than_its_caller_ignores_all(self):
        program = self.path / "harpe"
        shutil.copy(BUILD / "harpe", program)
        self.file("harpe", 0, 0o4755)
        result = subprocess.run([program, "gpus"], env=dict(self.environment, HARPE_NVML_LIBRARY=str(self.library(0))),
                                text=True, capture_output=True, user=USER, group=USER)
        self.assertNotIn("LOADED", result.stderr)
