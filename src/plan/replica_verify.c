/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates plans of replicas with other profiles, and verifies them: every number again from the
 * profiles, and the bounds by the frontier of each replica alone. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/replica_plans.h"

/* Relative difference of two sums of the same measured numbers in another order. */
#define SUM_ROUNDING 1e-9
/* The relaxation has whole picoseconds and microwatts. */
#define BOUND_ROUNDING 1e-7

static const harpe_problem_options no_options = {0};

/* ---- Evaluating ------------------------------------------------------------------------------ */

/* The runs of all replicas with some clocks. */
typedef struct runs {
    harpe_replica_run *run;
    double *end_power_w;
} runs;

static harpe_status run_replica(const harpe_replica_plans *plans, harpe_replica_clocks clocks,
                                const harpe_replica_problem *replica, int number, runs *out,
                                harpe_error *error) {
    const int *mhz = clocks == HARPE_REPLICA_OWN_PLANS
                         ? plans->groups[plans->group_of[number]].frequency_mhz
                     : clocks == HARPE_REPLICA_ONE_PLAN ? plans->one_plan_mhz
                                                        : NULL;
    harpe_status status =
        harpe_replica_run_clocks(replica, mhz, clocks == HARPE_REPLICA_ONE_PLAN, &out->run[number],
                                 &out->end_power_w[number], error);
    double start_s = clocks == HARPE_REPLICA_OWN_PLANS ? plans->plans[number].start_s : 0;
    out->run[number] = harpe_replica_run_later(out->run[number], out->end_power_w[number], start_s);
    return status;
}

static harpe_status run_all(const harpe_replica_plans *plans, harpe_replica_clocks clocks,
                            const harpe_replica_profiles *profiles, const harpe_schedule *schedule,
                            const harpe_problem_options *options, runs *out, harpe_error *error) {
    for (int r = 0; r < profiles->replica_count; r++) {
        harpe_replica_problem replica = {0};
        harpe_status status =
            harpe_replica_problem_new(profiles, r, schedule, options, &replica, error);
        if (status == HARPE_OK) status = run_replica(plans, clocks, &replica, r, out, error);
        harpe_replica_problem_clear(&replica);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_replica_total add_up(const runs *of, int count) {
    harpe_replica_total total = {0};
    for (int r = 0; r < count; r++)
        total.time_s = fmax(total.time_s, of->run[r].time_s);
    for (int r = 0; r < count; r++)
        total.energy_j +=
            of->run[r].energy_j + of->end_power_w[r] * (total.time_s - of->run[r].time_s);
    return total;
}

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

harpe_status harpe_replica_plans_evaluate(const harpe_replica_plans *plans,
                                          harpe_replica_clocks clocks,
                                          const harpe_replica_profiles *profiles,
                                          const harpe_schedule *schedule,
                                          const harpe_problem_options *options,
                                          harpe_replica_total *out, harpe_error *error) {
    harpe_status status = check_same_job(plans, clocks, profiles, error);
    if (status != HARPE_OK) return status;
    size_t count = (size_t)profiles->replica_count;
    runs all = {.run = harpe_calloc(count, sizeof *all.run),
                .end_power_w = harpe_calloc(count, sizeof *all.end_power_w)};
    status = all.run && all.end_power_w ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = run_all(plans, clocks, profiles, schedule, options ? options : &no_options, &all,
                         error);
    if (status == HARPE_OK) *out = add_up(&all, (int)count);
    free(all.run);
    free(all.end_power_w);
    return status;
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

static harpe_status check_replica(const harpe_replica_plans *plans,
                                  const harpe_replica_problem *replica, int number,
                                  double *energy_j, harpe_error *error) {
    const harpe_replica_plan *plan = &plans->plans[number];
    runs again = {.run = &(harpe_replica_run){0}, .end_power_w = &(double){0}};
    const int *mhz = plans->groups[plans->group_of[number]].frequency_mhz;
    harpe_status status =
        harpe_replica_run_clocks(replica, mhz, false, again.run, again.end_power_w, error);
    if (status != HARPE_OK) return status;
    double time_s = plans->job.own.time_s;
    *again.run = harpe_replica_run_later(*again.run, *again.end_power_w, plan->start_s);
    *energy_j = again.run->energy_j + *again.end_power_w * (time_s - again.run->time_s);
    status = check_number(again.run->time_s, plan->time_s, SUM_ROUNDING, "the time", number, error);
    if (status == HARPE_OK)
        status = check_number(*energy_j, plan->energy_j, SUM_ROUNDING, "the energy", number, error);
    if (status == HARPE_OK && plan->time_s > time_s)
        status = harpe_fail(error, HARPE_INTERNAL, "replica %d is slower than the job", number);
    return status == HARPE_OK ? check_bound(plans, replica, number, error) : status;
}

harpe_status harpe_replica_plans_verify(const harpe_replica_plans *plans,
                                        const harpe_replica_profiles *profiles,
                                        const harpe_schedule *schedule,
                                        const harpe_problem_options *options, harpe_error *error) {
    harpe_status status = check_same_job(plans, HARPE_REPLICA_OWN_PLANS, profiles, error);
    double energy_j = 0, bound_j = 0;
    for (int r = 0; status == HARPE_OK && r < profiles->replica_count; r++) {
        harpe_replica_problem replica = {0};
        double of_replica_j = 0;
        status = harpe_replica_problem_new(profiles, r, schedule, options ? options : &no_options,
                                           &replica, error);
        if (status == HARPE_OK) status = check_replica(plans, &replica, r, &of_replica_j, error);
        harpe_replica_problem_clear(&replica);
        energy_j += of_replica_j;
        bound_j += plans->plans[r].lower_bound_j;
    }
    if (status != HARPE_OK) return status;
    if (differ(energy_j, plans->job.own.energy_j, SUM_ROUNDING) ||
        differ(bound_j, plans->job.lower_bound_j, SUM_ROUNDING))
        return harpe_fail(error, HARPE_INTERNAL,
                          "energy and bound of the job are not the sums of the replicas'");
    return HARPE_OK;
}
