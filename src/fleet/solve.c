/* SPDX-License-Identifier: Apache-2.0 */
/* Solves a fleet (hulls, prices of watts, plans), and reads the solution. */
#include <math.h>

#include "base/error.h"
#include "fleet/fleet_state.h"
#include "fleet/hull.h"
#include "fleet/rounding.h"
#include "fleet/watt_price.h"

/* The bound and the objective are equal if they differ by less than this part. */
#define EQUAL 1e-12

static harpe_status make_hulls(harpe_fleet *fleet, harpe_error *error) {
    double overhead = fleet->groups[0].budget.overhead;
    for (size_t j = 0; j < fleet->job_slots; j++) {
        harpe_fleet_member *job = &fleet->jobs[j];
        if (!job->is_used || job->has_hull) continue;
        harpe_status status = harpe_fleet_hull_make(job, &fleet->price, overhead, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

/* Returns the power of the relaxation's vertices in each group, weighted with the groups' own
 * prices and subtracted from the limits: what the relaxation gains by the rest of the limits. */
static double unused_at_vertices(const harpe_fleet *fleet) {
    double sum = 0;
    for (size_t g = 0; g < fleet->group_count; g++) {
        const harpe_fleet_group *group = &fleet->groups[g];
        double around = g > 0 ? fleet->groups[group->parent].price : 0;
        if (group->price > around)
            sum += (group->price - around) * (double)(group->limit_uw - group->vertex_uw);
    }
    return sum;
}

/* Sums up the power of the vertices of each group. */
static void add_vertices(harpe_fleet *fleet) {
    for (size_t g = 0; g < fleet->group_count; g++)
        fleet->groups[g].vertex_uw = 0;
    for (size_t g = fleet->group_count; g-- > 0;) {
        harpe_fleet_group *group = &fleet->groups[g];
        for (size_t k = 0; k < group->job_count; k++) {
            const harpe_fleet_member *job = &fleet->jobs[group->jobs[k]];
            group->vertex_uw += job->hull.power_uw[job->vertex];
        }
        if (g > 0) fleet->groups[group->parent].vertex_uw += group->vertex_uw;
    }
}

static bool is_feasible(const harpe_fleet *fleet) {
    for (size_t g = 0; g < fleet->group_count; g++) {
        const harpe_fleet_group *group = &fleet->groups[g];
        if (group->budget.watts >= 0 && group->budget_uw < group->least_uw) return false;
    }
    return true;
}

static void sum_up(harpe_fleet *fleet, bool is_complete, harpe_fleet_split *split) {
    *split = (harpe_fleet_split){.job_count = fleet->job_count};
    double bound = 0;
    for (size_t j = 0; j < fleet->job_slots; j++) {
        const harpe_fleet_member *job = &fleet->jobs[j];
        if (!job->is_used) continue;
        const harpe_fleet_option *chosen = &job->hull.options[job->option];
        const harpe_fleet_plan *plan = &job->plans[chosen->plan];
        split->power_w += plan->power_w;
        split->weighted_slowdown += job->weight * (plan->time_s / job->plans[0].time_s - 1);
        split->objective += chosen->cost;
        bound += job->hull.options[job->hull.vertices[job->vertex]].cost;
    }
    add_vertices(fleet);
    bound -= unused_at_vertices(fleet);
    split->lower_bound = fmin(bound, split->objective);
    split->is_optimal = is_complete || split->objective - bound <= EQUAL * fabs(split->objective);
    split->is_feasible = is_feasible(fleet);
}

harpe_status harpe_fleet_solve(harpe_fleet *fleet, harpe_fleet_split *split, harpe_error *error) {
    if (!fleet->is_solved) {
        bool is_complete = false;
        harpe_status status = make_hulls(fleet, error);
        if (status == HARPE_OK) status = harpe_fleet_price_watts(fleet, error);
        if (status == HARPE_OK) status = harpe_fleet_round(fleet, &is_complete, error);
        if (status != HARPE_OK) return status;
        sum_up(fleet, is_complete, &fleet->split);
        for (size_t g = 0; g < fleet->group_count; g++)
            fleet->groups[g].is_changed = false;
        fleet->is_solved = true;
    }
    *split = fleet->split;
    return HARPE_OK;
}

/* ---- Reading the solution -------------------------------------------------------------------- */

static harpe_status check_solved(const harpe_fleet *fleet, harpe_error *error) {
    if (fleet->is_solved) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "the fleet has changed since it was solved; call harpe_fleet_solve");
}

harpe_status harpe_fleet_choice_of(const harpe_fleet *fleet, int job, harpe_fleet_choice *choice,
                                   harpe_error *error) {
    if (!harpe_fleet_job_name(fleet, job))
        return harpe_fail(error, HARPE_NOT_FOUND, "the fleet has no job %d", job);
    harpe_status status = check_solved(fleet, error);
    if (status != HARPE_OK) return status;
    const harpe_fleet_member *member = &fleet->jobs[job];
    const harpe_fleet_hull *hull = &member->hull;
    const harpe_fleet_option *chosen = &hull->options[member->option];
    const harpe_fleet_plan *plan = &member->plans[chosen->plan];
    double gain = 0;
    for (size_t o = member->option + 1; o < hull->option_count; o++) {
        double power = (double)(hull->options[o].power_uw - chosen->power_uw);
        gain = fmax(gain, (chosen->cost - hull->options[o].cost) / power);
    }
    *choice = (harpe_fleet_choice){.plan = chosen->plan,
                                   .time_s = plan->time_s,
                                   .power_w = plan->power_w,
                                   .slowdown = plan->time_s / member->plans[0].time_s,
                                   .gain_per_w = gain * 1e6,
                                   .price_per_w = fleet->groups[member->group].price * 1e6};
    return HARPE_OK;
}

harpe_status harpe_fleet_use_of(const harpe_fleet *fleet, int group, harpe_fleet_use *use,
                                harpe_error *error) {
    if (!harpe_fleet_group_name(fleet, group))
        return harpe_fail(error, HARPE_NOT_FOUND, "the fleet has no group %d", group);
    harpe_status status = check_solved(fleet, error);
    if (status != HARPE_OK) return status;
    const harpe_fleet_group *g = &fleet->groups[group];
    const harpe_fleet_budget *budget = &g->budget;
    bool has_budget = budget->watts >= 0;
    double around = group > 0 ? fleet->groups[g->parent].price : 0;
    int64_t missing = has_budget && g->least_uw > g->budget_uw ? g->least_uw - g->budget_uw : 0;
    *use = (harpe_fleet_use){.budget_w = has_budget ? budget->watts : -1,
                             .limit_w = has_budget ? (double)g->budget_uw * 1e-6 : -1,
                             .power_w = (double)g->power_uw * 1e-6,
                             .least_w = (double)g->least_uw * 1e-6,
                             .missing_w =
                                 (double)missing * 1e-6 * budget->overhead / (1 - budget->margin),
                             .price_per_w = (g->price - around) * 1e6};
    return HARPE_OK;
}
