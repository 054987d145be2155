/* SPDX-License-Identifier: Apache-2.0 */
/* The iteration times of plans; see search_internal.h. */
#include "plan/search_internal.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/switching.h"

#define DEFAULT_COUNT 100

static int compare_slowest_first(const void *a, const void *b) {
    const harpe_wanted_time *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps > y->time_ps ? -1 : 1;
    if (x->longest_ps != y->longest_ps) return x->longest_ps > y->longest_ps ? -1 : 1;
    return y->is_asked - x->is_asked;
}

/* Users choose among plans that take a little longer than the highest clocks. There is a plan for
 * each of these slowdowns, however few plans are asked for. */
static const double near_slowdowns[] = {0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05};
#define NEAR_COUNT (sizeof near_slowdowns / sizeof near_slowdowns[0])

static harpe_wanted_time wanted_at(int64_t time_ps) {
    return (harpe_wanted_time){.time_ps = time_ps, .longest_ps = time_ps};
}

/* Chooses T*, T_min and the times of the slowdowns. Fills up to at least `count` times with times
 * that are spread evenly between T_min and T*. A time above T* is of use only if changes of clock
 * have a cost. */
static harpe_status spread_times(const harpe_walk *walk, size_t count, bool has_cost,
                                 harpe_wanted_times *times, harpe_error *error) {
    int64_t slowest = walk->minimum_energy_ps, fastest = walk->fastest_ps;
    harpe_plan highest;
    harpe_status status = harpe_plan_all_maximum(walk->problem, &highest, error);
    if (status != HARPE_OK) return status;
    times->items[times->count++] = wanted_at(slowest);
    if (slowest == fastest && !has_cost) return HARPE_OK;
    times->items[times->count++] = wanted_at(fastest);
    for (size_t k = 0; k < NEAR_COUNT; k++) {
        double time_ps = highest.time_s * (1 + near_slowdowns[k]) * HARPE_PS_PER_S;
        if (time_ps <= (double)fastest || (time_ps >= (double)slowest && !has_cost)) continue;
        int64_t longest = harpe_round_down(fmin(time_ps, (double)walk->slowest_ps));
        times->items[times->count] = wanted_at(longest < slowest ? longest : slowest);
        times->items[times->count++].longest_ps = longest;
    }
    if (slowest == fastest) return HARPE_OK;
    int64_t rest = (int64_t)(count > NEAR_COUNT ? count - NEAR_COUNT : 0);
    for (int64_t k = 1; k <= rest; k++)
        times->items[times->count++] = wanted_at(fastest + (slowest - fastest) / (rest + 1) * k);
    return HARPE_OK;
}

static harpe_status asked_times(const harpe_walk *walk, const double *times_s, size_t count,
                                harpe_wanted_time *items, harpe_error *error) {
    double fastest_s = (double)walk->fastest_ps / HARPE_PS_PER_S;
    for (size_t i = 0; i < count; i++) {
        double time_s = times_s[i] == 0 ? fastest_s : times_s[i];
        if (!(time_s >= fastest_s - harpe_time_slack_s(fastest_s))) {
            return harpe_fail(error, HARPE_INFEASIBLE,
                              "no plan runs in %s s: the fastest takes %s s",
                              HARPE_DIGITS(time_s, 9), HARPE_DIGITS(fastest_s, 9));
        }
        int64_t slowest_ps = walk->minimum_energy_ps;
        double most_ps = fmin(time_s * HARPE_PS_PER_S, (double)walk->slowest_ps);
        int64_t longest_ps = harpe_round_down(most_ps);
        if (longest_ps < walk->fastest_ps) longest_ps = walk->fastest_ps;
        int64_t time_ps = longest_ps < slowest_ps ? longest_ps : slowest_ps;
        items[i] =
            (harpe_wanted_time){.time_ps = time_ps, .longest_ps = longest_ps, .is_asked = true};
    }
    return HARPE_OK;
}

harpe_status harpe_plan_times(const harpe_walk *walk, const harpe_plan_request *request,
                              harpe_wanted_times *out, harpe_error *error) {
    bool is_asked = request->choice == HARPE_PLANS_AT;
    bool has_cost = harpe_clock_switch_has_cost(walk->problem, &request->clock_switch);
    size_t asked = is_asked ? request->time_count : 0;
    size_t spread = request->count > 0 ? (size_t)request->count : is_asked ? 0 : DEFAULT_COUNT;
    out->items = harpe_calloc(2 + NEAR_COUNT + spread + asked, sizeof *out->items);
    if (!out->items) return harpe_fail_memory(error);
    harpe_status status = asked_times(walk, request->times_s, asked, out->items, error);
    out->count = asked;
    /* The fastest plan may be the best for other times too. */
    if (is_asked) out->items[out->count++] = wanted_at(walk->fastest_ps);
    if (status == HARPE_OK && spread > 0) status = spread_times(walk, spread, has_cost, out, error);
    if (status != HARPE_OK) return status;
    qsort(out->items, out->count, sizeof *out->items, compare_slowest_first);
    size_t kept = 0; /* of equal times that were asked for, the first is kept */
    for (size_t i = 0; i < out->count; i++)
        if (!is_asked || kept == 0 || out->items[i].time_ps != out->items[kept - 1].time_ps ||
            out->items[i].longest_ps != out->items[kept - 1].longest_ps)
            out->items[kept++] = out->items[i];
    out->count = kept;
    return HARPE_OK;
}
