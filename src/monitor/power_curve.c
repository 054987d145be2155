/* SPDX-License-Identifier: Apache-2.0 */
/* Integrates power samples by trapezoids. The sampler adds points, and the windows ask for the
 * energy at their beginning and end. */
#include "monitor/power_curve.h"

/* Returns a point; `age` 0 is the latest. */
static const harpe_power_point *point_at(const harpe_power_curve *curve, size_t age) {
    size_t capacity = HARPE_POWER_CURVE_POINTS;
    return &curve->points[(curve->next + 2 * capacity - 1 - age) % capacity];
}

static double seconds(int64_t from_ns, int64_t to_ns) { return (double)(to_ns - from_ns) * 1e-9; }

void harpe_power_curve_add(harpe_power_curve *curve, int64_t time_ns, double power_w,
                           int64_t sparse_ns, int64_t unknown_ns) {
    harpe_power_point point = {.time_ns = time_ns, .power_w = power_w};
    if (curve->count > 0) {
        const harpe_power_point *last = point_at(curve, 0);
        if (time_ns <= last->time_ns) return;
        int64_t length_ns = time_ns - last->time_ns;
        double length_s = seconds(last->time_ns, time_ns);
        point.energy_j = last->energy_j + 0.5 * (last->power_w + power_w) * length_s;
        point.sparse_s = last->sparse_s + (length_ns > sparse_ns ? length_s : 0);
        point.unknown_s = last->unknown_s + (length_ns > unknown_ns ? length_s : 0);
    }
    curve->points[curve->next] = point;
    curve->next = (curve->next + 1) % HARPE_POWER_CURVE_POINTS;
    if (curve->count < HARPE_POWER_CURVE_POINTS) curve->count++;
}

static harpe_power_point between(const harpe_power_point *before, const harpe_power_point *after,
                                 int64_t time_ns) {
    double into_s = seconds(before->time_ns, time_ns);
    double share = into_s / seconds(before->time_ns, after->time_ns);
    double power_w = before->power_w + share * (after->power_w - before->power_w);
    return (harpe_power_point){
        .time_ns = time_ns,
        .power_w = power_w,
        .energy_j = before->energy_j + 0.5 * (before->power_w + power_w) * into_s,
        .sparse_s = before->sparse_s + share * (after->sparse_s - before->sparse_s),
        .unknown_s = before->unknown_s + share * (after->unknown_s - before->unknown_s),
    };
}

bool harpe_power_curve_at(const harpe_power_curve *curve, int64_t time_ns, harpe_power_point *out) {
    if (curve->count == 0) return false;
    const harpe_power_point *after = point_at(curve, 0);
    if (time_ns >= after->time_ns) {
        *out = *after;
        out->time_ns = time_ns;
        out->energy_j += after->power_w * seconds(after->time_ns, time_ns);
        return true;
    }
    /* Windows ask for a reading at once, so the point is among the latest. */
    for (size_t age = 1; age < curve->count; age++) {
        const harpe_power_point *before = point_at(curve, age);
        if (before->time_ns <= time_ns) {
            *out = between(before, after, time_ns);
            return true;
        }
        after = before;
    }
    return false;
}
