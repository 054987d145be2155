/* SPDX-License-Identifier: Apache-2.0 */
/* Plans all replicas of a job together. Replicas with equal profiles share one plan. The time of
 * the iteration follows from the shortest time of the slowest replica. Then each replica is planned
 * on its own for this time, on several threads. search.c makes the plan of one replica. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/profiles.h"
#include "plan/replica_internal.h"
#include "plan/search_internal.h"
#include "plan/solver.h"

enum { RUN_KINDS = HARPE_REPLICA_ALL_MAXIMUM + 1 };
#define DIVE_WIDTH 4

static harpe_replica_run *runs_of(const harpe_replica_plans *plans, size_t clocks) {
    return plans->runs + clocks * (size_t)plans->classes.count;
}

/* The arguments and the state of the planning. */
typedef struct planner {
    harpe_replica_source source;
    const harpe_replica_request *request;
    const harpe_progress *progress;
    harpe_replica_plans *plans;
    harpe_crew crew;
    harpe_power_limits limits;
    double time_s; /* wanted time of the job's iteration */
    harpe_status (*use)(void *user, const harpe_replica_problem *replica, harpe_error *error);
    double share_from, share; /* progress: where this part of the work begins, and its share */
} planner;

/* ---- The frontier of the job ----------------------------------------------------------------- */

/* The frontier of a job: for each time of an iteration, the sum of the lower bounds of all
 * replicas. */

/* Returns a lower bound of the energy at a time: the frontier, and beyond its slowest vertex also
 * the energy of waiting. The bound is convex over the time, and +infinity below the frontier. */
static double bound_j_at(const harpe_frontier *frontier, double time_s) {
    double beyond_s = time_s - frontier->vertices[frontier->count - 1].time_s;
    return harpe_frontier_relaxed_at(frontier, time_s) +
           fmax(0, beyond_s) * frontier->iteration_power_w;
}

/* Returns the energy that a shorter iteration costs for each second that it saves, just below a
 * time, in W; 0 beyond the slowest vertex. */
static double marginal_w_at(const harpe_frontier *frontier, double time_s) {
    size_t low = 0, high = frontier->count; /* those before `low` are faster than time_s */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (frontier->vertices[middle].time_s < time_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low < frontier->count ? frontier->vertices[low].marginal_w : 0;
}

/* Calls `number_at` with the frontier of each replica, and returns the sum of the results. */
static double sum_at(const harpe_replica_plans *plans, double time_s,
                     double (*number_at)(const harpe_frontier *frontier, double time_s)) {
    double sum = 0;
    for (int r = 0; r < plans->job.replica_count; r++)
        sum += number_at(plans->groups[plans->classes.class_of[r]].frontier, time_s);
    return sum;
}

double harpe_replica_plans_bound_at(const harpe_replica_plans *plans, double time_s) {
    return sum_at(plans, time_s, bound_j_at);
}

/* Finds the time at which the bound of the job is lowest. The bound is convex over the time, and
 * its minimum is at a vertex of a replica or at the shortest time. */
static harpe_status find_minimum(harpe_replica_plans *plans, harpe_error *error) {
    size_t count = 1, most = 1;
    for (int k = 0; k < plans->classes.count; k++)
        most += plans->groups[k].frontier->count;
    double *times = harpe_calloc(most, sizeof *times);
    if (!times) return harpe_fail_memory(error);
    times[0] = plans->job.fastest_s;
    for (int k = 0; k < plans->classes.count; k++) {
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
            .marginal_w = sum_at(plans, time_s, marginal_w_at),
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

/* Makes the profile in which each GPU is a rank of its stage: times are maxima, and energies are
 * sums. `*out` is NULL if the GPUs have no clocks in common. */
static harpe_status profile_of_all(const harpe_replica_profiles *profiles, harpe_profile **out,
                                   harpe_error *error) {
    int gpus = profiles->replica_count * profiles->peer_count;
    int stages = harpe_profile_stage_count(profiles->gpus[0]);
    size_t most = 0, count = 0;
    for (int g = 0; g < gpus; g++)
        most += harpe_profile_measurements(profiles->gpus[g], NULL);
    harpe_measurement *rows = harpe_calloc(most, sizeof *rows);
    double *power_w = harpe_calloc((size_t)stages, sizeof *power_w);
    harpe_status status = rows && power_w ? HARPE_OK : harpe_fail_memory(error);
    for (int s = 0; s < stages && status == HARPE_OK; s++)
        power_w[s] = mean_power_w(profiles, s);
    for (int g = 0; g < gpus && status == HARPE_OK; g++) {
        size_t end = count + harpe_profile_measurements(profiles->gpus[g], rows + count);
        for (; count < end; count++) {
            rows[count].rank = g;
            rows[count].blocking_power_w = power_w[rows[count].stage];
        }
    }
    if (status == HARPE_OK) {
        *out = NULL;
        status = harpe_profile_new(rows, count, out, error);
        if (status == HARPE_INVALID_ARGUMENT) status = HARPE_OK; /* no clock in common */
    }
    free(rows);
    free(power_w);
    return status;
}

/* Makes one plan for all GPUs. There is no such plan if the GPUs have no clocks in common. */
static harpe_status make_one_plan(planner *p, harpe_error *error) {
    harpe_profile *profile = NULL;
    harpe_problem *problem = NULL;
    harpe_status status = profile_of_all(p->source.profiles, &profile, error);
    if (status != HARPE_OK || !profile) return status;
    status = harpe_problem_new(profile, p->source.schedule, p->source.options, &problem, error);
    if (status == HARPE_OK) {
        int *mhz =
            harpe_arena_alloc(&p->plans->arena, (size_t)problem->instruction_count, sizeof *mhz);
        status =
            mhz ? harpe_replica_search(problem, p->time_s, p->time_s, DIVE_WIDTH, mhz, NULL, error)
                : harpe_fail_memory(error);
        if (status == HARPE_OK) p->plans->one_plan_mhz = mhz;
    }
    harpe_problem_free(problem);
    harpe_profile_free(profile);
    return status;
}

/* ---- Evaluating ------------------------------------------------------------------------------ */

/* Evaluates a replica at one of the choices of its clocks. */
static harpe_status run_plan(const harpe_replica_plans *plans, harpe_replica_clocks clocks,
                             const harpe_replica_problem *replica, int number,
                             harpe_replica_run *out, harpe_error *error) {
    bool is_own = clocks == HARPE_REPLICA_OWN_PLANS;
    const int *mhz = is_own ? plans->groups[plans->classes.class_of[number]].frequency_mhz
                     : clocks == HARPE_REPLICA_ONE_PLAN ? plans->one_plan_mhz
                                                        : NULL;
    harpe_status status =
        harpe_replica_problem_run(replica, mhz, is_own ? plans->instruction_count : 0, out, error);
    if (status == HARPE_OK && is_own)
        *out = harpe_replica_run_later(*out, plans->plans[number].start_s);
    return status;
}

/* Evaluates one clock for all GPUs of a replica. Instructions without clocks keep 0. */
static harpe_status run_one_clock(const harpe_replica_problem *replica, int clock_mhz,
                                  harpe_replica_run *out, harpe_error *error) {
    size_t count = harpe_problem_instruction_count(replica->problem);
    int *list = harpe_calloc(count, sizeof *list);
    if (!list) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        size_t entry = replica->entry_of[replica->problem->choice_of[i]];
        bool has_clocks =
            replica->entries[entry * (size_t)replica->peer_count]->points[0].frequency_mhz != 0;
        list[i] = has_clocks ? clock_mhz : 0;
    }
    harpe_error reason;
    harpe_status status = harpe_replica_problem_run(replica, list, 0, out, &reason);
    free(list);
    if (status == HARPE_INVALID_INPUT) *out = (harpe_replica_run){.time_s = INFINITY};
    if (status == HARPE_OK || status == HARPE_INVALID_INPUT) return HARPE_OK;
    *error = reason;
    return status;
}

static harpe_replica_total total_of(const harpe_replica_plans *plans, size_t clocks) {
    return harpe_replica_runs_total(runs_of(plans, clocks), plans->classes.class_of,
                                    plans->job.replica_count);
}

/* ---- Classes --------------------------------------------------------------------------------- */

static int compare_replicas(const void *left, const void *right, void *profiles) {
    const int *a = left, *b = right;
    int order = harpe_replica_profiles_compare(profiles, *a, *b);
    return order ? order : (*a > *b) - (*a < *b);
}

/* Finds the replicas with equal profiles. With limits on power, each has a class of its own. */
static harpe_status find_classes(planner *p, harpe_error *error) {
    harpe_replica_plans *plans = p->plans;
    const harpe_replica_profiles *profiles = p->source.profiles;
    int count = profiles->replica_count;
    int *like = harpe_calloc((size_t)count, sizeof *like);
    int *sorted = harpe_calloc((size_t)count, sizeof *sorted);
    plans->plans = harpe_calloc((size_t)count, sizeof *plans->plans);
    plans->groups = harpe_calloc((size_t)count, sizeof *plans->groups);
    harpe_status status =
        like && sorted && plans->plans && plans->groups ? HARPE_OK : harpe_fail_memory(error);
    bool may_share = !harpe_power_limits_any(&p->limits);
    for (int r = 0; r < count && status == HARPE_OK; r++)
        like[r] = sorted[r] = r;
    if (status == HARPE_OK && may_share)
        qsort_r(sorted, (size_t)count, sizeof *sorted, compare_replicas, (void *)profiles);
    for (int k = 1; k < count && status == HARPE_OK && may_share; k++)
        if (harpe_replica_profiles_compare(profiles, sorted[k - 1], sorted[k]) == 0)
            like[sorted[k]] = like[sorted[k - 1]];
    if (status == HARPE_OK)
        status = harpe_replica_classes_init(&plans->classes, like, count, error);
    for (int r = 0; r < count && status == HARPE_OK; r++)
        plans->plans[r].same_as = like[r];
    free(like);
    free(sorted);
    return status;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static bool report(void *user, size_t begun) {
    const planner *p = user;
    if (!p->progress || !p->progress->report) return true;
    double done = (double)begun / p->plans->classes.count;
    return p->progress->report(p->progress->user, "planning", p->share_from + p->share * done);
}

/* The planning of one class. */
typedef struct class_user {
    const planner *p;
    int number;
} class_user;

static harpe_status class_step(void *user, harpe_tools *tools, size_t number, harpe_error *error) {
    (void)tools;
    const planner *p = user;
    class_user of = {p, (int)number};
    return harpe_replica_problem_use(&p->source, p->plans->classes.first_of[number], p->use, &of,
                                     error);
}

/* Calls `use` with a class_user and the problem of each class. */
static harpe_status run(planner *p, double share,
                        harpe_status (*use)(void *, const harpe_replica_problem *, harpe_error *),
                        harpe_error *error) {
    p->use = use;
    p->share_from += p->share;
    p->share = share;
    harpe_crew_run of = {
        .count = (size_t)p->plans->classes.count, .step = class_step, .report = report, .user = p};
    if (!report(p, 0)) /* small jobs may end before the next report */
        return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
    return harpe_crew_do(&p->crew, &of, error);
}

/* ---- The time -------------------------------------------------------------------------------- */

static harpe_status find_fastest(void *user, const harpe_replica_problem *replica,
                                 harpe_error *error) {
    const class_user *u = user;
    return harpe_replica_problem_fastest(replica, &u->p->plans->groups[u->number].fastest_s, error);
}

/* Chooses the time of the job. */
static harpe_status choose_time(planner *p, harpe_error *error) {
    harpe_replica_job *job = &p->plans->job;
    for (int k = 0; k < p->plans->classes.count; k++) {
        const harpe_replica_group *group = &p->plans->groups[k];
        if (group->fastest_s <= job->fastest_s) continue;
        job->fastest_s = group->fastest_s;
        job->slowest_replica = p->plans->classes.first_of[k];
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
    group->numbers = harpe_calloc(count, sizeof *group->numbers);
    group->frequency_mhz =
        harpe_calloc(count * (size_t)replica->peer_count, sizeof *group->frequency_mhz);
    if (!group->numbers || !group->frequency_mhz) return harpe_fail_memory(error);
    harpe_status status = harpe_replica_search(replica->problem, p->time_s, p->plans->job.fastest_s,
                                               DIVE_WIDTH, group->numbers, &group->frontier, error);
    if (status != HARPE_OK) return status;
    harpe_replica_problem_decode(replica, group->numbers, group->frequency_mhz);
    if (harpe_power_limits_any(&p->limits)) return HARPE_OK;
    free(group->numbers);
    group->numbers = NULL;
    return HARPE_OK;
}

static harpe_status plan_class(void *user, const harpe_replica_problem *replica,
                               harpe_error *error) {
    const class_user *u = user;
    harpe_replica_plans *plans = u->p->plans;
    int first = plans->classes.first_of[u->number];
    harpe_status status = plan_group(u->p, replica, &plans->groups[u->number], error);
    for (size_t k = 0; k < RUN_KINDS && status == HARPE_OK; k++)
        if (plans->one_plan_mhz || k != HARPE_REPLICA_ONE_PLAN)
            status = run_plan(plans, (harpe_replica_clocks)k, replica, first,
                              &runs_of(plans, k)[u->number], error);
    for (size_t c = 0; c < plans->clock_count && status == HARPE_OK; c++)
        status = run_one_clock(replica, plans->clock_mhz[c],
                               &runs_of(plans, RUN_KINDS + c)[u->number], error);
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Copies what the plans need of the problem: the ranks, and the names of their instructions. */
static harpe_status copy_lists(void *user, const harpe_replica_problem *replica,
                               harpe_error *error) {
    harpe_replica_plans *plans = user;
    harpe_arena *arena = &plans->arena;
    const harpe_problem *problem = replica->problem;
    size_t count = harpe_problem_instruction_count(problem), ranks = (size_t)problem->rank_count;
    plans->instruction_count = count;
    plans->job.rank_count = problem->rank_count;
    plans->rank_offset = harpe_arena_alloc(arena, ranks + 1, sizeof *plans->rank_offset);
    plans->names = harpe_arena_alloc(arena, count, sizeof *plans->names);
    const char **known = harpe_arena_alloc(arena, problem->choice_count, sizeof *known);
    if (!arena->has_failed)
        memcpy(plans->rank_offset, problem->rank_offset, (ranks + 1) * sizeof(size_t));
    for (size_t i = 0; i < count && !arena->has_failed; i++) {
        const char **name = &known[problem->choice_of[i]];
        const char *text = problem->choices[problem->choice_of[i]].list.instruction;
        if (!*name) *name = harpe_arena_strdup(arena, text, strlen(text));
        plans->names[i] = *name;
    }
    return arena->has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* Lists the clocks of the first instruction that has clocks, and makes room for their runs. A clock
 * that all instructions have is in this list. */
static harpe_status list_clocks(const planner *p, harpe_error *error) {
    const harpe_profile *gpu = p->source.profiles->gpus[0];
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
    p->plans->runs =
        harpe_calloc((RUN_KINDS + p->plans->clock_count) * (size_t)p->plans->classes.count,
                     sizeof *p->plans->runs);
    return p->plans->runs ? HARPE_OK : harpe_fail_memory(error);
}

static void fill_results(harpe_replica_plans *plans) {
    harpe_replica_job *job = &plans->job;
    job->distinct_count = plans->classes.count;
    job->own = total_of(plans, HARPE_REPLICA_OWN_PLANS);
    job->all_maximum = total_of(plans, HARPE_REPLICA_ALL_MAXIMUM);
    job->one_plan = total_of(plans, HARPE_REPLICA_ONE_PLAN);
    for (int r = 0; r < job->replica_count; r++) {
        int class = plans->classes.class_of[r];
        const harpe_replica_group *group = &plans->groups[class];
        harpe_replica_plan *plan = &plans->plans[r];
        harpe_replica_run own = runs_of(plans, HARPE_REPLICA_OWN_PLANS)[class];
        plan->time_s = own.time_s;
        plan->energy_j = harpe_replica_run_until_j(own, job->own.time_s);
        plan->lower_bound_j = bound_j_at(group->frontier, job->own.time_s);
        plan->fastest_s = group->fastest_s;
        job->lower_bound_j += plan->lower_bound_j;
    }
}

/* ---- Limits of power ------------------------------------------------------------------------- */

/* Keeps limits on the power of a job. All replicas together are one problem, in which a delay of
 * each replica is before its first instructions. power_limits.c changes clocks and delays. Its
 * starts are the plans of the replicas for the time of the job and for shorter times, in which
 * delays have room, without delays and with delays that are evenly spread. */

static const double shares[] = {0, 0.01, 0.02, 0.04, 0.08};
#define DELAYS 33 /* lengths of a delay */

typedef struct joint {
    harpe_replica_plans *plans;
    double time_s;
    harpe_replica_problem *replicas; /* [count] */
    size_t count;
    harpe_arena arena;
    harpe_problem problem;
    harpe_power_shift *shifts; /* [count] */
    harpe_power_repair repair;
    int *numbers, *best;  /* [instruction] */
    double *best_delay_s; /* [count] */
    double best_j;
} joint;

/* ---- The joint problem ----------------------------------------------------------------------- */

/* The numbers of one replica's nodes and choices in the joint problem begin here. */
typedef struct place {
    int32_t own, delay; /* instructions; delays between ranks */
    int32_t own_count;
    int32_t choice;
} place;

static int32_t joint_node(const place *at, int32_t node) {
    return node < at->own_count ? at->own + node : at->delay + node - at->own_count;
}

static harpe_status count_all(joint *j, place **places, harpe_error *error) {
    harpe_problem *all = &j->problem;
    place *at = *places = harpe_arena_alloc(&j->arena, j->count, sizeof *at);
    if (!at) return harpe_fail_memory(error);
    int32_t own = 0, delays = 0;
    for (size_t r = 0; r < j->count; r++) {
        const harpe_problem *one = j->replicas[r].problem;
        at[r] = (place){own, delays, one->instruction_count - one->delay_count,
                        (int32_t)all->choice_count};
        own += at[r].own_count;
        delays += one->delay_count;
        all->choice_count += one->choice_count;
        all->rank_count += one->rank_count;
        all->dag.arc_count += one->dag.arc_count;
        all->total_gpu_count += one->total_gpu_count;
        all->total_blocking_power_w += one->total_blocking_power_w;
        all->overhead_power_w += one->overhead_power_w;
    }
    for (size_t r = 0; r < j->count; r++)
        at[r].delay += own;
    all->delay_count = delays + (int32_t)j->count;
    all->instruction_count = all->dag.node_count = own + all->delay_count;
    all->choice_count += j->count;
    all->dag.arc_count += own; /* at most, from the delays of replicas */
    return HARPE_OK;
}

static harpe_status allocate(joint *j, harpe_error *error) {
    harpe_problem *all = &j->problem;
    harpe_arena *arena = &j->arena;
    size_t nodes = (size_t)all->instruction_count, arcs = (size_t)all->dag.arc_count;
    size_t ranks = (size_t)all->rank_count;
    all->rank_offset = harpe_arena_alloc(arena, ranks + 1, sizeof *all->rank_offset);
    all->blocking_power_w = harpe_arena_alloc(arena, ranks, sizeof *all->blocking_power_w);
    all->choice_of = harpe_arena_alloc(arena, nodes, sizeof *all->choice_of);
    all->choices = harpe_arena_alloc(arena, all->choice_count, sizeof *all->choices);
    all->dag.arc_from = harpe_arena_alloc(arena, arcs, sizeof(int32_t));
    all->dag.first_arc_into = harpe_arena_alloc(arena, nodes + 1, sizeof(int32_t));
    all->dag.topological_order = harpe_arena_alloc(arena, nodes, sizeof(int32_t));
    j->shifts = harpe_arena_alloc(arena, j->count, sizeof *j->shifts);
    j->numbers = harpe_arena_alloc(arena, nodes, sizeof *j->numbers);
    j->best = harpe_arena_alloc(arena, nodes, sizeof *j->best);
    j->best_delay_s = harpe_arena_alloc(arena, j->count, sizeof *j->best_delay_s);
    return arena->has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* Makes the choice of a replica's delay: lengths up to what is left of the iteration. */
static harpe_status add_delay(joint *j, size_t r, harpe_error *error) {
    harpe_problem *all = &j->problem;
    size_t number = all->choice_count - j->count + r;
    harpe_profile_point *points = harpe_arena_alloc(&j->arena, DELAYS, sizeof *points);
    if (!points) return harpe_fail_memory(error);
    double most_s = j->time_s - j->plans->groups[r].fastest_s;
    for (int k = 0; k < DELAYS; k++) {
        points[k] = (harpe_profile_point){.frequency_mhz = DELAYS - k};
        points[k].time_s = fmax(0, most_s) * k / (DELAYS - 1);
    }
    all->choices[number] = (harpe_choice){.points = points, .point_count = DELAYS};
    all->choice_of[j->shifts[r].node] = (int32_t)number;
    return HARPE_OK;
}

/* Appends the arcs into the nodes of one replica from `from` to `until`. */
static void add_arcs(joint *j, const place *at, size_t r, int32_t from, int32_t until,
                     int32_t *arcs) {
    const harpe_dag *one = &j->replicas[r].problem->dag;
    harpe_dag *all = &j->problem.dag;
    for (int32_t v = from; v < until; v++) {
        all->first_arc_into[joint_node(&at[r], v)] = *arcs;
        if (one->first_arc_into[v] == one->first_arc_into[v + 1])
            all->arc_from[(*arcs)++] = j->shifts[r].node;
        for (int32_t a = one->first_arc_into[v]; a < one->first_arc_into[v + 1]; a++)
            all->arc_from[(*arcs)++] = joint_node(&at[r], one->arc_from[a]);
    }
}

static void join(joint *j, const place *at) {
    harpe_problem *all = &j->problem;
    int32_t arcs = 0, ordered = 0, nodes = all->instruction_count, rank = 0;
    for (size_t r = 0; r < j->count; r++) {
        j->shifts[r] = (harpe_power_shift){nodes - (int32_t)(j->count - r), at[r].own,
                                           at[r].own + at[r].own_count};
        all->dag.topological_order[ordered++] = j->shifts[r].node;
    }
    for (size_t r = 0; r < j->count; r++) {
        const harpe_problem *one = j->replicas[r].problem;
        add_arcs(j, at, r, 0, at[r].own_count, &arcs);
        memcpy(all->choices + at[r].choice, one->choices, one->choice_count * sizeof *one->choices);
        for (int32_t k = 0; k < one->instruction_count; k++) {
            all->choice_of[joint_node(&at[r], k)] = at[r].choice + one->choice_of[k];
            all->dag.topological_order[ordered++] =
                joint_node(&at[r], one->dag.topological_order[k]);
        }
        for (int k = 0; k < one->rank_count; k++, rank++) {
            all->rank_offset[rank] = (size_t)at[r].own + one->rank_offset[k];
            all->blocking_power_w[rank] = one->blocking_power_w[k];
        }
    }
    all->rank_offset[rank] = (size_t)(nodes - all->delay_count);
    for (size_t r = 0; r < j->count; r++)
        add_arcs(j, at, r, at[r].own_count, j->replicas[r].problem->instruction_count, &arcs);
    for (int32_t v = nodes - (int32_t)j->count; v <= nodes; v++)
        all->dag.first_arc_into[v] = arcs;
}

static harpe_status make_joint(joint *j, harpe_error *error) {
    place *places = NULL;
    harpe_status status = count_all(j, &places, error);
    if (status == HARPE_OK) status = allocate(j, error);
    if (status == HARPE_OK) join(j, places);
    for (size_t r = 0; r < j->count && status == HARPE_OK; r++)
        status = add_delay(j, r, error);
    return status;
}

/* ---- Search ---------------------------------------------------------------------------------- */

/* Makes plans of all replicas for a time. */
static harpe_status plan_all(joint *j, double time_s, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t r = 0; r < j->count && status == HARPE_OK; r++) {
        double fastest_s = j->plans->groups[r].fastest_s;
        status = harpe_replica_search(j->replicas[r].problem, fmax(time_s, fastest_s), time_s, 1,
                                      j->numbers + j->shifts[r].first, NULL, error);
    }
    return status;
}

/* Delays the replicas by even parts of their time to spare. */
static void spread(joint *j) {
    for (size_t r = 0; r < j->count; r++) {
        const harpe_choice *choice = harpe_problem_choice(&j->problem, j->shifts[r].node);
        double end_s = 0, part = (double)r / (double)(j->count > 1 ? j->count - 1 : 1);
        for (int32_t i = j->shifts[r].first; i < j->shifts[r].end; i++)
            end_s = fmax(end_s, j->repair.start_s[i] + j->repair.points[i]->time_s);
        size_t k = 0;
        while (k + 1 < DELAYS && choice->points[k + 1].time_s <= part * (j->time_s - end_s))
            k++;
        j->repair.points[j->shifts[r].node] = &choice->points[k];
    }
    harpe_power_repair_evaluate(&j->repair);
}

static harpe_status try_start(joint *j, bool is_spread, harpe_error *error) {
    bool obeys = false;
    harpe_status status = harpe_power_repair_begin(&j->repair, j->numbers, j->time_s, error);
    if (status != HARPE_OK || j->repair.plan.time_s > j->time_s) return status;
    if (is_spread) spread(j);
    status = harpe_power_repair_run(&j->repair, &obeys, error);
    if (status != HARPE_OK || !obeys || j->repair.plan.energy_j >= j->best_j) return status;
    j->best_j = j->repair.plan.energy_j;
    harpe_power_repair_frequencies(&j->repair, j->best);
    for (size_t r = 0; r < j->count; r++)
        j->best_delay_s[r] = j->repair.points[j->shifts[r].node]->time_s;
    return HARPE_OK;
}

/* Takes the best result into the plans. */
static harpe_status take_best(joint *j, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t r = 0; r < j->count && status == HARPE_OK; r++) {
        harpe_replica_problem_decode(&j->replicas[r], j->best + j->shifts[r].first,
                                     j->plans->groups[r].frequency_mhz);
        j->plans->plans[r].start_s = j->best_delay_s[r];
        status = run_plan(j->plans, HARPE_REPLICA_OWN_PLANS, &j->replicas[r], (int)r,
                          &runs_of(j->plans, HARPE_REPLICA_OWN_PLANS)[r], error);
    }
    return status;
}

static harpe_status search(joint *j, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t r = 0; r < j->count; r++)
        memcpy(j->numbers + j->shifts[r].first, j->plans->groups[r].numbers,
               (size_t)(j->shifts[r].end - j->shifts[r].first) * sizeof(int));
    status = harpe_power_repair_begin(&j->repair, j->numbers, j->time_s, error);
    if (status != HARPE_OK || harpe_power_repair_obeys(&j->repair)) return status;
    for (size_t k = 0; k < sizeof shares / sizeof shares[0] && status == HARPE_OK; k++) {
        if (k > 0) status = plan_all(j, (1 - shares[k]) * j->time_s, error);
        if (status == HARPE_OK) status = try_start(j, false, error);
        if (status == HARPE_OK) status = try_start(j, true, error);
    }
    if (status == HARPE_OK && !isfinite(j->best_j))
        status = harpe_power_limits_fail(&j->repair, j->time_s, error);
    return status == HARPE_OK ? take_best(j, error) : status;
}

/* Changes the plans of all replicas so that the power of the job keeps the limits. Each replica
 * must be a class of its own. A replica may begin its iteration later (harpe_replica_plan.start_s)
 * if it still ends within `time_s`. Changes nothing if the plans keep the limits already. Fails
 * with HARPE_INFEASIBLE if no such plans are found. */
static harpe_status keep_limits(harpe_replica_plans *plans, const harpe_replica_source *source,
                                const harpe_power_limits *limits, double time_s,
                                harpe_error *error) {
    static const harpe_clock_switch no_cost = {0};
    joint j = {.plans = plans,
               .time_s = time_s,
               .best_j = INFINITY,
               .count = (size_t)plans->classes.count};
    harpe_status status = HARPE_OK;
    j.time_s += harpe_time_slack_s(time_s);
    j.replicas = harpe_calloc(j.count, sizeof *j.replicas);
    if (!j.replicas) return harpe_fail_memory(error);
    for (size_t r = 0; r < j.count && status == HARPE_OK; r++)
        status = harpe_replica_problem_new(source, (int)r, &j.replicas[r], error);
    if (status == HARPE_OK) status = make_joint(&j, error);
    if (status == HARPE_OK)
        status = harpe_power_repair_init(&j.repair, &j.problem, &no_cost, limits, error);
    j.repair.shifts = j.shifts;
    j.repair.shift_count = j.count;
    if (status == HARPE_OK) status = search(&j, error);
    harpe_power_repair_clear(&j.repair);
    for (size_t r = 0; r < j.count; r++)
        harpe_replica_problem_clear(&j.replicas[r]);
    free(j.replicas);
    harpe_arena_free(&j.arena);
    return status;
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
    plans->job.replica_count = p->source.profiles->replica_count;
    plans->job.peer_count = p->source.profiles->peer_count;
    harpe_status status = find_classes(p, error);
    if (status == HARPE_OK)
        status = harpe_replica_problem_use(&p->source, 0, copy_lists, plans, error);
    if (status == HARPE_OK) status = list_clocks(p, error);
    if (status == HARPE_OK) status = run(p, 0.1, find_fastest, error);
    if (status == HARPE_OK) status = choose_time(p, error);
    if (status == HARPE_OK) status = make_one_plan(p, error);
    if (status == HARPE_OK) status = run(p, 0.9, plan_class, error);
    if (status == HARPE_OK && harpe_power_limits_any(&p->limits))
        status = keep_limits(plans, &p->source, &p->limits, p->time_s, error);
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
    planner p = {.source = {profiles, schedule, options},
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
    for (int k = 0; k < plans->classes.count; k++) {
        free(plans->groups[k].frequency_mhz);
        free(plans->groups[k].numbers);
        harpe_frontier_free(plans->groups[k].frontier);
    }
    harpe_replica_classes_clear(&plans->classes);
    free(plans->groups);
    free(plans->runs);
    free(plans->plans);
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
        harpe_replica_total total = total_of(plans, RUN_KINDS + c);
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
    return plans->groups[plans->classes.class_of[replica]].frequency_mhz +
           (size_t)peer * plans->instruction_count + plans->rank_offset[rank];
}

const char *harpe_replica_plans_instruction_name(const harpe_replica_plans *plans, int rank,
                                                 size_t index) {
    if (rank < 0 || rank >= plans->job.rank_count) return NULL;
    size_t at = plans->rank_offset[rank] + index;
    return index < plans->rank_offset[rank + 1] - plans->rank_offset[rank] ? plans->names[at]
                                                                           : NULL;
}

/* ---- With other profiles --------------------------------------------------------------------- */

/* Relative difference of two sums of the same measured numbers in another order. */
#define SUM_ROUNDING 1e-9
/* The relaxation has whole picoseconds and microwatts. */
#define BOUND_ROUNDING 1e-7

static harpe_status check_same_job(const harpe_replica_plans *plans, harpe_replica_clocks clocks,
                                   const harpe_replica_profiles *profiles, harpe_error *error) {
    const harpe_replica_job *job = &plans->job;
    if (profiles->replica_count != job->replica_count || profiles->peer_count != job->peer_count)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the plans are for %d replicas of %d GPUs a stage, the profiles for %d "
                          "of %d",
                          job->replica_count, job->peer_count, profiles->replica_count,
                          profiles->peer_count);
    if (clocks == HARPE_REPLICA_ONE_PLAN && !plans->one_plan_mhz)
        return harpe_fail(error, HARPE_NOT_FOUND,
                          "there is no plan for all replicas: the GPUs have no clocks in common");
    if (clocks < HARPE_REPLICA_OWN_PLANS || clocks > HARPE_REPLICA_ALL_MAXIMUM)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "unknown choice of clocks %d",
                          (int)clocks);
    return HARPE_OK;
}

/* What evaluates, or verifies, one replica after the other. */
typedef struct evaluation {
    const harpe_replica_plans *plans;
    harpe_replica_clocks clocks;
    int number; /* of the present replica */
    harpe_replica_run *runs;
} evaluation;

static harpe_status run_replica(void *user, const harpe_replica_problem *replica,
                                harpe_error *error) {
    const evaluation *e = user;
    return run_plan(e->plans, e->clocks, replica, e->number, &e->runs[e->number], error);
}

/* Calls `use` for each replica, and adds up their runs. */
static harpe_status evaluate(evaluation *e, const harpe_replica_source *source,
                             harpe_status (*use)(void *, const harpe_replica_problem *,
                                                 harpe_error *),
                             harpe_replica_total *out, harpe_error *error) {
    harpe_status status = check_same_job(e->plans, e->clocks, source->profiles, error);
    if (status != HARPE_OK) return status;
    int count = source->profiles->replica_count;
    e->runs = harpe_calloc((size_t)count, sizeof *e->runs);
    if (!e->runs) return harpe_fail_memory(error);
    for (; e->number < count && status == HARPE_OK; e->number++)
        status = harpe_replica_problem_use(source, e->number, use, e, error);
    if (status == HARPE_OK) *out = harpe_replica_runs_total(e->runs, NULL, count);
    free(e->runs);
    return status;
}

harpe_status harpe_replica_plans_evaluate(const harpe_replica_plans *plans,
                                          harpe_replica_clocks clocks,
                                          const harpe_replica_profiles *profiles,
                                          const harpe_schedule *schedule,
                                          const harpe_problem_options *options,
                                          harpe_replica_total *out, harpe_error *error) {
    evaluation e = {.plans = plans, .clocks = clocks};
    return evaluate(&e, &(harpe_replica_source){profiles, schedule, options}, run_replica, out,
                    error);
}

/* ---- Verifying ------------------------------------------------------------------------------- */

/* Computes every number again from the profiles, and the bounds by the frontier of each replica
 * alone. */

static bool differ(double a, double b, double share) {
    return !(fabs(a - b) <= share * fmax(fabs(a), fabs(b)));
}

static harpe_status check_number(double found, double said, double share, const char *what,
                                 int replica, harpe_error *error) {
    if (!differ(found, said, share)) return HARPE_OK;
    return harpe_fail(error, HARPE_INTERNAL, "replica %d: %s is %s, but %s was found again",
                      replica, what, HARPE_DIGITS(said, 12), HARPE_DIGITS(found, 12));
}

/* Compares the bound with that of the replica's own frontier. Beyond its T*, that frontier ends,
 * and its last bound plus nothing is a bound too. */
static harpe_status check_bound(const harpe_replica_plans *plans,
                                const harpe_replica_problem *replica, int number,
                                harpe_error *error) {
    const harpe_replica_plan *plan = &plans->plans[number];
    double time_s = plans->job.own.time_s;
    if (plan->lower_bound_j > plan->energy_j + SUM_ROUNDING * fabs(plan->energy_j))
        return harpe_fail(error, HARPE_INTERNAL,
                          "replica %d: the lower bound %s J is above the energy %s J", number,
                          HARPE_DIGITS(plan->lower_bound_j, 12), HARPE_DIGITS(plan->energy_j, 12));
    harpe_frontier *frontier = NULL;
    harpe_status status = harpe_frontier_new(replica->problem, NULL, &frontier, error);
    if (status != HARPE_OK) return status;
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
    double bound_j = harpe_frontier_bound_at(frontier, time_s);
    if (time_s <= vertices[count - 1].time_s)
        status = check_number(bound_j, plan->lower_bound_j, BOUND_ROUNDING, "the lower bound",
                              number, error);
    else if (plan->lower_bound_j < bound_j - BOUND_ROUNDING * fabs(bound_j))
        status =
            harpe_fail(error, HARPE_INTERNAL,
                       "replica %d: the lower bound %s J is below that of its shortest wait, "
                       "%s J",
                       number, HARPE_DIGITS(plan->lower_bound_j, 12), HARPE_DIGITS(bound_j, 12));
    if (status == HARPE_OK)
        status = check_number(vertices[0].time_s, plan->fastest_s, SUM_ROUNDING,
                              "the shortest time", number, error);
    harpe_frontier_free(frontier);
    return status;
}

static harpe_status check_replica(void *user, const harpe_replica_problem *replica,
                                  harpe_error *error) {
    const evaluation *e = user;
    int number = e->number;
    const harpe_replica_plan *plan = &e->plans->plans[number];
    double time_s = e->plans->job.own.time_s;
    harpe_status status = run_replica(user, replica, error);
    if (status != HARPE_OK) return status;
    const harpe_replica_run *again = &e->runs[number];
    status = check_number(again->time_s, plan->time_s, SUM_ROUNDING, "the time", number, error);
    if (status == HARPE_OK)
        status = check_number(harpe_replica_run_until_j(*again, time_s), plan->energy_j,
                              SUM_ROUNDING, "the energy", number, error);
    if (status == HARPE_OK && plan->time_s > time_s)
        status = harpe_fail(error, HARPE_INTERNAL, "replica %d is slower than the job", number);
    return status == HARPE_OK ? check_bound(e->plans, replica, number, error) : status;
}

harpe_status harpe_replica_plans_verify(const harpe_replica_plans *plans,
                                        const harpe_replica_profiles *profiles,
                                        const harpe_schedule *schedule,
                                        const harpe_problem_options *options, harpe_error *error) {
    evaluation e = {.plans = plans, .clocks = HARPE_REPLICA_OWN_PLANS};
    harpe_replica_total total;
    double bound_j = 0;
    harpe_status status = evaluate(&e, &(harpe_replica_source){profiles, schedule, options},
                                   check_replica, &total, error);
    if (status != HARPE_OK) return status;
    for (int r = 0; r < plans->job.replica_count; r++)
        bound_j += plans->plans[r].lower_bound_j;
    if (differ(total.energy_j, plans->job.own.energy_j, SUM_ROUNDING) ||
        differ(bound_j, plans->job.lower_bound_j, SUM_ROUNDING))
        return harpe_fail(error, HARPE_INTERNAL,
                          "energy and bound of the job are not the sums of the replicas'");
    return HARPE_OK;
}
