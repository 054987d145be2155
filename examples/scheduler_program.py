#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A scheduler that is a program: it reads one JSON line and writes one, and needs no installation.

It tries each available clock for one round on all instructions, measures, and then keeps the clock
with the least energy. Serve it with

    harpe serve --scheduler 'program:python3 scheduler_program.py' \
        --scheduler-args '{"num_microbatches": 8}'

Standard output is reserved for the exchange with the server; write messages to standard error.
"""
import json
import sys


def instructions(stage, stages, microbatches):
    """Returns 1F1B: forwards that fill the pipeline behind this stage, then one forward and one
    backward in turn."""
    names, forwards, backwards = [], 0, 0
    while backwards < microbatches:
        if forwards < microbatches and forwards - backwards < stages - stage:
            names.append("forward")
            forwards += 1
        else:
            names.append("backward")
            backwards += 1
    return names


class Uniform:
    def __init__(self, job_info, rank_infos, args, **_):
        self.job, self.ranks = job_info, rank_infos
        self.microbatches = args.get("num_microbatches")
        if not isinstance(self.microbatches, int) or self.microbatches < 1:
            raise ValueError("scheduler_args: num_microbatches must be a whole number from 1 on")
        self.clocks = max(len(rank["available_frequencies"]) for rank in rank_infos)
        # J per iteration of all ranks together, one value for each clock that was tried
        self.energies = []

    def observe(self, results):
        if any(not result["iter_energy"] for result in results):
            raise ValueError("a rank reported no iter_energy, which is what is compared")
        self.energies.append(sum(
            sum(result["iter_energy"]) / len(result["iter_energy"]) for result in results))

    def is_finished(self):
        return len(self.energies) >= self.clocks

    def schedule(self, rank):
        index = len(self.energies)
        if self.is_finished() and self.energies:
            index = self.energies.index(min(self.energies))
        clocks = rank["available_frequencies"] or [0]  # 0 MHz: does not change the clock
        clock = clocks[min(index, len(clocks) - 1)]
        names = instructions(rank["pp_rank"], self.job["pp_degree"], self.microbatches)
        return {"rank": rank["rank"], "frequencies": [[name, clock] for name in names]}

    def answer(self):
        return {"schedules": [self.schedule(rank) for rank in self.ranks],
                "finished": self.is_finished()}


def main():
    scheduler = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "init" in question:
                scheduler = Uniform(**question["init"])
            else:
                scheduler.observe(question["observe"])
            answer = scheduler.answer()
        except ValueError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
