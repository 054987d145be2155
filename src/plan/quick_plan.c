/* SPDX-License-Identifier: Apache-2.0 */
/* Walks along the frontier to one time, rounds the solution there to measured options, and spends
 * the slack that is left. */
#include "plan/quick_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/walk.h"

static harpe_status round_at(const harpe_walk *walk, int *frequency_mhz, harpe_error *error) {
    size_t count = (size_t)walk->problem->instruction_count;
    int64_t *numbers = harpe_calloc(2 * count, sizeof *numbers);
    if (!numbers) return harpe_fail_memory(error);
    harpe_relaxed relaxed = {.duration_ps = numbers, .price_uw = numbers + count};
    harpe_assignment assignment = {0};
    harpe_walk_read(walk, &relaxed);
    harpe_status status = harpe_assignment_init(&assignment, walk->problem, error);
    if (status == HARPE_OK) {
        status = harpe_assignment_round(&assignment, &relaxed, error);
        if (status == HARPE_OK) harpe_assignment_frequencies(&assignment, frequency_mhz);
        harpe_assignment_clear(&assignment);
    }
    free(numbers);
    return status;
}

harpe_status harpe_quick_plan_make(const harpe_problem *problem, double time_s, int *frequency_mhz,
                                   harpe_quick_plan *out, harpe_error *error) {
    harpe_walk walk;
    harpe_plan plan;
    size_t count = (size_t)problem->instruction_count;
    int *clocks = harpe_calloc(count, sizeof *clocks);
    if (!clocks) return harpe_fail_memory(error);
    harpe_status status = harpe_walk_begin(&walk, problem, NULL, error);
    if (status == HARPE_OK) {
        double most_ps = (double)walk.minimum_energy_ps, least_ps = (double)walk.fastest_ps;
        int64_t time_ps = (int64_t)fmin(fmax(time_s * HARPE_PS_PER_S, least_ps), most_ps);
        status = harpe_walk_to(&walk, time_ps, error);
        if (status == HARPE_OK) status = round_at(&walk, clocks, error);
        double bound_j = harpe_walk_bound_j(&walk, (double)time_ps / HARPE_PS_PER_S);
        harpe_walk_clear(&walk);
        if (status == HARPE_OK) status = harpe_plan_evaluate(problem, clocks, &plan, NULL, error);
        if (status == HARPE_OK) {
            *out = (harpe_quick_plan){plan.time_s, plan.energy_j, bound_j};
            memcpy(frequency_mhz, clocks, count * sizeof *clocks);
        }
    }
    free(clocks);
    return status;
}
