/* SPDX-License-Identifier: Apache-2.0 */
/* The iteration times of plans; see plan_times.h. */
#include "plan/plan_times.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

#define DEFAULT_COUNT 100

static int compare_slowest_first(const void *a, const void *b) {
    const harpe_wanted_time *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps > y->time_ps ? -1 : 1;
    if (x->next_ps != y->next_ps) return x->next_ps > y->next_ps ? -1 : 1;
    if (x->longest_ps != y->longest_ps) return x->longest_ps > y->longest_ps ? -1 : 1;
    return 0;
}

/* Chooses `count` times, spread evenly from T* to T_min, including both. */
static size_t spread_times(const harpe_walk *walk, size_t count, harpe_wanted_time *items) {
    int64_t slowest = walk->minimum_energy_ps, fastest = walk->fastest_ps;
    if (slowest == fastest) count = 1;
    int64_t steps = count > 1 ? (int64_t)count - 1 : 1;
    for (int64_t k = 0; k < (int64_t)count; k++) {
        int64_t time = slowest - (slowest - fastest) / steps * k;
        int64_t next = slowest - (slowest - fastest) / steps * (k + 1);
        if (k + 1 == (int64_t)count && count > 1) time = fastest;
        if (next < fastest || time == fastest) next = time;
        items[k] = (harpe_wanted_time){.time_ps = time, .next_ps = next, .longest_ps = time};
    }
    return count;
}

static harpe_status asked_times(const harpe_walk *walk, const double *times_s, size_t count,
                                harpe_wanted_time *items, harpe_error *error) {
    double fastest_s = (double)walk->fastest_ps / HARPE_PS_PER_S;
    for (size_t i = 0; i < count; i++) {
        double time_s = times_s[i];
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
        items[i] = (harpe_wanted_time){
            .time_ps = time_ps, .next_ps = time_ps, .longest_ps = longest_ps, .is_asked = true};
    }
    return HARPE_OK;
}

harpe_status harpe_plan_times(const harpe_walk *walk, const harpe_plan_request *request,
                              harpe_wanted_times *out, harpe_error *error) {
    size_t spread = request->count > 0 ? (size_t)request->count : DEFAULT_COUNT;
    size_t asked = request->choice == HARPE_PLANS_AT ? request->time_count : 0;
    out->items = harpe_calloc(spread + asked, sizeof *out->items);
    if (!out->items) return harpe_fail_memory(error);
    harpe_status status = asked_times(walk, request->times_s, asked, out->items, error);
    if (status != HARPE_OK) return status;
    out->count = asked + spread_times(walk, spread, out->items + asked);
    qsort(out->items, out->count, sizeof *out->items, compare_slowest_first);
    return HARPE_OK;
}
