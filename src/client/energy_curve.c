/* SPDX-License-Identifier: Apache-2.0 */
/* Makes points of a GPU's energy over time from readings of a counter or of power. The profiler's
 * thread adds readings, and the fit uses the energies between points. */
#include "client/energy_curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* The fractional parts of the multiples of this number are spread evenly from 0 to 1 (Weyl). */
static const double golden_ratio = 0.6180339887498949;

void harpe_energy_curve_clear(harpe_energy_curve *curve) {
    free(curve->points);
    *curve = (harpe_energy_curve){0};
}

/* ---- Readings -------------------------------------------------------------------------------- */

void harpe_energy_curve_break(harpe_energy_curve *curve) {
    curve->is_broken = true;
    curve->has_gap = true;
    curve->has_reading = false;
    harpe_counter_rhythm_forget(&curve->rhythm);
}

/* Adds a point. If there is no memory, the curve starts again. */
static void add_point(harpe_energy_curve *curve, harpe_curve_point point) {
    if (curve->count == HARPE_CURVE_POINTS_MAX ||
        !HARPE_ARRAY_RESERVE(curve->points, curve->capacity, curve->count + 1)) {
        curve->count = 0;
        curve->has_gap = true;
        if (curve->capacity == 0) return;
    }
    point.follows_gap = curve->has_gap || curve->count == 0;
    curve->has_gap = false;
    curve->points[curve->count++] = point;
}

/* Tells the rhythm about the last two points. */
static void note_change(harpe_energy_curve *curve) {
    if (curve->count < 2) return;
    const harpe_curve_point *to = &curve->points[curve->count - 1], *from = to - 1;
    if (to->follows_gap) return;
    harpe_counter_rhythm_note_change(&curve->rhythm, to->time_ns - from->time_ns,
                                     from->blur_ns > to->blur_ns ? from->blur_ns : to->blur_ns);
}

void harpe_energy_curve_add_counter(harpe_energy_curve *curve, int64_t began_ns, int64_t ended_ns,
                                    uint64_t counter_mj) {
    bool is_first = !curve->has_reading;
    harpe_counter_rhythm_note_reading(&curve->rhythm, ended_ns - began_ns);
    uint64_t before_mj = curve->counter_mj;
    int64_t unmoved_ns = curve->unmoved_ns;
    curve->is_broken = false;
    curve->has_reading = true;
    curve->counter_mj = counter_mj;
    curve->unmoved_ns = began_ns;
    if (is_first || counter_mj != before_mj) curve->still_since_ns = ended_ns;
    if (is_first || counter_mj == before_mj) return;
    if (curve->count > 0 &&
        harpe_counter_rhythm_leave_out(&curve->rhythm, curve->points[curve->count - 1].time_ns,
                                       ended_ns - unmoved_ns, ended_ns))
        return;
    add_point(curve, (harpe_curve_point){.time_ns = unmoved_ns + (ended_ns - unmoved_ns) / 2,
                                         .blur_ns = (ended_ns - unmoved_ns) / 2,
                                         .energy_j = (double)counter_mj * 1e-3});
    note_change(curve);
}

void harpe_energy_curve_add_power(harpe_energy_curve *curve, int64_t time_ns, double power_w,
                                  int64_t gap_ns) {
    int64_t length_ns = curve->has_reading ? time_ns - curve->sampled_ns : 0;
    if (curve->has_reading && length_ns <= 0) return;
    if (length_ns > gap_ns) curve->has_gap = true;
    curve->sampled_j += 0.5 * (curve->power_w + power_w) * (double)length_ns * 1e-9;
    curve->is_broken = false;
    curve->has_reading = true;
    curve->is_sampled = true;
    curve->power_w = power_w;
    curve->sampled_ns = time_ns;
    curve->samples++;
    add_point(curve, (harpe_curve_point){.time_ns = time_ns,
                                         .blur_ns = length_ns / 2,
                                         .energy_j = curve->sampled_j});
}

/* ---- Time of the next reading ---------------------------------------------------------------- */

int64_t harpe_energy_curve_delay_ns(harpe_energy_curve *curve, int64_t now_ns, int64_t period_ns) {
    /* The delay varies between 0.5 and 1.5 periods. Training steps are periodic, and samples with a
     * fixed period could always hit the same part of a step. */
    if (curve->is_sampled) {
        return (int64_t)((0.5 + fmod((double)curve->samples * golden_ratio, 1)) *
                         (double)period_ns);
    }
    if (curve->count == 0) return period_ns;
    return harpe_counter_rhythm_delay_ns(&curve->rhythm, curve->points[curve->count - 1].time_ns,
                                         now_ns, period_ns);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

size_t harpe_energy_curve_find(const harpe_energy_curve *curve, int64_t time_ns) {
    size_t low = 0, high = curve->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (curve->points[middle].time_ns <= time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

bool harpe_energy_curve_has_passed(const harpe_energy_curve *curve, int64_t time_ns) {
    return curve->count > 0 && curve->points[curve->count - 1].time_ns >= time_ns;
}

bool harpe_energy_curve_covers(const harpe_energy_curve *curve, int64_t start_ns, int64_t end_ns,
                               size_t *first, size_t *last) {
    size_t from = harpe_energy_curve_find(curve, start_ns);
    if (from == SIZE_MAX) return false;
    size_t to = from;
    while (curve->points[to].time_ns < end_ns) {
        to++;
        if (to == curve->count || curve->points[to].follows_gap) return false;
    }
    *first = from;
    *last = to;
    return true;
}

void harpe_energy_curve_trim(harpe_energy_curve *curve, int64_t time_ns) {
    size_t first = harpe_energy_curve_find(curve, time_ns);
    if (first == SIZE_MAX || first < curve->count / 2) return;
    memmove(curve->points, curve->points + first, (curve->count - first) * sizeof *curve->points);
    curve->count -= first;
}
