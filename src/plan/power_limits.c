/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans within limits of power; see power_limits.h. Every time for which a plan is wanted has
 * several starts, which power_repair.c changes: the plan of this time, faster plans, the best plan
 * with one clock for all GPUs that keeps the limits, and the result for the time before. A faster
 * plan has time to spare: it is made slower where the power is too high, and stays fast elsewhere.
 */
#include "plan/power_limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/plan_set_contents.h"

/* Starts are the plans that are faster by about these shares. */
static const double shares[] = {0, 0.005, 0.015, 0.04, 0.1};
/* Times beyond the slowest plan, as factors. */
static const double factors[] = {1.005, 1.01, 1.02, 1.04, 1.07, 1.1, 1.15, 1.2,
                                 1.3,   1.4,  1.6,  2,    3,    5,   10,   1e9};
/* Slower plans are made until so many of them in turn save nothing. */
#define FUTILE_TIMES 3
#define ROUNDING 1e-9
#define BISECTIONS 4

typedef struct limiter {
    harpe_power_repair repair;
    const harpe_problem *problem;
    harpe_plan_set *given, *simple; /* plans of the set; those with one clock */
    harpe_plan_set made;            /* plans that keep the limits */
    int *best_mhz, *lowest_mhz;     /* of the present time; every instruction at its lowest clock */
    bool is_asked;                  /* plans are made for times that were asked for */
    double best_j;                  /* INFINITY: none keeps the limits */
} limiter;

/* ---- Limits ---------------------------------------------------------------------------------- */

harpe_status harpe_power_limits_check(double peak_w, double swing_w, double swing_share,
                                      harpe_error *error) {
    if (!(peak_w >= 0 && swing_w >= 0 && swing_share >= 0))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "limits on power must be 0 (no limit) or more");
    return HARPE_OK;
}

harpe_power_limits harpe_power_limits_of(double peak_w, double swing_w, double swing_share) {
    return (harpe_power_limits){.peak_w = peak_w > 0 ? peak_w : INFINITY,
                                .swing_w = swing_w > 0 ? swing_w : INFINITY,
                                .swing_share = swing_share > 0 ? swing_share : INFINITY};
}

bool harpe_power_limits_any(const harpe_power_limits *limits) {
    return isfinite(limits->peak_w) || isfinite(limits->swing_w) || isfinite(limits->swing_share);
}

bool harpe_power_limits_are_wanted(const harpe_plan_request *request) {
    const harpe_power_limits limits = harpe_power_limits_of(
        request->max_peak_power_w, request->max_swing_w, request->max_swing_share);
    return harpe_power_limits_any(&limits);
}

harpe_status harpe_power_limits_fail(const harpe_power_repair *repair, double time_s,
                                     harpe_error *error) {
    bool has_peak = isfinite(repair->limits.peak_w), has_swing = isfinite(repair->swing_limit_w);
    return harpe_fail(
        error, HARPE_INFEASIBLE, "no plan%s%s%s keeps the limits on power; %s%s%s%s%s%s",
        time_s > 0 ? " of at most " : "", time_s > 0 ? HARPE_DIGITS(time_s, 9) : "",
        time_s > 0 ? " s" : "", has_peak ? "the lowest peak found is " : "",
        has_peak ? HARPE_DIGITS(repair->least.peak_w, 9) : "",
        has_peak && has_swing ? " W, and " : "", has_swing ? "the smallest swing found is " : "",
        has_swing ? HARPE_DIGITS(repair->least.swing_w, 9) : "", " W");
}

/* ---- One time -------------------------------------------------------------------------------- */

static harpe_status try_start(limiter *l, const int *frequency_mhz, double time_s,
                              harpe_error *error) {
    bool obeys = false;
    harpe_status status = harpe_power_repair_begin(&l->repair, frequency_mhz, time_s, error);
    if (status != HARPE_OK || l->repair.plan.time_s > time_s) return status;
    status = harpe_power_repair_run(&l->repair, &obeys, error);
    if (status != HARPE_OK || !obeys || l->repair.plan.energy_j >= l->best_j) return status;
    l->best_j = l->repair.plan.energy_j;
    harpe_power_repair_frequencies(&l->repair, l->best_mhz);
    return HARPE_OK;
}

/* Begins with the slowest given plans that are faster than the time by some shares. */
static harpe_status try_given(limiter *l, double time_s, harpe_error *error) {
    const harpe_plan *last = NULL;
    harpe_status status = HARPE_OK;
    for (size_t k = 0; k < sizeof shares / sizeof shares[0] && status == HARPE_OK; k++) {
        const harpe_plan *start = NULL;
        for (size_t i = 0; i < l->given->count; i++) {
            const harpe_plan *plan = &l->given->plans[i];
            if (plan->time_s > (1 - shares[k]) * time_s) continue;
            if (!start || plan->time_s > start->time_s) start = plan;
        }
        if (start && start != last) status = try_start(l, start->frequency_mhz, time_s, error);
        last = start;
    }
    return status;
}

/* Begins with the plan of one clock that needs the least energy of those that keep the limits. */
static harpe_status try_simple(limiter *l, double time_s, harpe_error *error) {
    const harpe_plan *best = NULL;
    for (size_t i = 0; l->simple && i < l->simple->count; i++) {
        const harpe_plan *plan = &l->simple->plans[i];
        if (plan->time_s > time_s || (best && best->energy_j <= plan->energy_j)) continue;
        harpe_status status =
            harpe_power_repair_begin(&l->repair, plan->frequency_mhz, time_s, error);
        if (status != HARPE_OK) return status;
        if (harpe_power_repair_obeys(&l->repair)) best = plan;
    }
    return best ? try_start(l, best->frequency_mhz, time_s, error) : HARPE_OK;
}

/* Begins with all plans of a set that are in time, until one leads to a plan within the limits. */
static harpe_status try_all(limiter *l, const harpe_plan_set *set, double time_s,
                            harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; set && i < set->count && status == HARPE_OK && !isfinite(l->best_j); i++)
        status = try_start(l, set->plans[i].frequency_mhz, time_s, error);
    return status;
}

/* Makes a plan that takes at most this time, if one is found. */
static harpe_status make_plan(limiter *l, double time_s, harpe_error *error) {
    bool has_last = isfinite(l->best_j);
    l->best_j = INFINITY;
    harpe_status status = has_last ? try_start(l, l->best_mhz, time_s, error) : HARPE_OK;
    if (status == HARPE_OK) status = try_given(l, time_s, error);
    if (status == HARPE_OK) status = try_simple(l, time_s, error);
    if (status == HARPE_OK) status = try_start(l, l->lowest_mhz, time_s, error);
    if (l->is_asked && status == HARPE_OK) status = try_all(l, l->simple, time_s, error);
    if (l->is_asked && status == HARPE_OK) status = try_all(l, l->given, time_s, error);
    if (status != HARPE_OK || !isfinite(l->best_j)) return status;
    return harpe_plan_set_add(&l->made, l->problem, l->best_mhz, error);
}

/* ---- All times ------------------------------------------------------------------------------- */

/* Makes plans that are slower than all of the set, until these save no energy. */
static harpe_status make_slower(limiter *l, double slowest_s, harpe_error *error) {
    harpe_plan lowest;
    int futile = 0;
    harpe_status status = harpe_plan_evaluate(l->problem, l->lowest_mhz, &lowest, NULL, error);
    for (size_t k = 0; k < sizeof factors / sizeof factors[0] && status == HARPE_OK; k++) {
        double before_j = l->best_j, time_s = slowest_s * factors[k];
        status = make_plan(l, fmin(time_s, lowest.time_s), error);
        bool is_futile = isfinite(l->best_j) && !(l->best_j < before_j * (1 - ROUNDING));
        futile = is_futile ? futile + 1 : 0;
        if (futile == FUTILE_TIMES || time_s >= lowest.time_s) break;
    }
    return status;
}

/* Makes the plan of a time, which is that of the set if it keeps the limits. */
static harpe_status make_at(limiter *l, double time_s, bool *broken, harpe_error *error) {
    const harpe_plan *plan = harpe_plan_set_within(l->given, time_s);
    harpe_status status = HARPE_OK;
    *broken = true;
    if (plan) status = harpe_power_repair_begin(&l->repair, plan->frequency_mhz, INFINITY, error);
    if (status != HARPE_OK) return status;
    if (!plan || !harpe_power_repair_obeys(&l->repair))
        return make_plan(l, time_s * (1 + ROUNDING), error);
    *broken = false;
    l->best_j = l->repair.plan.energy_j;
    harpe_power_repair_frequencies(&l->repair, l->best_mhz);
    return harpe_plan_set_add(&l->made, l->problem, l->best_mhz, error);
}

/* Makes plans between two times, of which only the later one has a plan within the limits, to come
 * closer to the fastest one. */
static harpe_status make_between(limiter *l, double before_s, double after_s, harpe_error *error) {
    int *after_mhz = harpe_calloc(harpe_problem_instruction_count(l->problem), sizeof(int));
    size_t size = harpe_problem_instruction_count(l->problem) * sizeof *after_mhz;
    double after_j = l->best_j;
    harpe_status status = after_mhz ? HARPE_OK : harpe_fail_memory(error);
    if (after_mhz) memcpy(after_mhz, l->best_mhz, size);
    for (int k = 0; k < BISECTIONS && status == HARPE_OK; k++) {
        double time_s = (before_s + after_s) / 2;
        l->best_j = INFINITY;
        status = make_plan(l, time_s, error);
        if (isfinite(l->best_j))
            after_s = time_s;
        else
            before_s = time_s;
    }
    l->best_j = after_j;
    if (after_mhz) memcpy(l->best_mhz, after_mhz, size);
    free(after_mhz);
    return status;
}

/* Makes the plans of all times. */
static harpe_status make_all(limiter *l, const harpe_plan_request *request,
                             const harpe_power_reporter *reporter, harpe_error *error) {
    bool is_asked = request->choice == HARPE_PLANS_AT, broken = false;
    size_t count = is_asked ? request->time_count : l->given->count;
    harpe_status status = HARPE_OK;
    double time_s = 0;
    for (size_t k = 0; k < count && status == HARPE_OK; k++) {
        if (reporter->report && !reporter->report(reporter->user, (double)k / (double)count))
            return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
        time_s = is_asked ? request->times_s[k] : l->given->plans[k].time_s;
        if (is_asked && time_s == 0) time_s = l->given->plans[0].time_s;
        if (is_asked) l->best_j = INFINITY; /* the times are in any order */
        bool is_first = !is_asked && k > 0 && l->made.count == 0;
        status = make_at(l, time_s, &broken, error);
        if (status == HARPE_OK && is_first && isfinite(l->best_j))
            status = make_between(l, l->given->plans[k - 1].time_s, time_s, error);
        if (status == HARPE_OK && is_asked && !isfinite(l->best_j))
            status = harpe_power_limits_fail(&l->repair, time_s, error);
    }
    if (status == HARPE_OK && broken && !is_asked) status = make_slower(l, time_s, error);
    if (status == HARPE_OK && l->made.count == 0)
        status = harpe_power_limits_fail(&l->repair, 0, error);
    return status;
}

/* Returns whether all plans of the set keep the limits. */
static harpe_status find_broken(limiter *l, bool *found, harpe_error *error) {
    harpe_status status = HARPE_OK;
    *found = false;
    for (size_t i = 0; i < l->given->count && status == HARPE_OK && !*found; i++) {
        const int *frequency_mhz = l->given->plans[i].frequency_mhz;
        status = harpe_power_repair_begin(&l->repair, frequency_mhz, INFINITY, error);
        *found = status == HARPE_OK && !harpe_power_repair_obeys(&l->repair);
    }
    l->repair.least = (harpe_power_shape){.peak_w = INFINITY, .swing_w = INFINITY};
    return status;
}

static harpe_status limiter_init(limiter *l, const harpe_plan_request *request,
                                 harpe_error *error) {
    size_t count = harpe_problem_instruction_count(l->problem);
    harpe_power_limits limits = harpe_power_limits_of(
        request->max_peak_power_w, request->max_swing_w, request->max_swing_share);
    harpe_status status =
        harpe_power_repair_init(&l->repair, l->problem, &request->clock_switch, &limits, error);
    l->best_j = INFINITY;
    l->best_mhz = harpe_calloc(count, sizeof *l->best_mhz);
    l->lowest_mhz = harpe_calloc(count, sizeof *l->lowest_mhz);
    if (status == HARPE_OK && (!l->best_mhz || !l->lowest_mhz)) status = harpe_fail_memory(error);
    for (size_t i = 0; status == HARPE_OK && i < count; i++) {
        const harpe_choice *choice = harpe_problem_choice(l->problem, (int32_t)i);
        l->lowest_mhz[i] = choice->points[choice->point_count - 1].frequency_mhz;
    }
    if (status == HARPE_OK && !l->problem->graph)
        status = harpe_plan_set_one_clock(l->problem, &l->simple, error);
    return status;
}

static void limiter_clear(limiter *l) {
    harpe_power_repair_clear(&l->repair);
    harpe_plan_set_free(l->simple);
    harpe_plan_set_clear(&l->made);
    free(l->best_mhz);
    free(l->lowest_mhz);
}

harpe_status harpe_power_limits_keep(const harpe_problem *problem,
                                     const harpe_plan_request *request,
                                     const harpe_power_reporter *reporter, harpe_plan_set *set,
                                     harpe_error *error) {
    limiter l = {.problem = problem, .given = set, .is_asked = request->choice == HARPE_PLANS_AT};
    bool has_broken = false;
    harpe_status status = limiter_init(&l, request, error);
    if (status == HARPE_OK) status = find_broken(&l, &has_broken, error);
    if (status == HARPE_OK && has_broken) status = make_all(&l, request, reporter, error);
    if (status == HARPE_OK && has_broken) {
        harpe_plan_set made = l.made;
        l.made = *set; /* to be freed */
        *set = made;
    }
    limiter_clear(&l);
    return status;
}
