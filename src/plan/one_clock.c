/* SPDX-License-Identifier: Apache-2.0 */
/* The plans with one clock for all GPUs, which a user can have without a planner, and the best of
 * any plans within a time. Makes no other plan. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/plan_set_contents.h"

/* The same time, summed up in another order, may be longer by this share. */
#define SLACK 1e-9

/* What all plans are made with. */
typedef struct maker {
    const harpe_problem *problem;
    const harpe_profile_point **points; /* [instruction_count] */
    double *start_s;                    /* [instruction_count] */
    harpe_plan_set *set;
    size_t capacity;
} maker;

/* Returns the measured clocks of the first instruction that has clocks. A clock of all
 * instructions is one of these. */
static const harpe_choice *first_with_clocks(const harpe_problem *problem) {
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, i);
        if (harpe_choice_has_clocks(choice)) return choice;
    }
    return NULL;
}

/* Returns the frequencies for a new plan, which the set will own; NULL: out of memory. */
static int *reserve_plan(maker *m) {
    if (!HARPE_ARRAY_RESERVE(m->set->plans, m->capacity, m->set->count + 1)) return NULL;
    return harpe_calloc(harpe_problem_instruction_count(m->problem), sizeof(int));
}

/* Returns true if the GPU did not reach the clock of a point. The highest clock stays, because all
 * savings are shown against it. */
static bool is_throttled(const harpe_problem *problem, int32_t instruction,
                         const harpe_profile_point *point) {
    const harpe_choice *choice = harpe_problem_choice(problem, instruction);
    return point > choice->points && point < choice->points + choice->throttled_count;
}

/* Adds the plan with one clock, unless an instruction was not measured at it, or did not reach it.
 * A row at 0 MHz beside others is no clock. */
static harpe_status add_clock(maker *m, int clock_mhz, harpe_error *error) {
    const harpe_problem *problem = m->problem;
    if (clock_mhz == 0) return HARPE_OK;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        m->points[i] = harpe_choice_point(harpe_problem_choice(problem, i), clock_mhz);
        if (!m->points[i] || is_throttled(problem, i, m->points[i])) return HARPE_OK;
    }
    int *frequency_mhz = reserve_plan(m);
    if (!frequency_mhz) return harpe_fail_memory(error);
    for (size_t i = 0; i < harpe_problem_instruction_count(problem); i++)
        frequency_mhz[i] = m->points[i]->frequency_mhz;
    harpe_plan *plan = &m->set->plans[m->set->count++];
    *plan = harpe_evaluate_points(problem, m->points, m->start_s);
    plan->frequency_mhz = frequency_mhz;
    return HARPE_OK;
}

/* Adds the plan at the highest clocks, unless it is one of the plans with one clock. */
static harpe_status add_highest(maker *m, harpe_error *error) {
    harpe_plan plan;
    harpe_status status = harpe_plan_all_maximum(m->problem, &plan, error);
    if (status != HARPE_OK) return status;
    if (m->set->count > 0 && harpe_plan_one_clock_mhz(m->problem, plan.frequency_mhz) != 0)
        return HARPE_OK;
    int *frequency_mhz = reserve_plan(m);
    if (!frequency_mhz) return harpe_fail_memory(error);
    memcpy(frequency_mhz, plan.frequency_mhz,
           harpe_problem_instruction_count(m->problem) * sizeof *frequency_mhz);
    plan.frequency_mhz = frequency_mhz;
    m->set->plans[m->set->count++] = plan;
    return HARPE_OK;
}

/* Sorts the fastest first. Of equally fast plans the one with less energy is first. */
static int compare_plans(const void *a, const void *b) {
    const harpe_plan *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    return (x->energy_j > y->energy_j) - (x->energy_j < y->energy_j);
}

static harpe_status make_plans(maker *m, harpe_error *error) {
    size_t count = (size_t)m->problem->instruction_count;
    m->points = harpe_calloc(count, sizeof *m->points);
    m->start_s = harpe_calloc(count, sizeof *m->start_s);
    m->set = harpe_calloc(1, sizeof *m->set);
    if (!m->points || !m->start_s || !m->set) return harpe_fail_memory(error);
    const harpe_choice *choice = first_with_clocks(m->problem);
    harpe_status status = HARPE_OK;
    for (size_t p = 0; choice && p < choice->point_count && status == HARPE_OK; p++)
        status = add_clock(m, choice->points[p].frequency_mhz, error);
    if (status == HARPE_OK) status = add_highest(m, error);
    if (status == HARPE_OK)
        qsort(m->set->plans, m->set->count, sizeof *m->set->plans, compare_plans);
    return status;
}

harpe_status harpe_plan_set_one_clock(const harpe_problem *problem, harpe_plan_set **out,
                                      harpe_error *error) {
    if (problem->graph)
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "a graph has no plans with one clock: its activities have options, "
                          "which need not be clocks");
    maker m = {.problem = problem};
    harpe_status status = make_plans(&m, error);
    free(m.points);
    free(m.start_s);
    if (status == HARPE_OK)
        *out = m.set;
    else
        harpe_plan_set_free(m.set);
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

int harpe_plan_one_clock_mhz(const harpe_problem *problem, const int *frequency_mhz) {
    int clock_mhz = 0;
    for (size_t i = 0; !problem->graph && i < harpe_problem_instruction_count(problem); i++) {
        if (frequency_mhz[i] == 0) continue;
        if (clock_mhz != 0 && frequency_mhz[i] != clock_mhz) return 0;
        clock_mhz = frequency_mhz[i];
    }
    return clock_mhz;
}
