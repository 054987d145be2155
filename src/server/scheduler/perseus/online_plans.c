/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the planner, and chooses a plan according to the job requests. */
#include "server/scheduler/perseus/online_plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/late_repair.h"
#include "plan/plan_set_contents.h"
#include "plan/problem.h"

/* Times that differ by less are taken as equal, because additions and subtractions round them. */
#define ROUNDING 1e-9

static harpe_status check_fit(const harpe_online_pipeline *pipeline, const harpe_problem *problem,
                              harpe_error *error) {
    if (harpe_problem_instruction_count(problem) == pipeline->instruction_count) return HARPE_OK;
    return harpe_fail(error, HARPE_INTERNAL,
                      "the planner sees %zu instructions where the schedule has %zu",
                      harpe_problem_instruction_count(problem), pipeline->instruction_count);
}

/* By this share a plan may take longer because of late changes. With less, even a latency of some
 * ms costs much of what a plan saves. */
#define LATE_SHARE 0.004

/* Copies a plan of the same problem. `frequency_mhz` is that of `plan`. */
static void replace(harpe_plan *plan, int *frequency_mhz, const harpe_plan *better, size_t count) {
    memmove(frequency_mhz, better->frequency_mhz, count * sizeof *frequency_mhz);
    *plan = *better;
    plan->frequency_mhz = frequency_mhz;
}

/* Computes all values of a plan with late changes. */
static harpe_status describe(const harpe_online_plans *plans, const int *mhz, harpe_plan *out,
                             harpe_error *error) {
    const harpe_clock_switch late = {.takes_profile = true};
    const harpe_problem *problem = plans->problem;
    size_t count = harpe_problem_instruction_count(problem);
    harpe_late_instruction *parts = harpe_calloc(count, sizeof *parts);
    if (!parts) return harpe_fail_memory(error);
    harpe_late_plan made;
    harpe_status status = harpe_plan_evaluate_late(problem, mhz, &late, 0, &made, parts, error);
    if (status == HARPE_OK) {
        size_t vertices;
        double fastest_s = harpe_frontier_vertices(plans->frontier, &vertices)->time_s;
        double compute_j = 0;
        for (size_t i = 0; i < count; i++)
            compute_j += parts[i].energy_j;
        double overhead_j = problem->overhead_power_w * made.time_s;
        *out = (harpe_plan){
            .time_s = made.time_s,
            .energy_j = made.energy_j,
            .lower_bound_j = harpe_frontier_bound_at(plans->frontier, fmax(made.time_s, fastest_s)),
            .compute_energy_j = compute_j,
            .blocking_energy_j = made.energy_j - overhead_j - compute_j,
            .average_power_w =
                (made.energy_j - overhead_j) / (made.time_s * problem->total_gpu_count),
            .frequency_mhz = mhz,
            .overhead_energy_j = overhead_j};
    }
    free(parts);
    return status;
}

/* Repairs the clocks of `from` for the time of a plan. They replace the plan if they save more than
 * `*best_j`. */
static harpe_status try_late(const harpe_online_plans *plans, harpe_plan *plan, double time_s,
                             const harpe_plan *from, double *best_j, harpe_error *error) {
    const harpe_clock_switch late = {.takes_profile = true};
    size_t count = harpe_problem_instruction_count(plans->problem);
    int *mhz = harpe_calloc(count, sizeof *mhz);
    if (!mhz) return harpe_fail_memory(error);
    memcpy(mhz, from->frequency_mhz, count * sizeof *mhz);
    harpe_late_plan made;
    harpe_status status =
        harpe_late_repair(plans->problem, &late, time_s * (1 + LATE_SHARE), mhz, &made, error);
    if (status == HARPE_OK && made.energy_j < *best_j) {
        harpe_plan better;
        status = describe(plans, mhz, &better, error);
        if (status == HARPE_OK) {
            *best_j = made.energy_j;
            replace(plan, (int *)plan->frequency_mhz, &better, count); /* the set owns them */
        }
    }
    free(mhz);
    return status;
}

/* Returns the slowest plan of a set that is not slower than `time_s`, or NULL. */
static const harpe_plan *plan_within(const harpe_plan_set *set, double time_s) {
    const harpe_plan *found = NULL;
    for (size_t k = 0; k < harpe_plan_set_count(set); k++) {
        const harpe_plan *plan = harpe_plan_set_at(set, k);
        bool is_within = plan->time_s <= time_s * (1 + ROUNDING);
        if (is_within && (!found || plan->time_s > found->time_s)) found = plan;
    }
    return found;
}

/* Makes the plans keep their times although clocks change late and controllers do not ask for them
 * early. Each plan begins with the plan for immediate changes, or with one of `few`, which has few
 * changes. Time and energy of a plan are then those with late changes. */
static harpe_status repair_with(const harpe_online_plans *plans, const harpe_plan_set *few,
                                harpe_error *error) {
    size_t instructions = harpe_problem_instruction_count(plans->problem);
    harpe_status status = HARPE_OK;
    for (size_t k = 0; k < plans->set->count && status == HARPE_OK; k++) {
        harpe_plan *plan = &plans->set->plans[k];
        double time_s = plan->time_s, best_j = INFINITY;
        const harpe_plan *other = plan_within(few, time_s);
        status = try_late(plans, plan, time_s, plan, &best_j, error);
        if (status == HARPE_OK && other)
            status = try_late(plans, plan, time_s, other, &best_j, error);
        if (k > 0 && (best_j >= plan[-1].energy_j || plan->time_s < plan[-1].time_s))
            replace(plan, (int *)plan->frequency_mhz, &plan[-1], instructions);
    }
    return status;
}

static harpe_status repair_all(const harpe_online_plans *plans, harpe_error *error) {
    size_t count = plans->set->count;
    double *times_s = harpe_calloc(count, sizeof *times_s);
    if (!times_s) return harpe_fail_memory(error);
    for (size_t k = 0; k < count; k++)
        times_s[k] = plans->set->plans[k].time_s;
    harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                  .times_s = times_s,
                                  .time_count = count,
                                  .clock_switch = {.takes_profile = true},
                                  .threads = 1};
    harpe_plan_set *few;
    harpe_status status = harpe_plan_set_new(plans->problem, &request, NULL, NULL, &few, error);
    free(times_s);
    if (status != HARPE_OK) return status;
    status = repair_with(plans, few, error);
    harpe_plan_set_free(few);
    return status;
}

harpe_status harpe_online_plans_evaluate(const harpe_online_plans *plans, const int *frequency_mhz,
                                         harpe_plan *out, harpe_error *error) {
    const harpe_clock_switch late = {.takes_profile = true};
    harpe_late_plan made = {0};
    harpe_plan plan = {0};
    bool is_late = harpe_problem_has_switch_latency(plans->problem);
    harpe_status status =
        is_late
            ? harpe_plan_evaluate_late(plans->problem, frequency_mhz, &late, 0, &made, NULL, error)
            : harpe_plan_evaluate(plans->problem, frequency_mhz, &plan, NULL, error);
    *out = is_late ? (harpe_plan){.time_s = made.time_s, .energy_j = made.energy_j}
                   : (harpe_plan){.time_s = plan.time_s, .energy_j = plan.energy_j};
    return status;
}

harpe_status harpe_online_plans_new(const harpe_online_pipeline *pipeline,
                                    const harpe_profile *profile, const double *blocking_power_w,
                                    int plan_count, double undisturbed_s, harpe_online_plans **out,
                                    harpe_error *error) {
    harpe_online_plans *plans = harpe_calloc(1, sizeof *plans);
    if (!plans) return harpe_fail_memory(error);
    harpe_problem_options options = {.blocking_power_w = blocking_power_w,
                                     .blocking_power_count = (size_t)pipeline->rank_count};
    /* One thread: other jobs need theirs. */
    harpe_plan_request request = {.choice = HARPE_PLANS_SPREAD, .count = plan_count, .threads = 1};
    harpe_status status =
        harpe_problem_new(profile, pipeline->schedule, &options, &plans->problem, error);
    if (status == HARPE_OK) status = check_fit(pipeline, plans->problem, error);
    if (status == HARPE_OK)
        status = harpe_plan_all_maximum(plans->problem, &plans->all_maximum, error);
    if (status == HARPE_OK)
        status = harpe_plan_set_one_clock(plans->problem, &plans->one_clock, error);
    if (status == HARPE_OK)
        status = harpe_plan_set_new(plans->problem, &request, NULL, &plans->frontier, &plans->set,
                                    error);
    if (status == HARPE_OK && harpe_problem_has_switch_latency(plans->problem))
        status = repair_all(plans, error);
    if (status != HARPE_OK) {
        harpe_online_plans_free(plans);
        return status;
    }
    plans->undisturbed_s =
        undisturbed_s > 0 ? undisturbed_s : harpe_plan_set_at(plans->set, 0)->time_s;
    *out = plans;
    return HARPE_OK;
}

void harpe_online_plans_free(harpe_online_plans *plans) {
    if (!plans) return;
    harpe_plan_set_free(plans->set);
    harpe_plan_set_free(plans->one_clock);
    harpe_frontier_free(plans->frontier);
    harpe_problem_free(plans->problem);
    free(plans);
}

const harpe_plan *harpe_online_plans_one_clock(const harpe_online_plans *plans,
                                               const harpe_plan *plan) {
    return harpe_plan_set_within(plans->one_clock, fmax(plan->time_s, plans->all_maximum.time_s));
}

/* ---- Choosing -------------------------------------------------------------------------------- */

/* Returns the time of an iteration that is `slowdown` times longer. The slowdown also applies to
 * the time outside of the pipeline, which plans do not include. For this, the outside time is added
 * first, and subtracted from the result. */
static double stretched_s(double fastest_s, double slowdown, harpe_online_outside outside) {
    return slowdown * (fastest_s + outside.time_s) - outside.time_s;
}

static double straggler_s(double undisturbed_s, const harpe_online_requests *requests,
                          harpe_online_outside outside) {
    if (requests->slowdown > 0) return stretched_s(undisturbed_s, requests->slowdown, outside);
    return requests->iteration_time_s > 0 ? requests->iteration_time_s - outside.time_s : 0;
}

double harpe_online_straggler_time_s(const harpe_online_plans *plans,
                                     const harpe_online_requests *requests,
                                     harpe_online_outside outside) {
    return straggler_s(plans->undisturbed_s, requests, outside);
}

double harpe_online_allowed_s(double fastest_s, double undisturbed_s, double slowdown,
                              const harpe_online_requests *requests, harpe_online_outside outside) {
    double allowed_s = requests->plan_time_s > 0 ? requests->plan_time_s - outside.time_s
                                                 : stretched_s(fastest_s, slowdown, outside);
    double until_s = straggler_s(undisturbed_s, requests, outside);
    return until_s > allowed_s ? until_s : allowed_s;
}

bool harpe_online_plan_is_within(const harpe_plan *plan, double power_cap_w,
                                 harpe_online_outside outside) {
    return plan->energy_j + outside.energy_j <= power_cap_w * (plan->time_s + outside.time_s);
}

size_t harpe_online_plans_choose(const harpe_online_plans *plans, double slowdown,
                                 const harpe_online_requests *requests,
                                 harpe_online_outside outside) {
    size_t count = harpe_plan_set_count(plans->set), chosen = 0;
    double fastest_s = fmax(harpe_plan_set_at(plans->set, 0)->time_s, plans->all_maximum.time_s);
    double allowed_s =
        harpe_online_allowed_s(fastest_s, plans->undisturbed_s, slowdown, requests, outside);
    while (chosen + 1 < count &&
           harpe_plan_set_at(plans->set, chosen + 1)->time_s <= allowed_s * (1 + ROUNDING))
        chosen++;
    if (!(requests->power_cap_w > 0)) return chosen;
    while (chosen + 1 < count && !harpe_online_plan_is_within(harpe_plan_set_at(plans->set, chosen),
                                                              requests->power_cap_w, outside))
        chosen++;
    return chosen;
}
