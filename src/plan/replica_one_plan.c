/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one plan for all GPUs of a job, as a planner does that knows only stages: from the longest
 * time and the sum of the energies of each stage. Also evaluates plans of a replica, and one clock
 * for all its GPUs, and makes the frontier of a job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/replica_plans.h"

/* ---- The frontier of the job ----------------------------------------------------------------- */

/* The frontier of a job: for each time of an iteration, the sum of the lower bounds of all
 * replicas. */

double harpe_replica_plans_bound_at(const harpe_replica_plans *plans, double time_s) {
    double bound_j = 0;
    for (int r = 0; r < plans->job.replica_count; r++)
        bound_j += harpe_replica_curve_at(&plans->groups[plans->group_of[r]].curve, time_s);
    return bound_j;
}

/* The bound is convex, and its minimum is at a vertex of a replica or at the shortest time. */
harpe_status harpe_replica_find_minimum(harpe_replica_plans *plans, harpe_error *error) {
    size_t count = 1, most = 1;
    for (size_t k = 0; k < plans->group_count; k++)
        most += plans->groups[k].curve.count;
    double *times = harpe_calloc(most, sizeof *times);
    if (!times) return harpe_fail_memory(error);
    times[0] = plans->job.fastest_s;
    for (size_t k = 0; k < plans->group_count; k++)
        for (size_t v = 0; v < plans->groups[k].curve.count; v++)
            if (plans->groups[k].curve.vertices[v].time_s > times[0])
                times[count++] = plans->groups[k].curve.vertices[v].time_s;
    qsort(times + 1, count - 1, sizeof *times, harpe_compare_doubles);
    size_t low = 0, high = count - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (harpe_replica_plans_bound_at(plans, times[middle]) <=
            harpe_replica_plans_bound_at(plans, times[middle + 1]))
            high = middle;
        else
            low = middle + 1;
    }
    plans->job.minimum_energy_s = times[low];
    free(times);
    return HARPE_OK;
}

/* Returns the power that a shorter iteration costs: the sum of the replicas' slopes just below a
 * time. */
static double marginal_w_at(const harpe_replica_plans *plans, double time_s) {
    double sum_w = 0;
    for (int r = 0; r < plans->job.replica_count; r++)
        sum_w += harpe_replica_curve_marginal_w(&plans->groups[plans->group_of[r]].curve, time_s);
    return sum_w;
}

harpe_status harpe_replica_plans_frontier(const harpe_replica_plans *plans, size_t count,
                                          harpe_frontier_vertex *points, harpe_error *error) {
    if (!plans || !points || count < 2)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a frontier needs plans and room for at least two points");
    double first_s = plans->job.fastest_s, last_s = plans->job.minimum_energy_s;
    for (size_t k = 0; k < count; k++) {
        double time_s = first_s + (last_s - first_s) * (double)k / (double)(count - 1);
        if (k + 1 == count) time_s = last_s;
        points[k] = (harpe_frontier_vertex){
            .time_s = time_s,
            .lower_bound_j = harpe_replica_plans_bound_at(plans, time_s),
            .marginal_w = marginal_w_at(plans, time_s),
        };
    }
    return HARPE_OK;
}

/* ---- One plan for all replicas --------------------------------------------------------------- */

/* ---- The profile of all GPUs ----------------------------------------------------------------- */

/* Returns the mean power of the waiting GPUs of a stage. */
static double mean_power_w(const harpe_replica_profiles *profiles, int stage) {
    size_t count = (size_t)profiles->replica_count * (size_t)profiles->peer_count;
    double sum_w = 0;
    for (size_t g = 0; g < count; g++)
        sum_w += harpe_profile_blocking_power_w(profiles->gpus[g], stage);
    return sum_w / (double)count;
}

static size_t count_points(const harpe_replica_profiles *profiles) {
    size_t gpus = (size_t)profiles->replica_count * (size_t)profiles->peer_count, count = 0;
    for (size_t g = 0; g < gpus; g++)
        for (size_t e = 0; e < harpe_profile_entry_count(profiles->gpus[g]); e++)
            count += harpe_profile_entry_at(profiles->gpus[g], e)->point_count;
    return count;
}

static size_t add_gpu(const harpe_profile *gpu, int rank, const double *power_w,
                      harpe_measurement *rows) {
    size_t at = 0;
    for (size_t e = 0; e < harpe_profile_entry_count(gpu); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(gpu, e);
        for (size_t p = 0; p < entry->point_count; p++)
            rows[at++] = (harpe_measurement){
                .stage = entry->stage,
                .rank = rank,
                .instruction = entry->instruction,
                .frequency_mhz = entry->points[p].frequency_mhz,
                .time_s = entry->points[p].time_s,
                .energy_j = entry->points[p].energy_j,
                .blocking_power_w = power_w[entry->stage],
            };
    }
    return at;
}

/* Makes the profile in which each GPU is a rank of its stage: times are maxima, and energies are
 * sums. `*out` is NULL if the GPUs have no clocks in common. */
static harpe_status profile_of_all(const harpe_replica_profiles *profiles, harpe_profile **out,
                                   harpe_error *error) {
    size_t gpus = (size_t)profiles->replica_count * (size_t)profiles->peer_count, count = 0;
    int stages = harpe_profile_stage_count(profiles->gpus[0]);
    harpe_measurement *rows = harpe_calloc(count_points(profiles), sizeof *rows);
    double *power_w = harpe_calloc((size_t)stages, sizeof *power_w);
    harpe_status status = rows && power_w ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) {
        for (int s = 0; s < stages; s++)
            power_w[s] = mean_power_w(profiles, s);
        for (size_t g = 0; g < gpus; g++)
            count += add_gpu(profiles->gpus[g], (int)g, power_w, rows + count);
        *out = NULL;
        status = harpe_profile_new(rows, count, out, error);
        if (status == HARPE_INVALID_ARGUMENT) status = HARPE_OK; /* no clock in common */
    }
    free(rows);
    free(power_w);
    return status;
}

harpe_status harpe_replica_one_plan(const harpe_replica_profiles *profiles,
                                    const harpe_schedule *schedule,
                                    const harpe_problem_options *options, double time_s,
                                    int **frequency_mhz, harpe_error *error) {
    harpe_profile *profile = NULL;
    harpe_problem *problem = NULL;
    harpe_replica_curve curve = {0};
    int *numbers = NULL;
    harpe_status status = profile_of_all(profiles, &profile, error);
    if (status != HARPE_OK || !profile) return status;
    status = harpe_problem_new(profile, schedule, options, &problem, error);
    if (status == HARPE_OK) {
        numbers = harpe_calloc((size_t)problem->instruction_count, sizeof *numbers);
        status = numbers ? harpe_replica_search(problem, time_s, time_s, HARPE_REPLICA_WIDTH,
                                                numbers, &curve, error)
                         : harpe_fail_memory(error);
    }
    harpe_replica_curve_clear(&curve);
    harpe_problem_free(problem);
    harpe_profile_free(profile);
    if (status != HARPE_OK) {
        free(numbers);
        return status;
    }
    *frequency_mhz = numbers;
    return HARPE_OK;
}

/* ---- Evaluating ------------------------------------------------------------------------------ */

/* Writes a list for each peer. */
static void spread_clocks(const harpe_replica_problem *replica, const int *frequency_mhz,
                          int *lists) {
    size_t count = harpe_problem_instruction_count(replica->problem);
    for (int g = 0; g < replica->peer_count; g++)
        memcpy(lists + (size_t)g * count, frequency_mhz, count * sizeof *lists);
}

harpe_status harpe_replica_run_clocks(const harpe_replica_problem *replica,
                                      const int *frequency_mhz, bool is_shared,
                                      harpe_replica_run *out, double *end_power_w,
                                      harpe_error *error) {
    size_t count = harpe_problem_instruction_count(replica->problem);
    int *lists = harpe_calloc(count * (size_t)replica->peer_count, sizeof *lists);
    if (!lists) return harpe_fail_memory(error);
    const int *clocks = lists;
    if (!frequency_mhz)
        harpe_replica_problem_decode(replica, replica->problem->maximum_frequency_mhz, lists);
    else if (is_shared)
        spread_clocks(replica, frequency_mhz, lists);
    else
        clocks = frequency_mhz;
    harpe_plan plan;
    harpe_status status =
        harpe_replica_problem_evaluate(replica, clocks, &plan, end_power_w, error);
    if (status == HARPE_OK) *out = (harpe_replica_run){plan.time_s, plan.energy_j};
    free(lists);
    return status;
}

harpe_status harpe_replica_run_one_clock(const harpe_replica_problem *replica, int clock_mhz,
                                         harpe_replica_run *out, harpe_error *error) {
    size_t count = harpe_problem_instruction_count(replica->problem);
    int *list = harpe_calloc(count, sizeof *list);
    if (!list) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        size_t number = replica->entry_of[replica->problem->choice_of[i]];
        const harpe_profile_entry *entry = harpe_profile_entry_at(replica->gpus[0], number);
        if (entry->points[0].frequency_mhz != 0) list[i] = clock_mhz;
    }
    harpe_error reason;
    double power_w;
    harpe_status status = harpe_replica_run_clocks(replica, list, true, out, &power_w, &reason);
    free(list);
    if (status == HARPE_INVALID_INPUT) *out = (harpe_replica_run){INFINITY, 0};
    if (status == HARPE_OK || status == HARPE_INVALID_INPUT) return HARPE_OK;
    *error = reason;
    return status;
}

harpe_replica_total harpe_replica_add_up(const harpe_replica_plans *plans, size_t number) {
    harpe_replica_total total = {0};
    for (size_t k = 0; k < plans->group_count; k++) {
        double time_s = plans->groups[k].runs[number].time_s;
        if (time_s > total.time_s) total.time_s = time_s;
    }
    for (int r = 0; r < plans->job.replica_count; r++) {
        const harpe_replica_group *group = &plans->groups[plans->group_of[r]];
        harpe_replica_run run = group->runs[number];
        total.energy_j += run.energy_j + group->end_power_w * (total.time_s - run.time_s);
    }
    return total;
}
