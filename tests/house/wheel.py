#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the wheel that `make wheel` has made. It is installed in an empty virtual environment
of every Python from 3.9 that is found, and, as root, in empty Debian systems that have only Python.
wheel_user.py then uses it there. The environment has no variables of this project, and no directory
of ours in any search path.

Pythons: those named in HARPE_PYTHONS, separated by colons; otherwise /usr/bin/python3 and pyenv's.
Suites: HARPE_WHEEL_SUITES, separated by spaces; otherwise "bookworm". Each takes about 300 MB below
TMPDIR (/var/tmp) for the time of its test.

Usage: wheel.py <folder with the wheel> [unittest's arguments]
"""
import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
VERSION = subprocess.run(["sh", PROJECT / "packaging" / "version.sh"], check=True, text=True,
                         stdout=subprocess.PIPE).stdout.strip()
MOST_BYTES = 10_000_000
LIMIT_S = 3600
# The libraries that the wheel may load and does not bundle. Every system that can run a manylinux wheel
# has them (PEP 600).
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libresolv.so.2", "libz.so.1", "ld-linux-x86-64.so.2",
                 "ld-linux-aarch64.so.1"}
SCRATCH = pathlib.Path(os.environ.get("TMPDIR", "/var/tmp"))


def only(pattern):
    found = list(FOLDER.glob(pattern))
    assert len(found) == 1, f"{FOLDER}/{pattern}: {len(found)} files; run make wheel"
    return found[0]


def run(*command, **options):
    options.setdefault("timeout", LIMIT_S)
    result = subprocess.run([*map(str, command)], text=True, check=False, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert result.returncode == 0, f"{command}: {result.returncode}: {result.stdout}{result.stderr}"
    return result.stdout


def dynamic(path):
    """Returns what an ELF file needs, where it searches, and the newest glibc that it names."""
    text = run("readelf", "-dW", path)
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-VW", path))
    return (re.findall(r"\(NEEDED\).*\[(.*)\]", text), re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", text),
            max((tuple(map(int, version)) for version in versions), default=(0, 0)))


def pythons():
    named = os.environ.get("HARPE_PYTHONS")
    if named:
        return named.split(":")
    pyenv = sorted(pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
                   .glob("versions/3.*/bin/python3"))
    return [name for name in ["/usr/bin/python3", *map(str, pyenv)]
            if os.path.exists(name) and run(name, "-c", "import sys; print(sys.version_info >= (3, 9))"
                                            ).strip() == "True"]


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")
                  if "__pycache__" not in path.parts)


def make_certificate(folder):
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj",
        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")


def prepare_folder(folder):
    """Puts what wheel_user.py needs into a folder of the environment."""
    folder.mkdir()
    make_certificate(folder)
    for file in (HERE / "wheel_user.py", PROJECT / "examples" / "python" / "my_scheduler.py"):
        shutil.copy(file, folder)


def check_pictures(test, digests, drawn_before={}):
    """The same plan gives the same pictures everywhere."""
    for name, digest in digests.items():
        test.assertEqual(drawn_before.setdefault(name, digest), digest, name)


class Contents(unittest.TestCase):
    """What is in the wheel, without running it."""

    @classmethod
    def setUpClass(cls):
        cls.wheel = only("harpe-*.whl")
        temporary = tempfile.TemporaryDirectory(prefix="harpe-wheel-")
        cls.addClassCleanup(temporary.cleanup)
        cls.tree = pathlib.Path(temporary.name)
        with zipfile.ZipFile(cls.wheel) as archive:
            cls.entries = archive.infolist()
            archive.extractall(cls.tree)
        cls.info = cls.tree / f"harpe-{VERSION}.dist-info"

    def test_it_is_one_small_wheel_for_all_pythons(self):
        self.assertRegex(self.wheel.name,
                         rf"^harpe-{re.escape(VERSION)}-py3-none-manylinux_2_34_\w+\.whl$")
        self.assertLess(self.wheel.stat().st_size, MOST_BYTES)

    def test_record_lists_every_file_with_its_hash(self):
        rows = list(csv.reader(io.StringIO((self.info / "RECORD").read_text())))
        self.assertEqual(sorted(row[0] for row in rows), sorted(entry.filename for entry in self.entries))
        for name, digest, size in rows:
            if not digest:
                self.assertTrue(name.endswith("/RECORD"), name)
                continue
            data = (self.tree / name).read_bytes()
            want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            self.assertEqual((digest, int(size)), (f"sha256={want}", len(data)), name)

    def test_the_package_is_whole(self):
        sources = [path.relative_to(PROJECT / "python") for path in (PROJECT / "python/harpe").rglob("*")
                   if path.suffix == ".py" or path.name == "py.typed"]
        self.assertEqual([str(path) for path in sources if not (self.tree / path).is_file()], [])
        pages = {path.name[:-4] for path in (PROJECT / "docs" / "man").glob("*.scd")}
        man = self.tree / f"harpe-{VERSION}.data" / "data" / "share" / "man"
        self.assertEqual({path.name for path in man.rglob("*") if path.is_file()}, pages)
        programs = {entry.filename for entry in self.entries if entry.external_attr >> 16 & 0o111}
        self.assertIn("harpe/_bundled/libexec/harpe/harpe-agent", programs)

    def libraries(self):
        for entry in self.entries:
            path = self.tree / entry.filename
            if path.read_bytes()[:4] == b"\x7fELF":
                yield path

    def test_everything_that_it_loads_is_in_it(self):
        bundled = {path.name for path in (self.tree / "harpe.libs").iterdir()}
        floor = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)", self.wheel.name).groups()))
        count = 0
        for path in self.libraries():
            count += 1
            needed, places, glibc = dynamic(path)
            self.assertLessEqual(set(needed) - bundled, OF_THE_SYSTEM, path)
            self.assertLessEqual(glibc, floor, path)
            for place in ":".join(places).split(":") if places else []:
                inside = os.path.normpath(place.replace("$ORIGIN", str(path.parent)))
                self.assertEqual(inside, str(self.tree / "harpe.libs"), path)
        self.assertGreater(count, 10)

    def test_nothing_names_the_folder_of_the_build(self):
        """A library that reads its settings there would read those of a stranger."""
        for path in self.libraries():
            self.assertFalse(str(FOLDER).encode() in path.read_bytes(), path)

    def test_the_emulator_brings_nothing_into_other_processes(self):
        needed, places, _ = dynamic(self.tree / "harpe/_bundled/lib/harpe/libnvidia-ml.so.1")
        self.assertLessEqual(set(needed), OF_THE_SYSTEM - {"libz.so.1"})
        self.assertEqual(places, [])

    def test_the_licences_of_all_that_is_bundled_come_along(self):
        listed = (self.info / "licenses" / "BUNDLED").read_text()
        for path in (self.tree / "harpe.libs").iterdir():
            row = re.search(rf"^{re.escape(path.name)}: .*licence: (\S+)$", listed, re.MULTILINE)
            self.assertTrue(row, f"{path.name} is not in the list")
            self.assertGreater((self.info / "licenses" / row.group(1)).stat().st_size, 300)
        for path in (self.info / "licenses").rglob("copyright"):
            for common in re.findall(r"/usr/share/common-licenses/([\w.+-]*[\w+])", path.read_text()):
                if pathlib.Path("/usr/share/common-licenses", common).is_file():
                    self.assertTrue((self.info / "licenses/common-licenses" / common).is_file(), common)
        self.assertTrue((self.info / "licenses" / "LICENSE").is_file())
        text = (self.info / "METADATA").read_text(encoding="utf-8")
        self.assertIn(f"\nVersion: {VERSION}\n", text)
        for file in re.findall(r"^License-File: (.*)$", text, re.MULTILINE):
            self.assertTrue((self.info / "licenses" / file).is_file(), file)

    def test_an_index_would_take_it(self):
        """twine checks the metadata, and renders the description as PyPI does."""
        run(FOLDER / "tools" / "bin" / "twine", "check", "--strict", self.wheel, only("harpe-*.tar.gz"))

    def test_the_description_needs_no_repository(self):
        """Its links are absolute. wheel_user.py runs its commands."""
        text = (self.info / "METADATA").read_text(encoding="utf-8").split("\n\n", 1)[1]
        self.assertGreater(len(text), 1000)
        self.assertEqual([link for link in re.findall(r"\]\(([^)]*)\)", text)
                          if not link.startswith("https://")], [])
        self.assertNotIn("./", text)


class VirtualEnvironments(unittest.TestCase):
    """The wheel works with every Python, and `pip uninstall` leaves nothing."""

    def use(self, python):
        with tempfile.TemporaryDirectory(prefix="harpe-wheel-", dir=SCRATCH) as name:
            folder = pathlib.Path(name)
            venv = folder / "venv"
            run(python, "-m", "venv", venv)
            (folder / "home").mkdir()
            environment = {"HOME": str(folder / "home"), "PATH": f"{venv}/bin:/bin", "LANG": "C.UTF-8",
                           "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            before = files_of(venv)
            pip = [venv / "bin" / "python", "-m", "pip", "--quiet"]
            run(*pip, "install", "--no-index", only("harpe-*.whl"), env=environment)
            prepare_folder(folder / "use")
            out = run(venv / "bin" / "python", folder / "use" / "wheel_user.py", VERSION,
                      folder / "use", folder / "use" / "cert.pem", folder / "use" / "key.pem",
                      env=environment, cwd=folder / "use")
            seen = json.loads(out)
            self.assertEqual(seen["program"], str(venv / "bin" / "harpe"))
            self.assertTrue((venv / "share" / "man" / "man1" / "harpe-plan.1").is_file())
            run(*pip, "uninstall", "--yes", "harpe", env=environment)
            left = set(files_of(venv)) - set(before)
            self.assertLessEqual(left, {"share", "share/man"})  # pip leaves empty directories
            self.assertEqual([name for name in left if (venv / name).is_file()], [])
            self.assertEqual(list(venv.rglob("*harpe*")), [])
        return seen

    def test_every_python_uses_it(self):
        found = pythons()
        self.assertTrue(found)
        for python in found:
            with self.subTest(python=python):
                seen = self.use(python)
                check_pictures(self, seen["pictures"])
                print(f"wheel: works with Python {seen['python']}", flush=True)


def obstacle():
    if os.geteuid() != 0:
        return "it needs root"
    if not shutil.which("debootstrap"):
        return "no debootstrap: apt install debootstrap"
    try:
        run("unshare", "--mount", "--pid", "--fork", "true")
    except AssertionError:
        return "mounting is not permitted"
    return ""


@unittest.skipIf(obstacle(), obstacle())
class EmptySystems(unittest.TestCase):
    """A Debian made by debootstrap, with Python and its zlib, and nothing else that the wheel could
    use: no certificates, no libraries of ours, no pip. pip comes as a folder."""

    @staticmethod
    def mirror():
        """Returns the mirror of Debian that apt uses, as an argument of debootstrap. If apt names
        none, debootstrap chooses."""
        lines = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)",
                    "Identifier: Packages", "Origin: Debian").splitlines()
        return [line.split()[0] for line in lines if line.split()[1] == "bookworm"][:1]

    def enter(self, root, *command):
        inside = ('mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && '
                  'mount -t tmpfs tmpfs "$0/dev/shm" && '
                  'ip link set lo up 2>/dev/null; exec chroot "$0" /usr/bin/env -i HOME=/root '
                  'PATH=/usr/local/bin:/usr/bin:/bin "$@"')
        return run("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "sh", "-c", inside,
                   root, *command)

    def use(self, suite):
        with tempfile.TemporaryDirectory(prefix="harpe-wheel-", dir=SCRATCH) as name:
            root = pathlib.Path(name) / "root"
            run("debootstrap", "--variant=minbase", "--include=python3", suite, root, *self.mirror())
            (root / "dev" / "shm").mkdir(exist_ok=True)
            os.chmod(root.parent, 0o755)
            for library in ("libjansson", "libcurl", "libpq", "libcminpack"):
                self.assertEqual(list(root.glob(f"usr/lib/*/{library}.so*")), [], suite)
            prepare_folder(root / "use")
            shutil.copy(only("harpe-*.whl"), root / "use")
            # Beside Python is the program of another Harpe, which the library must not start.
            (root / "usr/bin/harpe").write_text("#!/bin/sh\nexit 7\n", encoding="utf-8")
            (root / "usr/bin/harpe").chmod(0o755)
            pip = next((FOLDER / "tools").glob("lib/python*/site-packages/pip"))
            shutil.copytree(pip, root / "use" / "pip")
            before = files_of(root / "usr")
            install = ["python3", "/use/pip", "--disable-pip-version-check", "--quiet",
                       "--no-cache-dir"]
            self.enter(root, "PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_ROOT_USER_ACTION=ignore", *install,
                       "install", "--no-index", f"/use/{only('harpe-*.whl').name}")
            seen = json.loads(self.enter(root, "LANG=C.UTF-8", "python3", "/use/wheel_user.py", VERSION,
                                         "/use", "/use/cert.pem", "/use/key.pem"))
            self.assertFalse(seen["authorities"])
            self.enter(root, "PIP_BREAK_SYSTEM_PACKAGES=1", *install, "uninstall", "--yes", "harpe")
            self.assertEqual([name for name in files_of(root / "usr") if name not in before and
                              (root / "usr" / name).is_file()], [])
        return seen

    def test_every_suite_uses_it(self):
        for suite in os.environ.get("HARPE_WHEEL_SUITES", "bookworm").split():
            with self.subTest(suite=suite):
                seen = self.use(suite)
                check_pictures(self, seen["pictures"])
                print(f"wheel: works in an empty {suite} with Python {seen['python']}", flush=True)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
