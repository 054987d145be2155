/* SPDX-License-Identifier: Apache-2.0 */
/* Places trials of clocks into the slack of a pipeline. Every duration is an upper bound, so the
 * iteration cannot take longer than the limit. After a request for a clock, a GPU may keep its old
 * clock for some time, and instructions in this time take as long as at the old clock. A trial is
 * therefore a block of consecutive instructions that lasts longer than the change of the clock: one
 * instruction, if changes are immediate. This code knows instructions only by numbers: it depends
 * neither on measurements nor on jobs. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_TRIALS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_TRIALS_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/dag.h"
#include "server/scheduler/perseus/clock_curve.h"

/* The clocks of one (stage, instruction). */
typedef struct harpe_trial_choices {
    int rank;                              /* pipeline rank that runs it */
    size_t count;                          /* number of clocks, the highest first */
    const harpe_clock_estimate *estimates; /* [count] */
    double waiting_w;                      /* power of the GPUs while they wait */
    bool *is_wanted;                       /* [count]: a run at this clock is worth measuring */
    bool *is_wanted_most;                  /* [count]: the next plan needs it */
    bool *is_placed;                       /* [count]: a run of this round has this clock */
} harpe_trial_choices;

typedef struct harpe_trials {
    const harpe_dag *dag;
    const int *entry_of;          /* [node_count]: the choices of a node */
    harpe_trial_choices *entries; /* [entry_count] */
    size_t entry_count;
    size_t first_entry;    /* its trials are placed first */
    const size_t *planned; /* [node_count]: the clocks that save the most energy */
    /* The GPUs, one per pipeline rank. All instructions of a rank have the same list of clocks. */
    int rank_count;
    bool is_late;                   /* changes take time; if not, all latencies are 0 */
    const size_t *rank_offset;      /* [rank_count + 1]: first node of each rank */
    const double *const *latency_s; /* [rank_count][clock]: longest time of a change to it */
    const double *const *usual_s;   /* [rank_count][clock]: most changes take at most this */
    const size_t *clock_before;     /* [node_count]: in the round before */
    /* The results. */
    size_t *clock;   /* [node_count]: indices into the choices' clocks */
    double length_s; /* upper bound of the time of an iteration */
    size_t placed;   /* number of trials */
    size_t work;     /* steps of work, see HARPE_TRIALS_WORK */
} harpe_trials;

/* A limit on the work of one call. A step of this work is, for example, a visit of an instruction,
 * and takes some nanoseconds. When the call reaches the limit, it places no more trials and lowers
 * no more clocks. Large pipelines reach the limit. */
enum { HARPE_TRIALS_WORK = 1 << 26 };

/* Chooses the clock of each node, such that the iteration takes at most `limit_s`. The function
 * starts from the highest clocks. First it places the trials that are wanted most where there is
 * the most slack. If a clock does not fit anywhere, the lowest wanted clock above it that fits is
 * tried instead. Then the function lowers the clock of every other run, at most to its planned
 * clock, if its slack permits. Only a trial runs at a clock that was not observed, because such a
 * run may take any time. The limit holds in the first iteration of the round and in the later ones,
 * and for every time from 0 to its latency that a change may take. The exception is a round after
 * which changes to the highest clocks are so late that these clocks alone break the limit. */
harpe_status harpe_trials_place(harpe_trials *trials, double limit_s, harpe_error *error);

/* Makes a round at the highest clocks in which the ranks learn how long changes of the clock take.
 * On each rank, a short block of instructions runs at the next lower clock. If there is room, a
 * long block does so too. The function chooses the blocks that cost least time. The iteration takes
 * at most `limit_s`. */
harpe_status harpe_trials_probe(harpe_trials *trials, double limit_s, harpe_error *error);

#endif
