#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every place that names the project's version names that of CMakeLists.txt. The other
places are generated from it: harpe.pc, the CMake package, SOVERSION's file, the packages' file
names.

Usage: versions.py <project root>
"""
import pathlib
import re
import sys

VERSION = r"(\d+\.\d+\.\d+)"
# File -> what stands in front of the version.
PLACES = {
    "include/harpe/version.h": rf'HARPE_VERSION_STRING "{VERSION}"',
    "packaging/debian/changelog": rf"\Aharpe \({VERSION}-\d+\)",
    "CITATION.cff": rf"^version: {VERSION}$",
    "python/pyproject.toml": rf'^version = "{VERSION}"$',
    "CHANGELOG.md": rf"^## \[?{VERSION}",
}


def find(root, name, pattern):
    match = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
    return match.group(1) if match else "none"


def main():
    root = pathlib.Path(sys.argv[1])
    version = find(root, "CMakeLists.txt", rf"^project\(Harpe VERSION {VERSION}")
    wrong = [f"{name}: {found}, but CMakeLists.txt says {version}"
             for name, pattern in PLACES.items()
             if (found := find(root, name, pattern)) != version]
    numbers = re.findall(r"^#define HARPE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$",
                         (root / "include/harpe/version.h").read_text(), re.MULTILINE)
    if ".".join(numbers) != version:
        wrong.append(f"include/harpe/version.h: MAJOR, MINOR and PATCH are not those of {version}")
    shown = find(root, "docs/c-library.md", r"find_package\(Harpe (\d+\.\d+) ")
    if shown != version.rpartition(".")[0]:
        wrong.append(f"docs/c-library.md: find_package of {shown}, but CMakeLists.txt says {version}")
    print("\n".join(wrong) or f"{version} everywhere")
    return 1 if wrong else 0


sys.exit(main())
