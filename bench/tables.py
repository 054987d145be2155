# SPDX-License-Identifier: Apache-2.0
"""Tables of benchmarks, as Markdown and for a terminal, and texts of their values."""


def seconds(value):
    if value < 0.1:
        return f"{value * 1e3:.1f} ms" if value >= 0.001 else f"{value * 1e6:.0f} us"
    if value < 100:
        return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def count(value):
    return f"{value:,}"


def mebibytes(value):
    return f"{value / 2**20:.1f} MiB"


def percent(value):
    return f"{value:.3f} %"


def met(value, target):
    return "yes" if value <= target else "NO"


class Table:
    """Markdown leaves out columns and rows that are `only_terminal`."""
    def __init__(self, title, note, header, only_terminal=()):
        self.title, self.note, self.header, self.rows = title, note, header, []
        self.only_terminal, self.markdown_rows = only_terminal, []

    def add(self, *cells, only_terminal=False):
        self.rows.append([str(cell) for cell in cells])
        if not only_terminal:
            self.markdown_rows.append(self.rows[-1])

    def markdown(self):
        shown = [i for i, name in enumerate(self.header) if name not in self.only_terminal]
        lines = ["| " + " | ".join(row[i] for i in shown) + " |"
                 for row in [self.header, *self.markdown_rows]]
        lines.insert(1, "|" + "|".join(["---"] + ["---:"] * (len(shown) - 1)) + "|")
        lines = [f"## {self.title}", "", self.note, "", *lines]
        return "\n".join(lines) + "\n"

    def plain(self):
        widths = [max(len(row[i]) for row in [self.header, *self.rows])
                  for i in range(len(self.header))]
        lines = [self.title, ""]
        for row in [self.header, *self.rows]:
            cells = [cell.ljust(w) if i == 0 else cell.rjust(w)
                     for i, (cell, w) in enumerate(zip(row, widths))]
            lines.append("  " + "  ".join(cells).rstrip().replace("**", ""))
        return "\n".join(lines) + "\n"
