#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes harpe/_bindings.py: every struct, enum and function of the public C headers for ctypes.

    make_bindings.py HEADERS_DIR OUTPUT.py      (for example: include python/harpe/_bindings.py)

A test runs it again and compares, so that headers and bindings never differ. Needs gcc and pycparser
(Debian: python3-pycparser); the package that it writes needs neither.
"""
import pathlib
import subprocess
import sys
import tempfile

from pycparser import c_ast, c_parser

# The declarations that the headers use from system headers.
SYSTEM_HEADERS = {
    "stdbool.h": "typedef _Bool bool;\n",
    "stddef.h": "typedef unsigned long size_t;\n#define NULL ((void *)0)\n",
    "stdint.h": "typedef signed char int8_t; typedef unsigned char uint8_t;\n"
                "typedef short int16_t; typedef unsigned short uint16_t;\n"
                "typedef int int32_t; typedef unsigned int uint32_t;\n"
                "typedef long int64_t; typedef unsigned long uint64_t;\n",
    "stdio.h": "",
}
BASIC = {
    "_Bool": "C.c_bool", "bool": "C.c_bool", "char": "C.c_char", "int": "C.c_int",
    "unsigned int": "C.c_uint", "long": "C.c_long", "unsigned long": "C.c_ulong",
    "double": "C.c_double", "float": "C.c_float", "size_t": "C.c_size_t",
    "int8_t": "C.c_int8", "uint8_t": "C.c_uint8", "int16_t": "C.c_int16", "uint16_t": "C.c_uint16",
    "int32_t": "C.c_int32", "uint32_t": "C.c_uint32", "int64_t": "C.c_int64",
    "uint64_t": "C.c_uint64", "void": None,
}
# Headers with dependencies that the library does not link.
LEFT_OUT = {"mpi.h"}


def preprocess(include):
    """Returns all public headers as one text that pycparser can read, and the values of their
    numeric macros."""
    names = sorted(h.name for h in (include / "harpe").glob("*.h") if h.name not in LEFT_OUT)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SYSTEM_HEADERS.items():
            once = name.replace(".", "_")
            pathlib.Path(folder, name).write_text(
                f"#ifndef once_{once}\n#define once_{once}\n{text}#endif\n", encoding="utf-8")
        source = "".join(f"#include <harpe/{name}>\n" for name in names)
        command = ["gcc", "-E", "-P", "-nostdinc", f"-I{folder}", f"-I{include}",
                   "-D__attribute__(x)=", "-x", "c", "-"]
        return subprocess.run(command, input=source, capture_output=True, text=True,
                              check=True).stdout


class Bindings:
    """Collects the declarations of the headers and writes them as Python."""

    def __init__(self, tree):
        self.kinds = {}      # typedef name -> "struct", "opaque", "enum", "function", "basic"
        self.functions_of_type = {}
        self.structs = {}    # name -> Struct node with members
        self.constants = []  # (name, value)
        self.sections = []
        self.callbacks = []
        self.prototypes = []
        for node in tree.ext:
            if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Struct):
                if node.type.decls:
                    self.structs[node.type.name] = node.type
            elif isinstance(node, c_ast.Typedef):
                inner = node.type.type if isinstance(node.type, c_ast.TypeDecl) else None
                if isinstance(inner, c_ast.Struct) and inner.decls:
                    self.structs[node.name] = inner
        for node in tree.ext:
            if isinstance(node, c_ast.Typedef):
                self.add_typedef(node)
            elif isinstance(node, c_ast.Decl):
                self.add_declaration(node)

    # ---- Declarations ----

    def add_typedef(self, node):
        if not node.name.startswith("harpe_"):
            return
        if isinstance(node.type, c_ast.PtrDecl) and isinstance(node.type.type, c_ast.FuncDecl):
            self.kinds[node.name] = "function"
            self.functions_of_type[node.name] = node.type.type
            return
        inner = node.type.type
        if isinstance(inner, c_ast.Enum):
            self.kinds[node.name] = "enum"
            self.add_enum(inner)
        elif isinstance(inner, c_ast.Struct):
            self.kinds[node.name] = "struct" if node.name in self.structs else "opaque"
        elif isinstance(inner, c_ast.IdentifierType) and self.kinds.get(inner.names[0]) == "enum":
            self.kinds[node.name] = "enum"
        else:
            raise ValueError(f"typedef {node.name}: not understood")

    def add_enum(self, enum):
        value = -1
        for entry in enum.values.enumerators:
            value = self.number(entry.value) if entry.value else value + 1
            self.constants.append((entry.name, value))

    def add_declaration(self, node):
        if isinstance(node.type, c_ast.Enum):
            self.add_enum(node.type)
        elif isinstance(node.type, c_ast.FuncDecl):
            self.prototypes.append(node)

    # ---- Types ----

    def named(self, name):
        """Returns the ctypes type of a typedef or struct name, or None for void."""
        kind = self.kinds.get(name)
        if kind == "struct" or (kind is None and name in self.structs):
            return name
        if kind == "enum":
            return "C.c_int"
        if kind == "function":
            return self.function_pointer(self.functions_of_type[name])
        if kind == "opaque":
            return "opaque"
        if name in BASIC:
            return BASIC[name]
        raise ValueError(f"type {name}: not understood")

    def of(self, node, is_result=False):
        """Returns the ctypes type of a declaration's type, as Python source, or None for void."""
        if isinstance(node, c_ast.TypeDecl):
            if isinstance(node.type, (c_ast.Struct, c_ast.Enum)):
                return self.named(node.type.name)
            return self.named(" ".join(node.type.names))
        if isinstance(node, c_ast.ArrayDecl):
            return f"{self.of(node.type)} * {self.number(node.dim)}"
        if not isinstance(node, c_ast.PtrDecl):
            raise ValueError(f"{type(node).__name__}: not understood")
        target = node.type
        if isinstance(target, c_ast.FuncDecl):
            return self.function_pointer(target)
        inner = self.of(target)
        if inner in (None, "opaque"):
            return "C.c_void_p"
        if inner == "C.c_char":
            # The caller must free this text, so the pointer must keep its address.
            is_const = "const" in (getattr(target, "quals", None) or [])
            return "C.c_char_p" if is_const else "C.c_void_p"
        return f"C.POINTER({inner})"

    def function_pointer(self, node):
        arguments = [self.of(a.type) for a in (node.args.params if node.args else [])]
        arguments = [a for a in arguments if a is not None]
        # Python must not convert the result of a callback, because it would free a text too early.
        result = self.of(node.type)
        text = ", ".join([str(result)] + arguments)
        return f"C.CFUNCTYPE({text})"

    def number(self, node):
        if isinstance(node, c_ast.Constant):
            return int(node.value, 0)
        if isinstance(node, c_ast.UnaryOp) and node.op == "-":
            return -self.number(node.expr)
        if isinstance(node, c_ast.ID):
            return dict(self.constants)[node.name]
        raise ValueError("a constant must be a number")

    @staticmethod
    def is_alias(member):
        """Returns whether the member is an unnamed union, which gives one value several names."""
        return isinstance(member.type, c_ast.Union)

    def members(self, name):
        """Returns the members of a struct, and of each unnamed union only the first."""
        found = []
        for member in self.structs[name].decls:
            if not self.is_alias(member):
                found.append(member)
                continue
            first, *others = member.type.decls
            if any(self.of(other.type) != self.of(first.type) for other in others):
                raise ValueError(f"{name}: the names in a union must have one type")
            found.append(first)
        return found

    # ---- Writing ----

    def write(self):
        lines = ["# SPDX-License-Identifier: Apache-2.0",
                 '"""The public C headers for ctypes. Made by python/make_bindings.py: do not edit."""',
                 "import ctypes as C", ""]
        lines += [f"{name} = {value}" for name, value in self.constants]
        lines += ["", ""]
        for name in self.structs:
            lines += [f"class {name}(C.Structure):", "    pass", "", ""]
        for name in self.ordered():
            fields = [f'    ("{member.name}", {self.of(member.type)}),'
                      for member in self.members(name)]
            lines += [f"{name}._fields_ = ["] + fields + ["]"]
            lines += [f"{name}.{alias.name} = {name}.{union.type.decls[0].name}"
                      for union in self.structs[name].decls if self.is_alias(union)
                      for alias in union.type.decls[1:]]
        lines += ["", "# name: (result, arguments)", "FUNCTIONS = {"]
        for node in sorted(self.prototypes, key=lambda n: n.name):
            arguments = [self.of(a.type) for a in node.type.args.params]
            arguments = [a for a in arguments if a is not None]
            lines.append(f'    "{node.name}": ({self.of(node.type.type)}, '
                         f'[{", ".join(arguments)}]),')
        return "\n".join(lines + ["}", ""])

    def ordered(self):
        """Sorts structs so that a struct comes before every struct that contains it by value."""
        done, order = set(), []

        def visit(name):
            if name in done:
                return
            done.add(name)
            for member in self.members(name):
                held = member.type
                while isinstance(held, c_ast.ArrayDecl):
                    held = held.type
                if isinstance(held, c_ast.TypeDecl):
                    inner = held.type.name if isinstance(held.type, c_ast.Struct) else \
                        " ".join(getattr(held.type, "names", []))
                    if inner in self.structs:
                        visit(inner)
            order.append(name)

        for name in self.structs:
            visit(name)
        return order


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: make_bindings.py HEADERS_DIR OUTPUT.py")
    tree = c_parser.CParser().parse(preprocess(pathlib.Path(sys.argv[1])))
    pathlib.Path(sys.argv[2]).write_text(Bindings(tree).write(), encoding="utf-8")


main()
