# SPDX-License-Identifier: Apache-2.0
"""What a series of the power of groups of nodes, a row every 2 s, tells about a training: the time
of its steps, the dip of the power between two steps, and the differences of the groups."""
import cmath
import csv
import math
import statistics

GROUPS, ROW_S = 8, 2.0


def training_blocks(path):
    """Reads rows of the power of the groups, in W, and splits them at evaluations: five or more
    rows below 95 % of the median. The job starts in the first rows."""
    with open(path, encoding="utf-8") as file:
        rows = [[float(cell) for cell in row[1:1 + GROUPS]] for row in list(csv.reader(file))[4:]]
    power = [sum(row) for row in rows]
    low = [value < 0.95 * statistics.median(power) for value in power]
    out = {i + k for i in range(len(low) - 4) if all(low[i:i + 5]) for k in range(-1, 6)}
    ends = [-1, *sorted(out), len(rows)]
    return [rows[a + 1:b] for a, b in zip(ends, ends[1:]) if b - a > 30]


def harmonic(block, period_s, number):
    values = [sum(row) for row in block]
    mean = statistics.fmean(values)
    return sum((value - mean) * cmath.exp(-2j * math.pi * number * ROW_S * i / period_s)
               for i, value in enumerate(values))


def find_period(blocks):
    """Returns the period whose first three harmonics explain most."""
    def strength(period_s):
        return sum(abs(harmonic(block, period_s, n)) ** 2 / len(block)
                   for block in blocks for n in (1, 2, 3))
    coarse = max((6 + 0.05 * i for i in range(281)), key=strength)
    return max((coarse + 0.002 * i for i in range(-30, 31)), key=strength)


def since_dip(block, period_s):
    """Returns (time, power of all nodes) of rows. Time 0 is the middle of the dip of a step."""
    middle_s = (math.pi - cmath.phase(harmonic(block, period_s, 1))) * period_s / (2 * math.pi)
    return [(ROW_S * i - middle_s % period_s, sum(row)) for i, row in enumerate(block)]


def describe(blocks, period_s):
    """Returns what a series shows, measured or simulated: mean power, and power in the middle of a
    step (farther than a quarter of it from the dip); depth of the dip, as a share, and width in s
    of a dip of this depth that lacks as much energy; changes from row to row; how far each group is
    from the mean; and the share that two runs as long as this may differ by chance (twice the
    standard error, from the means of the blocks)."""
    middle, dip, changes, means = [], [], [], []
    for block in blocks:
        points = since_dip(block, period_s)
        means.append(statistics.fmean(power for _, power in points))
        for time_s, power in points:
            phase_s = abs((time_s + period_s / 2) % period_s - period_s / 2)
            if phase_s > period_s / 4 or phase_s < 0.5:
                (dip if phase_s < 0.5 else middle).append(power / means[-1])
        changes += [abs(b - a) for (_, a), (_, b) in zip(points, points[1:])]
    rows = [row for block in blocks for row in block]
    mean_w, high, low = statistics.fmean(map(sum, rows)), *map(statistics.fmean, (middle, dip))
    groups = [GROUPS * statistics.fmean(row[g] for row in rows) / mean_w - 1 for g in range(GROUPS)]
    return {"mean_w": mean_w, "middle_w": high * mean_w, "dip": 1 - low / high,
            "width_s": (high - 1) * period_s / (high - low), "most_w": max(changes),
            "change_w": statistics.fmean(changes), "groups": groups,
            "noise": 2 * math.sqrt(2 / len(means)) * statistics.pstdev(means) / mean_w}
