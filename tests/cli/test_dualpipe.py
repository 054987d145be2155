# SPDX-License-Identifier: Apache-2.0
"""The dependencies of DeepSeek's DualPipe runtime, against an event simulation of its program: what
each rank receives, computes and sends, in this order. A rank starts all sends and receives that it
has collected when it reaches the next computation, and computes when all of them are complete. A
transfer is complete when both sides have started it."""
import csv
import itertools
import random

import program

MIRROR = {"F0": "F1", "F1": "F0", "B0": "B1", "B1": "B0"}


def program_of(position, depth, microbatches, is_bidirectional):
    """Yields (what it does, flow or instruction) of a rank. `position` of `depth` ranks are between
    it and the end of the pipeline at which its `microbatches` enter."""
    behind, middle = depth - 1 - position, position == depth - 1
    steps = []

    def run(what, *flows, then=()):
        steps.extend(("receive", flow) for flow in flows)
        steps.append(("compute", what))
        steps.extend(("send", flow) for flow in then)

    for _ in range(2 * behind):
        run("F", "F0", then=["F0"])
    steps.append(("receive", "F0"))
    for i in range(position + 1):
        at_once = middle and is_bidirectional
        run("F", then=["F0"] if at_once else [])
        first = [] if middle and i == position else ["F1"]
        run("F", "F0", "F1", then=first + ([] if at_once else ["F0"]))
    for _ in range(behind):
        run("I", "B1", then=["B1"])
        run("W", "F1")
        run("F", then=["F1"])
    for i in range(microbatches - 2 * depth + position + 1):
        if i > 0:
            run("P", "F0", "B1", then=["F0", "B1"])
        elif middle:
            run("F", then=["F1"])
            run("B", "B1", then=["F0", "B1"])
        else:
            run("P", "B1", then=["F0", "B1"])
        run("P", "F1", "B0", then=["F1", "B0"])
    for _ in range(behind):
        run("B", "B1", then=["B1"])
        run("P", "F1", "B0", then=["F1", "B0"])
    for i in range(2 * (position + 1)):
        flow = "B0" if i % 2 else "B1"
        run("B" if i <= position else "I", flow, then=[flow])
    for _ in range(behind):
        run("W")
        run("I", "B0", then=["B0"])
    for _ in range(position + 1):
        run("W")
    return steps


class Rank:
    def __init__(self, number, ranks, microbatches, is_bidirectional):
        depth = ranks // 2 if is_bidirectional else ranks
        is_mirrored = number >= depth
        position = ranks - 1 - number if is_mirrored else number
        microbatches //= 2 if is_bidirectional else 1
        self.computations, self.batches, self.place = [], [[]], {}
        self.started = {0: 0.0}  # batch: time
        counts = {}
        for what, of in program_of(position, depth, microbatches, is_bidirectional):
            if what == "compute":
                self.computations.append(of)
                self.batches.append([])
                continue
            index = counts[what, of] = counts.get((what, of), -1) + 1
            is_inward = (of in ("F0", "B1")) == (what == "send")
            is_at_fold = is_inward and position == depth - 1
            if not is_inward and position == 0 or is_at_fold and not is_bidirectional:
                continue
            self.place[what, of, index] = len(self.computations)
            self.batches[-1].append((number + (1 if is_inward != is_mirrored else -1),
                                     ("receive" if what == "send" else "send",
                                      MIRROR[of] if is_at_fold else of, index)))


def simulate(times, ranks, microbatches, is_bidirectional):
    every = [Rank(number, ranks, microbatches, is_bidirectional) for number in range(ranks)]
    moved = True
    while moved:
        moved = False
        for rank in every:
            batch = len(rank.started) - 1
            if batch == len(rank.computations):
                continue
            others = [every[number].started.get(every[number].place[transfer])
                      for number, transfer in rank.batches[batch]]
            if None not in others:
                start = max([rank.started[batch], *others])
                rank.started[batch + 1] = start + times[rank.computations[batch]]
                moved = True
    assert all(len(rank.started) == len(rank.computations) + 1 for rank in every), "deadlock"
    return max(max(rank.started.values()) for rank in every)


class DualPipe(program.ProgramTest):
    def length(self, times, stages, microbatches, schedule):
        names = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight",
                 "P": "overlap_f_b"}
        self.write("profile.csv", "stage,instruction,frequency,time,energy\n" + "".join(
            f"{stage},{names[one]},1410,{time!r},100\n"
            for stage, (one, time) in itertools.product(range(stages), times.items())))
        self.succeed("plan", "-i", "profile.csv", "-m", microbatches, "-p", 60, "-s", schedule, "-o",
                     "plans", "--no-pictures", "--quiet", "--force", "--verify")
        with open(self.path / "plans" / "frontier.csv", encoding="ascii") as file:
            return float(next(csv.DictReader(file))["time_s"])

    def test_iterations_take_as_long_as_the_runtimes_program(self):
        chance, delayed = random.Random(7), 0
        for ranks, microbatches in ((1, 2), (2, 4), (2, 7), (4, 8), (4, 16), (6, 14), (8, 16)):
            times = {"F": 1.0, "I": chance.uniform(0.5, 1.5), "W": chance.uniform(0.5, 1.5),
                     "P": chance.uniform(2, 3.2)}
            times["B"] = times["I"] + times["W"]
            expected = simulate(times, ranks, microbatches, False)
            found = self.length(times, 2 * ranks, microbatches, "dualpipe-v-deepseek")
            self.assertAlmostEqual(found, expected, places=6)
            torchs = self.length(times, 2 * ranks, microbatches, "dualpipe-v")
            self.assertLess(torchs, expected + 1e-6)
            delayed += torchs < expected - 1e-6
            if ranks % 2 == 0 and microbatches % 2 == 0:
                self.assertAlmostEqual(self.length(times, ranks, microbatches, "dualpipe"),
                                       simulate(times, ranks, microbatches, True), places=6)
        self.assertGreater(delayed, 0)
