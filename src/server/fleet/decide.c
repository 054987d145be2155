/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of the fleet. The solver has a job for each member: with the member's plans if it can
 * follow, otherwise with one plan that has the counted power. So the power of members that do not
 * answer is subtracted from the budgets before the rest is split. */
#include "server/fleet/fleet_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* A member with one power is given to the solver again if its power has fallen by more than this
 * part. */
#define FIXED_FALL 0.02
/* The solver counts in microwatts; sums of doubles are less exact. */
#define ROUNDING_W 1e-3
/* A cap below the slowest plan is at least this part of its power: for a member with a largest
 * slowdown, and for others. */
#define STRETCH_BOUNDED 0.9
#define STRETCH_MOST 0.7
/* Such a cap is not changed by less than this part. */
#define STRETCH_SAME 0.03
/* Only a member whose largest slowdown allows at least this factor times the time of its slowest
 * plan gets such a cap. */
#define STRETCH_ROOM 1.1

harpe_fleet_price harpe_decide_price(const harpe_fleet_state *state, double at_s) {
    const harpe_fleet_prices *prices = &state->prices;
    return harpe_price_at(prices->points, prices->count, at_s, prices->carbon_per_kg,
                          prices->value_per_s);
}

void harpe_decide_free(harpe_fleet_state *state) {
    harpe_fleet_free(state->solver);
    free(state->solver_group_of);
    free(state->removed);
    state->solver = NULL;
    state->solver_group_of = state->removed = NULL;
    state->removed_count = state->removed_capacity = 0;
}

/* ---- The solver's data ----------------------------------------------------------------------- */

/* Makes a solver with the groups and without jobs. */
static harpe_status renew_solver(harpe_fleet_state *state, harpe_error *error) {
    harpe_fleet *solver = NULL;
    int *number_of = harpe_calloc(state->group_count, sizeof *number_of);
    harpe_status status = number_of ? harpe_fleet_new(&solver, error) : harpe_fail_memory(error);
    /* A parent may have a higher number than its child, so groups are added when their parents have
     * been, level by level. */
    size_t added = 1;
    while (status == HARPE_OK && added < state->group_count) {
        for (size_t g = 1; g < state->group_count && status == HARPE_OK; g++) {
            const harpe_fleet_group_state *group = &state->groups[g];
            bool may_add = number_of[g] == 0 && (group->parent == 0 || number_of[group->parent]);
            if (!may_add) continue;
            status = harpe_fleet_add_group(solver, group->name, number_of[group->parent],
                                           &number_of[g], error);
            added++;
        }
    }
    if (status != HARPE_OK) {
        harpe_fleet_free(solver);
        free(number_of);
        return status;
    }
    harpe_decide_free(state);
    state->solver = solver;
    state->solver_group_of = number_of;
    for (size_t i = 0; i < state->member_count; i++) {
        state->members[i]->solver_job = -1;
        state->members[i]->is_dirty = true;
    }
    state->needs_solver = false;
    return HARPE_OK;
}

static harpe_status set_limits(harpe_fleet_state *state, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t g = 0; g < state->group_count && status == HARPE_OK; g++) {
        double limit_w = state->groups[g].ahead_w;
        harpe_fleet_budget budget = {.watts = isfinite(limit_w) ? limit_w : -1, .overhead = 1};
        status = harpe_fleet_set_budget(state->solver, state->solver_group_of[g], &budget, error);
    }
    return status;
}

static harpe_status set_price(harpe_fleet_state *state, double at_s, harpe_error *error) {
    harpe_fleet_price price = harpe_decide_price(state, at_s);
    price.energy_per_kwh *= state->groups[0].budget.overhead;
    price.carbon_g_per_kwh *= state->groups[0].budget.overhead;
    /* What lost time is worth is not known, so it cannot be weighed against energy. */
    if (!(price.value_per_s > 0)) price = (harpe_fleet_price){0};
    return harpe_fleet_set_price(state->solver, &price, error);
}

/* Describes a member that can follow. `plans` has room for all of its plans. */
static void describe_plans(harpe_member *member, harpe_fleet_plan *plans, harpe_fleet_job *job) {
    size_t first = harpe_member_first_plan(member);
    double max_slowdown = member->may_exceed ? 0 : harpe_member_max_slowdown(member);
    for (size_t i = first; i < member->plan_count; i++) {
        plans[i - first] = member->plans[i];
        plans[i - first].power_w *= member->scale;
    }
    /* The slowdown counts from the member's fastest plan, and the solver's from the first. */
    if (max_slowdown > 0)
        max_slowdown = fmax(1, max_slowdown * member->plans[0].time_s / plans[0].time_s);
    member->first_plan = first;
    job->max_slowdown = max_slowdown;
    job->plan_count = member->plan_count - first;
    job->plans = plans;
}

static harpe_status put_member(harpe_fleet_state *state, harpe_member *member, harpe_error *error) {
    harpe_fleet_plan one = {1, fmin(harpe_member_counted_w(member), 1e8)};
    harpe_fleet_job job = {.name = "member",
                           .group = state->solver_group_of[member->group],
                           .weight = harpe_member_weight(member),
                           .plan_count = 1,
                           .plans = &one};
    harpe_fleet_plan *plans = NULL;
    member->is_steered = harpe_member_can_follow(member);
    member->solver_w = one.power_w;
    if (member->is_steered) {
        plans = harpe_calloc(member->plan_count, sizeof *plans);
        if (!plans) return harpe_fail_memory(error);
        describe_plans(member, plans, &job);
    }
    harpe_status status = member->solver_job >= 0
                              ? harpe_fleet_update(state->solver, member->solver_job, &job, error)
                              : harpe_fleet_add(state->solver, &job, &member->solver_job, error);
    free(plans);
    if (status != HARPE_OK) return status;
    member->has_target = false;
    member->is_dirty = false;
    return HARPE_OK;
}

/* Returns true if the solver must learn the member's power. */
static bool has_new_power(const harpe_member *member) {
    double counted_w = harpe_member_counted_w(member);
    return counted_w > member->solver_w || counted_w < member->solver_w * (1 - FIXED_FALL);
}

static harpe_status put_members(harpe_fleet_state *state, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < state->removed_count && status == HARPE_OK; i++)
        status = harpe_fleet_remove(state->solver, state->removed[i], error);
    state->removed_count = 0;
    for (size_t i = 0; i < state->member_count && status == HARPE_OK; i++) {
        harpe_member *member = state->members[i];
        bool can_follow = harpe_member_can_follow(member);
        bool is_new = member->is_dirty || member->solver_job < 0 ||
                      can_follow != member->is_steered || (!can_follow && has_new_power(member));
        if (is_new) status = put_member(state, member, error);
    }
    return status;
}

bool harpe_decide_prepare(harpe_fleet_state *state, harpe_fleet_now now) {
    harpe_error *error = &state->solve_error;
    harpe_status status = HARPE_OK;
    if (!state->solver || state->needs_solver) status = renew_solver(state, error);
    if (status == HARPE_OK) status = set_limits(state, error);
    if (status == HARPE_OK) status = set_price(state, now.wall_s, error);
    if (status == HARPE_OK) status = put_members(state, error);
    state->solve_status = status;
    if (status == HARPE_OK && !harpe_fleet_is_solved(state->solver)) state->must_solve = true;
    /* The solver may lack a part of the data, so the next attempt begins with a new one. */
    if (status != HARPE_OK) state->needs_solver = true;
    return status == HARPE_OK && state->must_solve;
}

/* ---- Solving --------------------------------------------------------------------------------- */

void harpe_decide_solve(harpe_fleet_state *state) {
    state->solve_status = harpe_fleet_solve(state->solver, &state->split, &state->solve_error);
}

harpe_status harpe_decide_take(harpe_fleet_state *state, harpe_error *error) {
    harpe_status status = state->solve_status;
    if (status != HARPE_OK) {
        state->needs_solver = true;
        return harpe_fail(error, status, "%s", state->solve_error.message);
    }
    state->must_solve = false;
    state->has_split = true;
    state->revision++;
    for (size_t i = 0; i < state->member_count; i++) {
        harpe_member *member = state->members[i];
        harpe_fleet_choice choice;
        if (member->solver_job < 0 || !member->is_steered || member->is_dirty) continue;
        if (harpe_fleet_choice_of(state->solver, member->solver_job, &choice, NULL) != HARPE_OK)
            continue;
        member->target = member->first_plan + choice.plan;
        member->has_target = member->target < member->plan_count;
        member->gain_per_w = choice.gain_per_w;
    }
    for (size_t g = 0; g < state->group_count && !state->needs_solver; g++) {
        harpe_fleet_use use;
        if (harpe_fleet_use_of(state->solver, state->solver_group_of[g], &use, NULL) == HARPE_OK)
            state->groups[g].price_per_w = use.price_per_w;
    }
    return HARPE_OK;
}

/* ---- Caps ------------------------------------------------------------------------------------ */

/* Returns true if the member may count `more_w` more in all of its groups. */
static bool has_room(const harpe_fleet_state *state, const harpe_member *member, double more_w) {
    for (int g = member->group; g >= 0; g = state->groups[g].parent)
        if (state->groups[g].counted_w + more_w > state->groups[g].ahead_w + ROUNDING_W)
            return false;
    return true;
}

static void add_counted(harpe_fleet_state *state, const harpe_member *member, double more_w) {
    for (int g = member->group; g >= 0; g = state->groups[g].parent)
        state->groups[g].counted_w += more_w;
}

static bool is_over(const harpe_fleet_state *state, const harpe_member *member) {
    return !has_room(state, member, 0);
}

/* Lowers a member that does not answer to its least power while a budget does not hold because of
 * it: if it answers again, it follows at once. */
static void lower_silent(harpe_fleet_state *state, harpe_member *member, harpe_fleet_now now) {
    if (!member->is_silent || member->plan_count == 0 || member->is_refused ||
        !is_over(state, member))
        return;
    double cap_w = harpe_member_answering_w(member, member->may_exceed) / member->scale;
    if (cap_w < member->cap_w * (1 - 1e-9)) harpe_member_decide(member, cap_w, now);
}

/* Returns the least part of their least power that a group of the member has. 1: budgets hold. */
static double shortage_of(const harpe_fleet_state *state, const harpe_member *member) {
    double part = 1;
    for (int g = member->group; g >= 0; g = state->groups[g].parent) {
        const harpe_fleet_group_state *group = &state->groups[g];
        if (group->answered_w > group->ahead_w * (1 + 1e-9))
            part = fmin(part, group->ahead_w / group->answered_w);
    }
    return part;
}

/* Returns the cap for the target of a member. If its budgets cannot hold and it accepts to be
 * slower than its slowest plan, the cap is lower than that plan's power: a job that explores then
 * measures lower clocks and gets slower plans. Until then it runs its slowest plan. */
static double wanted_cap(const harpe_fleet_state *state, const harpe_member *member) {
    double cap_w = member->plans[member->target].power_w;
    double max_slowdown = member->may_exceed ? 0 : harpe_member_max_slowdown(member);
    double slowest_s = member->plans[member->plan_count - 1].time_s;
    bool may_be_slower =
        max_slowdown == 0 || slowest_s * STRETCH_ROOM <= max_slowdown * member->plans[0].time_s;
    double part = shortage_of(state, member);
    if (member->kind != HARPE_MEMBER_JOB || member->target + 1 < member->plan_count ||
        !may_be_slower || part >= 1)
        return cap_w;
    double lower_w = cap_w * fmax(part, max_slowdown > 0 ? STRETCH_BOUNDED : STRETCH_MOST);
    bool is_near = member->cap_w < cap_w && fabs(member->cap_w - lower_w) < STRETCH_SAME * cap_w;
    return is_near ? member->cap_w : lower_w;
}

static int compare_gains(const void *a, const void *b) {
    const harpe_member *x = *(harpe_member *const *)a;
    const harpe_member *y = *(harpe_member *const *)b;
    return (x->gain_per_w < y->gain_per_w) - (x->gain_per_w > y->gain_per_w);
}

/* Raises members, those that gain most for a watt first. Each raise is counted before the next. */
static void raise_members(harpe_fleet_state *state, harpe_member **list, size_t count,
                          harpe_fleet_now now) {
    qsort(list, count, sizeof(harpe_member *), compare_gains);
    for (size_t i = 0; i < count; i++) {
        harpe_member *member = list[i];
        double cap_w = wanted_cap(state, member);
        double before_w = harpe_member_counted_w(member);
        double more_w = harpe_member_counted_with(member, cap_w) - before_w;
        if (more_w > 0 && !has_room(state, member, more_w)) continue;
        harpe_member_decide(member, cap_w, now);
        add_counted(state, member, harpe_member_counted_w(member) - before_w);
    }
}

void harpe_decide_caps(harpe_fleet_state *state, harpe_fleet_now now) {
    harpe_member **rising = harpe_calloc(state->member_count, sizeof(harpe_member *));
    size_t count = 0;
    for (size_t i = 0; i < state->member_count; i++) {
        harpe_member *member = state->members[i];
        lower_silent(state, member, now);
        if (!harpe_member_can_follow(member) || !member->has_target) continue;
        double cap_w = wanted_cap(state, member);
        if (cap_w < member->cap_w)
            harpe_member_decide(member, cap_w, now);
        else if (cap_w > member->cap_w && !member->is_waiting && rising)
            rising[count++] = member; /* without memory, it rises later */
    }
    if (count > 0) raise_members(state, rising, count, now);
    free(rising);
}

void harpe_decide_release(harpe_fleet_state *state, harpe_fleet_now now) {
    for (size_t i = 0; i < state->member_count; i++) {
        harpe_member *member = state->members[i];
        if (!member->was_steered || member->kind == HARPE_MEMBER_LOAD) continue;
        if (!isinf(member->cap_w)) harpe_member_decide(member, INFINITY, now);
    }
}
