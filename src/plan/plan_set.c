/* SPDX-License-Identifier: Apache-2.0 */
/* Plans along the frontier: decides at which iteration times to make them, keeps the best of
 * several roundings near each, and has every one evaluated by what was measured. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "plan/walk.h"

#define DEFAULT_COUNT 100
#define MOST_PLANS 1000000
/* Roundings tried for each plan, at times spread over the distance to the next. */
#define TRIES_PER_PLAN 4
/* Positions that local search may recompute for each plan; about 10 ms. */
#define VISITS_PER_PLAN UINT64_C(600000)

struct harpe_plan_set {
    harpe_plan *plans;
    size_t count, capacity;
};

/* A rounding that may become the next plan. */
typedef struct candidate {
    int32_t *option; /* by position */
    int64_t deadline_ps;
    double time_s, energy_j; /* blocking included */
} candidate;

typedef struct maker {
    const harpe_problem *problem;
    harpe_walk walk;
    harpe_assignment assignment;
    harpe_relaxed relaxed;
    candidate tries[TRIES_PER_PLAN];
    int try_count;
    harpe_plan_set *set;
    double began_s;
    size_t planned, wanted; /* for progress */
} maker;

/* ---- Making one plan --------------------------------------------------------------------------- */

static harpe_status report_planning(maker *m, harpe_error *error) {
    const harpe_progress *progress = m->walk.progress;
    double fraction = m->wanted > 0 ? fmin(1, (double)m->planned / (double)m->wanted) : 1;
    m->planned++;
    if (!progress || !progress->report || progress->report(progress->user, "planning", fraction)) {
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
}

/* Rounds the relaxed solution at the walk's current time into the list of tries. */
static harpe_status try_here(maker *m, harpe_error *error) {
    harpe_assignment *assignment = &m->assignment;
    harpe_walk_read(&m->walk, &m->relaxed);
    harpe_status status = harpe_assignment_round(assignment, &m->relaxed, error);
    if (status != HARPE_OK) return status;
    candidate *found = &m->tries[m->try_count++];
    memcpy(found->option, assignment->option, (size_t)assignment->count * sizeof *found->option);
    found->deadline_ps = assignment->deadline_ps;
    found->time_s = (double)harpe_assignment_time_ps(assignment) / HARPE_PS_PER_S;
    found->energy_j = assignment->energy_j + m->problem->total_blocking_power_w * found->time_s;
    return HARPE_OK;
}

/* The try that lies least above the lower bound at its own time. */
static const candidate *best_try(const maker *m) {
    const candidate *best = NULL;
    double best_gap = INFINITY;
    for (int t = 0; t < m->try_count; t++) {
        double bound_j = harpe_walk_bound_j(&m->walk, m->tries[t].time_s);
        double gap = (m->tries[t].energy_j - bound_j) / fabs(bound_j);
        if (!best || gap < best_gap) {
            best = &m->tries[t];
            best_gap = gap;
        }
    }
    return best;
}

static harpe_status add_plan(maker *m, harpe_error *error) {
    harpe_plan_set *set = m->set;
    size_t count = (size_t)m->problem->instruction_count;
    if (!HARPE_ARRAY_RESERVE(set->plans, set->capacity, set->count + 1)) {
        return harpe_fail_memory(error);
    }
    int *frequencies = harpe_calloc(count, sizeof *frequencies);
    if (!frequencies) return harpe_fail_memory(error);
    harpe_assignment_frequencies(&m->assignment, frequencies);
    harpe_status status =
        harpe_plan_evaluate(m->problem, frequencies, &set->plans[set->count], NULL, error);
    if (status != HARPE_OK) {
        free(frequencies);
        return status;
    }
    set->count++;
    return HARPE_OK;
}

/* Turns the best try into a plan and forgets the others. */
static harpe_status settle(maker *m, harpe_error *error) {
    const candidate *best = best_try(m);
    harpe_assignment_restore(&m->assignment, best->option, best->deadline_ps);
    m->try_count = 0;
    harpe_status status = harpe_assignment_improve(&m->assignment, VISITS_PER_PLAN, error);
    if (status == HARPE_OK) status = add_plan(m, error);
    if (status == HARPE_OK) status = report_planning(m, error);
    return status;
}

/* Makes the plan for `target_ps`; tries roundings down to, but not at, `next_ps`. */
static harpe_status make_plan(maker *m, int64_t target_ps, int64_t next_ps, harpe_error *error) {
    for (int t = 0; t < TRIES_PER_PLAN; t++) {
        int64_t time_ps = target_ps - (target_ps - next_ps) * t / TRIES_PER_PLAN;
        if (t > 0 && time_ps >= m->walk.solver.time_ps) continue;
        harpe_status status = harpe_walk_to(&m->walk, time_ps, error);
        if (status == HARPE_OK) status = try_here(m, error);
        if (status != HARPE_OK) return status;
    }
    return settle(m, error);
}

/* ---- Choosing the times -------------------------------------------------------------------------- */

static harpe_status make_spread(maker *m, int count, harpe_error *error) {
    int64_t slowest = m->walk.minimum_energy_ps, fastest = m->walk.fastest_ps;
    int64_t steps = slowest > fastest ? (count > 1 ? count - 1 : 1) : 0;
    m->wanted = (size_t)steps + 1;
    for (int64_t k = steps; k >= 0; k--) {
        int64_t target = steps > 0 ? fastest + (slowest - fastest) / steps * k : fastest;
        if (k == steps) target = slowest;
        int64_t next = k > 0 ? fastest + (slowest - fastest) / steps * (k - 1) : target;
        harpe_status status = make_plan(m, target, next, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status make_all(maker *m, harpe_error *error) {
    for (;;) {
        int64_t time_ps = m->walk.solver.time_ps;
        harpe_status status = make_plan(m, time_ps, time_ps, error);
        if (status != HARPE_OK || time_ps <= m->walk.fastest_ps) return status;
        status = harpe_walk_to_next_vertex(&m->walk, error);
        if (status != HARPE_OK) return status;
    }
}

typedef struct wanted_time {
    int64_t time_ps;
    size_t index;
} wanted_time;

static int compare_slowest_first(const void *a, const void *b) {
    const wanted_time *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps > y->time_ps ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static harpe_status sort_wanted(const maker *m, const harpe_plan_request *request,
                                wanted_time *wanted, harpe_error *error) {
    for (size_t i = 0; i < request->time_count; i++) {
        double time_s = request->times_s[i];
        double fastest_s = (double)m->walk.fastest_ps / HARPE_PS_PER_S;
        if (!(time_s >= fastest_s - 1e-9)) {
            return harpe_fail(error, HARPE_INFEASIBLE,
                              "no plan runs in %.9g s: the fastest takes %.9g s", time_s,
                              fastest_s);
        }
        double clamped_ps = fmin(time_s * HARPE_PS_PER_S, (double)m->walk.minimum_energy_ps);
        int64_t time_ps = llround(clamped_ps);
        if (time_ps < m->walk.fastest_ps) time_ps = m->walk.fastest_ps;
        wanted[i] = (wanted_time){.time_ps = time_ps, .index = i};
    }
    qsort(wanted, request->time_count, sizeof *wanted, compare_slowest_first);
    return HARPE_OK;
}

static harpe_status make_at(maker *m, const harpe_plan_request *request, harpe_error *error) {
    wanted_time *wanted = harpe_calloc(request->time_count, sizeof *wanted);
    harpe_plan *in_order = harpe_calloc(request->time_count, sizeof *in_order);
    harpe_status status = HARPE_OK;
    if (!wanted || !in_order) status = harpe_fail_memory(error);
    m->wanted = request->time_count;
    if (status == HARPE_OK) status = sort_wanted(m, request, wanted, error);
    for (size_t i = 0; status == HARPE_OK && i < request->time_count; i++) {
        status = make_plan(m, wanted[i].time_ps, wanted[i].time_ps, error);
    }
    if (status == HARPE_OK) {
        for (size_t i = 0; i < request->time_count; i++) {
            in_order[wanted[i].index] = m->set->plans[i];
        }
        memcpy(m->set->plans, in_order, request->time_count * sizeof *in_order);
    }
    free(wanted);
    free(in_order);
    return status;
}

/* ---- Finishing ------------------------------------------------------------------------------------- */

static int compare_plans(const void *a, const void *b) {
    const harpe_plan *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    if (x->energy_j != y->energy_j) return x->energy_j < y->energy_j ? -1 : 1;
    return 0;
}

/* Sorts by time and drops every plan that a faster one beats in energy too. */
static void keep_undominated(harpe_plan_set *set) {
    qsort(set->plans, set->count, sizeof *set->plans, compare_plans);
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (kept > 0 && set->plans[i].energy_j >= set->plans[kept - 1].energy_j) {
            free((void *)set->plans[i].frequency_mhz);
        } else {
            set->plans[kept++] = set->plans[i];
        }
    }
    set->count = kept;
}

static harpe_status maker_init(maker *m, const harpe_problem *problem,
                               const harpe_progress *progress, harpe_error *error) {
    memset(m, 0, sizeof *m);
    m->problem = problem;
    m->began_s = harpe_clock_s();
    harpe_status status = harpe_walk_begin(&m->walk, problem, progress, error);
    if (status != HARPE_OK) return status;
    size_t count = (size_t)problem->instruction_count;
    m->set = harpe_calloc(1, sizeof *m->set);
    m->relaxed.duration_ps = harpe_calloc(count, sizeof(int64_t));
    m->relaxed.price_uw = harpe_calloc(count, sizeof(int64_t));
    bool complete = m->set && m->relaxed.duration_ps && m->relaxed.price_uw;
    for (int t = 0; t < TRIES_PER_PLAN; t++) {
        m->tries[t].option = harpe_calloc(count, sizeof(int32_t));
        complete = complete && m->tries[t].option;
    }
    if (!complete) return harpe_fail_memory(error);
    return harpe_assignment_init(&m->assignment, problem, error);
}

static void maker_clear(maker *m) {
    harpe_plan_set_free(m->set);
    harpe_assignment_clear(&m->assignment);
    harpe_walk_clear(&m->walk);
    free(m->relaxed.duration_ps);
    free(m->relaxed.price_uw);
    for (int t = 0; t < TRIES_PER_PLAN; t++) {
        free(m->tries[t].option);
    }
}

static harpe_status make_plans(maker *m, const harpe_plan_request *request, harpe_error *error) {
    switch (request->choice) {
    case HARPE_PLANS_SPREAD:
        return make_spread(m, request->count > 0 ? request->count : DEFAULT_COUNT, error);
    case HARPE_PLANS_ALL: return make_all(m, error);
    case HARPE_PLANS_AT: return make_at(m, request, error);
    }
    return harpe_fail(error, HARPE_INVALID_ARGUMENT, "unknown choice of plans %d",
                      (int)request->choice);
}

harpe_status harpe_plan_set_new(const harpe_problem *problem, const harpe_plan_request *request,
                                const harpe_progress *progress, harpe_frontier **frontier,
                                harpe_plan_set **out, harpe_error *error) {
    static const harpe_plan_request defaults = {.choice = HARPE_PLANS_SPREAD};
    if (!request) request = &defaults;
    if (request->count < 0 || request->count > MOST_PLANS) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%d plans: ask for 1 to %d",
                          request->count, MOST_PLANS);
    }
    maker m;
    harpe_frontier *solved = NULL;
    harpe_status status = maker_init(&m, problem, progress, error);
    if (status == HARPE_OK) status = make_plans(&m, request, error);
    if (status == HARPE_OK) status = harpe_walk_finish(&m.walk, &solved, error);
    if (status != HARPE_OK) {
        maker_clear(&m);
        return status;
    }
    solved->work.assign_s =
        harpe_clock_s() - m.began_s - solved->work.build_s - solved->work.solve_s;
    if (request->choice != HARPE_PLANS_AT) keep_undominated(m.set);
    for (size_t i = 0; i < m.set->count; i++) {
        m.set->plans[i].lower_bound_j = harpe_frontier_bound_at(solved, m.set->plans[i].time_s);
    }
    *out = m.set;
    m.set = NULL;
    maker_clear(&m);
    if (frontier) {
        *frontier = solved;
    } else {
        harpe_frontier_free(solved);
    }
    return HARPE_OK;
}

void harpe_plan_set_free(harpe_plan_set *plans) {
    if (!plans) return;
    for (size_t i = 0; i < plans->count; i++) {
        free((void *)plans->plans[i].frequency_mhz);
    }
    free(plans->plans);
    free(plans);
}

size_t harpe_plan_set_count(const harpe_plan_set *plans) { return plans->count; }

const harpe_plan *harpe_plan_set_at(const harpe_plan_set *plans, size_t index) {
    return index < plans->count ? &plans->plans[index] : NULL;
}
