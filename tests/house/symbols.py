#!/usr/bin/python3
# Checks that libharpe exports exactly the functions that include/harpe/*.h marks HARPE_API: none is
# declared but missing, none is exported by accident.
#
# Usage: symbols.py <project root> <libharpe.so> <nm>
import pathlib
import re
import subprocess
import sys

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
DECLARATION = re.compile(r"\bHARPE_API\b(?!\s*__attribute__)[^;(]*?\b(\w+)\s*\(")


def declared(root):
    names = set()
    for header in sorted((root / "include" / "harpe").glob("*.h")):
        names.update(DECLARATION.findall(COMMENT.sub("", header.read_text(encoding="utf-8"))))
    return names


def exported(library, nm):
    output = subprocess.run([nm, "-D", "--defined-only", library], check=True, text=True,
                            capture_output=True).stdout
    rows = [line.split() for line in output.splitlines()]
    # "A" is the version node itself.
    return {row[-1].split("@")[0] for row in rows if row[-2] != "A"}


def main():
    root, library, nm = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    in_headers, in_library = declared(root), exported(library, nm)
    for name in sorted(in_headers - in_library):
        print(f"{name}: declared in include/harpe, but not in the library")
    for name in sorted(in_library - in_headers):
        print(f"{name}: exported by the library, but not declared in include/harpe")
    if not in_headers:
        sys.exit("found no HARPE_API function at all; is this the project's root?")
    if in_headers == in_library:
        print(f"{len(in_headers)} functions, the same in headers and library")
    sys.exit(0 if in_headers == in_library else 1)


main()
