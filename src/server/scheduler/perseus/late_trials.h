/* SPDX-License-Identifier: Apache-2.0 */
/* Places trials like trials.h on GPUs whose clocks change late. An instruction may run at the
 * clock of instructions before it on the same GPU for as long as a change takes, and its duration
 * contains this. So a change has a price, and a trial is a block of neighbours that lasts longer
 * than the change. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_LATE_TRIALS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_LATE_TRIALS_H

#include "server/scheduler/perseus/trials.h"

/* The GPUs, one per pipeline rank. All instructions of a rank have the same list of clocks. */
typedef struct harpe_late_gpus {
    int rank_count;
    const size_t *rank_offset;      /* [rank_count + 1]: first node of each rank */
    const double *const *latency_s; /* [rank_count][clock]: no change to a clock takes longer */
    const double *const *usual_s;   /* [rank_count][clock]: a change to a clock usually is over */
    const size_t *last_clock;       /* [rank_count]: at the end of the round before */
} harpe_late_gpus;

/* Makes a round at the highest clocks in which the ranks change their clocks, so that they learn
 * how long this takes. On each rank a short and a long block run at the next lower clock, where
 * they cost least, if the iteration stays within `limit_s`. Returns the number of blocks. O(ranks *
 * arcs). */
size_t harpe_late_trials_probe(harpe_trials *trials, const harpe_late_gpus *gpus, double limit_s);

/* Chooses the clock of each node, as harpe_trials_place does. Every duration is an upper bound for
 * all latencies from 0 to `latency_s`, in the first iteration of the round and in later ones.
 * Returns the number of trials. O((trials + nodes) * arcs). */
size_t harpe_late_trials_place(harpe_trials *trials, const harpe_late_gpus *gpus, double limit_s);

#endif
