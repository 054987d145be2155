# SPDX-License-Identifier: Apache-2.0
"""A custom scheduler: finds the lowest common clock at which iterations are fast enough.

Each round every rank runs all its instructions one clock lower than before, until an iteration
takes more than `max_slowdown` times as long as at the highest clocks; the clock before that one is
kept for the rest of the job. Serve it from the directory of this file with

    harpe serve --scheduler python:my_scheduler.LowestClock \
        --scheduler-args '{"num_microbatches": 8, "max_slowdown": 1.05}'

Its output goes to the server's standard error.
"""
from harpe.optimizer.pipeline_frequency.common import FrequencySchedule
from harpe.optimizer.pipeline_frequency.server.scheduler import (FrequencyScheduler,
                                                                 make_3d_parallel)


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


class LowestClock(FrequencyScheduler):
    def __init__(self, job_info, rank_infos, pfo_settings, num_microbatches, max_slowdown=1.1):
        super().__init__(job_info, rank_infos, pfo_settings)
        self.num_microbatches = num_microbatches
        self.max_slowdown = max_slowdown

    def _run(self):
        steps = min(len(rank.available_frequencies) for rank in self.rank_infos)
        fastest = None
        for step in range(steps):
            results = yield self.schedules(step)
            slowest = max(max(result.iter_time) for result in results)
            fastest = fastest or slowest
            print(f"clock {step}: {slowest / fastest:.3f} times as long as the highest")
            if slowest > self.max_slowdown * fastest:
                yield self.schedules(step - 1)  # keeps this clock from now on
                return

    def schedules(self, step):
        """Returns a schedule of every rank with its `step`-th highest clock."""
        return [
            FrequencySchedule(rank=info.rank, frequencies=[
                (name, sorted(info.available_frequencies, reverse=True)[step])
                for name in instructions(info.pp_rank, self.job_info.pp_degree,
                                         self.num_microbatches)])
            for info in self.rank_infos]


LowestClock3D = make_3d_parallel(LowestClock)  # for data and tensor parallel jobs
