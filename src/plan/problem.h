/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a harpe_problem: every instruction of every rank, its options, and the
 * dependencies. problem.c makes a problem. All later steps (network, assignment, plan files,
 * verification) only read it. */
#ifndef HARPE_PLAN_PROBLEM_H
#define HARPE_PLAN_PROBLEM_H

#include <stdint.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "plan/dag.h"
#include "plan/profiles.h"

/* A (stage, instruction): the public list of its options, and all of its measured points. The
 * points are needed to evaluate plans that use points that are not Pareto-optimal. */
typedef struct harpe_choice {
    harpe_option_list list;
    double blocking_power_w; /* sum over all GPUs of the rank */
    size_t point_count;      /* all measured points, highest frequency first */
    size_t throttled_count;  /* as in harpe_profile_entry */
    const harpe_profile_point *points;
    bool is_fitted;         /* true if the curve is that of the exponential model */
    double coefficients[3]; /* a, b, c of the model */
} harpe_choice;

/* The instruction has no length and no energy, and must end at most `time_s` after the start of the
 * iteration. In a graph, it follows the activity that has the deadline. */
typedef struct harpe_deadline {
    int32_t instruction;
    double time_s;
} harpe_deadline;

struct harpe_problem {
    harpe_arena arena;
    int rank_count;
    int32_t instruction_count;
    size_t *rank_offset;           /* [rank_count + 1]: first instruction of each rank */
    int32_t *choice_of;            /* [instruction_count]: index into choices */
    const harpe_action *action_of; /* [instruction_count]: first action, for pictures */
    /* The last instructions are delays between two ranks, after those of the last rank's list. Each
     * has a single option without energy. The last choices are theirs. 0 in a problem of a graph.
     */
    int32_t delay_count;
    size_t delay_choice_count;
    size_t choice_count;
    harpe_choice *choices;
    harpe_dag dag;
    int *gpu_count;           /* [rank_count] */
    int total_gpu_count;      /* sum over ranks */
    double *blocking_power_w; /* [rank_count]: sum over all GPUs of a rank; the highest power of
                               * all kinds of waits */
    /* For ranks whose kinds of waits have different powers; NULL: there is no such rank. A wait
     * saves this much power compared with the rank's blocking power: the wait that ends with an
     * instruction, and the wait after a rank's last instruction. */
    double *wait_saving_w;         /* [instruction_count]; 0 for delays */
    double *end_saving_w;          /* [rank_count] */
    bool *has_wait_kinds;          /* [rank_count]: one of the rank's savings is not 0 */
    double total_blocking_power_w; /* sum over ranks */
    double overhead_power_w;       /* of the machines, outside of the GPUs */
    int *maximum_frequency_mhz;    /* [instruction_count] */
    uint64_t memory_limit_bytes;
    harpe_latencies latencies; /* the profile's, by rank */
    /* NULL for a pipeline. In a problem of a graph a rank is a resource, and the instructions of
     * the last rank may belong to none. The frequency of a point is then a number that stands for
     * an option, and stages are -1. */
    const struct harpe_graph_layout *graph;
    size_t deadline_count; /* 0 for a pipeline */
    harpe_deadline *deadlines;
};

/* Fails with HARPE_LIMIT_EXCEEDED if this number of instructions needs more memory than the limit
 * (0: the default of 4 GiB). The message contains an estimate. The function can be called before a
 * schedule is made. */
harpe_status harpe_problem_check_size(uint64_t instruction_count, uint64_t memory_limit_bytes,
                                      harpe_error *error);

/* Checks the options that do not depend on the schedule, and begins a problem with them. */
harpe_status harpe_problem_begin(const harpe_problem_options *options, harpe_problem **out,
                                 harpe_error *error);

/* Fills in a choice of a rank. Copies the entry. `blocking_power_w` is that of all GPUs which wait
 * while the instruction does not run. */
harpe_status harpe_problem_fill_choice(harpe_problem *problem, const harpe_profile_entry *entry,
                                       int rank, double blocking_power_w,
                                       const harpe_problem_options *options, harpe_choice *choice,
                                       harpe_error *error);

/* Returns true if an instruction is a delay. It has no frequency. */
static inline bool harpe_problem_is_delay(const harpe_problem *problem, int32_t instruction) {
    return instruction >= problem->instruction_count - problem->delay_count;
}

/* Returns what a second of the iteration costs if all ranks wait: blocking power and overhead. The
 * relaxation pays it for the whole iteration. */
static inline double harpe_problem_iteration_power_w(const harpe_problem *problem) {
    return problem->total_blocking_power_w + problem->overhead_power_w;
}

/* Return true if the kinds of waits of a rank, or of any rank, have different powers. */
static inline bool harpe_problem_has_wait_kinds(const harpe_problem *problem, int rank) {
    return problem->wait_saving_w && problem->has_wait_kinds[rank];
}
static inline bool harpe_problem_has_any_wait_kinds(const harpe_problem *problem) {
    return problem->wait_saving_w;
}

/* Returns the choice of an instruction. */
static inline const harpe_choice *harpe_problem_choice(const harpe_problem *problem,
                                                       int32_t instruction) {
    return &problem->choices[problem->choice_of[instruction]];
}

#endif
