/* SPDX-License-Identifier: Apache-2.0 */
/* Computes real frequencies from a relaxed solution: rounds every duration to a measured option,
 * spends the remaining slack where the slack saves the most energy, and then improves the result by
 * local search. All times are whole picoseconds. The result never exceeds the deadline. */
#ifndef HARPE_PLAN_ASSIGNMENT_H
#define HARPE_PLAN_ASSIGNMENT_H

#include <stdint.h>

#include "base/array.h"
#include "plan/problem.h"

/* An optimal solution of the relaxation at one iteration time. The arrays are indexed by
 * instruction. */
typedef struct harpe_relaxed {
    int64_t time_ps;      /* the deadline */
    int64_t *duration_ps; /* time from the start event to the end event */
    int64_t *price_uw; /* flow through the instruction: the price of one second of its duration */
} harpe_relaxed;

/* The present assignment of one problem (an option for each instruction), and the working memory of
 * the functions below. Arrays are indexed by position. The position of an instruction is its place
 * in topological order. Every pass therefore reads memory forwards. */
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
    /* The present assignment. */
    int64_t deadline_ps;
    int32_t *option;        /* [count] */
    int64_t *end_ps;        /* earliest end */
    int64_t *last_start_ps; /* latest start that meets the deadline */
    double energy_j;        /* sum of the effective energies */
    /* Working memory. */
    struct harpe_assignment_change *changes; /* log for undoing the present trial */
    size_t change_count, change_capacity;
    int32_t *queue; /* heap of positions to be updated */
    uint8_t *queued;
    int32_t queue_size;
    int32_t *order;
    double *rank_key;
    int64_t *rank_end_ps; /* [rank_count]; NULL if no rank has several powers of waits */
    uint64_t visits;      /* number of positions recomputed so far, as a measure of work */
} harpe_assignment;

harpe_status harpe_assignment_init(harpe_assignment *assignment, const harpe_problem *problem,
                                   harpe_error *error);
void harpe_assignment_clear(harpe_assignment *assignment);

/* Chooses for each instruction the slowest measured option that fits into its relaxed duration.
 * Then spends all slack, beginning where a second saves the most energy. O(n log n) plus the time
 * to spend slack. */
harpe_status harpe_assignment_round(harpe_assignment *assignment, const harpe_relaxed *relaxed,
                                    harpe_error *error);

/* Restores an earlier assignment. */
void harpe_assignment_restore(harpe_assignment *assignment, const int32_t *option,
                              int64_t deadline_ps);

/* Spends all slack. The present options must meet the deadline. */
harpe_status harpe_assignment_settle(harpe_assignment *assignment, int64_t deadline_ps,
                                     harpe_error *error);

/* Runs the local search. Each trial makes one instruction faster by one to three options, and then
 * spends the slack that has become free on instructions near it. A trial that saves energy is kept,
 * and any other is undone. Stops when a whole pass saves nothing, or after `visit_budget`
 * recomputed positions. */
harpe_status harpe_assignment_improve(harpe_assignment *assignment, uint64_t visit_budget,
                                      harpe_error *error);

/* Returns the length of the iteration with the present options. */
int64_t harpe_assignment_time_ps(const harpe_assignment *assignment);

/* Returns the energy that the waits of the cheaper kinds save, compared with waits at the highest
 * waiting power of their rank, if all instructions start as early as possible. The search does not
 * count this energy. */
double harpe_assignment_wait_saving_j(const harpe_assignment *assignment);

/* Writes the frequencies in the problem's order. */
void harpe_assignment_frequencies(const harpe_assignment *assignment, int *frequency_mhz);

/* ---- Joins ----------------------------------------------------------------------------------- */

/* Working memory of harpe_splice. One splicer serves all problems with the same number of
 * instructions, one after another. */
typedef struct harpe_splicer {
    double *moment; /* [count] when an instruction starts, as a share of the iteration */
    int32_t *order; /* [count] positions by moment */
} harpe_splicer;

harpe_status harpe_splicer_init(harpe_splicer *splicer, int32_t count, harpe_error *error);
void harpe_splicer_clear(harpe_splicer *splicer);

/* Joins two plans at a moment of the iteration: instructions that start before this moment have
 * their options of one plan, and all others have their options of the other plan. If both plans are
 * close to the lower bound, the joined plan is also close to the bound. A rounded relaxed solution
 * of the same time is not as close, because it mixes both plans in every microbatch.
 *
 * Joins `fast`, which meets the deadline, and `slow`, which may be too slow, and leaves the result
 * in `assignment`. The result contains as much of `slow` as the deadline allows: at the start of
 * the iteration if `slow_first` is true, otherwise at the end. The remaining slack is spent. O(n
 * log n). */
harpe_status harpe_splice(harpe_splicer *splicer, harpe_assignment *assignment, const int32_t *fast,
                          const int32_t *slow, bool slow_first, int64_t deadline_ps,
                          harpe_error *error);

#endif
