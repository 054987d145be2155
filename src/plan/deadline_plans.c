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
    harpe_plan_set *plans;
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
    status = harpe_plan_set_add(m->plans, m->problem, set->plans[0].frequency_mhz, error);
    harpe_plan_set_free(set);
    return status;
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* Returns the i-th time for which a plan is made: those that were asked for, then some that are
 * spread from the fastest time to the longest of them. */
static double asked_s(const harpe_plan_request *request, double fastest_s, size_t i) {
    if (i < request->time_count) return request->times_s[i] == 0 ? fastest_s : request->times_s[i];
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

/* Chooses the plans, and writes their bounds. */
static harpe_status fill_set(const maker *m, harpe_error *error) {
    const harpe_plan_request *request = m->request;
    harpe_status status = HARPE_OK;
    harpe_plan_set_drop_dominated(m->plans, m->problem, 0);
    if (request->choice == HARPE_PLANS_AT)
        status =
            harpe_plan_set_pick(m->plans, m->problem, request->times_s, request->time_count, error);
    for (size_t i = 0; i < m->plans->count; i++) {
        harpe_plan *plan = &m->plans->plans[i];
        plan->lower_bound_j = harpe_frontier_bound_at(m->frontier, plan->time_s);
    }
    return status;
}

static harpe_status maker_init(maker *m, const harpe_problem *problem,
                               const harpe_plan_request *request, const harpe_progress *progress,
                               harpe_frontier **frontier, harpe_error *error) {
    *m = (maker){.problem = problem, .request = request, .progress = progress};
    m->plans = harpe_calloc(1, sizeof *m->plans);
    if (!m->plans) return harpe_fail_memory(error);
    harpe_status status = harpe_deadline_variant_init(&m->variant, problem, error);
    const harpe_progress solving = {.report = report_solving, .user = m};
    if (status == HARPE_OK) status = harpe_deadline_frontier(problem, &solving, frontier, error);
    if (status != HARPE_OK) return status;
    const harpe_frontier *solved = m->frontier = *frontier;
    m->fastest_ps = llround(solved->vertices[0].time_s * HARPE_PS_PER_S);
    m->minimum_energy_ps = llround(solved->vertices[solved->count - 1].time_s * HARPE_PS_PER_S);
    return HARPE_OK;
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
    harpe_status status = maker_init(&m, problem, request, progress, &solved, error);
    double began_s = harpe_clock_s();
    if (status == HARPE_OK) status = make_plans(&m, error);
    if (status == HARPE_OK) status = fill_set(&m, error);
    if (status == HARPE_OK && !report(&m, "planning", 1))
        status = harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
    harpe_deadline_variant_clear(&m.variant);
    if (status != HARPE_OK) {
        harpe_plan_set_free(m.plans);
        harpe_frontier_free(solved);
        return status;
    }
    *out = m.plans;
    solved->work.assign_s = harpe_clock_s() - began_s;
    if (frontier)
        *frontier = solved;
    else
        harpe_frontier_free(solved);
    return HARPE_OK;
}
