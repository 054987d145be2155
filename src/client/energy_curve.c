/* SPDX-License-Identifier: Apache-2.0 */
/* Makes points of a GPU's energy over time from readings of a counter or of power. The profiler's
 * thread adds readings, and the fit uses the energies between points. */
#include "client/profiler_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* ---- The rhythm of the counter --------------------------------------------------------------- */

/* Readings are slow if one takes more than `slow_share` of a period. They then take about
 * `reading_share` of the time. It takes about READINGS readings to find the moment of a change. */
static const double slow_share = 0.05, reading_share = 0.05;
static const int64_t longest_pause_ns = 1000000000; /* between two changes that are looked for */
static const int64_t longest_blind_ns = 100000000;
static const int64_t lateness_ns = 2500000; /* of a reading on a busy machine */
enum { READINGS = 4, STRIDE_MAX = 8, MISSES_MAX = 3 };
enum { TRIED_CHANGES = 2 * HARPE_RHYTHM_LENGTH, BLIND_READINGS_MAX = 256 };

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Forgets the rhythm. Every change is to be found again. */
static void forget_rhythm(harpe_counter_rhythm *rhythm) {
    rhythm->interval_count = 0;
    rhythm->mode = HARPE_RHYTHM_ALL;
    rhythm->offset = 0;
    rhythm->misses = rhythm->changes = rhythm->blind_readings = 0;
}

/* ---- What is known --------------------------------------------------------------------------- */

static size_t known(size_t count) {
    return count < HARPE_RHYTHM_LENGTH ? count : (size_t)HARPE_RHYTHM_LENGTH;
}

static bool is_certain(const harpe_counter_rhythm *rhythm) {
    return rhythm->interval_count >= HARPE_RHYTHM_LENGTH;
}

/* Returns the shortest of the latest intervals, because a missed change makes an interval longer.
 * 0: not known. */
static int64_t shortest_of(const harpe_counter_rhythm *rhythm) {
    int64_t shortest_ns = 0;
    for (size_t i = 0; i < known(rhythm->interval_count); i++)
        if (i == 0 || rhythm->intervals_ns[i] < shortest_ns) shortest_ns = rhythm->intervals_ns[i];
    return shortest_ns;
}

/* Returns the mean of the intervals that contain only one change, and their spread. The mean is
 * more exact than the shortest one, because the blurs of neighbouring intervals cancel out. 0: not
 * known. */
static int64_t mean_and_spread_of(const harpe_counter_rhythm *rhythm, int64_t *spread_ns) {
    int64_t shortest_ns = shortest_of(rhythm), longest_ns = shortest_ns, sum_ns = 0, count = 0;
    for (size_t i = 0; i < known(rhythm->interval_count); i++) {
        if (rhythm->intervals_ns[i] > shortest_ns + shortest_ns / 2) continue;
        sum_ns += rhythm->intervals_ns[i];
        longest_ns = larger(longest_ns, rhythm->intervals_ns[i]);
        count++;
    }
    *spread_ns = longest_ns - shortest_ns;
    return count > 0 ? sum_ns / count : 0;
}

static int64_t mean_of(const harpe_counter_rhythm *rhythm) {
    int64_t ignored;
    return mean_and_spread_of(rhythm, &ignored);
}

/* Returns the duration of a reading: the third shortest of the latest ones. A busy machine can make
 * any reading longer, and a reading is shorter if the driver already knows the value. */
static int64_t reading_of(const harpe_counter_rhythm *rhythm) {
    int64_t sorted_ns[HARPE_RHYTHM_LENGTH];
    size_t count = known(rhythm->reading_count);
    for (size_t i = 0; i < count; i++) {
        size_t place = i;
        for (; place > 0 && sorted_ns[place - 1] > rhythm->readings_ns[i]; place--)
            sorted_ns[place] = sorted_ns[place - 1];
        sorted_ns[place] = rhythm->readings_ns[i];
    }
    return count == 0 ? 0 : sorted_ns[count < 3 ? 0 : 2];
}

/* Returns how many changes after the last known one the curve looks for a change again. The number
 * grows while changes are found, because each of them makes the rhythm more exact. */
static int64_t stride_of(const harpe_counter_rhythm *rhythm) {
    double rhythm_ns = (double)mean_of(rhythm);
    double wanted = ceil(READINGS * (double)reading_of(rhythm) / (reading_share * rhythm_ns));
    double most = fmin((double)longest_pause_ns / rhythm_ns, STRIDE_MAX);
    int64_t certain = (int64_t)rhythm->interval_count - HARPE_RHYTHM_LENGTH + 1;
    return larger(1, smaller(certain, (int64_t)fmin(wanted, most)));
}

/* Returns the expected time of the change that the curve looks for. */
static int64_t next_change_ns(const harpe_counter_rhythm *rhythm, int64_t last_ns) {
    return last_ns + (stride_of(rhythm) + rhythm->offset) * mean_of(rhythm);
}

/* ---- Readings and changes -------------------------------------------------------------------- */

static void note_reading(harpe_counter_rhythm *rhythm, int64_t duration_ns) {
    rhythm->readings_ns[rhythm->reading_count++ % HARPE_RHYTHM_LENGTH] = duration_ns;
}

/* Call this if a reading that ended at `now_ns` shows another value than the reading before, which
 * began `apart_ns` earlier. `last_ns` is the moment of the last known change. Returns true if the
 * caller must not use the change, because its moment is hardly known. */
static bool is_left_out(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t apart_ns,
                        int64_t now_ns) {
    int64_t rhythm_ns = mean_of(rhythm);
    if (rhythm->mode != HARPE_RHYTHM_SOME || apart_ns <= rhythm_ns / 2) return false;
    int64_t late_ns = now_ns - next_change_ns(rhythm, last_ns);
    if (late_ns <= 0) return true; /* the first reading around this change */
    if (++rhythm->misses > MISSES_MAX) {
        forget_rhythm(rhythm);
        return false;
    }
    rhythm->offset += late_ns / rhythm_ns + 1;
    return true;
}

/* Notes that the last two known changes are `interval_ns` apart. `blur_ns` is the larger of the
 * uncertainties of their moments. */
static void note_rhythm(harpe_counter_rhythm *rhythm, int64_t interval_ns, int64_t blur_ns) {
    rhythm->offset = 0;
    rhythm->misses = 0;
    rhythm->blur_ns = blur_ns;
    if (rhythm->changes < TRIED_CHANGES) rhythm->changes++;
    if (rhythm->mode == HARPE_RHYTHM_ALL && is_certain(rhythm) && blur_ns > interval_ns / 4) {
        forget_rhythm(rhythm); /* the change came earlier than expected */
        return;
    }
    if (rhythm->mode == HARPE_RHYTHM_BLIND || interval_ns <= 0 || blur_ns > interval_ns / 4 * 3)
        return;
    if (rhythm->mode == HARPE_RHYTHM_SOME) {
        int64_t rhythm_ns = mean_of(rhythm);
        interval_ns /= larger(1, (interval_ns + rhythm_ns / 2) / rhythm_ns);
    }
    rhythm->intervals_ns[rhythm->interval_count++ % HARPE_RHYTHM_LENGTH] = interval_ns;
}

/* ---- The next reading ------------------------------------------------------------------------ */

static harpe_rhythm_mode mode_of(const harpe_counter_rhythm *rhythm, int64_t period_ns) {
    int64_t reading_ns = reading_of(rhythm);
    bool is_slow = (double)reading_ns > slow_share * (double)period_ns;
    bool is_known = is_certain(rhythm);
    if (!is_slow || (!is_known && rhythm->changes < TRIED_CHANGES)) return HARPE_RHYTHM_ALL;
    return is_known && shortest_of(rhythm) >= 3 * (reading_ns + period_ns) ? HARPE_RHYTHM_SOME
                                                                           : HARPE_RHYTHM_BLIND;
}

/* Returns the pause between two readings around a change. The pause is at least as long as a
 * reading, so slow readings take at most half of the time around a change. */
static int64_t pause_of(const harpe_counter_rhythm *rhythm, int64_t period_ns) {
    return larger(period_ns / 10, reading_of(rhythm));
}

static int64_t delay_to_some_ns(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t now_ns,
                                int64_t period_ns) {
    int64_t due_ns = next_change_ns(rhythm, last_ns);
    int64_t early_ns = due_ns - period_ns / 2 - rhythm->blur_ns - reading_of(rhythm);
    if (now_ns < early_ns) return early_ns - now_ns;
    if (now_ns < due_ns + mean_of(rhythm) / 2) return pause_of(rhythm, period_ns);
    forget_rhythm(rhythm); /* it was wrong, or it has changed */
    return period_ns;
}

/* Until the rhythm is certain, the counter is read in each period. Then only around the next
 * change, and the earlier the more the intervals differ; a part of their spread is the blur of
 * their ends. A reading one period before shows the moment if the change comes too early. */
static int64_t delay_to_any_ns(const harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t now_ns,
                               int64_t period_ns) {
    int64_t rhythm_ns = shortest_of(rhythm), spread_ns, guard_ns = period_ns / 4;
    if (rhythm_ns == 0 || rhythm_ns <= period_ns / 2) return period_ns;
    if (is_certain(rhythm)) {
        rhythm_ns = mean_and_spread_of(rhythm, &spread_ns);
        int64_t jitter_ns = larger(0, spread_ns - 2 * rhythm->blur_ns);
        guard_ns = smaller(larger(pause_of(rhythm, period_ns), lateness_ns) + jitter_ns, period_ns);
    }
    int64_t due_ns = last_ns + rhythm_ns, wait_ns = due_ns - guard_ns - now_ns;
    if (wait_ns > 2 * period_ns && is_certain(rhythm)) return wait_ns - period_ns;
    if (wait_ns > 0) return smaller(wait_ns, period_ns);
    return now_ns < due_ns + rhythm_ns / 2 ? pause_of(rhythm, period_ns) : period_ns;
}

/* Returns the time until the next reading. It is at most `period_ns`, and shorter if the counter is
 * about to change. Readings are slow if one takes more than 5 % of a period. If readings are slow
 * and the rhythm is known, they take about 5 % of the time, or more if one takes longer than a
 * tenth of the rhythm. The delay is then up to about 1 s. `last_ns` is the moment of the last known
 * change. */
static int64_t rhythm_delay_ns(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t now_ns,
                               int64_t period_ns) {
    rhythm->mode = mode_of(rhythm, period_ns);
    if (rhythm->mode == HARPE_RHYTHM_SOME)
        return delay_to_some_ns(rhythm, last_ns, now_ns, period_ns);
    if (rhythm->mode == HARPE_RHYTHM_ALL)
        return delay_to_any_ns(rhythm, last_ns, now_ns, period_ns);
    if (++rhythm->blind_readings > BLIND_READINGS_MAX) forget_rhythm(rhythm);
    int64_t pause_ns = (int64_t)((double)reading_of(rhythm) / reading_share);
    return larger(period_ns, smaller(pause_ns, longest_blind_ns));
}

/* ---- The curve ------------------------------------------------------------------------------- */

void harpe_energy_curve_clear(harpe_energy_curve *curve) {
    free(curve->points);
    *curve = (harpe_energy_curve){0};
}

/* ---- Readings -------------------------------------------------------------------------------- */

void harpe_energy_curve_break(harpe_energy_curve *curve) {
    curve->is_broken = true;
    curve->has_gap = true;
    curve->has_reading = false;
    forget_rhythm(&curve->rhythm);
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
    note_rhythm(&curve->rhythm, to->time_ns - from->time_ns,
                from->blur_ns > to->blur_ns ? from->blur_ns : to->blur_ns);
}

void harpe_energy_curve_add_counter(harpe_energy_curve *curve, int64_t began_ns, int64_t ended_ns,
                                    uint64_t counter_mj) {
    bool is_first = !curve->has_reading;
    note_reading(&curve->rhythm, ended_ns - began_ns);
    uint64_t before_mj = curve->counter_mj;
    int64_t unmoved_ns = curve->unmoved_ns;
    curve->is_broken = false;
    curve->has_reading = true;
    curve->counter_mj = counter_mj;
    curve->unmoved_ns = began_ns;
    if (is_first || counter_mj != before_mj) curve->still_since_ns = ended_ns;
    if (is_first || counter_mj == before_mj) return;
    if (curve->count > 0 && is_left_out(&curve->rhythm, curve->points[curve->count - 1].time_ns,
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
    if (curve->is_sampled)
        return (int64_t)(harpe_sample_periods(curve->samples) * (double)period_ns);
    if (curve->count == 0) return period_ns;
    return rhythm_delay_ns(&curve->rhythm, curve->points[curve->count - 1].time_ns, now_ns,
                           period_ns);
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
