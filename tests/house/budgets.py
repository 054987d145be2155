#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the project stays within the sizes that ARCHITECTURE.md allows: lines and files of each room, and words of
the documents. A room is a folder without those of its subfolders that have a row of their own. A change that needs more
says in its commit what goes instead, and raises the number there.

Usage: budgets.py <project root> [--update]      --update: writes the present sizes into the table, rounded up
"""
import pathlib
import re
import sys

ROW = re.compile(r"^\| `([\w/*.]+)` \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)
SUFFIXES = {".c", ".h", ".py", ".cc"}
DOCUMENTS = "docs/*.md"


def room_of(inside, rooms):
    """Returns the room with the longest name that contains the file; None: there is none."""
    return max((room for room in rooms if inside.startswith(room + "/")), key=len, default=None)


def sizes(root, rooms):
    """Returns the lines (of the documents: words) and files of each room. None: files of src/ that are in no room."""
    found = {room: [0, 0] for room in (*rooms, None)}
    for top in sorted({room.split("/")[0] for room in rooms if room != DOCUMENTS} | {"src"}):
        for path in (root / top).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file():
                size = found[room_of(path.relative_to(root).as_posix(), rooms)]
                size[0] += path.read_bytes().count(b"\n")
                size[1] += 1
    for path in root.glob(DOCUMENTS):
        found[DOCUMENTS][0] += len(path.read_text(encoding="utf-8").split())
        found[DOCUMENTS][1] += 1
    return found


def findings(found, budgets):
    if found[None][1] > 0:
        yield f"{found[None][1]} files of src/ are in no room of the table in ARCHITECTURE.md"
    for room, most in budgets.items():
        for what, allowed, is_now in zip(("words" if room == DOCUMENTS else "lines", "files"), most, found[room]):
            if is_now > allowed:
                yield (f"{room} has {is_now:,} {what}, and ARCHITECTURE.md allows {allowed:,}: remove what the change makes"
                       " superfluous, or raise the number and say in the commit what it buys")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    page = root / "ARCHITECTURE.md"
    text = page.read_text(encoding="utf-8")
    budgets = {room: (int(size.replace(",", "")), int(files.replace(",", "")))
               for room, size, files in ROW.findall(text)}
    found = sizes(root, list(budgets))
    if sys.argv[2:] == ["--update"]:
        page.write_text(ROW.sub(lambda row: "| `{}` | {:,} | {:,} |".format(
            row[1], -(-found[row[1]][0] // 50) * 50, found[row[1]][1]), text), encoding="utf-8")
        return
    wrong = list(findings(found, budgets))
    none = {room: (0, 0) for room in budgets}
    if len(list(findings(found, none))) != 2 * len(budgets) or DOCUMENTS not in budgets:
        wrong.append("a row of the table in ARCHITECTURE.md names no files, or the documents have no row")
    print("\n".join(wrong) or "every room is within its budget")
    sys.exit(1 if wrong else 0)


main()
