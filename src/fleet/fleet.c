/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a fleet: groups, budgets, prices and jobs. Each change marks the groups that must be
 * solved again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "fleet/fleet_internal.h"

#define HIGHEST_SUM_W 9e12 /* in microwatts, the sum fits into 64 bits */

/* ---- Checking -------------------------------------------------------------------------------- */

static bool is_in(double value, double low, double high) { return value >= low && value <= high; }

static harpe_status check_name(const char *what, const char *name, harpe_error *error) {
    if (!name || !*name) return harpe_fail(error, HARPE_INVALID_INPUT, "a %s has no name", what);
    if (strlen(name) > HARPE_FLEET_NAME_MAX) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "a %s has a name of more than %d bytes", what,
                          HARPE_FLEET_NAME_MAX);
    }
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c >= 0x20 && *c != 0x7F) continue;
        char clean[HARPE_FLEET_NAME_MAX];
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s '%s': the name has a control character",
                          what, harpe_clean_text(clean, sizeof clean, name));
    }
    return HARPE_OK;
}

static harpe_status fail_job(const harpe_fleet_job *job, const char *what, const char *range,
                             harpe_error *error) {
    char clean[HARPE_FLEET_NAME_MAX];
    return harpe_fail(error, HARPE_INVALID_INPUT, "job '%s': %s must be %s",
                      harpe_clean_text(clean, sizeof clean, job->name), what, range);
}

static harpe_status check_plans(const harpe_fleet_job *job, harpe_error *error) {
    char clean[HARPE_FLEET_NAME_MAX];
    harpe_clean_text(clean, sizeof clean, job->name);
    for (size_t k = 0; k < job->plan_count; k++) {
        const harpe_fleet_plan *plan = &job->plans[k];
        if (!is_in(plan->time_s, 1e-9, 1e9)) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "job '%s', plan %zu: the time must be 1e-9 .. 1e9 s", clean, k);
        }
        if (!is_in(plan->power_w, 0, 1e9)) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "job '%s', plan %zu: the power must be 0 .. 1e9 W", clean, k);
        }
        if (k > 0 && plan->time_s < plan[-1].time_s) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "job '%s', plan %zu: it is faster than the plan before it; the "
                              "fastest plan must be first",
                              clean, k);
        }
    }
    return HARPE_OK;
}

static double highest_power(const harpe_fleet_plan *plans, size_t count) {
    double highest = 0;
    for (size_t k = 0; k < count; k++)
        highest = fmax(highest, plans[k].power_w);
    return highest;
}

static harpe_status check_job(const harpe_fleet *fleet, const harpe_fleet_job *job,
                              double other_jobs_w, harpe_error *error) {
    harpe_status status = check_name("job", job->name, error);
    if (status != HARPE_OK) return status;
    if (job->group < 0 || (size_t)job->group >= fleet->group_count)
        return fail_job(job, "the group", "one that exists", error);
    if (!is_in(job->weight, 0, 1e12)) return fail_job(job, "the weight", "0 .. 1e12", error);
    if (job->max_slowdown != 0 && !is_in(job->max_slowdown, 1, 1e9))
        return fail_job(job, "the largest slowdown", "1 .. 1e9", error);
    if (job->plan_count < 1 || job->plan_count > HARPE_FLEET_PLANS_MAX)
        return fail_job(job, "the number of plans", "1 .. 10000", error);
    status = check_plans(job, error);
    if (status != HARPE_OK) return status;
    if (other_jobs_w + highest_power(job->plans, job->plan_count) > HIGHEST_SUM_W)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "the jobs together draw more than 9e12 W");
    return HARPE_OK;
}

/* Marks a group and the groups around it. */
static void mark(harpe_fleet *fleet, int group) {
    for (; group >= 0; group = fleet->groups[group].parent)
        fleet->groups[group].is_changed = true;
    fleet->is_solved = false;
}

static void mark_costs(harpe_fleet *fleet) {
    for (size_t j = 0; j < fleet->job_slots; j++)
        fleet->jobs[j].has_hull = false;
    for (size_t g = 0; g < fleet->group_count; g++)
        fleet->groups[g].is_changed = true;
    fleet->is_solved = false;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static harpe_status append_group(harpe_fleet *fleet, const char *name, int parent,
                                 harpe_error *error) {
    char *copy = strdup(name);
    if (!copy ||
        !HARPE_ARRAY_RESERVE(fleet->groups, fleet->group_capacity, fleet->group_count + 1)) {
        free(copy);
        return harpe_fail_memory(error);
    }
    int number = (int)fleet->group_count++;
    fleet->groups[number] = (harpe_fleet_group){.name = copy,
                                                .parent = parent,
                                                .budget = {.watts = -1, .overhead = 1},
                                                .first_child = -1,
                                                .next_sibling = -1};
    if (parent >= 0) {
        fleet->groups[number].depth = fleet->groups[parent].depth + 1;
        fleet->groups[number].next_sibling = fleet->groups[parent].first_child;
        fleet->groups[parent].first_child = number;
    }
    mark(fleet, number);
    return HARPE_OK;
}

harpe_status harpe_fleet_new(harpe_fleet **out, harpe_error *error) {
    harpe_fleet *fleet = harpe_calloc(1, sizeof *fleet);
    if (!fleet) return harpe_fail_memory(error);
    fleet->first_free = -1;
    harpe_status status = append_group(fleet, "", -1, error);
    if (status != HARPE_OK) {
        harpe_fleet_free(fleet);
        return status;
    }
    *out = fleet;
    return HARPE_OK;
}

static void clear_job(harpe_fleet_member *job) {
    free(job->name);
    free(job->plans);
    harpe_fleet_hull_clear(&job->hull);
    *job = (harpe_fleet_member){0};
}

void harpe_fleet_free(harpe_fleet *fleet) {
    if (!fleet) return;
    for (size_t j = 0; j < fleet->job_slots; j++)
        clear_job(&fleet->jobs[j]);
    for (size_t g = 0; g < fleet->group_count; g++) {
        free(fleet->groups[g].name);
        free(fleet->groups[g].jobs);
    }
    free(fleet->jobs);
    free(fleet->groups);
    free(fleet);
}

harpe_status harpe_fleet_add_group(harpe_fleet *fleet, const char *name, int parent, int *group,
                                   harpe_error *error) {
    harpe_status status = check_name("group", name, error);
    if (status != HARPE_OK) return status;
    if (!harpe_fleet_group_name(fleet, parent))
        return harpe_fail(error, HARPE_NOT_FOUND, "the fleet has no group %d", parent);
    if (fleet->group_count >= HARPE_FLEET_GROUPS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "more than %d groups",
                          HARPE_FLEET_GROUPS_MAX);
    if (fleet->groups[parent].depth + 1 >= HARPE_FLEET_DEPTH_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "group '%s': more than %d groups contain one another", name,
                          HARPE_FLEET_DEPTH_MAX);
    }
    status = append_group(fleet, name, parent, error);
    if (status == HARPE_OK) *group = (int)fleet->group_count - 1;
    return status;
}

int harpe_fleet_group_count(const harpe_fleet *fleet) { return (int)fleet->group_count; }

const char *harpe_fleet_group_name(const harpe_fleet *fleet, int group) {
    if (group < 0 || (size_t)group >= fleet->group_count) return NULL;
    return fleet->groups[group].name;
}

int harpe_fleet_group_parent(const harpe_fleet *fleet, int group) {
    if (group < 0 || (size_t)group >= fleet->group_count) return -1;
    return fleet->groups[group].parent;
}

/* ---- Budgets and prices ---------------------------------------------------------------------- */

static harpe_status fail_budget(const harpe_fleet *fleet, int group, const char *what,
                                const char *range, harpe_error *error) {
    char clean[HARPE_FLEET_NAME_MAX];
    if (group == 0)
        return harpe_fail(error, HARPE_INVALID_INPUT, "budget of the whole fleet: %s must be %s",
                          what, range);
    return harpe_fail(error, HARPE_INVALID_INPUT, "budget of group '%s': %s must be %s",
                      harpe_clean_text(clean, sizeof clean, fleet->groups[group].name), what,
                      range);
}

static void set_budget(harpe_fleet *fleet, int group, harpe_fleet_budget budget) {
    harpe_fleet_group *g = &fleet->groups[group];
    if (budget.watts == g->budget.watts && budget.margin == g->budget.margin &&
        budget.overhead == g->budget.overhead)
        return;
    bool has_other_costs = group == 0 && budget.overhead != g->budget.overhead;
    g->budget = budget;
    mark(fleet, group);
    if (has_other_costs) mark_costs(fleet);
}

harpe_status harpe_fleet_set_budget(harpe_fleet *fleet, int group, const harpe_fleet_budget *budget,
                                    harpe_error *error) {
    if (!harpe_fleet_group_name(fleet, group))
        return harpe_fail(error, HARPE_NOT_FOUND, "the fleet has no group %d", group);
    harpe_fleet_budget wanted = *budget;
    if (wanted.overhead == 0) wanted.overhead = 1;
    if (!(wanted.watts <= 1e12)) return fail_budget(fleet, group, "the watts", "0 .. 1e12", error);
    if (!is_in(wanted.margin, 0, 0.99))
        return fail_budget(fleet, group, "the margin", "0 .. 0.99", error);
    if (!is_in(wanted.overhead, 1, 10))
        return fail_budget(fleet, group, "the overhead factor", "1 .. 10", error);
    if (wanted.watts < 0) wanted.watts = -1;
    set_budget(fleet, group, wanted);
    return HARPE_OK;
}

harpe_status harpe_fleet_set_watts(harpe_fleet *fleet, const double *watts, size_t count,
                                   harpe_error *error) {
    if (count > fleet->group_count) {
        return harpe_fail(error, HARPE_NOT_FOUND, "watts for %zu groups, but the fleet has %zu",
                          count, fleet->group_count);
    }
    for (size_t g = 0; g < count; g++)
        if (!(watts[g] <= 1e12)) return fail_budget(fleet, (int)g, "the watts", "0 .. 1e12", error);
    for (size_t g = 0; g < count; g++) {
        harpe_fleet_budget budget = fleet->groups[g].budget;
        budget.watts = watts[g] < 0 ? -1 : watts[g];
        set_budget(fleet, (int)g, budget);
    }
    return HARPE_OK;
}

harpe_status harpe_fleet_set_price(harpe_fleet *fleet, const harpe_fleet_price *price,
                                   harpe_error *error) {
    static const harpe_fleet_price none = {0};
    const harpe_fleet_price *old = &fleet->price;
    if (!price) price = &none;
    if (!is_in(price->energy_per_kwh, -1e6, 1e6) || !is_in(price->carbon_g_per_kwh, 0, 1e6) ||
        !is_in(price->carbon_per_kg, 0, 1e6) || !is_in(price->value_per_s, 0, 1e6)) {
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "price: energy_per_kwh must be -1e6 .. 1e6, and its other numbers must be "
            "0 .. 1e6");
    }
    if (price->energy_per_kwh == old->energy_per_kwh &&
        price->carbon_g_per_kwh == old->carbon_g_per_kwh &&
        price->carbon_per_kg == old->carbon_per_kg && price->value_per_s == old->value_per_s)
        return HARPE_OK;
    fleet->price = *price;
    mark_costs(fleet);
    return HARPE_OK;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static bool copy_job(const harpe_fleet_job *from, harpe_fleet_member *to) {
    *to = (harpe_fleet_member){.is_used = true,
                               .name = strdup(from->name),
                               .group = from->group,
                               .weight = from->weight,
                               .max_slowdown = from->max_slowdown,
                               .plan_count = from->plan_count,
                               .plans = harpe_calloc(from->plan_count, sizeof *to->plans)};
    if (!to->name || !to->plans) {
        clear_job(to);
        return false;
    }
    memcpy(to->plans, from->plans, from->plan_count * sizeof *to->plans);
    return true;
}

/* Appends a job to its group's list. The list has room. */
static void enter_group(harpe_fleet *fleet, int job) {
    harpe_fleet_group *group = &fleet->groups[fleet->jobs[job].group];
    fleet->jobs[job].place = group->job_count;
    group->jobs[group->job_count++] = job;
    mark(fleet, fleet->jobs[job].group);
}

static void leave_group(harpe_fleet *fleet, int job) {
    harpe_fleet_group *group = &fleet->groups[fleet->jobs[job].group];
    int last = group->jobs[--group->job_count];
    group->jobs[fleet->jobs[job].place] = last;
    fleet->jobs[last].place = fleet->jobs[job].place;
    mark(fleet, fleet->jobs[job].group);
}

static bool reserve_place(harpe_fleet *fleet, int group) {
    harpe_fleet_group *g = &fleet->groups[group];
    return HARPE_ARRAY_RESERVE(g->jobs, g->job_capacity, g->job_count + 1);
}

harpe_status harpe_fleet_add(harpe_fleet *fleet, const harpe_fleet_job *description, int *job,
                             harpe_error *error) {
    harpe_status status = check_job(fleet, description, fleet->highest_w, error);
    if (status != HARPE_OK) return status;
    if (fleet->job_count >= HARPE_FLEET_JOBS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "more than %d jobs", HARPE_FLEET_JOBS_MAX);
    harpe_fleet_member made;
    if (!HARPE_ARRAY_RESERVE(fleet->jobs, fleet->job_capacity, fleet->job_slots + 1) ||
        !reserve_place(fleet, description->group) || !copy_job(description, &made))
        return harpe_fail_memory(error);
    int slot = fleet->first_free;
    if (slot >= 0)
        fleet->first_free = fleet->jobs[slot].next_free;
    else
        slot = (int)fleet->job_slots++;
    fleet->jobs[slot] = made;
    fleet->job_count++;
    fleet->highest_w += highest_power(made.plans, made.plan_count);
    enter_group(fleet, slot);
    *job = slot;
    return HARPE_OK;
}

static harpe_status find_job(const harpe_fleet *fleet, int job, harpe_error *error) {
    if (harpe_fleet_job_name(fleet, job)) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_FOUND, "the fleet has no job %d", job);
}

harpe_status harpe_fleet_update(harpe_fleet *fleet, int job, const harpe_fleet_job *description,
                                harpe_error *error) {
    harpe_status status = find_job(fleet, job, error);
    if (status != HARPE_OK) return status;
    harpe_fleet_member *member = &fleet->jobs[job];
    double others_w = fleet->highest_w - highest_power(member->plans, member->plan_count);
    status = check_job(fleet, description, others_w, error);
    if (status != HARPE_OK) return status;
    harpe_fleet_member made;
    if (!reserve_place(fleet, description->group) || !copy_job(description, &made))
        return harpe_fail_memory(error);
    leave_group(fleet, job);
    clear_job(member);
    *member = made;
    fleet->highest_w = others_w + highest_power(made.plans, made.plan_count);
    enter_group(fleet, job);
    return HARPE_OK;
}

harpe_status harpe_fleet_remove(harpe_fleet *fleet, int job, harpe_error *error) {
    harpe_status status = find_job(fleet, job, error);
    if (status != HARPE_OK) return status;
    harpe_fleet_member *member = &fleet->jobs[job];
    fleet->highest_w -= highest_power(member->plans, member->plan_count);
    leave_group(fleet, job);
    clear_job(member);
    member->next_free = fleet->first_free;
    fleet->first_free = job;
    fleet->job_count--;
    if (fleet->job_count == 0) fleet->highest_w = 0;
    return HARPE_OK;
}

int harpe_fleet_job_end(const harpe_fleet *fleet) { return (int)fleet->job_slots; }

const char *harpe_fleet_job_name(const harpe_fleet *fleet, int job) {
    if (job < 0 || (size_t)job >= fleet->job_slots || !fleet->jobs[job].is_used) return NULL;
    return fleet->jobs[job].name;
}
