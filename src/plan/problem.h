/* SPDX-License-Identifier: Apache-2.0 */
/* The problem behind the opaque handle: every instruction of every rank, the options it may run
 * at, and what must end before it may start. Made once by problem.c; everything after it on the
 * journey (network, assignment, plan files, verification) only reads it. */
#ifndef HARPE_PLAN_PROBLEM_H
#define HARPE_PLAN_PROBLEM_H

#include <stdint.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "plan/dag.h"

/* A (stage, instruction): what the public list shows, and every measured point, so that any plan
 * can be evaluated, also one that uses options which are not Pareto-optimal. */
typedef struct harpe_choice {
    harpe_option_list list;
    double blocking_power_w; /* of all GPUs of its rank together */
    size_t point_count;      /* all measured points, highest frequency first */
    const harpe_profile_point *points;
    bool is_fitted;         /* the curve is the exponential model's */
    double coefficients[3]; /* its a, b, c */
} harpe_choice;

struct harpe_problem {
    harpe_arena arena;
    int rank_count;
    int32_t instruction_count;
    size_t *rank_offset;           /* [rank_count + 1]: first instruction of each rank */
    int32_t *choice_of;            /* [instruction_count]: index into choices */
    const harpe_action *action_of; /* [instruction_count]: its first action, for pictures */
    size_t choice_count;
    harpe_choice *choices;
    harpe_dag dag;
    int *gpu_count;                /* [rank_count] */
    int total_gpu_count;           /* sum over ranks */
    double *blocking_power_w;      /* [rank_count], of all GPUs of a rank together */
    double total_blocking_power_w; /* sum over ranks */
    int *maximum_frequency_mhz;    /* [instruction_count] */
    uint64_t memory_limit_bytes;
};

/* HARPE_LIMIT_EXCEEDED, with an estimate, when so many instructions need more memory than the limit
 * (0: the default's 4 GiB). Schedules can be refused by it before they are made. */
harpe_status harpe_problem_check_size(uint64_t instruction_count, uint64_t memory_limit_bytes,
                                      harpe_error *error);

/* The choice of an instruction. */
static inline const harpe_choice *harpe_problem_choice(const harpe_problem *problem,
                                                       int32_t instruction) {
    return &problem->choices[problem->choice_of[instruction]];
}

#endif
