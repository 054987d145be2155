# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and the source distribution for pip; pyproject.toml names this file (PEP 517).
It needs nothing but Python, CMake and the Debian packages of scripts/packages.txt. The wheel holds
the Python package, and below harpe/_bundled the library, the programs and the emulator. They load
the libraries of this machine; `make wheel` lets auditwheel add them (packaging/make_wheel.sh).
"""
import base64
import csv
import functools
import gzip
import hashlib
import io
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLED = "harpe/_bundled"
# Folders and files that only tests, benchmarks and continuous integration need.
NOT_IN_SDIST = ("bench/", "demo", "fuzz/", "tests/", "check", ".")
PROGRAMS = {"cc": "gcc", "cmake": "cmake", "ninja": "ninja-build", "pkg-config": "pkg-config",
            "gzip": "gzip", "scdoc": "scdoc"}
MODULES = {"jansson": "libjansson-dev", "cminpack": "libcminpack-dev",
           "libcurl": "libcurl4-openssl-dev", "openssl": "libssl-dev",
           "sqlite3": "libsqlite3-dev", "libpq": "libpq-dev", "zlib": "zlib1g-dev"}
SUMMARY = "Saves energy in large-model training: measures, plans and controls GPUs"
KEYWORDS = "energy,power,GPU,NVML,large-model training,pipeline parallelism"


@functools.lru_cache(maxsize=None)
def version():
    return subprocess.run(["sh", str(ROOT / "packaging" / "version.sh")], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def metadata():
    return "\n".join([
        "Metadata-Version: 2.4", "Name: harpe", f"Version: {version()}", f"Summary: {SUMMARY}",
        "Author: The authors of Harpe", "Maintainer: The authors of Harpe", f"Keywords: {KEYWORDS}",
        "License-Expression: Apache-2.0", "License-File: LICENSE", "Requires-Python: >=3.9",
        "Classifier: Development Status :: 3 - Alpha",
        "Classifier: Environment :: GPU",
        "Classifier: Intended Audience :: Developers",
        "Classifier: Intended Audience :: Science/Research",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: C",
        "Classifier: Programming Language :: Python :: 3 :: Only",
        "Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Classifier: Typing :: Typed",
        "Description-Content-Type: text/markdown", "",
        (ROOT / "packaging" / "wheel" / "description.md").read_text(encoding="utf-8")])


# ---- A wheel from a folder -----------------------------------------------------------------------


def moment():
    """Returns the time that the files in the archives get: SOURCE_DATE_EPOCH, or 1980."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)


def write_wheel(tree, wheel):
    """Writes the files of the folder `tree` as a wheel, with a new RECORD. The same files give the
    same bytes."""
    tree = pathlib.Path(tree)
    info = next(tree.glob("*.dist-info"))
    record = info / "RECORD"
    record.unlink(missing_ok=True)
    # The files of .dist-info come last, as the specification recommends.
    files = sorted((path for path in tree.rglob("*") if path.is_file()),
                   key=lambda path: (info in path.parents, path.relative_to(tree).as_posix()))
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    date = time.gmtime(moment())[:6]
    with zipfile.ZipFile(wheel, "w") as archive:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)

        for path in files:
            name, data = path.relative_to(tree).as_posix(), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            table.writerow([name, f"sha256={digest}", len(data)])
            add(name, data, 0o755 if os.access(path, os.X_OK) else 0o644)
        name = record.relative_to(tree).as_posix()
        table.writerow([name, "", ""])
        add(name, rows.getvalue().encode(), 0o644)


def read_wheel(wheel, tree):
    """Unpacks a wheel into a folder, and keeps which files are programs."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = pathlib.Path(archive.extract(entry, tree))
            if entry.external_attr >> 16 & 0o111:
                path.chmod(0o755)


# ---- Building ------------------------------------------------------------------------------------


def require():
    """Ends the build with one line if something is missing on this machine."""
    missing = [package for name, package in PROGRAMS.items() if not shutil.which(name)]
    if not shutil.which("pkg-config"):
        missing += MODULES.values()
    else:
        missing += [package for name, package in MODULES.items()
                    if subprocess.run(["pkg-config", "--exists", name], check=False).returncode]
    if missing:
        sys.exit(f"harpe: {', '.join(missing)} missing: apt install {' '.join(missing)}")


def run(*command):
    print("+", shlex.join(map(str, command)), file=sys.stderr, flush=True)
    if subprocess.run([*map(str, command)], check=False, stdout=sys.stderr).returncode:
        sys.exit(f"harpe: {command[0]} failed, see the lines above")


def compile_into(stage):
    with tempfile.TemporaryDirectory(prefix="harpe-build-") as made:
        run("cmake", "-S", ROOT, "-B", made, "-G", "Ninja", "--log-level=WARNING",
            "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_INSTALL_LIBDIR=lib", "-DCMAKE_INSTALL_LIBEXECDIR=libexec",
            "-DHARPE_PYTHON_DIR=python", "-DHARPE_TESTS=OFF", "-DHARPE_BENCH=OFF",
            "-DHARPE_EXAMPLES=OFF", "-DHARPE_MPI=OFF", f"-DHARPE_BUILD_VERSION={version()}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")))
        run("cmake", "--build", made, "-j", os.environ.get("JOBS", str(os.cpu_count())))
        run("cmake", "--install", made, "--prefix", stage, "--strip")


def place(source, tree, name):
    target = tree / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source.resolve(), target)


def write_metadata(info, tag):
    info.mkdir(parents=True)
    (info / "licenses").mkdir()
    shutil.copy(ROOT / "LICENSE", info / "licenses" / "LICENSE")
    (info / "METADATA").write_text(metadata(), encoding="utf-8")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: harpe {version()}\n"
                                f"Root-Is-Purelib: false\nTag: {tag}\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[console_scripts]\nharpe = harpe._program:main\n",
                                           encoding="utf-8")
    (info / "top_level.txt").write_text("harpe\n", encoding="utf-8")


def make_tree(stage, tree):
    """Sorts the installed files into the folders of a wheel."""
    shutil.copytree(stage / "python" / "harpe", tree / "harpe")
    place(stage / "bin" / "harpe", tree, f"{BUNDLED}/bin/harpe")
    agent = "libexec/harpe/harpe-agent"
    place(stage / agent, tree, f"{BUNDLED}/{agent}")
    # A wheel has no links, so the library has the name that programs ask for.
    place(stage / "lib" / "libharpe.so.0", tree, f"{BUNDLED}/lib/libharpe.so.0")
    emulator = stage / "lib" / "harpe"
    place(emulator / "libnvidia-ml.so.1", tree, f"{BUNDLED}/lib/harpe/libnvidia-ml.so.1")
    place(emulator / "bin" / "nvidia-smi", tree, f"{BUNDLED}/lib/harpe/bin/nvidia-smi")
    shutil.copytree(stage / "share" / "man", tree / f"harpe-{version()}.data/data/share/man")
    for shell in ("bash-completion", "zsh", "fish"):
        shutil.copytree(stage / "share" / shell, tree / BUNDLED / "share" / shell)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    require()
    tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    wheel = f"harpe-{version()}-{tag}.whl"
    with tempfile.TemporaryDirectory(prefix="harpe-wheel-") as folder:
        stage, tree = pathlib.Path(folder, "stage"), pathlib.Path(folder, "tree")
        compile_into(stage)
        make_tree(stage, tree)
        write_metadata(tree / f"harpe-{version()}.dist-info", tag)
        write_wheel(tree, pathlib.Path(wheel_directory, wheel))
    return wheel


# ---- The source distribution ---------------------------------------------------------------------


def sources():
    """Returns the names of the files that a build needs, and those of the documents."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
                                 "--exclude-standard"], check=True, stdout=subprocess.PIPE).stdout
        names = listed.decode().rstrip("\0").split("\0")
    else:
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
        names = [name for name in names if name != "PKG-INFO" and "__pycache__" not in name
                 and not name.startswith(("build/", "python/build/")) and ".egg-info" not in name]
    return sorted(name for name in names
                  if not name.startswith(NOT_IN_SDIST) and (ROOT / name).is_file())


def build_sdist(sdist_directory, config_settings=None):
    base = f"harpe-{version()}"
    target = pathlib.Path(sdist_directory, f"{base}.tar.gz")
    files = {name: (ROOT / name).read_bytes() for name in sources()}
    files["PKG-INFO"] = metadata().encode()
    with open(target, "wb") as file, \
            gzip.GzipFile("", "wb", 9, file, mtime=moment()) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{base}/{name}")
            is_program = (ROOT / name).is_file() and os.access(ROOT / name, os.X_OK)
            entry.mode = 0o755 if is_program else 0o644
            entry.size, entry.mtime = len(data), moment()
            archive.addfile(entry, io.BytesIO(data))
    return target.name
