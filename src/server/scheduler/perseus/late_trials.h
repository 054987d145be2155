/* SPDX-License-Identifier: Apache-2.0 */
/* Places trials on GPUs whose clocks change late; trials.h is for GPUs whose clocks change at once.
 * After a request for a clock, the GPU keeps its old clock until the change is over. During this
 * time, instructions may run at the old clock, and their durations contain this. So each change
 * costs time. A trial is a block of consecutive instructions that lasts longer than the change. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_LATE_TRIALS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_LATE_TRIALS_H

#include <harpe/status.h>

#include "server/scheduler/perseus/late_durations.h"

/* The most steps of one call of harpe_late_trials_place, for example visits of an instruction.
 * After that, the call places no more trials and lowers no more clocks. Large pipelines with long
 * latencies reach this limit. A step takes some nanoseconds. */
enum { HARPE_LATE_TRIALS_WORK = 1 << 25 };

/* Makes a round at the highest clocks in which the ranks change their clocks, so that they learn
 * how long this takes. On each rank, a short block and, if there is room, a long block run at the
 * next lower clock, where they cost least. The iteration takes at most `limit_s`. Writes the number
 * of blocks to `*placed`. */
harpe_status harpe_late_trials_probe(harpe_trials *trials, const harpe_late_gpus *gpus,
                                     double limit_s, size_t *placed, harpe_error *error);

/* Chooses the clock of each instruction, as harpe_trials_place does. Each duration is an upper
 * bound: it holds if each change takes any time from 0 to gpus->latency_s, in the first iteration
 * of the round and in the later ones. Writes the number of trials to `*placed`. */
harpe_status harpe_late_trials_place(harpe_trials *trials, const harpe_late_gpus *gpus,
                                     double limit_s, size_t *placed, harpe_error *error);

#endif
