/* SPDX-License-Identifier: Apache-2.0 */
/* Learns how often an energy counter changes, and decides when the counter is read. An energy
 * counter changes every 10 to 100 ms. The time from one change to the next is its rhythm. Several
 * readings around a change show the moment of the change. A reading usually takes microseconds, and
 * the counter is then read often enough to find every change. Some drivers need milliseconds for a
 * reading and keep a processor busy meanwhile (docs/gpu.md). The counter is then read seldom, and
 * the moments of most changes stay unknown. The functions use no clock, lock or driver. All times
 * are GPU time. */
#ifndef HARPE_CLIENT_COUNTER_RHYTHM_H
#define HARPE_CLIENT_COUNTER_RHYTHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_RHYTHM_LENGTH = 8 };

typedef enum harpe_rhythm_mode {
    HARPE_RHYTHM_ALL,  /* every change is to be found */
    HARPE_RHYTHM_SOME, /* readings are slow: only some changes are to be found */
    HARPE_RHYTHM_BLIND /* readings are slow, and the counter changes too often: for a while, the
                        * counter is read at regular intervals, and no change is to be found */
} harpe_rhythm_mode;

/* Initialise with zeros. */
typedef struct harpe_counter_rhythm {
    int64_t intervals_ns[HARPE_RHYTHM_LENGTH]; /* the latest times between two changes */
    size_t interval_count;                     /* number of intervals since the last _forget */
    int64_t readings_ns[HARPE_RHYTHM_LENGTH];  /* the durations of the latest readings */
    size_t reading_count;
    harpe_rhythm_mode mode; /* set by the last call of harpe_counter_rhythm_delay_ns */
    int64_t offset;  /* number of rhythms by which the search for the next change was postponed */
    int64_t blur_ns; /* uncertainty of the moment of the last known change */
    int misses;      /* number of searches in a row that began after the change */
    int changes;     /* number of known changes since the last _forget, at most 16 */
    int blind_readings; /* number of readings in HARPE_RHYTHM_BLIND since the last _forget */
} harpe_counter_rhythm;

/* Forgets the rhythm. Every change is to be found again. */
void harpe_counter_rhythm_forget(harpe_counter_rhythm *rhythm);
void harpe_counter_rhythm_note_reading(harpe_counter_rhythm *rhythm, int64_t duration_ns);

/* Call this if a reading that ended at `now_ns` shows another value than the reading before, which
 * began `apart_ns` earlier. `last_ns` is the moment of the last known change. Returns true if the
 * caller must not use the change, because its moment is hardly known. */
bool harpe_counter_rhythm_leave_out(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t apart_ns,
                                    int64_t now_ns);
/* Notes that the last two known changes are `interval_ns` apart. `blur_ns` is the larger of the
 * uncertainties of their moments. */
void harpe_counter_rhythm_note_change(harpe_counter_rhythm *rhythm, int64_t interval_ns,
                                      int64_t blur_ns);

/* Returns the time until the next reading. It is at most `period_ns`, and shorter if the counter is
 * about to change. Readings are slow if one takes more than 5 % of a period. If readings are slow
 * and the rhythm is known, they take about 5 % of the time, or more if one takes longer than a
 * tenth of the rhythm. The delay is then up to about 1 s. `last_ns` is the moment of the last known
 * change. */
int64_t harpe_counter_rhythm_delay_ns(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t now_ns,
                                      int64_t period_ns);

#endif
