/* SPDX-License-Identifier: Apache-2.0 */
/* Plans all replicas of a job together. Replicas with equal profiles share one plan. The time of
 * the iteration follows from the shortest time of the slowest replica. Then each replica is planned
 * on its own for this time, on several threads. replica_search.c makes the plan of one replica. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/crew.h"
#include "plan/replica_plans.h"
#include "plan/walk.h"

static const harpe_problem_options no_options = {0};

/* The arguments and the state of the planning. */
typedef struct planner {
    const harpe_replica_profiles *profiles;
    const harpe_schedule *schedule;
    const harpe_problem_options *options;
    const harpe_replica_request *request;
    const harpe_progress *progress;
    harpe_replica_plans *plans;
    harpe_crew crew;
    harpe_power_limits limits;
    double time_s;            /* of the job, as wanted */
    double share_from, share; /* progress: where this part of the work begins, and its share */
} planner;

/* ---- The frontier of the job ----------------------------------------------------------------- */

/* The frontier of a job: for each time of an iteration, the sum of the lower bounds of all
 * replicas. */

double harpe_replica_plans_bound_at(const harpe_replica_plans *plans, double time_s) {
    double bound_j = 0;
    for (int r = 0; r < plans->job.replica_count; r++)
        bound_j += harpe_replica_bound_j(plans->groups[plans->group_of[r]].frontier, time_s);
    return bound_j;
}

/* Finds the time at which the bound of the job is lowest. The bound is convex over the time, and
 * its minimum is at a vertex of a replica or at the shortest time. */
static harpe_status find_minimum(harpe_replica_plans *plans, harpe_error *error) {
    size_t count = 1, most = 1;
    for (size_t k = 0; k < plans->group_count; k++)
        most += plans->groups[k].frontier->count;
    double *times = harpe_calloc(most, sizeof *times);
    if (!times) return harpe_fail_memory(error);
    times[0] = plans->job.fastest_s;
    for (size_t k = 0; k < plans->group_count; k++) {
        const harpe_frontier *frontier = plans->groups[k].frontier;
        for (size_t v = 0; v < frontier->count; v++)
            if (frontier->vertices[v].time_s > times[0])
                times[count++] = frontier->vertices[v].time_s;
    }
    qsort(times + 1, count - 1, sizeof *times, harpe_compare_doubles);
    size_t low = 0, high = 0;
    for (size_t k = 1; k < count; k++) /* a time twice would look like the minimum */
        if (times[k] > times[high]) times[++high] = times[k];
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
        sum_w += harpe_replica_marginal_w(plans->groups[plans->group_of[r]].frontier, time_s);
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

/* This part makes the plan of a planner that knows only stages. A stage has the longest time of its
 * GPUs, and the sum of their energies. */

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

/* Makes one plan for all GPUs, for a given time. `*frequency_mhz` is NULL if the GPUs have no
 * clocks in common. The caller frees `*frequency_mhz` with free(). */
static harpe_status make_one_plan(const harpe_replica_profiles *profiles,
                                  const harpe_schedule *schedule,
                                  const harpe_problem_options *options, double time_s,
                                  int **frequency_mhz, harpe_error *error) {
    harpe_profile *profile = NULL;
    harpe_problem *problem = NULL;
    int *numbers = NULL;
    harpe_status status = profile_of_all(profiles, &profile, error);
    if (status != HARPE_OK || !profile) return status;
    status = harpe_problem_new(profile, schedule, options, &problem, error);
    if (status == HARPE_OK) {
        numbers = harpe_calloc((size_t)problem->instruction_count, sizeof *numbers);
        status = numbers ? harpe_replica_search(problem, time_s, time_s, HARPE_REPLICA_WIDTH,
                                                numbers, NULL, error)
                         : harpe_fail_memory(error);
    }
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

/* Copies the clocks to the list of each peer. */
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

/* Evaluates one clock for all GPUs of a replica. Instructions without clocks keep 0. */
static harpe_status run_one_clock(const harpe_replica_problem *replica, int clock_mhz,
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

/* Adds up the runs of all replicas that have this number. The iteration ends when the slowest
 * replica ends. */
static harpe_replica_total add_up(const harpe_replica_plans *plans, size_t number) {
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

/* ---- Groups ---------------------------------------------------------------------------------- */

typedef struct hashed_replica {
    uint64_t hash;
    int replica;
} hashed_replica;

static int compare_hashes(const void *left, const void *right) {
    const hashed_replica *a = left, *b = right;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return (a->replica > b->replica) - (a->replica < b->replica);
}

/* Returns the first replica that is equal to that of sorted[at]. */
static int first_equal(const harpe_replica_profiles *profiles, const hashed_replica *sorted,
                       size_t at) {
    size_t from = at;
    while (from > 0 && sorted[from - 1].hash == sorted[at].hash)
        from--;
    for (; from < at; from++)
        if (harpe_replica_profiles_are_same(profiles, sorted[from].replica, sorted[at].replica))
            break;
    return sorted[from].replica;
}

/* Finds the replicas with equal profiles. The groups are in the order of their first replicas. */
static harpe_status find_groups(planner *p, harpe_error *error) {
    harpe_replica_plans *plans = p->plans;
    size_t count = (size_t)p->profiles->replica_count;
    hashed_replica *sorted = harpe_calloc(count, sizeof *sorted);
    plans->plans = harpe_calloc(count, sizeof *plans->plans);
    plans->group_of = harpe_calloc(count, sizeof *plans->group_of);
    plans->groups = harpe_calloc(count, sizeof *plans->groups);
    if (!sorted || !plans->plans || !plans->group_of || !plans->groups) {
        free(sorted);
        return harpe_fail_memory(error);
    }
    for (size_t r = 0; r < count; r++)
        sorted[r] = (hashed_replica){harpe_replica_profiles_hash(p->profiles, (int)r), (int)r};
    qsort(sorted, count, sizeof *sorted, compare_hashes);
    for (size_t k = 0; k < count; k++)
        plans->plans[sorted[k].replica].same_as = harpe_power_limits_any(&p->limits)
                                                      ? sorted[k].replica
                                                      : first_equal(p->profiles, sorted, k);
    for (size_t r = 0; r < count; r++) {
        int first = plans->plans[r].same_as;
        if (first == (int)r) {
            plans->groups[plans->group_count] = (harpe_replica_group){.first_replica = first};
            plans->group_of[r] = plans->group_count++;
        } else {
            plans->group_of[r] = plans->group_of[first];
        }
    }
    free(sorted);
    return HARPE_OK;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static bool report(void *user, size_t begun) {
    const planner *p = user;
    if (!p->progress || !p->progress->report) return true;
    double done = (double)begun / (double)p->plans->group_count;
    return p->progress->report(p->progress->user, "planning", p->share_from + p->share * done);
}

static harpe_status run(planner *p, double share,
                        harpe_status (*step)(void *, harpe_tools *, size_t, harpe_error *),
                        harpe_error *error) {
    p->share_from += p->share;
    p->share = share;
    harpe_crew_run of = {.count = p->plans->group_count, .step = step, .report = report, .user = p};
    bool stopped = !report(p, 0); /* small jobs may end before the next report */
    harpe_status status = HARPE_OK;
    if (!stopped) status = harpe_crew_do(&p->crew, &of, &stopped, error);
    if (status == HARPE_OK && stopped)
        status = harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
    return status;
}

/* ---- The time -------------------------------------------------------------------------------- */

static harpe_status fastest_step(void *user, harpe_tools *tools, size_t number,
                                 harpe_error *error) {
    (void)tools;
    const planner *p = user;
    harpe_replica_group *group = &p->plans->groups[number];
    harpe_replica_problem replica = {0};
    harpe_status status = harpe_replica_problem_new(p->profiles, group->first_replica, p->schedule,
                                                    p->options, &replica, error);
    if (status == HARPE_OK)
        status = harpe_replica_problem_fastest(&replica, &group->fastest_s, error);
    harpe_replica_problem_clear(&replica);
    return status;
}

/* Chooses the time of the job. */
static harpe_status choose_time(planner *p, harpe_error *error) {
    harpe_replica_job *job = &p->plans->job;
    for (size_t k = 0; k < p->plans->group_count; k++) {
        const harpe_replica_group *group = &p->plans->groups[k];
        if (group->fastest_s <= job->fastest_s) continue;
        job->fastest_s = group->fastest_s;
        job->slowest_replica = group->first_replica;
    }
    double slowdown = p->request->slowdown > 0 ? p->request->slowdown : 1;
    p->time_s = p->request->time_s > 0 ? p->request->time_s : slowdown * job->fastest_s;
    if (p->time_s >= job->fastest_s - harpe_time_slack_s(job->fastest_s)) return HARPE_OK;
    return harpe_fail(error, HARPE_INFEASIBLE,
                      "no plans run in %s s: the slowest replica, number %d, takes at least %s s",
                      HARPE_DIGITS(p->time_s, 9), job->slowest_replica,
                      HARPE_DIGITS(job->fastest_s, 9));
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static harpe_status plan_group(const planner *p, const harpe_replica_problem *replica,
                               harpe_replica_group *group, harpe_error *error) {
    size_t count = (size_t)replica->problem->instruction_count;
    int *numbers = harpe_calloc(count, sizeof *numbers);
    group->frequency_mhz =
        harpe_calloc(count * (size_t)replica->peer_count, sizeof *group->frequency_mhz);
    harpe_status status = numbers && group->frequency_mhz ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = harpe_replica_search(replica->problem, p->time_s, p->plans->job.fastest_s,
                                      HARPE_REPLICA_WIDTH, numbers, &group->frontier, error);
    if (status == HARPE_OK) harpe_replica_problem_decode(replica, numbers, group->frequency_mhz);
    if (status == HARPE_OK && harpe_power_limits_any(&p->limits))
        group->numbers = numbers;
    else
        free(numbers);
    return status;
}

static harpe_status evaluate_group(const planner *p, const harpe_replica_problem *replica,
                                   harpe_replica_group *group, harpe_error *error) {
    size_t clock_count = p->plans->clock_count;
    const int *lists[HARPE_REPLICA_RUNS] = {group->frequency_mhz, p->plans->one_plan_mhz, NULL};
    group->runs = harpe_calloc(HARPE_REPLICA_RUNS + clock_count, sizeof *group->runs);
    harpe_status status = group->runs ? HARPE_OK : harpe_fail_memory(error);
    for (size_t k = 0; k < HARPE_REPLICA_RUNS && status == HARPE_OK; k++)
        if (lists[k] || k == HARPE_REPLICA_ALL_MAXIMUM)
            status = harpe_replica_run_clocks(replica, lists[k], k == HARPE_REPLICA_ONE_PLAN,
                                              &group->runs[k], &group->end_power_w, error);
    for (size_t c = 0; c < clock_count && status == HARPE_OK; c++)
        status = run_one_clock(replica, p->plans->clock_mhz[c],
                               &group->runs[HARPE_REPLICA_RUNS + c], error);
    return status;
}

static harpe_status plan_step(void *user, harpe_tools *tools, size_t number, harpe_error *error) {
    (void)tools;
    const planner *p = user;
    harpe_replica_group *group = &p->plans->groups[number];
    harpe_replica_problem replica = {0};
    harpe_status status = harpe_replica_problem_new(p->profiles, group->first_replica, p->schedule,
                                                    p->options, &replica, error);
    if (status == HARPE_OK) status = plan_group(p, &replica, group, error);
    if (status == HARPE_OK) status = evaluate_group(p, &replica, group, error);
    harpe_replica_problem_clear(&replica);
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Copies what the plans need of the problem: the ranks, and the names of their instructions. */
static harpe_status copy_lists(planner *p, harpe_error *error) {
    harpe_replica_plans *plans = p->plans;
    harpe_replica_problem replica = {0};
    harpe_status status =
        harpe_replica_problem_new(p->profiles, 0, p->schedule, p->options, &replica, error);
    if (status != HARPE_OK) return status;
    const harpe_problem *problem = replica.problem;
    size_t count = harpe_problem_instruction_count(problem), ranks = (size_t)problem->rank_count;
    plans->rank_offset = harpe_arena_alloc(&plans->arena, ranks + 1, sizeof *plans->rank_offset);
    plans->names = harpe_arena_alloc(&plans->arena, count, sizeof *plans->names);
    const char **known = harpe_calloc(problem->choice_count, sizeof *known);
    bool complete = plans->rank_offset && plans->names && known;
    if (complete) memcpy(plans->rank_offset, problem->rank_offset, (ranks + 1) * sizeof(size_t));
    for (size_t i = 0; complete && i < count; i++) {
        const char **name = &known[problem->choice_of[i]];
        const char *text = problem->choices[problem->choice_of[i]].list.instruction;
        if (!*name) *name = harpe_arena_strdup(&plans->arena, text, strlen(text));
        plans->names[i] = *name;
        complete = *name;
    }
    plans->instruction_count = count;
    plans->job.rank_count = problem->rank_count;
    free(known);
    harpe_replica_problem_clear(&replica);
    return complete ? HARPE_OK : harpe_fail_memory(error);
}

/* Lists the clocks of the first instruction that has clocks. A clock that all instructions have is
 * in this list. */
static harpe_status list_clocks(const planner *p, harpe_error *error) {
    const harpe_profile *gpu = p->profiles->gpus[0];
    const harpe_profile_entry *entry = harpe_profile_entry_at(gpu, 0);
    for (size_t e = 1; entry->points[0].frequency_mhz == 0 && e < harpe_profile_entry_count(gpu);
         e++)
        entry = harpe_profile_entry_at(gpu, e);
    p->plans->clock_mhz =
        harpe_arena_alloc(&p->plans->arena, entry->point_count, sizeof *p->plans->clock_mhz);
    if (!p->plans->clock_mhz) return harpe_fail_memory(error);
    for (size_t k = 0; k < entry->point_count; k++)
        if (k == 0 || k >= entry->throttled_count)
            p->plans->clock_mhz[p->plans->clock_count++] = entry->points[k].frequency_mhz;
    return HARPE_OK;
}

static void fill_results(harpe_replica_plans *plans) {
    harpe_replica_job *job = &plans->job;
    job->distinct_count = (int)plans->group_count;
    job->own = add_up(plans, HARPE_REPLICA_OWN_PLANS);
    job->all_maximum = add_up(plans, HARPE_REPLICA_ALL_MAXIMUM);
    job->one_plan = add_up(plans, HARPE_REPLICA_ONE_PLAN);
    job->lower_bound_j = 0;
    for (int r = 0; r < job->replica_count; r++) {
        const harpe_replica_group *group = &plans->groups[plans->group_of[r]];
        harpe_replica_plan *plan = &plans->plans[r];
        harpe_replica_run own = group->runs[HARPE_REPLICA_OWN_PLANS];
        plan->time_s = own.time_s;
        plan->energy_j = own.energy_j + group->end_power_w * (job->own.time_s - own.time_s);
        plan->lower_bound_j = harpe_replica_bound_j(group->frontier, job->own.time_s);
        plan->fastest_s = group->fastest_s;
        job->lower_bound_j += plan->lower_bound_j;
    }
}

/* ---- Public ---------------------------------------------------------------------------------- */

static harpe_status check_request(const harpe_replica_request *request, harpe_error *error) {
    if (!(request->time_s >= 0 && request->time_s <= 1e9))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the time must be 0 to 1e9 s, not %g s",
                          request->time_s);
    bool has_slowdown = request->slowdown < 0 || request->slowdown > 0;
    if (has_slowdown && !(request->slowdown >= 1 && request->slowdown <= 1e6))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the slowdown is a factor of 1 to 1e6, not %g", request->slowdown);
    if (has_slowdown && request->time_s > 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "give a time or a slowdown, not both");
    if (request->threads < 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the number of threads must be 0 or more");
    return harpe_power_limits_check(request->max_peak_power_w, request->max_swing_w,
                                    request->max_swing_share, error);
}

static harpe_status make_plans(planner *p, harpe_error *error) {
    harpe_replica_plans *plans = p->plans;
    plans->job.replica_count = p->profiles->replica_count;
    plans->job.peer_count = p->profiles->peer_count;
    harpe_status status = harpe_replica_problem_check(p->schedule, p->options, error);
    if (status == HARPE_OK) status = find_groups(p, error);
    if (status == HARPE_OK) status = copy_lists(p, error);
    if (status == HARPE_OK) status = list_clocks(p, error);
    if (status == HARPE_OK) status = run(p, 0.1, fastest_step, error);
    if (status == HARPE_OK) status = choose_time(p, error);
    if (status == HARPE_OK)
        status = make_one_plan(p->profiles, p->schedule, p->options, p->time_s,
                               &plans->one_plan_mhz, error);
    if (status == HARPE_OK) status = run(p, 0.9, plan_step, error);
    if (status == HARPE_OK && harpe_power_limits_any(&p->limits))
        status = harpe_replica_limits_keep(plans, p->profiles, p->schedule, p->options, &p->limits,
                                           p->time_s, error);
    if (status != HARPE_OK) return status;
    fill_results(plans);
    return find_minimum(plans, error);
}

harpe_status harpe_replica_plans_new(const harpe_replica_profiles *profiles,
                                     const harpe_schedule *schedule,
                                     const harpe_problem_options *options,
                                     const harpe_replica_request *request,
                                     const harpe_progress *progress, harpe_replica_plans **out,
                                     harpe_error *error) {
    static const harpe_replica_request defaults = {0};
    if (!profiles || !schedule || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "plans of replicas need profiles, a schedule and a place for the result");
    planner p = {.profiles = profiles,
                 .schedule = schedule,
                 .options = options ? options : &no_options,
                 .request = request ? request : &defaults,
                 .progress = progress};
    p.limits = harpe_power_limits_of(p.request->max_peak_power_w, p.request->max_swing_w,
                                     p.request->max_swing_share);
    harpe_status status = check_request(p.request, error);
    if (status != HARPE_OK) return status;
    p.plans = harpe_calloc(1, sizeof *p.plans);
    if (!p.plans) return harpe_fail_memory(error);
    status = harpe_crew_init(&p.crew, NULL, NULL, p.request->threads, error);
    if (status == HARPE_OK) status = make_plans(&p, error);
    harpe_crew_clear(&p.crew);
    if (status != HARPE_OK) {
        harpe_replica_plans_free(p.plans);
        return status;
    }
    *out = p.plans;
    return HARPE_OK;
}

void harpe_replica_plans_free(harpe_replica_plans *plans) {
    if (!plans) return;
    for (size_t k = 0; k < plans->group_count; k++) {
        free(plans->groups[k].frequency_mhz);
        free(plans->groups[k].numbers);
        free(plans->groups[k].runs);
        harpe_frontier_free(plans->groups[k].frontier);
    }
    free(plans->groups);
    free(plans->group_of);
    free(plans->plans);
    free(plans->one_plan_mhz);
    harpe_arena_free(&plans->arena);
    free(plans);
}

harpe_replica_job harpe_replica_plans_job(const harpe_replica_plans *plans) { return plans->job; }

const harpe_replica_plan *harpe_replica_plans_at(const harpe_replica_plans *plans, int replica) {
    return replica >= 0 && replica < plans->job.replica_count ? &plans->plans[replica] : NULL;
}

harpe_replica_total harpe_replica_plans_one_clock(const harpe_replica_plans *plans, double most_s,
                                                  int *frequency_mhz) {
    harpe_replica_total best = plans->job.all_maximum;
    double limit_s = fmax(most_s, best.time_s) * (1 + 1e-9);
    *frequency_mhz = 0;
    for (size_t c = 0; c < plans->clock_count; c++) {
        harpe_replica_total total = add_up(plans, HARPE_REPLICA_RUNS + c);
        if (!(total.time_s <= limit_s && total.energy_j <= best.energy_j)) continue;
        best = total;
        *frequency_mhz = plans->clock_mhz[c];
    }
    return best;
}

const int *harpe_replica_plans_frequencies(const harpe_replica_plans *plans, int replica, int rank,
                                           int peer, size_t *count) {
    *count = 0;
    if (replica < 0 || replica >= plans->job.replica_count || rank < 0 ||
        rank >= plans->job.rank_count || peer < 0 || peer >= plans->job.peer_count)
        return NULL;
    *count = plans->rank_offset[rank + 1] - plans->rank_offset[rank];
    return plans->groups[plans->group_of[replica]].frequency_mhz +
           (size_t)peer * plans->instruction_count + plans->rank_offset[rank];
}

const char *harpe_replica_plans_instruction_name(const harpe_replica_plans *plans, int rank,
                                                 size_t index) {
    if (rank < 0 || rank >= plans->job.rank_count) return NULL;
    size_t at = plans->rank_offset[rank] + index;
    return index < plans->rank_offset[rank + 1] - plans->rank_offset[rank] ? plans->names[at]
                                                                           : NULL;
}
