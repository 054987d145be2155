/* SPDX-License-Identifier: Apache-2.0 */
/* Places trials of clocks into the slack of a pipeline. Every duration is an upper bound, so the
 * iteration cannot take longer than the limit. This code knows instructions only by numbers: it
 * depends neither on measurements nor on jobs. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_TRIALS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_TRIALS_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/dag.h"
#include "server/scheduler/perseus/clock_curve.h"

/* The clocks of one (stage, instruction). */
typedef struct harpe_trial_choices {
    size_t count;                          /* number of clocks, the highest first */
    const harpe_clock_estimate *estimates; /* [count] */
    double waiting_w;                      /* power while the GPUs wait: longer runs wait less */
    bool *is_wanted;                       /* [count]: a run at this clock would teach something */
    bool *is_wanted_most;                  /* [count]: the next plan needs it */
    bool *is_placed;                       /* [count]: a run of this round has this clock */
} harpe_trial_choices;

typedef struct harpe_trials {
    const harpe_dag *dag;
    const int *entry_of;          /* [node_count]: the choices of a node */
    harpe_trial_choices *entries; /* [entry_count] */
    size_t entry_count;
    size_t first_entry;    /* its trials are placed first */
    size_t *clock;         /* [node_count]: the result; indices into the choices' clocks */
    const size_t *planned; /* [node_count]: the clocks that save the most energy */
    double *duration_s;    /* [node_count]: scratch, and three arrays below */
    double *earliest_end_s, *latest_end_s;
    bool *is_trial;
    size_t *scratch; /* [node_count]: used only by late_trials.h; may be NULL without it */
    size_t work;     /* steps of the last placing by late_trials.h */
} harpe_trials;

/* Chooses the clock of each node. First it starts from the highest clocks and places the trials
 * that are wanted most, each in the run with the most slack; the iteration then ends before
 * `trial_limit_s`. If a clock does not fit anywhere, the lowest wanted clock above it that fits is
 * tried instead. Then every other run takes a clock as low as its planned clock if its slack
 * permits, without making the iteration longer than `plan_limit_s` or than the trials have made it.
 * A clock that was not observed gets no other run than a trial, because it may take any time.
 * Returns the number of trials placed. O(trials * arcs). */
size_t harpe_trials_place(harpe_trials *trials, double trial_limit_s, double plan_limit_s);

/* Returns the length of an iteration with the given durations, and writes the ends. */
double harpe_trials_length_s(const harpe_trials *trials);
/* Writes latest_end_s: the latest end of each instruction at which the iteration still ends by
 * `limit_s`. */
void harpe_trials_find_latest_ends(const harpe_trials *trials, double limit_s);

#endif
