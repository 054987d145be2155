#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares docs/dependencies.md with scripts/packages.txt, with the libraries that CMake asks
pkg-config for, with the packages that the build of the wheel asks for, and with the libraries that
the program loads when it runs.

Usage: dependencies.py <project root>
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "packaging" / "wheel"))
sys.dont_write_bytecode = True
import backend  # noqa: E402


def rows(page):
    """Returns the cells of each row of the tables."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] not in ("library", "package"):
            yield cells


def packages():
    """Returns the first name of each package, by section."""
    sections = {}
    for line in (ROOT / "scripts" / "packages.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), set())
        elif line and not line.startswith("#"):
            section.add(re.split(r"[| ]", line)[0])
    return sections


def libraries_of_cmake():
    """Returns the libraries that CMake asks for, and those without which it makes no program."""
    found, required = set(), set()
    for file in [ROOT / "CMakeLists.txt", *ROOT.glob("*/*.cmake"), *ROOT.glob("*/CMakeLists.txt")]:
        for rest in re.findall(r"pkg_check_modules\(\w+ ([^)]*)\)", file.read_text(encoding="utf-8")):
            name = next(word for word in rest.split() if word.islower()).partition(">=")[0]
            found.add(name)
            if "REQUIRED" in rest:
                required.add(name)
    return found, required


def loaded_libraries():
    """Returns the libraries that the source loads by name, without their versions."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.[ch]"))
    return set(re.findall(r'"(lib[\w+-]+\.so)[\d.]*"', text))


def main():
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    table, sections = list(rows(page)), packages()
    wanted = set().union(*sections.values())
    # The first cell is a package, or a library in backquotes whose package follows, if it has one.
    libraries = {cells[0].strip("`"): cells[1] for cells in table if cells[0].startswith("`")}
    named = [cells[1 if cells[0].startswith("`") else 0] for cells in table
             if not cells[0].startswith("`") or len(cells) == 3]
    loaded = {name.partition(".so")[0] + ".so" for name in libraries if ".so" in name}
    asked, required = libraries_of_cmake()
    wrong = [f"{name}: scripts/packages.txt has it, the tables do not" for name in wanted - set(named)]
    wrong += [f"{name}: the tables have it, scripts/packages.txt does not" for name in set(named) - wanted]
    wrong += [f"{name}: in two rows" for name in wanted if named.count(name) > 1]
    wrong += [f"{cells[0]}: no reason" for cells in table if len(cells[-1]) < 8]
    wrong += [f"{name}: CMake asks for it, the page does not name it" for name in asked
              if f"`{name}`" not in page]
    wrong += [f"{name}: CMake, the page and packaging/wheel/backend.py do not agree"
              for name in required | set(backend.MODULES)
              if backend.MODULES.get(name, "") != libraries.get(name)]
    wrong += [f"{name}: the wheel's build needs it, [build] does not have it"
              for name in {*backend.MODULES.values(), *backend.PROGRAMS.values()} - {"gzip"} - sections["build"]]
    wrong += [f"{name}: the source or the page does not have it" for name in loaded ^ loaded_libraries()]
    print("\n".join(sorted(wrong)) or f"{len(table)} dependencies")
    return 1 if wrong else 0


sys.exit(main())
