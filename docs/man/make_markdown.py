#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the manual pages readable without a build: docs/man/NAME.SECTION.md from each NAME.SECTION.scd.

The .scd files are the source; `make install` makes roff pages of them with scdoc. This script reads
the part of scdoc's format that the pages use, and refuses the rest:

    # NAME, ## Name       headings
    *bold* _underlined_   and a backslash before a character that is meant literally
    ++                    at the end of a line: a line break
    a paragraph and, right below it, lines with a tab before them: a term and its description
    ``` ... ```           literal text
    |[ cell, :[ cell      a table: a line per cell, | begins a row; the first row is the head

Usage: make_markdown.py [--check] [FOLDER]
    --check: writes nothing, names the files that are not up to date, and fails if there are any
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
TITLE = re.compile(r"^([a-z-]+)\((\d)\)$")
# Characters that are escaped, because Markdown would read them as markup.
SPECIAL = set("\\*_`[]<>|~")
# What Markdown reads as markup only at the beginning of a line.
LINE_START = re.compile(r"^(\s*)([-+#=]|\d+[.)])(?=\s|$)")
CELL = re.compile(r"^([|:])[\[\] -] (.*)$")
REFERENCE = re.compile(r"(\*\*)?(harpe(?:-[a-z]+)*)(\*\*)?\((\d)\)")


class Unreadable(Exception):
    """A page uses a part of the format that this script does not read."""


def literal(character, before, after):
    is_within_word = character == "_" and before.isalnum() and after.isalnum()
    return "\\" + character if character in SPECIAL and not is_within_word else character


def split_spans(text):
    """Returns [style, text] pairs; style is '', '*' (bold) or '_' (underlined); text is Markdown."""
    spans = [["", ""]]
    style = ""
    i = 0
    while i < len(text):
        character = text[i]
        before = text[i - 1] if i > 0 else " "
        after = text[i + 1] if i + 1 < len(text) else " "
        if character == "\\":
            if i + 1 == len(text):
                raise Unreadable("a backslash at the end of a paragraph")
            i += 1
            character, after = text[i], text[i + 1:i + 2]
            spans[-1][1] += literal(character, before, after)
        elif text.startswith("++\n", i):
            spans[-1][1] += "\\\n"
            i += 2
        elif character == "*" or (character == "_" and (
                not before.isalnum() or (style == "_" and not after.isalnum()))):
            if style not in ("", character):
                raise Unreadable(f"{character} within {style}")
            style = "" if style else character
            spans.append([style, ""])
        else:
            spans[-1][1] += literal(character, before, after)
        i += 1
    if style:
        raise Unreadable(f"{style} is not closed")
    return [span for span in spans if span[1]]


def inline(text):
    """Returns the Markdown of a paragraph's text."""
    spans = split_spans(text)
    parts = []
    for i, (style, words) in enumerate(spans):
        if not style:
            parts.append(words)
            continue
        # Markdown cannot tell where one of two adjacent spans ends; HTML can.
        touches = (i > 0 and spans[i - 1][0]) or (i + 1 < len(spans) and spans[i + 1][0])
        if touches:
            tag = "b" if style == "*" else "i"
            parts.append(f"<{tag}>{words}</{tag}>")
        else:
            mark = "**" if style == "*" else "*"
            parts.append(f"{mark}{words}{mark}")
    lines = "".join(parts).split("\n")
    return "\n".join(LINE_START.sub(r"\1\\\2", line) for line in lines)


def with_links(text, pages):
    """Makes links of references such as harpe-plan(1)."""
    def link(match):
        page = f"{match.group(2)}.{match.group(4)}"
        return f"[{match.group(0)}]({page}.md)" if page in pages else match.group(0)
    return REFERENCE.sub(link, text)


class Page:
    """Reads the lines of a page one after the other, and collects the lines of the Markdown."""

    def __init__(self, source, pages):
        self.lines = source.read_text(encoding="utf-8").split("\n")
        self.pages = pages
        self.out = []
        self.at = 0
        self.is_described = False  # the paragraph before was a term or its description

    def paragraph(self):
        """Returns the lines up to the next blank line, or up to a line with another indentation."""
        indented = self.lines[self.at].startswith("\t")
        found = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.strip() or line.startswith(("#", "```")):
                break
            # A line after a break may stand at the margin; scdoc keeps it in the paragraph.
            continues = bool(found) and found[-1].endswith("++")
            if line.startswith("\t") != indented and not continues:
                break
            found.append(line.removeprefix("\t"))
            self.at += 1
        text = "\n".join(found)
        if text.startswith(("- ", ". ", "|", "[ ", "] ", "; ", "\t")):
            raise Unreadable(f"a list, comment or deep indent: {text.splitlines()[0]}")
        return with_links(inline(text), self.pages).split("\n")

    def literal_block(self):
        end = self.lines.index("```", self.at + 1)
        body = [re.sub(r"\\(.)", r"\1", line) for line in self.lines[self.at + 1:end]]
        self.out += ["```", *body, "```", ""]
        self.at = end + 1
        self.is_described = False

    def table(self):
        rows = []
        while self.at < len(self.lines) and (cell := CELL.match(self.lines[self.at])):
            if cell.group(1) == "|":
                rows.append([])
            rows[-1].append(with_links(inline(cell.group(2)), self.pages))
            self.at += 1
        if len({len(row) for row in rows}) != 1:
            raise Unreadable("the rows of a table differ in length")
        rows.insert(1, ["---"] * len(rows[0]))
        self.out += [*(f"| {' | '.join(row)} |" for row in rows), ""]
        self.is_described = False

    def text(self):
        indented = self.lines[self.at].startswith("\t")
        if indented and not self.is_described:
            raise Unreadable(f"a description without a term: {self.lines[self.at]}")
        lines = self.paragraph()
        is_term = (not indented and self.at < len(self.lines) and
                   self.lines[self.at].startswith("\t"))
        if is_term:
            lines = ["- " + lines[0], *("  " + line for line in lines[1:])]
        elif indented:
            lines = ["  " + line for line in lines]
        self.out += [*lines, ""]
        self.is_described = is_term or indented

    def markdown(self, name):
        title = TITLE.match(self.lines[0])
        if not title or f"{title.group(1)}.{title.group(2)}" != name:
            raise Unreadable(f"the first line is not the title of {name}")
        self.out = [f"<!-- Made from {name}.scd by docs/man/make_markdown.py; change that file. -->",
                    "", f"# {self.lines[0]}", ""]
        self.at = 1
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.strip():
                self.at += 1
            elif line == "```":
                self.literal_block()
            elif line.startswith("|") and CELL.match(line):
                self.table()
            elif re.match(r"##? ", line):
                self.out += ["#" + line, ""]
                self.at += 1
                self.is_described = False
            else:
                self.text()
        return "\n".join(self.out).rstrip("\n") + "\n"


def convert(folder):
    """Returns {path of a Markdown page: what it must hold}."""
    sources = sorted(folder.glob("*.scd"))
    pages = {source.stem for source in sources}
    made = {}
    for source in sources:
        try:
            made[folder / f"{source.stem}.md"] = Page(source, pages).markdown(source.stem)
        except Unreadable as reason:
            sys.exit(f"{source.name}: {reason}")
    return made


def main(arguments):
    check = "--check" in arguments
    folders = [argument for argument in arguments if argument != "--check"]
    folder = pathlib.Path(folders[0]) if folders else HERE
    made = convert(folder)
    if not made:
        sys.exit(f"{folder}: no manual pages")
    present = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    stale = [path for path in sorted(made | present) if made.get(path) != present.get(path)]
    if check:
        for path in stale:
            print(f"{path.name}: not up to date: run docs/man/make_markdown.py")
        return 1 if stale else 0
    for path in stale:
        if path in made:
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
        print(f"{path.name}: {'made' if path in made else 'removed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
