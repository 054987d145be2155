/* SPDX-License-Identifier: Apache-2.0 */
/* The energy that a GPU has used, as a curve of points in time, and the rhythm of the GPU's energy
 * counter. The counter changes every 10 to 100 ms and is constant in between, so its value is exact
 * only at the moments of its changes. Each point of the curve is such a change, with the
 * uncertainty of its moment. Several readings around a change make this uncertainty small. The
 * rhythm is the time from one change to the next. A reading usually takes microseconds: the curve
 * then asks for enough readings to find every change. Some drivers need milliseconds for a reading,
 * and keep a processor busy meanwhile (docs/gpu.md): the curve then asks for few readings, and
 * leaves out some changes. If a GPU has no counter, the curve integrates its power. The functions
 * use no clock, lock or driver. */
#ifndef HARPE_CLIENT_ENERGY_CURVE_H
#define HARPE_CLIENT_ENERGY_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_RHYTHM_LENGTH = 8 };

typedef enum harpe_rhythm_mode {
    HARPE_RHYTHM_ALL,  /* the curve looks for every change */
    HARPE_RHYTHM_SOME, /* readings are slow: the curve looks for some of the changes */
    HARPE_RHYTHM_BLIND /* readings are slow, and the rhythm is too short or not known: the curve
                        * looks for no change, but asks for readings at regular intervals. After
                        * 256 such readings, the mode is HARPE_RHYTHM_ALL again */
} harpe_rhythm_mode;

/* Initialise with zeros. */
typedef struct harpe_counter_rhythm {
    int64_t intervals_ns[HARPE_RHYTHM_LENGTH]; /* the latest times between two changes */
    size_t interval_count;                     /* found since the rhythm was last forgotten */
    int64_t readings_ns[HARPE_RHYTHM_LENGTH];  /* the durations of the latest readings */
    size_t reading_count;
    harpe_rhythm_mode mode; /* set by harpe_energy_curve_delay_ns */
    int64_t offset;  /* number of rhythms by which the search for the next change was postponed */
    int64_t blur_ns; /* uncertainty of the moment of the last known change */
    int misses;      /* searches in a row that began after the change that they looked for */
    int changes;     /* known changes since the rhythm was last forgotten, at most 16 */
    int blind_readings; /* in HARPE_RHYTHM_BLIND, since the rhythm was last forgotten */
} harpe_counter_rhythm;

enum { HARPE_CURVE_POINTS_MAX = 1 << 20 };

/* A moment at which the energy is known. All times of a curve are GPU time. */
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
    bool is_broken; /* a reading has failed, and none has succeeded since */
    bool has_gap;   /* true if a gap precedes the next point */
    bool has_reading;
    bool is_sampled; /* true for power, false for a counter */
    uint64_t counter_mj;
    int64_t unmoved_ns;     /* start of the last reading: the next change comes after it */
    int64_t still_since_ns; /* time at which the last change, or the first value, was seen */
    double power_w;
    int64_t sampled_ns;
    double sampled_j;
    uint64_t samples;
    harpe_counter_rhythm rhythm;
} harpe_energy_curve;

void harpe_energy_curve_clear(harpe_energy_curve *curve);

/* Adds a reading of the counter: the reading began at `began_ns` and ended at `ended_ns`.
 * `counter_mj` must not be less than in the reading before, unless harpe_energy_curve_break was
 * called in between. */
void harpe_energy_curve_add_counter(harpe_energy_curve *curve, int64_t began_ns, int64_t ended_ns,
                                    uint64_t counter_mj);
/* Adds a reading of power. If this reading is more than `gap_ns` after the reading before, the
 * curve has a gap between them. */
void harpe_energy_curve_add_power(harpe_energy_curve *curve, int64_t time_ns, double power_w,
                                  int64_t gap_ns);
/* Records a failed reading: the energy from the last point to the next one is unknown. */
void harpe_energy_curve_break(harpe_energy_curve *curve);

/* Returns the time until the next reading. For power, this time is `period_ns` on average. For a
 * counter, it is at most `period_ns`, and shorter if the counter is about to change; but if
 * readings are slow, it can be up to about 1 s. */
int64_t harpe_energy_curve_delay_ns(harpe_energy_curve *curve, int64_t now_ns, int64_t period_ns);

/* Returns the index of the last point at or before `time_ns`; SIZE_MAX: there is none. */
size_t harpe_energy_curve_find(const harpe_energy_curve *curve, int64_t time_ns);
/* Finds the points that enclose a period of time: `*first` is the last point at or before its
 * start, and `*last` is the first point at or after its end. Returns false if there are no such
 * points, or if a gap lies between them, because the energy of the period is then not known. */
bool harpe_energy_curve_covers(const harpe_energy_curve *curve, int64_t start_ns, int64_t end_ns,
                               size_t *first, size_t *last);
/* Returns true if the curve has a point at or after `time_ns`. */
bool harpe_energy_curve_has_passed(const harpe_energy_curve *curve, int64_t time_ns);
/* Removes points that are not needed for times from `time_ns` on. May keep some of them. */
void harpe_energy_curve_trim(harpe_energy_curve *curve, int64_t time_ns);

#endif
