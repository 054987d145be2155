/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans from measurements. A server runs the first plan whose power is within the member's
 * cap, so a plan that another plan beats would only make the numbers of the plans ambiguous. The
 * plan of the chosen limit always stays, because the job runs it when no budget is short. */
#include "powerlimit/limit_plans.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

/* The ranges that a server accepts. */
#define TIME_MIN_S 1e-9
#define TIME_MAX_S 1e9
#define POWER_MAX_W 1e8

static bool is_valid(const harpe_limit_plan *plan) {
    return plan->time_s >= TIME_MIN_S && plan->time_s <= TIME_MAX_S && plan->power_w > 0 &&
           plan->power_w <= POWER_MAX_W;
}

static int compare(const void *a, const void *b) {
    const harpe_limit_plan *x = a;
    const harpe_limit_plan *y = b;
    if (x->time_s != y->time_s) return x->time_s > y->time_s ? 1 : -1;
    if (x->power_w != y->power_w) return x->power_w > y->power_w ? 1 : -1;
    return (x->limit_w < y->limit_w) - (x->limit_w > y->limit_w);
}

/* Keeps the chosen plan. Leaves out plans that beat it, and plans that it or another plan beats.
 * `all` is sorted by time. */
static void keep_best(harpe_limit_plans *all, const harpe_limit_plan *chosen) {
    double least_w = INFINITY;
    size_t kept = 0;
    for (size_t i = 0; i < all->count; i++) {
        harpe_limit_plan plan = all->plans[i];
        bool is_chosen = plan.limit_w == chosen->limit_w;
        bool is_beaten = plan.power_w >= least_w ||
                         (plan.time_s <= chosen->time_s && plan.power_w <= chosen->power_w);
        if (is_beaten && !is_chosen) continue;
        if (is_chosen) all->chosen = kept;
        least_w = plan.power_w;
        all->plans[kept++] = plan;
    }
    all->count = kept;
}

/* Keeps the fastest, the slowest and the chosen plan, and others at equal distances. */
static void thin(harpe_limit_plans *all) {
    size_t count = all->count, chosen = all->chosen, kept = 0;
    if (count <= HARPE_LIMIT_PLANS_MAX) return;
    size_t slots = HARPE_LIMIT_PLANS_MAX - 1; /* the chosen plan may come in addition */
    size_t next = 0;                          /* number of the next plan at equal distances */
    for (size_t i = 0; i < count; i++) {
        bool is_next = i == next * (count - 1) / (slots - 1);
        if (is_next) next++;
        if (!is_next && i != chosen) continue;
        if (i == chosen) all->chosen = kept;
        all->plans[kept++] = all->plans[i];
    }
    all->count = kept;
}

harpe_status harpe_limit_plans_make(const harpe_power_limit_measurement *measurements, size_t count,
                                    int optimum_w, int steps, harpe_limit_plans **out,
                                    harpe_error *error) {
    harpe_limit_plans *all = harpe_calloc(1, sizeof *all + count * sizeof *all->plans);
    harpe_limit_plan chosen = {0};
    if (!all) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const harpe_power_limit_measurement *one = &measurements[i];
        harpe_limit_plan plan = {one->power_limit_w, one->time_s / steps,
                                 one->energy_j / one->time_s};
        if (!is_valid(&plan)) continue;
        if (one->power_limit_w == optimum_w) chosen = plan;
        all->plans[all->count++] = plan;
    }
    if (chosen.limit_w == 0) {
        free(all);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the measurement at %d W is outside of what a fleet accepts", optimum_w);
    }
    qsort(all->plans, all->count, sizeof *all->plans, compare);
    keep_best(all, &chosen);
    thin(all);
    *out = all;
    return HARPE_OK;
}
