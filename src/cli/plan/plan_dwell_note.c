/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for clocks that hold too briefly; see plan_dwell_note.h. The planner leaves them only on
 * ranks whose instructions have no clock in common. */
#include "cli/plan/plan_dwell_note.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "plan/switching.h"

/* Dwell times are sums, which may be too short by this share. */
#define ROUNDING 1e-9

typedef struct dwell_search {
    const harpe_problem *problem;
    double needed_s;
    double *dwell_s;   /* [rank]: of the present plan */
    size_t plan_count; /* plans with a clock that holds too briefly */
    int rank;          /* the first of their ranks; -1: none */
    double shortest_s; /* of all ranks and plans */
} dwell_search;

static harpe_status look_at(dwell_search *s, const harpe_plan *plan, harpe_error *error) {
    bool is_short = false;
    harpe_status status =
        harpe_switching_dwells(s->problem, plan->frequency_mhz, s->dwell_s, error);
    if (status != HARPE_OK) return status;
    for (int rank = 0; rank < harpe_problem_rank_count(s->problem); rank++) {
        if (s->dwell_s[rank] >= s->needed_s * (1 - ROUNDING)) continue;
        is_short = true;
        if (s->rank < 0 || rank < s->rank) s->rank = rank;
        s->shortest_s = fmin(s->shortest_s, s->dwell_s[rank]);
    }
    s->plan_count += is_short ? 1 : 0;
    return HARPE_OK;
}

harpe_status harpe_plan_dwell_note(const harpe_problem *problem, const harpe_plan_set *plans,
                                   const harpe_clock_switch *cost, char **note,
                                   harpe_error *error) {
    dwell_search s = {.problem = problem,
                      .needed_s = fmax(cost->minimum_dwell_s, cost->latency_s),
                      .rank = -1,
                      .shortest_s = INFINITY};
    harpe_status status = HARPE_OK;
    size_t count = harpe_plan_set_count(plans);
    *note = NULL;
    if (s.needed_s <= 0) return HARPE_OK;
    s.dwell_s = harpe_calloc((size_t)harpe_problem_rank_count(problem), sizeof *s.dwell_s);
    if (!s.dwell_s) return harpe_fail_memory(error);
    for (size_t k = 0; status == HARPE_OK && k < count; k++)
        status = look_at(&s, harpe_plan_set_at(plans, k), error);
    free(s.dwell_s);
    if (status != HARPE_OK || s.rank < 0) return status;
    harpe_text text = {0};
    harpe_text_printf(&text,
                      "in %zu of %zu plans a clock holds for less than %s s (the shortest: %s s): "
                      "the instructions of rank %d have no clock in common; measure them at the "
                      "same clocks",
                      s.plan_count, count, HARPE_DIGITS(s.needed_s, 4),
                      HARPE_DIGITS(s.shortest_s, 4), s.rank);
    if (text.failed) {
        harpe_text_free(&text);
        return harpe_fail_memory(error);
    }
    *note = text.data;
    return HARPE_OK;
}
