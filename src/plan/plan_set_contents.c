/* SPDX-License-Identifier: Apache-2.0 */
/* Adds plans to a set, sorts them, and chooses among them by time and energy. Of plans,
 * makes only those with one clock for all GPUs, which need no search. */
#include "plan/plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* A plan may take longer than a limit by this share, so that the printed time of a plan, given as a
 * limit, finds the plan: sums in another order differ in the last digits. */
#define SLACK 1e-9
/* A relative difference in energy below this is not a saving. Sums of thousands of measured numbers
 * can differ by this amount if the order of addition changes. */
#define ENERGY_ROUNDING 1e-11
#define TIME_ROUNDING 1e-12

harpe_status harpe_plan_set_add(harpe_plan_set *set, const harpe_problem *problem,
                                const int *frequency_mhz, harpe_error *error) {
    if (!HARPE_ARRAY_RESERVE(set->plans, set->capacity, set->count + 1))
        return harpe_fail_memory(error);
    int *copy = harpe_calloc((size_t)problem->instruction_count, sizeof *copy);
    if (!copy) return harpe_fail_memory(error);
    memcpy(copy, frequency_mhz, harpe_problem_instruction_count(problem) * sizeof *copy);
    harpe_status status = harpe_plan_evaluate(problem, copy, &set->plans[set->count], NULL, error);
    if (status == HARPE_OK)
        set->count++;
    else
        free(copy);
    return status;
}

static int compare_plans(const void *a, const void *b) {
    const harpe_plan *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    return (x->energy_j > y->energy_j) - (x->energy_j < y->energy_j);
}

/* Sorts the fastest first. Of equally fast plans the one with less energy is first. */
static void plan_set_sort(harpe_plan_set *set) {
    qsort(set->plans, set->count, sizeof *set->plans, compare_plans);
}

/* NOLINTBEGIN(clang-analyzer-unix.Malloc): no two plans of a set share their clocks */
double harpe_plan_set_cost_j(const harpe_problem *problem, double change_j,
                             const harpe_plan *plan) {
    if (change_j <= 0) return plan->energy_j;
    return plan->energy_j + change_j * (double)harpe_evaluate_changes(problem, plan->frequency_mhz);
}

void harpe_plan_set_drop_dominated(harpe_plan_set *set, const harpe_problem *problem,
                                   double change_j) {
    size_t kept = 0;
    double power_w = harpe_problem_iteration_power_w(problem);
    plan_set_sort(set);
    for (size_t i = 0; i < set->count; i++) {
        harpe_plan plan = set->plans[i], *last = kept > 0 ? &set->plans[kept - 1] : NULL;
        double rounding_j =
            last ? ENERGY_ROUNDING * (fabs(last->energy_j) + power_w * last->time_s) : 0;
        if (last && harpe_plan_set_cost_j(problem, change_j, &plan) >=
                        harpe_plan_set_cost_j(problem, change_j, last) - rounding_j) {
            free((void *)plan.frequency_mhz);
            continue;
        }
        bool is_as_fast = last && plan.time_s <= last->time_s * (1 + TIME_ROUNDING);
        if (is_as_fast) free((void *)last->frequency_mhz);
        set->plans[is_as_fast ? kept - 1 : kept++] = plan;
    }
    set->count = kept;
}
/* NOLINTEND(clang-analyzer-unix.Malloc) */

harpe_status harpe_plan_set_pick(harpe_plan_set *set, const harpe_problem *problem,
                                 const double *times_s, size_t count, harpe_error *error) {
    harpe_plan_set picked = {0};
    harpe_status status = HARPE_OK;
    for (size_t k = 0; k < count && status == HARPE_OK; k++) {
        size_t best = 0;
        while (best + 1 < set->count && set->plans[best + 1].time_s <= times_s[k] * (1 + SLACK))
            best++;
        status = harpe_plan_set_add(&picked, problem, set->plans[best].frequency_mhz, error);
    }
    harpe_plan_set_clear(set);
    *set = picked;
    return status;
}

const harpe_plan *harpe_plan_set_within(const harpe_plan_set *plans, double most_s) {
    const harpe_plan *best = NULL;
    for (size_t i = 0; i < plans->count; i++) {
        const harpe_plan *plan = &plans->plans[i];
        if (plan->time_s > most_s * (1 + SLACK)) continue;
        if (!best || plan->energy_j < best->energy_j) best = plan;
    }
    return best;
}

void harpe_plan_set_clear(harpe_plan_set *set) {
    for (size_t i = 0; i < set->count; i++)
        free((void *)set->plans[i].frequency_mhz);
    free(set->plans);
}

void harpe_plan_set_free(harpe_plan_set *plans) {
    if (plans) harpe_plan_set_clear(plans);
    free(plans);
}

size_t harpe_plan_set_count(const harpe_plan_set *plans) { return plans->count; }

const harpe_plan *harpe_plan_set_at(const harpe_plan_set *plans, size_t index) {
    return index < plans->count ? &plans->plans[index] : NULL;
}

/* ---- Plans with one clock -------------------------------------------------------------------- */

/* Makes the plans with one clock for all GPUs, which a user can have without a planner. Their set
 * also has the plan at the highest clocks. */

/* Returns the measured clocks of the first instruction that has clocks. A clock of all
 * instructions is one of these. */
static const harpe_choice *first_with_clocks(const harpe_problem *problem) {
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, i);
        if (harpe_choice_has_clocks(choice)) return choice;
    }
    return NULL;
}

/* Returns true if the GPU did not reach the clock of a point, and false for the highest clock,
 * because all savings are shown against it. */
static bool is_throttled(const harpe_choice *choice, const harpe_profile_point *point) {
    return point > choice->points && point < choice->points + choice->throttled_count;
}

/* Adds the plan with one clock, unless an instruction was not measured at this clock or did not
 * reach it. 0 MHz is no clock; a profile may have such a row beside others. */
static harpe_status add_clock(const harpe_problem *problem, int clock_mhz, int *frequency_mhz,
                              harpe_plan_set *set, harpe_error *error) {
    if (clock_mhz == 0) return HARPE_OK;
    for (size_t i = 0; i < harpe_problem_instruction_count(problem); i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
        const harpe_profile_point *point = harpe_choice_point(choice, clock_mhz);
        if (!point || is_throttled(choice, point)) return HARPE_OK;
        frequency_mhz[i] = point->frequency_mhz;
    }
    return harpe_plan_set_add(set, problem, frequency_mhz, error);
}

static harpe_status make_plans(const harpe_problem *problem, int *frequency_mhz,
                               harpe_plan_set *set, harpe_error *error) {
    const harpe_choice *choice = first_with_clocks(problem);
    harpe_status status = HARPE_OK;
    for (size_t p = 0; choice && p < choice->point_count && status == HARPE_OK; p++)
        status = add_clock(problem, choice->points[p].frequency_mhz, frequency_mhz, set, error);
    harpe_plan highest;
    if (status == HARPE_OK) status = harpe_plan_all_maximum(problem, &highest, error);
    if (status != HARPE_OK) return status;
    /* If the plan at the highest clocks has one clock, it is in the set already. */
    if (set->count == 0 || harpe_plan_one_clock_mhz(problem, highest.frequency_mhz) == 0)
        status = harpe_plan_set_add(set, problem, highest.frequency_mhz, error);
    plan_set_sort(set);
    return status;
}

harpe_status harpe_plan_set_one_clock(const harpe_problem *problem, harpe_plan_set **out,
                                      harpe_error *error) {
    if (problem->graph)
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "a graph has no plans with one clock: its activities have options, "
                          "which need not be clocks");
    harpe_plan_set *set = harpe_calloc(1, sizeof *set);
    int *frequency_mhz =
        harpe_calloc(harpe_problem_instruction_count(problem), sizeof *frequency_mhz);
    harpe_status status = set && frequency_mhz ? make_plans(problem, frequency_mhz, set, error)
                                               : harpe_fail_memory(error);
    free(frequency_mhz);
    if (status == HARPE_OK)
        *out = set;
    else
        harpe_plan_set_free(set);
    return status;
}

int harpe_plan_one_clock_mhz(const harpe_problem *problem, const int *frequency_mhz) {
    int clock_mhz = 0;
    for (size_t i = 0; !problem->graph && i < harpe_problem_instruction_count(problem); i++) {
        if (frequency_mhz[i] == 0) continue;
        if (clock_mhz != 0 && frequency_mhz[i] != clock_mhz) return 0;
        clock_mhz = frequency_mhz[i];
    }
    return clock_mhz;
}
