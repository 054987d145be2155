/* SPDX-License-Identifier: Apache-2.0 */
/* What `harpe plan` found: frontier, plans, their rows, and the few rows that people look at first.
 * Made by solving a problem; printed by plan_summary.c, written by plan_output.c. */
#ifndef HARPE_CLI_PLAN_RESULT_H
#define HARPE_CLI_PLAN_RESULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/plan.h>

#include "cli/problem_options.h"
#include "cli/rows.h"

typedef enum harpe_key_row {
    HARPE_KEY_ALL_MAXIMUM = 0, /* every instruction at its highest frequency */
    HARPE_KEY_FASTEST,
    HARPE_KEY_SMALL_SLOWDOWN, /* least energy within 1.05 times the time of all maximum */
    HARPE_KEY_MINIMUM_ENERGY,
    HARPE_KEY_COUNT,
} harpe_key_row;

/* Zero-initialise. */
typedef struct harpe_plan_result {
    harpe_frontier *frontier;
    harpe_plan_set *plans; /* NULL: only the bound was asked for */
    harpe_plan all_maximum;
    harpe_frontier_row *rows; /* of the plans, fastest first */
    size_t row_count;
    /* Of plans; without plans, of the lower bound. */
    harpe_labelled_row key_rows[HARPE_KEY_COUNT];
    bool verified;
} harpe_plan_result;

/* Solves; `request` NULL: only the bound. */
harpe_status harpe_plan_result_solve(const harpe_problem *problem,
                                     const harpe_plan_request *request,
                                     const harpe_progress *progress, harpe_plan_result *result,
                                     harpe_error *error);
/* Checks frontier and plans by other means than the solver's. */
harpe_status harpe_plan_result_verify(const harpe_problem *problem, harpe_plan_result *result,
                                      harpe_error *error);
void harpe_plan_result_free(harpe_plan_result *result);

/* The frontier's lower bound, also a rounding error below its fastest vertex. */
double harpe_plan_result_bound_at(const harpe_frontier *frontier, double time_s);

/* The plan of a row, or NULL where there are none. */
const harpe_plan *harpe_plan_result_plan(const harpe_plan_result *result,
                                         const harpe_frontier_row *row);

/* ---- plan_summary.c ----------------------------------------------------------------------- */

/* The summary for people, on stdout. `directory` may be NULL: nothing was written. */
void harpe_plan_summary_print(const harpe_problem_input *input, const harpe_plan_result *result,
                              const char *directory, bool has_report);
/* Key rows, counts and gaps; the solver's work. */
json_t *harpe_plan_summary_json(const harpe_plan_result *result);
json_t *harpe_plan_work_json(const harpe_plan_result *result);

#endif
