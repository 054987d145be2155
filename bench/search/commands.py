# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/run that measure the search for plans. Unlike the other parts, each has its
own arguments."""
import importlib
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HARPE_BUILD", ROOT / "build" / "release"))
COMMANDS = {"gaps": "energy of plans above the lower bound, on generated jobs",
            "optimum": "plans beside the true optimum of small jobs (PyPI highspy)",
            "dwell": "plans with a minimum dwell time beside simpler searches",
            "latency": "plans for clocks that change late beside the published controller",
            "shapes": "plans of production shapes, with and without latency, beside simple ones",
            "measured": "a measured job of 512 GPUs, simulated, and what plans save there",
            "fleet": "split of a power budget: time, gap, and beside one cap for all GPUs",
            "scale": "time, memory, progress and interrupts of large jobs"}


def add_builds(parser):
    """Adds the arguments that all of these parts have."""
    parser.add_argument("--build", metavar="DIR", default=BUILD,
                        help="folder of the build to measure (default: $HARPE_BUILD or "
                        "build/release)")
    parser.add_argument("--before", metavar="DIR",
                        help="folder of an older build to compare with")
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")


def run(name, words):
    """Runs one part. Returns its exit status."""
    chosen, tables, status = importlib.import_module(f"search.{name}").main(words, add_builds)
    for table in tables:
        print(table.markdown() if chosen.markdown else table.plain(), flush=True)
    return status
