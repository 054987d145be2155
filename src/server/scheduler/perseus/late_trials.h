/* SPDX-License-Identifier: Apache-2.0 */
/* Places trials on GPUs whose clocks change late. For GPUs whose clocks change at once, see
 * trials.h. After a request for a clock, the GPU keeps its old clock for some time. Instructions
 * that run during this time take as long as at the old clock. A trial is therefore a block of
 * consecutive instructions that lasts longer than the change of the clock. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_LATE_TRIALS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_LATE_TRIALS_H

#include <harpe/status.h>

#include "server/scheduler/perseus/late_durations.h"

/* A limit on the work of one call of harpe_late_trials_place. A step of this work is, for example,
 * a visit of an instruction, and takes some nanoseconds. When the call reaches the limit, it places
 * no more trials and lowers no more clocks. Large pipelines with long latencies reach the limit. */
enum { HARPE_LATE_TRIALS_WORK = 1 << 25 };

/* Makes a round at the highest clocks in which the ranks change their clocks, so that they learn
 * how long this takes. On each rank, a short block of instructions runs at the next lower clock.
 * If there is room, a long block does so too. The function chooses the blocks that cost least time.
 * The iteration takes at most `limit_s`. Writes the number of blocks to `*placed`. */
harpe_status harpe_late_trials_probe(harpe_trials *trials, const harpe_late_gpus *gpus,
                                     double limit_s, size_t *placed, harpe_error *error);

/* Chooses the clock of each instruction, as harpe_trials_place does. Each duration is an upper
 * bound: it holds if each change takes any time from 0 to gpus->latency_s, in the first iteration
 * of the round and in the later ones. Writes the number of trials to `*placed`. */
harpe_status harpe_late_trials_place(harpe_trials *trials, const harpe_late_gpus *gpus,
                                     double limit_s, size_t *placed, harpe_error *error);

#endif
