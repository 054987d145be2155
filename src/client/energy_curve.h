/* SPDX-License-Identifier: Apache-2.0 */
/* Points in time at which the energy that a GPU has used is known, and the rhythm of its counter.
 * An energy counter changes every 10 to 100 ms and is constant in between, so it shows the energy
 * exactly at the moments of its changes. A change is stored with the time range in which it
 * happened. The time from one change to the next is the rhythm. Several readings around a change
 * show the moment of the change. A reading usually takes microseconds, and the counter is then read
 * often enough to find every change. Some drivers need milliseconds for a reading and keep a
 * processor busy meanwhile (docs/gpu.md). The counter is then read seldom, and some changes are
 * left out. Without a counter, power is integrated. The functions use no clock, lock or driver. */
#ifndef HARPE_CLIENT_ENERGY_CURVE_H
#define HARPE_CLIENT_ENERGY_CURVE_H

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

enum { HARPE_CURVE_POINTS_MAX = 1 << 20 };

/* Times are GPU time. */
typedef struct harpe_curve_point {
    int64_t time_ns;
    int64_t blur_ns; /* uncertainty of the moment, in both directions */
    double energy_j;
    bool follows_gap; /* the energy used since the previous point is not known */
} harpe_curve_point;

/* Initialise with zeros. */
typedef struct harpe_energy_curve {
    harpe_curve_point *points; /* ascending times */
    size_t count, capacity;
    bool is_broken; /* true until a reading succeeds */
    bool has_gap;   /* true if a gap precedes the next point */
    bool has_reading;
    bool is_sampled; /* true for power, false for a counter */
    uint64_t counter_mj;
    int64_t unmoved_ns;     /* last time at which the counter had not changed */
    int64_t still_since_ns; /* time at which the last change, or the first value, was seen */
    double power_w;
    int64_t sampled_ns;
    double sampled_j;
    uint64_t samples;
    harpe_counter_rhythm rhythm;
} harpe_energy_curve;

void harpe_energy_curve_clear(harpe_energy_curve *curve);

/* Adds a reading of the counter that began and ended at these times. The counter must not have run
 * backwards since the last reading or break. */
void harpe_energy_curve_add_counter(harpe_energy_curve *curve, int64_t began_ns, int64_t ended_ns,
                                    uint64_t counter_mj);
/* Adds a reading of power. Samples further apart than `gap_ns` leave a gap. */
void harpe_energy_curve_add_power(harpe_energy_curve *curve, int64_t time_ns, double power_w,
                                  int64_t gap_ns);
/* Records a failed reading: the energy from the last point to the next one is unknown. */
void harpe_energy_curve_break(harpe_energy_curve *curve);

/* Returns the time until the next reading. For power, it is `period_ns` on average. For a counter,
 * it is at most
 * `period_ns`, and shorter if the counter is about to change, or about 1 s if readings are slow. */
int64_t harpe_energy_curve_delay_ns(harpe_energy_curve *curve, int64_t now_ns, int64_t period_ns);

/* Returns the last point at or before `time_ns`; SIZE_MAX: none. */
size_t harpe_energy_curve_find(const harpe_energy_curve *curve, int64_t time_ns);
/* Finds the points around a period of time, from `*first` to `*last`, without a gap in between.
 * Returns false if the energy of the period is not known. */
bool harpe_energy_curve_covers(const harpe_energy_curve *curve, int64_t start_ns, int64_t end_ns,
                               size_t *first, size_t *last);
/* Returns true if the curve extends past `time_ns`. */
bool harpe_energy_curve_has_passed(const harpe_energy_curve *curve, int64_t time_ns);
/* Removes the points that are not needed for times from `time_ns` on. */
void harpe_energy_curve_trim(harpe_energy_curve *curve, int64_t time_ns);

#endif
