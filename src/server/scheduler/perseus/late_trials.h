/* SPDX-License-Identifier: Apache-2.0 */
/* Places trials like trials.h on GPUs whose clocks change late. An instruction may run at the
 * clock of instructions before it on the same GPU for as long as a change takes, and its duration
 * contains this. So a change has a price, and a trial is a block of neighbours that lasts longer
 * than the change. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_LATE_TRIALS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_LATE_TRIALS_H

#include <harpe/status.h>

#include "server/scheduler/perseus/late_durations.h"

/* A placing takes at most so many steps, such as instructions visited. After that, no more trials
 * are placed in this round, and no more clocks are lowered. Large pipelines with long latencies
 * need more than this. A step takes some nanoseconds. */
enum { HARPE_LATE_TRIALS_WORK = 1 << 25 };

/* Makes a round at the highest clocks in which the ranks change their clocks, so that they learn
 * how long this takes. On each rank a short and a long block run at the next lower clock, where
 * they cost least, if the iteration stays within `limit_s`. Writes the number of blocks. */
harpe_status harpe_late_trials_probe(harpe_trials *trials, const harpe_late_gpus *gpus,
                                     double limit_s, size_t *placed, harpe_error *error);

/* Chooses the clock of each node, as harpe_trials_place does. Every duration is an upper bound for
 * all latencies from 0 to `latency_s`, in the first iteration of the round and in later ones.
 * Writes the number of trials. */
harpe_status harpe_late_trials_place(harpe_trials *trials, const harpe_late_gpus *gpus,
                                     double limit_s, size_t *placed, harpe_error *error);

#endif
