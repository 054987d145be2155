#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests with ctest and says at the end why tests were skipped. ctest's own summary comes last.

Usage: run_tests.py [--part PART] PRESET [CTEST_OPTION...]

In continuous integration (the variable CI is set) and in a part of ./check --all, a skipped test is a
failure, unless the table SKIPS says where else it is proven, or that it needs data or hardware.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The reason of a skipped test -> what may be absent, or the part of ./check --all that proves it. No
# registry of packages has helm.
ABSENT = ("data", "hardware", "no package")
SKIPS = (
    (r"^data:|no data in|measured (?:log|profile)|no measured", "data"),
    (r"^hardware:|no network interface|multipath TCP|NVIDIA driver|has a driver|there is a GPU|own counters|/dev/full", "hardware"),
    (r"^root:|needs? (?:to be )?root|only root|needs a second user|another user than root|"
     r"overlay file systems|no FUSE|no right to mount|can be mounted here|set-uid", "user"),
    (r"PostgreSQL", "postgresql"),
    (r"transformers", "frameworks"),
    (r"[Tt]orch|NumPy|networkx|mpi4py|no MPI|venv|setuptools|wheel|pycparser", "pytorch"),
    (r"promtool", "metrics"),
    (r"no git|clang-format 14", "check"),
    (r"helm not found", "no package"),
    (r"published|zeusd|gpustat|nvitop|GPUtil|codecarbon|nvtop|cargo|kubernetes-validate|highspy", "peers"),
    (r"[Ss]lurm|munge|systemd|PyYAML", "slurm"),
    (r"chromium|firefox|node|npm", "browsers"),
    (r"a sanitizer keeps|sanitizer", "processes"),
)


def skip_reasons(log):
    """Yields (test, reason) for what the tests of a log of ctest have skipped."""
    for block in re.split(r"^\d+/\d+ Testing: ", log, flags=re.MULTILINE)[1:]:
        test = block.partition("\n")[0].strip()
        output = block.partition("\nOutput:\n")[2]
        reasons = re.findall(r"(?:^|\.\.\. )skipped: (.*)$", output, re.MULTILINE)
        reasons += [reason for _, reason in
                    re.findall(r"\.\.\. skipped (['\"])(.*)\1$", output, re.MULTILINE)]
        if not reasons and re.search(r"^\[  SKIPPED \]|^OK \(skipped=|^Test Skipped", output, re.MULTILINE):
            reasons = ["it gives no reason"]
        yield from ((test, reason) for reason in dict.fromkeys(reasons))


def proven_by(reason):
    """Returns what the table says of the reason, or None."""
    return next((where for pattern, where in SKIPS if re.search(pattern, reason)), None)


def is_excused(where, part):
    """Whether a skip may pass here: it is excused by absent data or hardware, or proven by another part."""
    return where in ABSENT or where is not None and where != part


def print_skips(log, is_strict, part):
    """Prints the skipped tests, by reason. Returns whether one of them is a failure."""
    tests = collections.defaultdict(list)
    for test, reason in skip_reasons(log):
        tests[reason].append(test)
    failed = False
    for reason, names in sorted(tests.items()):
        where = proven_by(reason)
        is_failure = is_strict and not is_excused(where, part)
        note = f"; ./check --all {where} proves it"
        if where is None or where in ABSENT:
            note = ""
        elif where == "user":
            note = "; the run as root and as a user proves it"
        print(f"{'NOT PROVEN' if is_failure else 'skipped'}: {reason} ({', '.join(names)}{note})")
        failed = failed or is_failure
    return failed


def run_ctest(preset, options):
    """Runs ctest and prints what it prints, but for its summary. Returns its status and the summary."""
    summary = []
    with subprocess.Popen(["ctest", "--preset", preset, *options], cwd=ROOT, stdout=subprocess.PIPE,
                          text=True, errors="replace", bufsize=1) as ctest:
        for line in ctest.stdout:
            if summary or re.match(r"\d+% tests passed", line):
                summary.append(line)
            else:
                sys.stdout.write(line)
                sys.stdout.flush()
    return ctest.returncode, "".join(summary)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("--part")
    parser.add_argument("preset")
    own, options = parser.parse_known_args()
    status, summary = run_ctest(own.preset, options)
    log = ROOT / "build" / own.preset / "Testing" / "Temporary" / "LastTest.log"
    is_strict = bool(own.part or os.environ.get("CI"))
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        sys.exit(f"run-tests: {error}")
    if print_skips(text, is_strict, own.part):
        print("run-tests: FAILED: a proof is missing (NOT PROVEN); install what it needs, or say in "
              "scripts/run_tests.py which part proves it")
        status = status or 1
    sys.stdout.write(summary)
    return status


if __name__ == "__main__":
    sys.exit(main())
