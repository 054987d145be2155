/* SPDX-License-Identifier: Apache-2.0 */
/* This file learns how often an energy counter changes, and decides when the counter is read next.
 */
#include "client/counter_rhythm.h"

#include <math.h>
#include <string.h>

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

void harpe_counter_rhythm_forget(harpe_counter_rhythm *rhythm) {
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

void harpe_counter_rhythm_note_reading(harpe_counter_rhythm *rhythm, int64_t duration_ns) {
    rhythm->readings_ns[rhythm->reading_count++ % HARPE_RHYTHM_LENGTH] = duration_ns;
}

bool harpe_counter_rhythm_leave_out(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t apart_ns,
                                    int64_t now_ns) {
    int64_t rhythm_ns = mean_of(rhythm);
    if (rhythm->mode != HARPE_RHYTHM_SOME || apart_ns <= rhythm_ns / 2) return false;
    int64_t late_ns = now_ns - next_change_ns(rhythm, last_ns);
    if (late_ns <= 0) return true; /* the first reading around this change */
    if (++rhythm->misses > MISSES_MAX) {
        harpe_counter_rhythm_forget(rhythm);
        return false;
    }
    rhythm->offset += late_ns / rhythm_ns + 1;
    return true;
}

void harpe_counter_rhythm_note_change(harpe_counter_rhythm *rhythm, int64_t interval_ns,
                                      int64_t blur_ns) {
    rhythm->offset = 0;
    rhythm->misses = 0;
    rhythm->blur_ns = blur_ns;
    if (rhythm->changes < TRIED_CHANGES) rhythm->changes++;
    if (rhythm->mode == HARPE_RHYTHM_ALL && is_certain(rhythm) && blur_ns > interval_ns / 4) {
        harpe_counter_rhythm_forget(rhythm); /* the change came earlier than expected */
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
    harpe_counter_rhythm_forget(rhythm); /* it was wrong, or it has changed */
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

int64_t harpe_counter_rhythm_delay_ns(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t now_ns,
                                      int64_t period_ns) {
    rhythm->mode = mode_of(rhythm, period_ns);
    if (rhythm->mode == HARPE_RHYTHM_SOME)
        return delay_to_some_ns(rhythm, last_ns, now_ns, period_ns);
    if (rhythm->mode == HARPE_RHYTHM_ALL)
        return delay_to_any_ns(rhythm, last_ns, now_ns, period_ns);
    if (++rhythm->blind_readings > BLIND_READINGS_MAX) harpe_counter_rhythm_forget(rhythm);
    int64_t pause_ns = (int64_t)((double)reading_of(rhythm) / reading_share);
    return larger(period_ns, smaller(pause_ns, longest_blind_ns));
}
