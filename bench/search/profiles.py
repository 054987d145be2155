# SPDX-License-Identifier: Apache-2.0
"""Generates jobs for the benchmarks of the search: profiles of many kinds with schedules of all
kinds. The same seed and number give the same job on every machine.

The model of a GPU, with x = clock / highest clock: the time of an instruction is t * (c / x + 1 -
c), where c is the share of its work that scales with the clock. Its power is static + dynamic * x *
V(x)^2, where the voltage V is 1 below a knee and rises in a straight line above it. The numbers of
`job_like` were chosen so that the curves resemble those that were published for A100 GPUs
(Perseus, SOSP 2024); no number is a measurement."""
import dataclasses
import random
from typing import Dict, List, Tuple

# Schedules with two stages on each rank.
TWO_CHUNKS = {"interleaved-1f1b", "zb-v", "dualpipe-v", "dualpipe-v-deepseek"}
# Share of a forward's time that an instruction takes.
PARTS = {"forward": 1.0, "backward": 1.9, "backward_input": 1.05, "backward_weight": 0.85,
         "recomputation": 1.0, "forward_backward": 2.9}
CLOCKS = (5, 8, 14, 20, 38, 55, 80, 120)
SHAPES = ("plain", "flat top", "steep end")
NOISES = (0.0, 0.001, 0.003, 0.01, 0.03)
BALANCES = {"even": 1.0, "last stage 10 % longer": 1.1, "last stage 50 % longer": 1.5,
            "last stage 10 % shorter": 0.9}
RANKS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
MICROBATCHES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
BLOCKING_W = 84.0


@dataclasses.dataclass
class Job:
    """A profile and the schedule that runs it. `tags` maps kinds of groups to the job's group."""
    name: str
    rows: List[Tuple[int, str, int, float, float]]
    schedule: str
    ranks: int
    microbatches: int
    tags: Dict[str, str]
    blocking_w: float = BLOCKING_W

    def csv(self):
        lines = ["stage,instruction,frequency,time,energy"]
        lines += [f"{stage},{name},{mhz},{time:.7f},{energy:.5f}"
                  for stage, name, mhz, time, energy in self.rows]
        return "\n".join(lines) + "\n"

    def write(self, folder):
        """Writes the profile. Returns what library.Library.plan needs to know about the job."""
        path = folder / (self.name.replace(" ", "_") + ".csv")
        path.write_text(self.csv())
        return {"profile": str(path), "schedule": self.schedule, "ranks": self.ranks,
                "microbatches": self.microbatches, "blocking_w": self.blocking_w}


def clock_list(count, highest_mhz, lowest_share=0.6):
    """Returns `count` clocks, evenly spread, the highest first."""
    lowest = lowest_share * highest_mhz
    return [round(highest_mhz - (highest_mhz - lowest) * k / (count - 1)) for k in range(count)]


class Gpu:
    """Time and power as functions of the clock."""

    def __init__(self, highest_mhz, static_w, dynamic_w, knee, rise, cap=1.0):
        """`rise` is V(1) - 1. Above `cap`, the GPU is at its power limit: a higher clock has the
        time and the energy of `cap`."""
        self.highest_mhz, self.static_w, self.dynamic_w = highest_mhz, static_w, dynamic_w
        self.knee, self.rise, self.cap = knee, rise, cap

    def measure(self, mhz, time_s, share):
        x = min(mhz / self.highest_mhz, self.cap)
        voltage = 1 + self.rise * max(0.0, x - self.knee) / (1 - self.knee)
        taken_s = time_s * (share / x + 1 - share)
        return taken_s, taken_s * (self.static_w + self.dynamic_w * x * voltage ** 2)


def measured_rows(source, gpu, clocks, stages, work, names, noise, forward_s, copies=()):
    """Measures all instructions. The stages of `copies` repeat the numbers of the first of them, as
    if one stage was measured for all."""
    rows, first = [], {}
    shares = {name: source.uniform(0.75, 0.97) for name in names}
    for stage in range(stages):
        for name in names:
            for mhz in clocks:
                time, energy = gpu.measure(mhz, forward_s * PARTS[name] * work[stage], shares[name])
                time *= max(0.5, source.gauss(1, noise))
                energy *= max(0.5, source.gauss(1, noise))
                if stage in copies:
                    time, energy = first.setdefault((name, mhz), (time, energy))
                rows.append((stage, name, mhz, time, energy))
    return rows


def shape_gpu(source, shape):
    highest = source.choice((1380, 1410, 1740, 1980))
    static, dynamic = source.uniform(40, 110), source.uniform(200, 300)
    if shape == "flat top":
        return Gpu(highest, static, dynamic, source.uniform(0.68, 0.76), source.uniform(0.15, 0.3),
                   cap=source.uniform(0.82, 0.95))
    if shape == "steep end":
        return Gpu(highest, static, dynamic, source.uniform(0.85, 0.93), source.uniform(0.4, 0.8))
    return Gpu(highest, static, dynamic, source.uniform(0.68, 0.8), source.uniform(0.15, 0.35))


def work_of(source, stages, last, spread):
    work = [1 + source.uniform(-spread, spread) for _ in range(stages)]
    work[-1] *= last
    return work


def size_of(source, schedule, most_instructions):
    """Returns ranks and microbatches that the schedule allows."""
    per_microbatch = (2 if schedule in TWO_CHUNKS else 1) * (
        3 if schedule.startswith(("zb", "dualpipe", "early")) else 2)
    while True:
        ranks, microbatches = source.choice(RANKS), source.choice(MICROBATCHES)
        if schedule.startswith("dualpipe"):
            ranks += ranks % 2
            microbatches = max(microbatches, 2 * ranks)
        elif schedule in TWO_CHUNKS:
            microbatches = max(1, microbatches // ranks) * ranks
        if ranks * microbatches * per_microbatch <= most_instructions:
            return ranks, microbatches


def job(seed, number, schedules, most_instructions=4096):
    """Returns job `number` of the family. Schedules and shapes take turns; the
    rest is drawn by chance."""
    source = random.Random(f"harpe {seed} {number}")
    schedule = schedules[number % len(schedules)]
    ranks, microbatches = size_of(source, schedule, most_instructions)
    stages = ranks * (2 if schedule in TWO_CHUNKS else 1)
    shape = SHAPES[(number + number // len(schedules)) % len(SHAPES)]
    noise = source.choice(NOISES)
    clocks, balance = source.choice(CLOCKS), source.choice(list(BALANCES))
    gpu = shape_gpu(source, shape)
    work = work_of(source, stages, BALANCES[balance], source.choice((0, 0.01, 0.05)))
    # Some profiles have equal rows for all stages but the last, as published ones have.
    copies = range(stages - 1) if source.random() < 0.3 else ()
    rows = measured_rows(source, gpu, clock_list(clocks, gpu.highest_mhz), stages, work, PARTS,
                         noise, source.choice((0.01, 0.05, 0.2)), copies)
    clock_group = "5 to 14" if clocks < 20 else "20 to 38" if clocks < 55 else "55 to 120"
    rank_group = "2 to 4" if ranks < 5 else "6 to 12" if ranks < 13 else "14 to 32"
    return Job(f"job {number}", rows, schedule, ranks, microbatches,
               {"schedule": schedule, "clocks": clock_group, "shape": shape,
                "noise": f"{100 * noise:g} %", "balance": balance, "size": f"{rank_group} ranks"})


# name: time of the last stage, forward and backward, relative to the others; knee; rise.
LIKES = {"Bloom-like": (0.88, 0.90, 0.745, 0.21), "GPT-3-like": (1.076, 1.063, 0.745, 0.215)}


def job_like(kind, seed, ranks=8, microbatches=24, has_equal_stages=False):
    """Returns a job whose curves resemble the published ones of Bloom 176B or GPT-3 175B on A100
    GPUs: 38 clocks from 855 to 1410 MHz, and a power limit that holds the highest clocks back. All
    stages but the last are one measurement, as in the published profiles. Each is multiplied by a
    factor of its own, because in a real job no two stages are exactly equal. With
    `has_equal_stages` the factors are 1, and the profile has the same structure as the published
    ones."""
    source = random.Random(f"harpe {kind} {seed}")
    last_forward, last_backward, knee, rise = LIKES[kind]
    gpu = Gpu(1410, source.uniform(42, 52), source.uniform(280, 300), knee + source.gauss(0, 0.01),
              rise + source.gauss(0, 0.01), cap=source.uniform(0.965, 0.985))
    forward_s, noise = source.uniform(0.045, 0.055), source.uniform(0.004, 0.007)
    factors = [source.uniform(0.95, 1.05) for _ in range(ranks)]
    rows = []
    shares = {name: source.uniform(0.85, 0.95) for name in ("forward", "backward")}
    for stage in (0, ranks - 1):
        for name, last in (("forward", last_forward), ("backward", last_backward)):
            for mhz in range(1410, 854, -15):
                time, energy = gpu.measure(mhz, forward_s * PARTS[name] * (last if stage else 1),
                                           shares[name])
                rows.append((stage, name, mhz, time * source.gauss(1, noise / 3),
                             energy * source.gauss(1, noise)))
    if has_equal_stages:
        factors = [1] * ranks
    rows = [(stage, name, mhz, time * factor, energy * factor)
            for stage, factor in enumerate(factors)
            for number, name, mhz, time, energy in rows if number == (0 if stage < ranks - 1 else
                                                                      ranks - 1)]
    tags = {"kind": kind, "stages": "equal" if has_equal_stages else "unequal"}
    return Job(f"{kind} {seed}", rows, "1f1b", ranks, microbatches, tags, 83.64)
