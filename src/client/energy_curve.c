/* SPDX-License-Identifier: Apache-2.0 */
/* Makes points of a GPU's energy over time from readings of a counter or of power. The profiler's
 * thread adds readings, and the fit uses the energies between points. */
#include "client/energy_curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* A driver may need milliseconds for a reading, during which it keeps a processor busy and does
 * nothing else (docs/gpu.md). Readings are slow if one takes more than this share of a period. The
 * curve then tries to spend `reading_share` of the time with readings. It takes about READINGS
 * readings to find the moment of a change. */
static const double slow_share = 0.05, reading_share = 0.05;
static const int64_t longest_pause_ns = 1000000000; /* between two changes that are looked for */
enum { READINGS = 4, STRIDE_MAX = 8, SKIPS_MAX = 2 };

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
    curve->leaves_out = false;
    curve->rhythm_count = 0;
    curve->skips = 0;
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

/* Returns how many of the latest intervals between changes are known. */
static size_t known_intervals(const harpe_energy_curve *curve) {
    return curve->rhythm_count < HARPE_RHYTHM_LENGTH ? curve->rhythm_count
                                                     : (size_t)HARPE_RHYTHM_LENGTH;
}

/* Returns the shortest of the latest intervals between changes, because a missed change makes an
 * interval longer. 0: not known. */
static int64_t rhythm_of(const harpe_energy_curve *curve) {
    int64_t shortest_ns = 0;
    for (size_t i = 0; i < known_intervals(curve); i++)
        if (i == 0 || curve->rhythm_ns[i] < shortest_ns) shortest_ns = curve->rhythm_ns[i];
    return shortest_ns;
}

/* Returns the mean of the intervals that are no multiples of the shortest one. It is more exact,
 * because the blurs of neighbouring intervals cancel out. */
static int64_t mean_rhythm_of(const harpe_energy_curve *curve) {
    int64_t shortest_ns = rhythm_of(curve), sum_ns = 0, count = 0;
    for (size_t i = 0; i < known_intervals(curve); i++) {
        if (curve->rhythm_ns[i] > shortest_ns + shortest_ns / 2) continue;
        sum_ns += curve->rhythm_ns[i];
        count++;
    }
    return count > 0 ? sum_ns / count : 0;
}

/* The counter may have changed several times between the last two points if changes are left
 * out. */
static void note_rhythm(harpe_energy_curve *curve) {
    const harpe_curve_point *last = &curve->points[curve->count - 1];
    if (curve->count < 2 || last->follows_gap) return;
    int64_t interval_ns = last->time_ns - curve->points[curve->count - 2].time_ns;
    if (curve->leaves_out) {
        int64_t rhythm_ns = mean_rhythm_of(curve);
        interval_ns /= (interval_ns + rhythm_ns / 2) / rhythm_ns;
    }
    curve->rhythm_ns[curve->rhythm_count++ % HARPE_RHYTHM_LENGTH] = interval_ns;
}

/* Starts to look for every change again. */
static void look_for_all(harpe_energy_curve *curve) {
    curve->leaves_out = false;
    curve->rhythm_count = 0;
    curve->skips = 0;
}

/* Returns after how many changes the curve looks for the next one. */
static int64_t stride_of(const harpe_energy_curve *curve, int64_t rhythm_ns) {
    double wanted =
        ceil(READINGS * (double)curve->reading_ns / (reading_share * (double)rhythm_ns));
    int64_t most =
        longest_pause_ns / rhythm_ns < STRIDE_MAX ? longest_pause_ns / rhythm_ns : STRIDE_MAX;
    int64_t stride = wanted < (double)most ? (int64_t)wanted : most;
    return stride > 1 ? stride : 1;
}

/* Returns when the change that the curve looks for is expected. */
static int64_t next_change_ns(const harpe_energy_curve *curve) {
    int64_t rhythm_ns = mean_rhythm_of(curve);
    return curve->points[curve->count - 1].time_ns +
           (stride_of(curve, rhythm_ns) + curve->skips) * rhythm_ns;
}

/* Returns true if a reading is only the first one before the change that the curve looks for. The
 * counter has changed since the reading before, but the moments are not known. The curve loses no
 * energy. If the reading came too late, the curve looks for the next change. */
static bool is_only_first(harpe_energy_curve *curve, int64_t apart_ns, int64_t now_ns) {
    if (!curve->leaves_out || apart_ns <= mean_rhythm_of(curve) / 2) return false;
    if (now_ns <= next_change_ns(curve)) return true;
    if (++curve->skips <= SKIPS_MAX) return true;
    look_for_all(curve);
    return false;
}

/* Remembers the duration of a reading: the shortest of the latest ones, because a busy machine can
 * stop any of them. */
static void note_duration(harpe_energy_curve *curve, int64_t reading_ns) {
    int64_t longest_ns = curve->reading_ns + curve->reading_ns / 8 + 1;
    bool is_first = !curve->has_reading;
    curve->reading_ns = is_first || reading_ns < longest_ns ? reading_ns : longest_ns;
}

bool harpe_energy_curve_add_counter(harpe_energy_curve *curve, int64_t began_ns, int64_t ended_ns,
                                    uint64_t counter_mj) {
    bool is_first = !curve->has_reading;
    note_duration(curve, ended_ns - began_ns);
    uint64_t before_mj = curve->counter_mj;
    int64_t unmoved_ns = curve->unmoved_ns;
    bool has_restarted = !is_first && counter_mj < before_mj;
    if (has_restarted) harpe_energy_curve_break(curve);
    curve->is_broken = false;
    curve->has_reading = true;
    curve->counter_mj = counter_mj;
    curve->unmoved_ns = began_ns;
    if (is_first || counter_mj != before_mj) curve->still_since_ns = ended_ns;
    if (is_first || has_restarted || counter_mj == before_mj) return !has_restarted;
    if (is_only_first(curve, ended_ns - unmoved_ns, ended_ns)) return true;
    add_point(curve, (harpe_curve_point){.time_ns = unmoved_ns + (ended_ns - unmoved_ns) / 2,
                                         .blur_ns = (ended_ns - unmoved_ns) / 2,
                                         .energy_j = (double)counter_mj * 1e-3});
    curve->skips = 0;
    if (curve->count > 0) note_rhythm(curve);
    return true;
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

/* Returns true if changes are to be left out: readings are slow, and the rhythm is known and long
 * enough to be found again. */
static bool may_leave_out(const harpe_energy_curve *curve, int64_t period_ns) {
    return (double)curve->reading_ns > slow_share * (double)period_ns &&
           curve->rhythm_count >= HARPE_RHYTHM_LENGTH &&
           rhythm_of(curve) >= 3 * (curve->reading_ns + period_ns);
}

/* The delay if changes are left out. */
static int64_t long_delay_ns(harpe_energy_curve *curve, int64_t now_ns, int64_t period_ns) {
    int64_t due_ns = next_change_ns(curve);
    int64_t early_ns = due_ns - period_ns / 2;
    if (now_ns < early_ns) return early_ns - now_ns;
    if (now_ns >= due_ns + mean_rhythm_of(curve) / 2) { /* the rhythm was wrong, or has changed */
        look_for_all(curve);
        return period_ns;
    }
    /* The pause is at least as long as a reading, so that slow readings do not fill the time. */
    return curve->reading_ns > period_ns / 10 ? curve->reading_ns : period_ns / 10;
}

int64_t harpe_energy_curve_delay_ns(harpe_energy_curve *curve, int64_t now_ns, int64_t period_ns) {
    /* The delay varies between 0.5 and 1.5 periods. Training steps are periodic, and samples with a
     * fixed period could always hit the same part of a step. */
    if (curve->is_sampled) {
        return (int64_t)((0.5 + fmod((double)curve->samples * golden_ratio, 1)) *
                         (double)period_ns);
    }
    int64_t rhythm_ns = rhythm_of(curve);
    if (rhythm_ns == 0 || curve->count == 0) return period_ns;
    curve->leaves_out = may_leave_out(curve, period_ns);
    if (curve->leaves_out) return long_delay_ns(curve, now_ns, period_ns);
    int64_t due_ns = curve->points[curve->count - 1].time_ns + rhythm_ns;
    int64_t early_ns = due_ns - period_ns / 4;
    if (now_ns < early_ns) return early_ns - now_ns < period_ns ? early_ns - now_ns : period_ns;
    return now_ns < due_ns + rhythm_ns / 2 ? period_ns / 10 : period_ns;
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
