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

/* Dwell times are sums, which may be too short by this share. */
#define ROUNDING 1e-9

typedef struct dwell_search {
    const harpe_problem *problem;
    double needed_s;
    double *start_s;   /* [instruction]: of the present plan */
    size_t plan_count; /* plans with a clock that holds too briefly */
    int rank;          /* the first of their ranks; -1: none */
    double shortest_s; /* of all ranks and plans */
} dwell_search;

/* Returns the shortest time for which a clock of a rank holds, INFINITY if the rank changes no
 * clock. The rank has the instructions first .. end - 1. */
static double rank_dwell_s(const harpe_plan *plan, const double *start_s, size_t first,
                           size_t end) {
    double shortest_s = INFINITY;
    double between_s = INFINITY; /* without the first clock */
    size_t began = first, second = first;
    for (size_t i = first + 1; i < end; i++) {
        if (plan->frequency_mhz[i] == plan->frequency_mhz[i - 1]) continue;
        shortest_s = fmin(shortest_s, start_s[i] - start_s[began]);
        if (began != first) between_s = fmin(between_s, start_s[i] - start_s[began]);
        if (began == first) second = i;
        began = i;
    }
    if (began == first) return INFINITY;
    /* The last clock holds until the first change of the next iteration. */
    bool goes_on = plan->frequency_mhz[first] == plan->frequency_mhz[end - 1];
    double until_s = plan->time_s + start_s[goes_on ? second : first];
    return fmin(goes_on ? between_s : shortest_s, until_s - start_s[began]);
}

static harpe_status look_at(dwell_search *s, const harpe_plan *plan, harpe_error *error) {
    harpe_plan evaluated;
    harpe_status status =
        harpe_plan_evaluate(s->problem, plan->frequency_mhz, &evaluated, s->start_s, error);
    if (status != HARPE_OK) return status;
    bool is_short = false;
    size_t first = 0;
    for (int rank = 0; rank < harpe_problem_rank_count(s->problem); rank++) {
        size_t end = first + harpe_problem_rank_length(s->problem, rank);
        double dwell_s = rank_dwell_s(&evaluated, s->start_s, first, end);
        first = end;
        if (dwell_s >= s->needed_s * (1 - ROUNDING)) continue;
        is_short = true;
        if (s->rank < 0 || rank < s->rank) s->rank = rank;
        s->shortest_s = fmin(s->shortest_s, dwell_s);
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
    s.start_s = harpe_calloc(harpe_problem_instruction_count(problem), sizeof *s.start_s);
    if (!s.start_s) return harpe_fail_memory(error);
    for (size_t k = 0; status == HARPE_OK && k < count; k++)
        status = look_at(&s, harpe_plan_set_at(plans, k), error);
    free(s.start_s);
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
