/* SPDX-License-Identifier: Apache-2.0 */
/* The result of `harpe plan`: the frontier, the plans, their rows, and the most important rows.
 * plan_summary.c prints it, and plan_output.c writes it. */
#ifndef HARPE_CLI_PLAN_PLAN_RESULT_H
#define HARPE_CLI_PLAN_PLAN_RESULT_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/plan.h>

#include "cli/plan/one_clock_rows.h"
#include "cli/plan/problem_options.h"
#include "cli/rows.h"

typedef enum harpe_key_row {
    HARPE_KEY_ALL_MAXIMUM = 0, /* every instruction at its highest frequency */
    HARPE_KEY_FASTEST,
    HARPE_KEY_SMALL_SLOWDOWN, /* least energy within 1.05 times the time of highest clocks
                               */
    HARPE_KEY_MINIMUM_ENERGY,
    HARPE_KEY_COUNT,
} harpe_key_row;

/* Zero-initialise. */
typedef struct harpe_plan_result {
    harpe_frontier *frontier;
    harpe_plan_set *plans; /* NULL: only the bound was requested */
    harpe_plan all_maximum;
    harpe_frontier_row *rows; /* rows of the plans, fastest first */
    size_t row_count;
    /* Rows of plans. If only the bound was requested, rows of the lower bound. */
    harpe_labelled_row key_rows[HARPE_KEY_COUNT];
    harpe_one_clock_rows one_clock;
    /* The plans with one clock that these rows are compared with; NULL: none. */
    const harpe_frontier_row *key_one_clock[HARPE_KEY_COUNT];
    bool verified;
    char *dwell_note; /* a sentence about clocks that hold too briefly; NULL: all hold */
} harpe_plan_result;

/* Solves the problem. If `request` is NULL, computes only the bound. */
harpe_status harpe_plan_result_solve(const harpe_problem *problem,
                                     const harpe_plan_request *request,
                                     const harpe_progress *progress, harpe_plan_result *result,
                                     harpe_error *error);
/* Verifies frontier and plans independently of the solver. */
harpe_status harpe_plan_result_verify(const harpe_problem *problem, harpe_plan_result *result,
                                      harpe_error *error);
void harpe_plan_result_free(harpe_plan_result *result);

/* Returns the frontier's lower bound at a time. The time may be below the fastest vertex by a
 * rounding error. */
double harpe_plan_result_bound_at(const harpe_frontier *frontier, double time_s);

/* Adds peak and swing of a plan's power to its row. */
harpe_status harpe_plan_result_add_power(const harpe_problem *problem, const int *frequency_mhz,
                                         harpe_frontier_row *row, harpe_error *error);

/* Returns the row of the plan with the least energy among those that take at most `time_s`, or that
 * of the fastest plan if none does. There is at least one plan. */
const harpe_frontier_row *harpe_plan_result_within(const harpe_plan_result *result, double time_s);

/* Returns the plan of a row, or NULL if there are no plans. */
const harpe_plan *harpe_plan_result_plan(const harpe_plan_result *result,
                                         const harpe_frontier_row *row);

#endif
