#!/usr/bin/python3
# Checks that nothing in src/ includes what stands on a higher floor, or beside it. A planted bad
# include in a temporary copy proves each time that the check can fail.
#
# Usage: floors.py <project root>
import pathlib
import re
import sys
import tempfile

# A folder may include itself, every floor below, and include/harpe.
FLOORS = [
    ["base"],
    ["plan", "gpu", "pfo"],
    ["draw", "monitor"],
    ["powerlimit", "client", "server"],
    ["cli"],
]
FLOOR_OF = {folder: level for level, folders in enumerate(FLOORS) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def included_folder(source_root, file, included):
    """The folder of src/ that an #include "..." leads to: relative to the file, else to src/."""
    for start in (file.parent, source_root):
        path = (start / included).resolve()
        if path.is_file() and path.is_relative_to(source_root):
            return path.relative_to(source_root).parts[0]
    return pathlib.PurePath(included).parts[0]


def violations(root):
    source_root = (root / "src").resolve()
    found = []
    for file in sorted(source_root.rglob("*.[ch]")):
        name = file.relative_to(source_root)
        folder = name.parts[0]
        if folder not in FLOOR_OF or len(name.parts) < 2:
            found.append(f"src/{name}: no floor is known for it; see FLOORS in {__file__}")
            continue
        for match in INCLUDE.finditer(file.read_text(encoding="utf-8")):
            other = included_folder(source_root, file, match.group(1))
            if other == folder:
                continue
            if other not in FLOOR_OF:
                found.append(f"src/{name}: includes \"{match.group(1)}\", which is on no floor")
            elif FLOOR_OF[other] >= FLOOR_OF[folder]:
                found.append(f"src/{name}: {folder} may not include {other} (\"{match.group(1)}\")")
    return found


def check_that_it_can_fail():
    planted = {
        "src/base/up.c": '#include "plan/x.h"\n',
        "src/plan/beside.c": '#  include "gpu/x.h"\n',
        "src/plan/relative.c": '#include "../draw/x.h"\n',
        "src/draw/x.h": "",
        "src/draw/down.c": '#include "plan/x.h"\n#include "x.h"\n#include <harpe/plan.h>\n',
        "src/nowhere/x.c": "",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in planted.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = [line.split(":")[0] for line in violations(root)]
    expected = ["src/base/up.c", "src/nowhere/x.c", "src/plan/beside.c", "src/plan/relative.c"]
    if sorted(found) != expected:
        sys.exit(f"the check itself is broken: found {found} in the planted tree, not {expected}")


def main():
    root = pathlib.Path(sys.argv[1])
    check_that_it_can_fail()
    found = violations(root)
    print("\n".join(found) if found else "every include points downwards")
    sys.exit(1 if found else 0)


main()
