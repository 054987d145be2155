/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the plans; see deadline_plans.h. A plan for a time is made with the problem's variant at
 * this time, which has no deadlines. */
#include "plan/deadline_plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/deadline_variant.h"
#include "plan/graph_deadline.h"
#include "plan/plan_set_contents.h"
#include "plan/power_limits.h"
#include "plan/walk.h"

#define DEFAULT_PLANS 100
/* Plans made besides those for the times that were asked for. */
#define BESIDE_ASKED 8
/* The part of the reported progress that is for the frontier. The plans have the rest. */
#define SOLVING_SHARE 0.05

typedef struct maker {
    const harpe_problem *problem;
    const harpe_plan_request *request;
    const harpe_progress *progress;
    const harpe_frontier *frontier;
    int64_t fastest_ps, minimum_energy_ps; /* T_min, T* */
    harpe_deadline_variant variant;
    harpe_plan *plans;
    size_t count, capacity;
    double fraction; /* progress reported last; never falls */
} maker;

/* ---- Progress -------------------------------------------------------------------------------- */

static bool report(maker *m, const char *phase, double fraction) {
    m->fraction = fmin(1, fmax(m->fraction, fraction));
    if (!m->progress || !m->progress->report) return true;
    return m->progress->report(m->progress->user, phase, m->fraction);
}

static harpe_status report_planning(maker *m, double done, harpe_error *error) {
    if (report(m, "planning", SOLVING_SHARE + (1 - SOLVING_SHARE) * done)) return HARPE_OK;
    return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
}

static bool report_solving(void *user, const char *phase, double fraction) {
    return report(user, phase, SOLVING_SHARE * fraction);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Adds a plan of the variant, evaluated with the deadlines. */
static harpe_status add_plan(maker *m, const int *frequency_mhz, harpe_error *error) {
    size_t count = (size_t)m->problem->instruction_count;
    if (!HARPE_ARRAY_RESERVE(m->plans, m->capacity, m->count + 1)) return harpe_fail_memory(error);
    int *copy = harpe_calloc(count, sizeof *copy);
    if (!copy) return harpe_fail_memory(error);
    memcpy(copy, frequency_mhz, count * sizeof *copy);
    harpe_status status = harpe_plan_evaluate(m->problem, copy, &m->plans[m->count], NULL, error);
    if (status == HARPE_OK)
        m->count++;
    else
        free(copy);
    return status;
}

/* Adds the plan of least energy that was found for an iteration of at most `time_ps`. */
static harpe_status make_plan(maker *m, int64_t time_ps, harpe_error *error) {
    double time_s = (double)time_ps / HARPE_PS_PER_S;
    harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                  .times_s = &time_s,
                                  .time_count = 1,
                                  .threads = m->request->threads};
    harpe_plan_set *set = NULL;
    harpe_deadline_variant_set_time(&m->variant, time_ps);
    harpe_status status =
        harpe_plan_set_new(&m->variant.problem, &request, NULL, NULL, &set, error);
    if (status != HARPE_OK) return status;
    status = add_plan(m, set->plans[0].frequency_mhz, error);
    harpe_plan_set_free(set);
    return status;
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* Returns the i-th time for which a plan is made: those that were asked for, then some that are
 * spread from the fastest time to the longest of them. */
static double asked_s(const harpe_plan_request *request, double fastest_s, size_t i) {
    if (i < request->time_count) return request->times_s[i];
    double longest_s = fastest_s;
    for (size_t k = 0; k < request->time_count; k++)
        longest_s = fmax(longest_s, request->times_s[k]);
    double share = (double)(i - request->time_count) / BESIDE_ASKED;
    return fastest_s + share * (longest_s - fastest_s);
}

/* Lists the times of plans, in ps. */
static harpe_status list_times(const maker *m, const harpe_plan_request *request,
                               int64_t **times_ps, size_t *count, harpe_error *error) {
    const harpe_frontier *frontier = m->frontier;
    size_t spread = request->count > 0 ? (size_t)request->count : DEFAULT_PLANS;
    *count = request->choice == HARPE_PLANS_AT    ? request->time_count + BESIDE_ASKED
             : request->choice == HARPE_PLANS_ALL ? frontier->count
                                                  : spread;
    *times_ps = harpe_calloc(*count, sizeof **times_ps);
    if (!*times_ps) return harpe_fail_memory(error);
    double fastest_s = (double)m->fastest_ps / HARPE_PS_PER_S;
    double length_ps = (double)(m->minimum_energy_ps - m->fastest_ps);
    for (size_t i = 0; i < *count; i++) {
        double share = *count > 1 ? (double)i / (double)(*count - 1) : 1;
        double time_s = request->choice == HARPE_PLANS_AT    ? asked_s(request, fastest_s, i)
                        : request->choice == HARPE_PLANS_ALL ? frontier->vertices[i].time_s
                                                             : fastest_s;
        if (!(time_s >= fastest_s - harpe_time_slack_s(fastest_s))) {
            return harpe_fail(error, HARPE_INFEASIBLE,
                              "no plan runs in %s s: the fastest takes %s s",
                              HARPE_DIGITS(time_s, 9), HARPE_DIGITS(fastest_s, 9));
        }
        double most_ps = fmin(time_s * HARPE_PS_PER_S, (double)m->minimum_energy_ps);
        int64_t time_ps = harpe_round_down(most_ps);
        if (request->choice == HARPE_PLANS_SPREAD)
            time_ps = m->fastest_ps + (int64_t)(share * length_ps);
        (*times_ps)[i] = time_ps > m->fastest_ps ? time_ps : m->fastest_ps;
    }
    return HARPE_OK;
}

/* ---- The set --------------------------------------------------------------------------------- */

static int compare_plans(const void *left, const void *right) {
    const harpe_plan *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    return (a->energy_j > b->energy_j) - (a->energy_j < b->energy_j);
}

/* Keeps the plans that need less energy than all faster plans. */
static void drop_dominated(harpe_plan_set *set) {
    size_t kept = 0;
    qsort(set->plans, set->count, sizeof *set->plans, compare_plans);
    for (size_t i = 0; i < set->count; i++) {
        const harpe_plan *last = kept > 0 ? &set->plans[kept - 1] : NULL;
        double least_j = last ? last->energy_j - 1e-12 * fabs(last->energy_j) : INFINITY;
        if (set->plans[i].energy_j < least_j)
            set->plans[kept++] = set->plans[i];
        else
            free((void *)set->plans[i].frequency_mhz);
    }
    set->count = kept;
}

/* Gives each time that was asked for the plan of least energy that is not slower: another one than
 * its own may need less, because its own was made for an iteration of the whole time. */
static harpe_status pick_asked(const maker *m, const harpe_plan_request *request,
                               harpe_plan_set *set, harpe_error *error) {
    harpe_plan *picked = harpe_calloc(request->time_count, sizeof *picked);
    if (!picked) return harpe_fail_memory(error);
    size_t size = (size_t)m->problem->instruction_count * sizeof(int), count = 0;
    for (; count < request->time_count; count++) {
        const harpe_plan *best = &set->plans[count];
        double longest_s = request->times_s[count];
        longest_s += harpe_time_slack_s(longest_s);
        for (size_t i = 0; i < set->count; i++)
            if (set->plans[i].time_s <= longest_s && set->plans[i].energy_j < best->energy_j)
                best = &set->plans[i];
        int *frequency_mhz = harpe_calloc((size_t)m->problem->instruction_count, sizeof(int));
        if (!frequency_mhz) break;
        memcpy(frequency_mhz, best->frequency_mhz, size);
        picked[count] = *best;
        picked[count].frequency_mhz = frequency_mhz;
    }
    for (size_t i = 0; i < set->count; i++)
        free((void *)set->plans[i].frequency_mhz);
    free(set->plans);
    set->plans = picked;
    set->count = count;
    return count == request->time_count ? HARPE_OK : harpe_fail_memory(error);
}

static harpe_status make_plans(maker *m, harpe_error *error) {
    const harpe_plan_request *request = m->request;
    int64_t *times_ps = NULL;
    size_t count = 0;
    harpe_status status = list_times(m, request, &times_ps, &count, error);
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        status = report_planning(m, (double)i / (double)count, error);
        if (status == HARPE_OK) status = make_plan(m, times_ps[i], error);
    }
    free(times_ps);
    return status;
}

/* Writes the plans and their bounds. */
static harpe_status fill_set(maker *m, harpe_plan_set *set, harpe_error *error) {
    harpe_status status = HARPE_OK;
    set->plans = m->plans;
    set->count = m->count;
    m->plans = NULL;
    m->count = 0;
    if (m->request->choice != HARPE_PLANS_AT)
        drop_dominated(set);
    else
        status = pick_asked(m, m->request, set, error);
    for (size_t i = 0; i < set->count; i++)
        set->plans[i].lower_bound_j = harpe_frontier_bound_at(m->frontier, set->plans[i].time_s);
    return status;
}

static harpe_status maker_init(maker *m, const harpe_problem *problem,
                               const harpe_plan_request *request, const harpe_progress *progress,
                               harpe_frontier **frontier, harpe_error *error) {
    *m = (maker){.problem = problem, .request = request, .progress = progress};
    harpe_status status = harpe_deadline_variant_init(&m->variant, problem, error);
    const harpe_progress solving = {.report = report_solving, .user = m};
    if (status == HARPE_OK) status = harpe_deadline_frontier(problem, &solving, frontier, error);
    if (status != HARPE_OK) return status;
    const harpe_frontier *solved = m->frontier = *frontier;
    m->fastest_ps = llround(solved->vertices[0].time_s * HARPE_PS_PER_S);
    m->minimum_energy_ps = llround(solved->vertices[solved->count - 1].time_s * HARPE_PS_PER_S);
    return HARPE_OK;
}

static void maker_clear(maker *m) {
    for (size_t i = 0; i < m->count; i++)
        free((void *)m->plans[i].frequency_mhz);
    free(m->plans);
    harpe_deadline_variant_clear(&m->variant);
}

harpe_status harpe_deadline_plans(const harpe_problem *problem, const harpe_plan_request *request,
                                  const harpe_progress *progress, harpe_frontier **frontier,
                                  harpe_plan_set **out, harpe_error *error) {
    const harpe_clock_switch *change = &request->clock_switch;
    if (change->latency_s > 0 || change->energy_j > 0 || change->minimum_dwell_s > 0)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "changes of clock have no cost in a graph");
    if (harpe_power_limits_are_wanted(request))
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "a graph with deadlines has no limits on power");
    maker m;
    harpe_frontier *solved = NULL;
    harpe_plan_set *set = harpe_calloc(1, sizeof *set);
    if (!set) return harpe_fail_memory(error);
    harpe_status status = maker_init(&m, problem, request, progress, &solved, error);
    double began_s = harpe_clock_s();
    if (status == HARPE_OK) status = make_plans(&m, error);
    if (status == HARPE_OK) status = fill_set(&m, set, error);
    if (status == HARPE_OK && !report(&m, "planning", 1))
        status = harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
    maker_clear(&m);
    if (status != HARPE_OK) {
        harpe_plan_set_free(set);
        harpe_frontier_free(solved);
        return status;
    }
    *out = set;
    solved->work.assign_s = harpe_clock_s() - began_s;
    if (frontier)
        *frontier = solved;
    else
        harpe_frontier_free(solved);
    return HARPE_OK;
}
