#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how much the times of instructions vary from iteration to iteration on real GPUs.

    bench/instruction_jitter.py ../shared/data/results/bert_a100_pp4_mb32.prof.json

For each rank and kind of instruction: the relative standard deviation of the time at the same place of
the iteration (the median over the places, and the largest), the share of times that are more than 2 %
above the median of all, and the longest time divided by this median. The first two iterations do not
count."""
import json
import statistics
import sys

WARM_UP = 2


def main(path):
    print("rank  instruction  median s  deviation  largest  above 2 %  longest")
    for rank in json.load(open(path, encoding="utf-8")):
        for name in ("forward", "backward"):
            rows = rank["time_breakdown"][name][WARM_UP:]
            deviations = [statistics.pstdev(place) / statistics.mean(place) for place in zip(*rows)]
            times = [time for row in rows for time in row]
            median = statistics.median(times)
            late = sum(time > 1.02 * median for time in times) / len(times)
            print(f"{rank['rank']:4}  {name:11}  {median:8.4f}  "
                  f"{statistics.median(deviations):9.4f}  {max(deviations):7.4f}  "
                  f"{100 * late:7.2f} %  {max(times) / median:7.3f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: bench/instruction_jitter.py FILE.prof.json")
    main(sys.argv[1])
