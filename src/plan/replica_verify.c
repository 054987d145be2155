/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates plans of replicas with other profiles, and verifies them: every number again from the
 * profiles, and the bounds by the frontier of each replica alone. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/replica_internal.h"

/* Relative difference of two sums of the same measured numbers in another order. */
#define SUM_ROUNDING 1e-9
/* The relaxation has whole picoseconds and microwatts. */
#define BOUND_ROUNDING 1e-7

/* ---- Evaluating ------------------------------------------------------------------------------ */

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
    return harpe_replica_run_plan(e->plans, e->clocks, replica, e->number, &e->runs[e->number],
                                  error);
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
