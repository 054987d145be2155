/* SPDX-License-Identifier: Apache-2.0 */
/* From a relaxed solution to real frequencies: rounds every duration to a measured option, spends
 * the slack that rounding leaves where it saves most, then improves by local search. Works in the
 * order of time on whole picoseconds; never leaves the deadline, never looks at the frontier. */
#ifndef HARPE_PLAN_ASSIGNMENT_H
#define HARPE_PLAN_ASSIGNMENT_H

#include <stdint.h>

#include "plan/problem.h"

/* An optimal solution of the relaxation at one iteration time, by instruction. */
typedef struct harpe_relaxed {
    int64_t time_ps;      /* the deadline */
    int64_t *duration_ps; /* from its start event to its end event */
    int64_t *price_uw;    /* flow through it: what a second of its time is worth */
} harpe_relaxed;

/* Working memory for one problem, and the assignment it currently holds. Arrays are indexed by
 * position: instructions in topological order, so that every pass reads memory forwards. */
typedef struct harpe_assignment {
    const harpe_problem *problem;
    harpe_arena arena;
    int32_t count;
    int32_t *instruction_at;        /* position -> instruction */
    int32_t *first_before, *before; /* predecessors, as positions */
    int32_t *first_after, *after;   /* successors */
    /* Options of each position: option o of position i is option_time_ps[first_option[i] + o]. */
    int32_t *first_option, *option_count;
    int64_t *option_time_ps;
    double *option_energy_j; /* effective */
    /* The assignment. */
    int64_t deadline_ps;
    int32_t *option;        /* [count] */
    int64_t *end_ps;        /* earliest end */
    int64_t *last_start_ps; /* latest start that still meets the deadline */
    double energy_j;        /* effective, sum */
    /* Scratch. */
    struct harpe_assignment_change *changes; /* undo log of the trial under way */
    size_t change_count, change_capacity;
    int32_t *queue; /* heap of positions to look at again */
    uint8_t *queued;
    int32_t queue_size;
    int32_t *order;
    double *rank_key;
    uint64_t visits; /* positions recomputed: the work done */
} harpe_assignment;

harpe_status harpe_assignment_init(harpe_assignment *assignment, const harpe_problem *problem,
                                   harpe_error *error);
void harpe_assignment_clear(harpe_assignment *assignment);

/* The slowest measured option within each relaxed duration, then all slack spent, best savings per
 * second first. O(n log n) beside the slack spent. */
harpe_status harpe_assignment_round(harpe_assignment *assignment, const harpe_relaxed *relaxed,
                                    harpe_error *error);

/* Takes up an assignment that was made before. */
void harpe_assignment_restore(harpe_assignment *assignment, const int32_t *option,
                              int64_t deadline_ps);

/* Earliest ends of `option` (by position) into end_ps; returns the length of the iteration. Leaves
 * everything else as it is, so that other functions need the assignment settled again. */
int64_t harpe_assignment_run(harpe_assignment *assignment, const int32_t *option);

/* Takes the options as they are, for a deadline that they meet, and spends all slack. */
harpe_status harpe_assignment_settle(harpe_assignment *assignment, int64_t deadline_ps,
                                     harpe_error *error);

/* Local search from there: speeds one instruction up by a step or two and spends the slack that
 * this frees around it, keeps what saves energy; stops when a whole pass brings nothing or after
 * `visit_budget` recomputed positions. */
harpe_status harpe_assignment_improve(harpe_assignment *assignment, uint64_t visit_budget,
                                      harpe_error *error);

/* Length of the iteration as assigned. */
int64_t harpe_assignment_time_ps(const harpe_assignment *assignment);

/* Frequencies in the problem's order. */
void harpe_assignment_frequencies(const harpe_assignment *assignment, int *frequency_mhz);

#endif
