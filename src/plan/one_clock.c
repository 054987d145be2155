/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the plans with one clock for all GPUs, which a user can have without a planner. Their set
 * also has the plan at the highest clocks. */
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/plan_set_contents.h"

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
    harpe_plan_set_sort(set);
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
