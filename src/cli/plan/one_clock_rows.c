/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the rows of the plans with one clock, and finds the one that a plan is compared with.
 * src/plan/one_clock.c makes the plans. */
#include "cli/plan/one_clock_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/problem.h"

/* The same time, summed up in another order, may be longer by this share. */
#define SLACK 1e-9

static harpe_status make_rows(const harpe_problem *problem, const harpe_frontier *frontier,
                              const harpe_plan *all_maximum, const harpe_plan_set *plans,
                              harpe_one_clock_rows *out, harpe_error *error) {
    size_t count = harpe_plan_set_count(plans);
    harpe_frontier_row *rows = harpe_calloc(count, sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    size_t vertex_count = 0;
    double fastest_s = harpe_frontier_vertices(frontier, &vertex_count)[0].time_s;
    for (size_t i = 0; i < count; i++) {
        harpe_plan plan = *harpe_plan_set_at(plans, i);
        /* Rounding may make a time shorter than the fastest. */
        plan.lower_bound_j = harpe_frontier_bound_at(frontier, fmax(plan.time_s, fastest_s));
        rows[i] = harpe_frontier_row_of(&plan, -1, all_maximum);
        rows[i].one_clock_mhz = harpe_plan_one_clock_mhz(problem, plan.frequency_mhz);
    }
    *out = (harpe_one_clock_rows){rows, count, all_maximum->time_s};
    for (size_t i = 0; i < count; i++)
        (void)harpe_one_clock_compare(out, rows[i].time_s, &rows[i]);
    return HARPE_OK;
}

harpe_status harpe_one_clock_rows_make(const harpe_problem *problem, const harpe_frontier *frontier,
                                       const harpe_plan *all_maximum, harpe_one_clock_rows *out,
                                       harpe_error *error) {
    harpe_plan_set *plans = NULL;
    *out = (harpe_one_clock_rows){0};
    if (problem->graph) return HARPE_OK;
    harpe_status status = harpe_plan_set_one_clock(problem, &plans, error);
    if (status == HARPE_OK) status = make_rows(problem, frontier, all_maximum, plans, out, error);
    harpe_plan_set_free(plans);
    return status;
}

void harpe_one_clock_rows_free(harpe_one_clock_rows *of) {
    free(of->rows);
    *of = (harpe_one_clock_rows){0};
}

const harpe_frontier_row *harpe_one_clock_row_within(const harpe_one_clock_rows *of,
                                                     double most_s) {
    double limit_s = fmax(most_s, of->highest_s) * (1 + SLACK);
    const harpe_frontier_row *best = NULL;
    for (size_t i = 0; i < of->count; i++) {
        const harpe_frontier_row *row = &of->rows[i];
        if (row->time_s <= limit_s && (!best || row->energy_j < best->energy_j)) best = row;
    }
    return best;
}

const harpe_frontier_row *harpe_one_clock_compare(const harpe_one_clock_rows *of, double most_s,
                                                  harpe_frontier_row *row) {
    const harpe_frontier_row *best = harpe_one_clock_row_within(of, most_s);
    row->one_clock_energy_j = best ? best->energy_j : 0;
    return best;
}

harpe_labelled_row harpe_one_clock_labelled(const harpe_frontier_row *row) {
    harpe_labelled_row labelled = {.row = *row};
    if (row->one_clock_mhz > 0)
        snprintf(labelled.label, sizeof labelled.label, "one clock, %d MHz", row->one_clock_mhz);
    else
        snprintf(labelled.label, sizeof labelled.label, "one clock: none saves");
    return labelled;
}
