/* SPDX-License-Identifier: Apache-2.0 */
/* Solves a fleet for a test. Random fleets for the tests of src/fleet. Odd members are common: jobs
 * with one plan, equal plans, plans of equal power, plans that others beat, huge and zero weights,
 * groups that nest, tight and infeasible budgets. The same seed gives the same fleet. */
#ifndef HARPE_TESTS_FLEET_FLEETS_H
#define HARPE_TESTS_FLEET_FLEETS_H

#include <math.h>
#include <stdio.h>

#include <harpe/fleet.h>

#include "plan/instances.h"

enum { FLEET_JOBS_MAX = 400, FLEET_PLANS_MAX = 12, FLEET_GROUPS_MAX = 8 };

/* Solves and verifies. */
static inline harpe_fleet_split solve(harpe_fleet *fleet) {
    harpe_fleet_split split;
    harpe_error error = {.message = ""};
    assert_ok(harpe_fleet_solve(fleet, &split, &error), error);
    assert_ok(harpe_fleet_verify(fleet, &error), error);
    return split;
}

static inline harpe_fleet_use use_of(const harpe_fleet *fleet, int group) {
    harpe_fleet_use use;
    harpe_error error = {.message = ""};
    assert_ok(harpe_fleet_use_of(fleet, group, &use, &error), error);
    return use;
}

/* A fleet as the caller states it, for oracles. */
typedef struct stated_fleet {
    size_t job_count, group_count;
    harpe_fleet_job jobs[FLEET_JOBS_MAX];
    char names[FLEET_JOBS_MAX][32];
    harpe_fleet_plan plans[FLEET_JOBS_MAX][FLEET_PLANS_MAX];
    int parent[FLEET_GROUPS_MAX];
    harpe_fleet_budget budgets[FLEET_GROUPS_MAX];
    harpe_fleet_price price;
} stated_fleet;

static inline double uniform(test_random *random, double low, double high) {
    return low + (high - low) * ((double)(random_bits(random) >> 11) * 0x1p-53);
}

static inline size_t below(test_random *random, size_t count) {
    return (size_t)(random_bits(random) % count);
}

/* Fills in a job whose plans are convex, scattered, on a coarse grid, or all equal. */
static inline void random_job(test_random *random, stated_fleet *f, size_t j, size_t plans_max) {
    static const double weights[] = {1, 1, 0.5, 2, 0, 1e9, 1e-6};
    harpe_fleet_job *job = &f->jobs[j];
    harpe_fleet_plan *plans = f->plans[j];
    size_t kind = below(random, 5), count = kind == 0 ? 1 : 1 + below(random, plans_max);
    double time_s = uniform(random, 0.1, 30), power_w = uniform(random, 100, 5000);
    double share = uniform(random, 0.3, 2.5);
    for (size_t k = 0; k < count; k++) {
        double x = count > 1 ? (double)k / (double)(count - 1) : 0;
        plans[k] = (harpe_fleet_plan){time_s * (1 + 0.5 * x), power_w / pow(1 + 0.5 * x, share)};
        if (kind == 2) plans[k].power_w = floor(uniform(random, 1, 6)) * 100;
        if (kind == 3) plans[k].power_w *= uniform(random, 0.7, 1.1);
        if (kind == 4 && k > 0 && below(random, 2) == 0) plans[k] = plans[k - 1];
    }
    (void)snprintf(f->names[j], sizeof f->names[j], "job%zu", j);
    *job = (harpe_fleet_job){.name = f->names[j],
                             .group = (int)below(random, f->group_count),
                             .weight = weights[below(random, sizeof weights / sizeof *weights)],
                             .plan_count = count,
                             .plans = plans};
    if (below(random, 3) == 0) job->max_slowdown = uniform(random, 1, 1.5);
}

static inline bool accepts(const harpe_fleet_job *job, size_t plan) {
    return job->max_slowdown == 0 ||
           job->plans[plan].time_s / job->plans[0].time_s <= job->max_slowdown;
}

static inline bool is_in_group(const stated_fleet *f, size_t job, int group) {
    for (int g = f->jobs[job].group; g >= 0; g = f->parent[g])
        if (g == group) return true;
    return false;
}

/* Returns the least and the highest power that the jobs of a group may draw. */
static inline void power_range(const stated_fleet *f, int group, double *least, double *highest) {
    *least = *highest = 0;
    for (size_t j = 0; j < f->job_count; j++) {
        double low = INFINITY, high = 0;
        if (!is_in_group(f, j, group)) continue;
        for (size_t k = 0; k < f->jobs[j].plan_count; k++) {
            if (!accepts(&f->jobs[j], k)) continue;
            low = fmin(low, f->jobs[j].plans[k].power_w);
            high = fmax(high, f->jobs[j].plans[k].power_w);
        }
        *least += low;
        *highest += high;
    }
}

static inline void random_budget(test_random *random, stated_fleet *f, int group) {
    double least, highest;
    power_range(f, group, &least, &highest);
    harpe_fleet_budget *budget = &f->budgets[group];
    *budget = (harpe_fleet_budget){.watts = -1, .overhead = 1};
    if (below(random, 4) == 0) return;
    if (below(random, 3) == 0) budget->margin = uniform(random, 0, 0.1);
    if (below(random, 3) == 0) budget->overhead = uniform(random, 1, 1.6);
    double share = uniform(random, 0, 1.1);
    if (below(random, 10) == 0) share = 0;
    double limit = least + share * (highest - least);
    if (below(random, 12) == 0) limit = least * 0.9;
    budget->watts = limit * budget->overhead / (1 - budget->margin);
    if (below(random, 6) == 0) budget->watts = floor(budget->watts / 100) * 100;
}

static inline void random_fleet(test_random *random, stated_fleet *f, size_t jobs_max,
                                size_t plans_max) {
    *f = (stated_fleet){.job_count = 1 + below(random, jobs_max),
                        .group_count = 1 + below(random, FLEET_GROUPS_MAX)};
    f->parent[0] = -1;
    for (size_t g = 1; g < f->group_count; g++)
        f->parent[g] = (int)below(random, g);
    for (size_t j = 0; j < f->job_count; j++)
        random_job(random, f, j, plans_max);
    for (size_t g = 0; g < f->group_count; g++)
        random_budget(random, f, (int)g);
    if (below(random, 3) == 0) {
        f->price = (harpe_fleet_price){.energy_per_kwh = uniform(random, 0, 0.5),
                                       .carbon_g_per_kwh = uniform(random, 0, 600),
                                       .carbon_per_kg = uniform(random, 0, 0.1),
                                       .value_per_s = pow(10, uniform(random, -6, 0))};
        if (below(random, 2) == 0) f->price.energy_per_kwh *= -1;
        if (below(random, 8) == 0) f->price.energy_per_kwh = f->price.carbon_per_kg = 0;
    }
}

static inline harpe_fleet *make_fleet(const stated_fleet *f) {
    harpe_fleet *fleet = NULL;
    harpe_error error = {.message = ""};
    int number;
    assert_ok(harpe_fleet_new(&fleet, &error), error);
    for (size_t g = 1; g < f->group_count; g++) {
        char name[32];
        (void)snprintf(name, sizeof name, "group%zu", g);
        assert_ok(harpe_fleet_add_group(fleet, name, f->parent[g], &number, &error), error);
    }
    for (size_t g = 0; g < f->group_count; g++)
        assert_ok(harpe_fleet_set_budget(fleet, (int)g, &f->budgets[g], &error), error);
    assert_ok(harpe_fleet_set_price(fleet, &f->price, &error), error);
    for (size_t j = 0; j < f->job_count; j++)
        assert_ok(harpe_fleet_add(fleet, &f->jobs[j], &number, &error), error);
    return fleet;
}

/* Returns the objective's part of a plan, from its definition. */
static inline double stated_cost(const stated_fleet *f, size_t job, size_t plan) {
    const harpe_fleet_job *j = &f->jobs[job];
    double per_kwh =
        f->price.energy_per_kwh + f->price.carbon_g_per_kwh / 1000 * f->price.carbon_per_kg;
    double slowdown = j->plans[plan].time_s / j->plans[0].time_s;
    double kw = j->plans[plan].power_w / 1000 * f->budgets[0].overhead;
    double value = f->price.value_per_s > 0 ? f->price.value_per_s : 1;
    return j->weight * (slowdown - 1) * value + per_kwh * kw * slowdown / 3600;
}

static inline double limit_of(const stated_fleet *f, size_t group) {
    const harpe_fleet_budget *budget = &f->budgets[group];
    return budget->watts < 0 ? INFINITY : budget->watts * (1 - budget->margin) / budget->overhead;
}

#endif
