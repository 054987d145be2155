/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a solution from the descriptions of the jobs, without hulls. For any prices of the groups
 * that are not negative, the sum over the jobs of the least (cost + price * power), minus the sum
 * over the groups of price * limit, is at most the objective of every split within the limits. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "fleet/fleet_internal.h"

#define TOLERANCE 1e-9

typedef struct check {
    const harpe_fleet *fleet;
    int64_t *power_uw, *least_uw; /* [groups] */
    double *price; /* [groups] sum of the own prices of a group and those around it */
    double weighted_slowdown, objective, bound;
    double scale; /* sum of the sizes of all parts of the bound and the objective */
} check;

/* Computes the cost from its definition in harpe/fleet.h, and shares nothing with the solver. */
static double cost_of(const check *c, const harpe_fleet_member *job, const harpe_fleet_plan *plan) {
    const harpe_fleet_price *price = &c->fleet->price;
    double per_kwh = price->energy_per_kwh + price->carbon_g_per_kwh * price->carbon_per_kg / 1000;
    double slowdown = plan->time_s / job->plans[0].time_s;
    double value = price->value_per_s > 0 ? price->value_per_s : 1;
    double overhead = c->fleet->groups[0].budget.overhead;
    return value * job->weight * (slowdown - 1) +
           per_kwh / 3.6e6 * overhead * plan->power_w * slowdown;
}

static void add_power(const check *c, int64_t *sums, int group, int64_t power_uw) {
    for (; group >= 0; group = c->fleet->groups[group].parent)
        sums[group] += power_uw;
}

static harpe_status check_job(check *c, const harpe_fleet_member *job, harpe_error *error) {
    double least = INFINITY, price = c->price[job->group];
    int64_t least_uw = INT64_MAX;
    bool is_accepted = false;
    size_t chosen = job->hull.options[job->option].plan;
    for (size_t k = 0; k < job->plan_count; k++) {
        const harpe_fleet_plan *plan = &job->plans[k];
        if (job->max_slowdown > 0 && plan->time_s / job->plans[0].time_s > job->max_slowdown)
            continue;
        int64_t power_uw = llround(plan->power_w * 1e6);
        least = fmin(least, cost_of(c, job, plan) + price * (double)power_uw);
        if (power_uw < least_uw) least_uw = power_uw;
        if (k == chosen) is_accepted = true;
    }
    if (!is_accepted) {
        return harpe_fail(error, HARPE_INTERNAL, "job '%s': plan %zu is not one that it accepts",
                          job->name, chosen);
    }
    const harpe_fleet_plan *plan = &job->plans[chosen];
    add_power(c, c->power_uw, job->group, llround(plan->power_w * 1e6));
    add_power(c, c->least_uw, job->group, least_uw);
    c->weighted_slowdown += job->weight * (plan->time_s / job->plans[0].time_s - 1);
    double cost = cost_of(c, job, plan);
    c->objective += cost;
    c->scale += fabs(cost); /* with a negative price, costs may cancel */
    c->bound += least;
    c->scale += fabs(least);
    return HARPE_OK;
}

static harpe_status check_group(check *c, int g, harpe_error *error) {
    const harpe_fleet_group *group = &c->fleet->groups[g];
    const harpe_fleet_budget *budget = &group->budget;
    double own = c->price[g] - (g > 0 ? c->price[group->parent] : 0);
    if (budget->watts < 0) {
        if (own == 0) return HARPE_OK;
        return harpe_fail(error, HARPE_INTERNAL, "group %d has a price but no budget", g);
    }
    int64_t limit_uw = llround(budget->watts * (1 - budget->margin) / budget->overhead * 1e6);
    bool is_feasible = limit_uw >= c->least_uw[g];
    if (!is_feasible && c->fleet->split.is_feasible)
        return harpe_fail(error, HARPE_INTERNAL, "the budget of group %d cannot hold", g);
    if (!is_feasible) limit_uw = c->least_uw[g];
    if (c->power_uw[g] > limit_uw) {
        return harpe_fail(error, HARPE_INTERNAL, "group %d draws %.6f W of %.6f W", g,
                          (double)c->power_uw[g] * 1e-6, (double)limit_uw * 1e-6);
    }
    c->bound -= own * (double)limit_uw;
    c->scale += own * (double)limit_uw;
    return HARPE_OK;
}

static harpe_status check_sums(const check *c, harpe_error *error) {
    const harpe_fleet_split *split = &c->fleet->split;
    double tolerance = TOLERANCE * c->scale;
    if (fabs(c->objective - split->objective) > tolerance ||
        fabs(c->weighted_slowdown - split->weighted_slowdown) > TOLERANCE * c->weighted_slowdown)
        return harpe_fail(error, HARPE_INTERNAL, "the objective is %.12g, not %.12g", c->objective,
                          split->objective);
    if (c->bound < split->lower_bound - tolerance || split->lower_bound > split->objective)
        return harpe_fail(error, HARPE_INTERNAL, "the lower bound is %.12g, not %.12g", c->bound,
                          split->lower_bound);
    return HARPE_OK;
}

static harpe_status run(check *c, harpe_error *error) {
    const harpe_fleet *fleet = c->fleet;
    for (size_t g = 0; g < fleet->group_count; g++) {
        c->price[g] = fleet->groups[g].price;
        double around = g > 0 ? c->price[fleet->groups[g].parent] : 0;
        if (!(c->price[g] >= around))
            return harpe_fail(error, HARPE_INTERNAL, "group %zu has a negative price", g);
    }
    harpe_status status = HARPE_OK;
    for (size_t j = 0; j < fleet->job_slots && status == HARPE_OK; j++)
        if (fleet->jobs[j].is_used) status = check_job(c, &fleet->jobs[j], error);
    for (size_t g = 0; g < fleet->group_count && status == HARPE_OK; g++)
        status = check_group(c, (int)g, error);
    return status == HARPE_OK ? check_sums(c, error) : status;
}

harpe_status harpe_fleet_verify(const harpe_fleet *fleet, harpe_error *error) {
    if (!fleet->is_solved) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the fleet has changed since it was solved; call harpe_fleet_solve");
    }
    check c = {.fleet = fleet,
               .power_uw = harpe_calloc(fleet->group_count, sizeof *c.power_uw),
               .least_uw = harpe_calloc(fleet->group_count, sizeof *c.least_uw),
               .price = harpe_calloc(fleet->group_count, sizeof *c.price)};
    bool has_memory = c.power_uw && c.least_uw && c.price;
    harpe_status status = has_memory ? run(&c, error) : harpe_fail_memory(error);
    free(c.power_uw);
    free(c.least_uw);
    free(c.price);
    return status;
}
