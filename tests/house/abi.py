#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares libharpe's binary interface with the one on record, tests/house/libharpe.symbols: every
exported function with its types, every public struct with the offsets of its members, and every
constant. They are read from python/harpe/_bindings.py. Another test checks that this file
agrees with the headers, and symbols.py checks that headers and library agree.

Usage: abi.py <project root> [--update]
"""
import ctypes as C
import difflib
import importlib.util
import pathlib
import sys

HEADER = """# The binary interface of libharpe, by tests/house/abi.py: do not edit.
# A line that goes or changes breaks programs that are built already: until 1.0 that is allowed with
# a line in CHANGELOG.md; later it takes a new SOVERSION. A new line is harmless, but for members
# of a struct that callers lay out themselves.
"""


def type_name(kind):
    if kind is None:
        return "void"
    if issubclass(kind, C.Array):
        return f"{type_name(kind._type_)}[{kind._length_}]"
    if issubclass(kind, C._Pointer):
        return f"{type_name(kind._type_)}*"
    if issubclass(kind, C._CFuncPtr):
        return f"{type_name(kind._restype_)}(*)({', '.join(map(type_name, kind._argtypes_))})"
    if issubclass(kind, C._SimpleCData):
        return {"P": "void*", "z": "char*"}.get(kind._type_, kind.__name__.removeprefix("c_"))
    return kind.__name__


def interface(bindings):
    lines = []
    for name, (result, arguments) in bindings.FUNCTIONS.items():
        lines.append(f"{type_name(result)} {name}({', '.join(map(type_name, arguments))})")
    for name, value in vars(bindings).items():
        if isinstance(value, int) and name.startswith("HARPE_"):
            lines.append(f"{name} = {value}")
        elif isinstance(value, type) and issubclass(value, (C.Structure, C.Union)):
            lines.append(f"struct {name}: {C.sizeof(value)} bytes")
            for member, kind, *_ in value._fields_:
                place = getattr(value, member)
                lines.append(f"struct {name}.{member}: {type_name(kind)} at {place.offset}")
    return sorted(lines)


def load(root):
    path = root / "python" / "harpe" / "_bindings.py"
    spec = importlib.util.spec_from_file_location("bindings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    sys.dont_write_bytecode = True
    root = pathlib.Path(sys.argv[1])
    record = root / "tests" / "house" / "libharpe.symbols"
    now = interface(load(root))
    if "--update" in sys.argv[2:]:
        record.write_text(HEADER + "".join(f"{line}\n" for line in now), encoding="utf-8")
        return 0
    if C.sizeof(C.c_void_p) != 8:
        print("the record is that of machines of 64 bits: not compared")
        return 0
    before = [line for line in record.read_text(encoding="utf-8").splitlines()
              if not line.startswith("#")]
    if before == now:
        print(f"{len(now)} lines of interface, as on record")
        return 0
    for line in difflib.unified_diff(before, now, "on record", "now", n=0, lineterm=""):
        if not line.startswith("@@"):
            print(line)
    print("The binary interface of libharpe has changed.")
    if set(before) - set(now):
        print("Lines with a - are gone or different: programs built against them break.\n"
              "Was that meant? Then say so in CHANGELOG.md, and record it with")
    else:
        print("It has only grown. Record it with")
    print("    tests/house/abi.py . --update")
    return 1


sys.exit(main())
