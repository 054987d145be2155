# SPDX-License-Identifier: Apache-2.0
"""bench/run scale: large jobs. Time and memory of the solver alone and with plans, whether the
reported progress rises steadily, and how long the program goes on after an interrupt."""
import argparse
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from search import profiles
from search.library import Library
from tables import Table, count, mebibytes, percent, seconds

SIZES = ((16, 128), (32, 256), (64, 512))
CLOCKS = 38


def make_job(ranks, microbatches, seed):
    source = random.Random(f"harpe scale {seed} {ranks}")
    gpu = profiles.Gpu(1410, 48, 290, 0.745, 0.21, cap=0.975)
    rows = profiles.measured_rows(
        source, gpu, profiles.clock_list(CLOCKS, gpu.highest_mhz), ranks,
        profiles.work_of(source, ranks, 1.1, 0.03), ("forward", "backward"), 0.003, 0.05)
    return profiles.Job(f"scale {ranks}x{microbatches}", rows, "1f1b", ranks, microbatches, {})


def steadiness(reports, wall_s):
    """Returns the longest time without a report, the largest rise of the fraction at one report,
    and the largest fall."""
    times = [0.0] + [report[0] for report in reports] + [wall_s]
    fractions = [0.0] + [report[2] for report in reports]
    steps = [b - a for a, b in zip(fractions, fractions[1:])] or [0.0]
    return (max(b - a for a, b in zip(times, times[1:])), max(steps), max(0.0, -min(steps)))


def measure(library, job, **settings):
    library.restart()
    found = library.plan(job, with_reports=True, **settings)
    found["gap_s"], found["rise"], found["fall"] = steadiness(found["reports"], found["wall_s"])
    gaps = [100 * (plan["energy_j"] / plan["bound_j"] - 1) for plan in found["plans"]]
    found["gaps"] = (statistics.fmean(gaps), max(gaps)) if gaps else None
    return found


def interrupt(program, job, plans, after_s, folder):
    """Starts `harpe plan` and sends SIGINT after some seconds. Returns the seconds until it ends,
    or None if it ended by itself."""
    output = folder / "plans"
    process = subprocess.Popen(
        [program, "plan", "-q", "-i", job["profile"], "-m", str(job["microbatches"]), "-p",
         str(job["blocking_w"]), "--plans", str(plans), "-o", output], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell without job control lets the programs in its background ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    try:
        process.wait(after_s)
        took_s = None
    except subprocess.TimeoutExpired:
        sent_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait()
        took_s = time.monotonic() - sent_s
    if output.exists():
        for path in output.iterdir():
            path.unlink()
        output.rmdir()
    return took_s if process.returncode != 0 else None


def interrupts(chosen, job, wall_s, folder):
    """Interrupts the program at random moments of a run that takes `wall_s`."""
    source = random.Random(f"harpe interrupt {chosen.seed}")
    longest_s = min(wall_s, chosen.interrupt_within)
    moments = [source.uniform(0.02, 0.95) * longest_s for _ in range(chosen.interrupts)]
    program = pathlib.Path(chosen.build) / "harpe"
    return [(moment, interrupt(program, job, chosen.plans, moment, folder)) for moment in moments]


def size_of(text):
    try:
        ranks, microbatches = (int(word) for word in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 64x512") from None
    if ranks < 2 or microbatches < 1:
        raise argparse.ArgumentTypeError(f"'{text}': at least 2 ranks and 1 microbatch")
    return ranks, microbatches


def arguments(words, builds):
    parser = argparse.ArgumentParser(
        prog="bench/run scale", description="Measures large jobs. Exits with status 1 if the "
        "reported progress falls.")
    builds(parser)
    parser.add_argument("--sizes", type=size_of, nargs="+", default=list(SIZES), metavar="RxM",
                        help="ranks and microbatches (default: 16x128 32x256 64x512)")
    parser.add_argument("--plans", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument("--no-solver", action="store_true",
                        help="leave out the runs of the solver alone")
    parser.add_argument("--interrupts", type=int, default=5, metavar="N",
                        help="interrupts of the last size (default 5)")
    parser.add_argument("--interrupt-within", type=float, default=float("inf"), metavar="SECONDS",
                        help="the latest moment of an interrupt (default: the end of the run)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default 1")
    return parser.parse_args(words)


def add_row(table, case, build, what, found):
    table.add(case, build, what, seconds(found["wall_s"]), seconds(found["cpu_s"]),
              mebibytes(found["peak_bytes"]),
              "; ".join(percent(value) for value in found["gaps"]) if found["gaps"] else "-",
              count(len(found["reports"])), seconds(found["gap_s"]), percent(100 * found["rise"]),
              percent(100 * found["fall"]))


def interrupt_table(program_runs):
    table = Table("Interrupts", "SIGINT was sent to `harpe plan` at random moments of a run of the "
                  "largest size.", ["sent after", "ended after"])
    for moment, took_s in program_runs:
        table.add(seconds(moment), "the run had ended" if took_s is None else seconds(took_s))
    return table


def main(words, builds):
    """Returns the tables and the exit status."""
    chosen = arguments(words, builds)
    libraries = {"now": Library(chosen.build)}
    if chosen.before:
        libraries["before"] = Library(chosen.before)
    table = Table(
        "Large jobs",
        f"Generated profiles with {CLOCKS} clocks, 1F1B, a new process for each run. The memory is "
        "the largest resident set of the process, with 15 to 20 MiB of its Python. A report is a "
        "call of the function that receives the progress. The last three columns show the longest "
        "time without a report, the largest rise of the progress from one report to the next, and "
        "the largest fall.",
        ["ranks x microbatches", "build", "what", "time", "processor time", "memory",
         "gap, mean; worst", "reports", "without a report", "rise", "fall"])
    falls, job, last_s = False, None, 0.0
    with tempfile.TemporaryDirectory(prefix="harpe-bench-") as name:
        folder = pathlib.Path(name)
        for ranks, microbatches in chosen.sizes:
            job = make_job(ranks, microbatches, chosen.seed).write(folder)
            case = f"{ranks} x {microbatches}"
            for build, library in libraries.items():
                if not chosen.no_solver:
                    add_row(table, case, build, "solver", measure(library, job, bound_only=True))
                found = measure(library, job, plans=chosen.plans)
                add_row(table, case, build, f"{len(found['plans'])} plans", found)
                print(f"scale: {case}, {build}: {found['wall_s']:.1f} s", file=sys.stderr)
                if build == "now":
                    last_s = found["wall_s"]
                    falls |= found["fall"] > 0
        tables = [table]
        if chosen.interrupts:
            tables.append(interrupt_table(interrupts(chosen, job, last_s, folder)))
    for library in libraries.values():
        library.close()
    if falls:
        print("scale: the reported progress has fallen", file=sys.stderr)
    return chosen, tables, 1 if falls else 0
