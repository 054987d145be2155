/* SPDX-License-Identifier: Apache-2.0 */
/* How long instructions take at most on GPUs whose clocks change late. Each change takes any time
 * up to its latency, and an instruction may run at an earlier clock until its own is there. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_LATE_DURATIONS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_LATE_DURATIONS_H

#include "server/scheduler/perseus/longest_path.h"
#include "server/scheduler/perseus/trials.h"

/* The GPUs, one per pipeline rank. All instructions of a rank have the same list of clocks. */
typedef struct harpe_late_gpus {
    int rank_count;
    const size_t *rank_offset;      /* [rank_count + 1]: first node of each rank */
    const double *const *latency_s; /* [rank_count][clock]: no change to a clock takes longer */
    const double *const *usual_s;   /* [rank_count][clock]: a change usually takes at most this */
    const size_t *clock_before;     /* [node]: in the round before */
} harpe_late_gpus;

/* What a GPU may be doing when an instruction begins. */
typedef struct harpe_late_state {
    double held_s; /* its clock was asked for at least so long ago */
    size_t lowest; /* the lowest clock that may still be in effect from before that */
} harpe_late_state;

typedef struct harpe_late_durations {
    harpe_trials *trials;
    const harpe_late_gpus *gpus;
    harpe_longest_path *path;
    harpe_late_state *states[2]; /* [node]: in the first iteration of the round; in the others */
    harpe_late_state *last;      /* [rank]: of the last node in the round before */
    size_t work;                 /* instructions visited so far */
} harpe_late_durations;

/* Begins with the clocks of `trials`. All durations of `path` become those of these clocks. Returns
 * false if memory runs out. Free with harpe_late_durations_end in any case. */
bool harpe_late_durations_begin(harpe_late_durations *self, harpe_trials *trials,
                                const harpe_late_gpus *gpus, harpe_longest_path *path);
void harpe_late_durations_end(harpe_late_durations *self);

/* Finds the durations after the clocks of first .. end-1 of a rank have changed. Visits these
 * instructions, and those after them that depend on them. */
void harpe_late_durations_change(harpe_late_durations *self, int rank, size_t first, size_t end);

static inline const harpe_trial_choices *harpe_late_choices(const harpe_trials *trials,
                                                            size_t node) {
    return &trials->entries[trials->entry_of[node]];
}

/* Returns the shortest time that a node takes at any clock. */
static inline double harpe_late_shortest_s(const harpe_trials *trials, size_t node) {
    return harpe_late_choices(trials, node)->estimates[0].lower_s;
}

#endif
