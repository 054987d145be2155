#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Zeus's own tests of the parts that Harpe mirrors, with Harpe in the place of these parts.

    zeus_own_tests.py [--with-zeus] [FOLDER]

FOLDER is an unpacked source distribution or clone of Zeus 0.16.0; without it, pip downloads the
source distribution. Only the names of modules are changed, in a copy: zeus.monitor becomes
harpe.monitor in every import and in every mocker.patch. The helpers of the tests (zeus.device,
zeus.utils) stay those of Zeus. The source distribution lacks the recorded logs of the power limit
optimizer's tests; those of $HARPE_DATA or ../shared/data are used then. Each file runs with Harpe,
and with the option also with Zeus, on emulated GPUs. Prints how many tests passed and failed, and
the reasons.

Needs a Python with zeus 0.16.0, pytest, pytest-mock and pandas, and $HARPE, the program."""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import world  # noqa: E402

HARPE = os.environ.get("HARPE", str(world.BUILD / "harpe"))
FILES = ("tests/monitor/test_energy.py", "tests/optimizer/test_power_limit_optimizer.py")
MIRRORED = r"\bzeus(\.(?:monitor|callback|optimizer\.(?:power_limit|pipeline_frequency))\b)"


def unpacked(folder):
    """Downloads the source distribution into the folder. Returns where it is."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", "zeus",
                    "--no-deps", "--dest", folder, "zeus==0.16.0"], check=True)
    archive, = pathlib.Path(folder).glob("zeus-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return pathlib.Path(folder) / "zeus-0.16.0"


def copy_with_logs(source, to):
    """Copies the tests. Returns the files that test a mirrored part."""
    shutil.copytree(source / "tests", to / "tests")
    logs = to / "tests" / "profile_data"
    if not logs.is_dir():
        logs.mkdir()
        for log in (world.DATA / "power_limit").glob("*+gpu*.csv"):
            shutil.copy(log, logs)
    mirrored = [name for name in FILES if (to / name).is_file()]
    if mirrored != list(FILES):
        sys.exit(f"zeus_own_tests: {source} lacks some of {', '.join(FILES)}")
    return mirrored


def reason_of(case):
    """Returns the first line of a failed test's message, without what differs between tests."""
    failure = case.find("failure") if case.find("failure") is not None else case.find("error")
    if failure is None:
        return None
    line = (failure.get("message") or failure.text or "").strip().splitlines()[0]
    return re.sub(r"\d+|'[^']*handle[^']*'|\[.*\]", "N", line)[:110]


def run(folder, name):
    """Returns {reason: number of tests}; None is the reason of those that passed."""
    report = folder / "report.xml"
    done = subprocess.run(
        [HARPE, "emulate", "-g", "4xV100", "--", sys.executable, "-W", "ignore", "-m", "pytest",
         "-q", "-p", "no:cacheprovider", "--junitxml", str(report), "--tb", "line", name],
        cwd=folder, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=dict(os.environ, PYTHONPATH=str(world.SOURCE / "python")))
    if not report.is_file():
        sys.exit(f"zeus_own_tests: pytest failed:\n{done.stdout[-2000:]}")
    cases = xml.etree.ElementTree.parse(report).iter("testcase")
    found = collections.Counter(
        (case.get("name").split("[")[0], reason_of(case)) for case in cases)
    report.unlink()
    return found


def main():
    parser = argparse.ArgumentParser(description="Runs Zeus's own tests with Harpe.")
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--with-zeus", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="harpe-zeus-tests-") as name:
        folder = pathlib.Path(name)
        source = chosen.folder or unpacked(name)
        copy = folder / "copy"
        copy.mkdir()
        for test in copy_with_logs(source, copy):
            path = copy / test
            text = path.read_text(encoding="utf-8")
            for package in ("harpe", "zeus") if chosen.with_zeus else ("harpe",):
                path.write_text(re.sub(MIRRORED, rf"{package}\1", text), encoding="utf-8")
                found = run(copy, test)
                passed = sum(number for (_, reason), number in found.items() if reason is None)
                print(f"{test}, {package}: {passed} passed, {sum(found.values()) - passed} failed",
                      flush=True)
                for (what, reason), number in sorted(found.items(), key=str):
                    print(f"    {number:5} {what}: {reason or 'passed'}", flush=True)


if __name__ == "__main__":
    main()
