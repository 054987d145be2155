/* SPDX-License-Identifier: Apache-2.0 */
/* The rhythm in which an energy counter changes, and the times at which it is read. A counter
 * changes every 10 to 100 ms. The moment of a change is found by readings around it. A reading
 * usually takes microseconds, and the counter is read often. Some drivers need milliseconds for a
 * reading, during which they keep a processor busy (docs/gpu.md). Such a counter is read seldom,
 * and changes are left out. The rhythm uses no clock, lock or driver. All times are GPU time. */
#ifndef HARPE_CLIENT_COUNTER_RHYTHM_H
#define HARPE_CLIENT_COUNTER_RHYTHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_RHYTHM_LENGTH = 8 };

typedef enum harpe_rhythm_mode {
    HARPE_RHYTHM_ALL,  /* every change is looked for */
    HARPE_RHYTHM_SOME, /* readings are slow: changes are left out, and the others looked for */
    HARPE_RHYTHM_BLIND /* readings are slow, and changes too frequent to be found; for a while */
} harpe_rhythm_mode;

/* Initialise with zeros. */
typedef struct harpe_counter_rhythm {
    int64_t intervals_ns[HARPE_RHYTHM_LENGTH]; /* the latest ones between two changes */
    size_t interval_count;                     /* since the rhythm was forgotten */
    int64_t readings_ns[HARPE_RHYTHM_LENGTH];  /* durations of the latest readings */
    size_t reading_count;
    harpe_rhythm_mode mode; /* as of the last call of harpe_counter_rhythm_delay_ns */
    int64_t offset;     /* the change that is looked for is so many rhythms later than planned */
    int64_t blur_ns;    /* of the last change */
    int misses;         /* changes, one after the other, that were looked for too late */
    int changes;        /* that were not left out, since the rhythm was forgotten */
    int blind_readings; /* since the rhythm was forgotten */
} harpe_counter_rhythm;

/* Forgets the rhythm, and looks for every change again. */
void harpe_counter_rhythm_forget(harpe_counter_rhythm *rhythm);
void harpe_counter_rhythm_note_reading(harpe_counter_rhythm *rhythm, int64_t duration_ns);

/* A reading at `now_ns` shows that the counter has changed within the last `apart_ns`. Returns true
 * if this change is left out: it happened before the change that is looked for. `last_ns` is the
 * moment of the last change that was not left out. */
bool harpe_counter_rhythm_leave_out(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t apart_ns,
                                    int64_t now_ns);
/* Two changes that were not left out are `interval_ns` apart. `blur_ns` is the larger of the
 * uncertainties of their moments. */
void harpe_counter_rhythm_note_change(harpe_counter_rhythm *rhythm, int64_t interval_ns,
                                      int64_t blur_ns);

/* Returns the time until the next reading. It is at most `period_ns`, and shorter if the counter is
 * about to change. If readings are slow (5 % of a period) and the rhythm is known, readings take
 * about 5 % of the time, and more only if a reading takes more than 10 ms; the delay is then up to
 * 1 s. */
int64_t harpe_counter_rhythm_delay_ns(harpe_counter_rhythm *rhythm, int64_t last_ns, int64_t now_ns,
                                      int64_t period_ns);

#endif
