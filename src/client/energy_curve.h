/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's energy over time, as points at which it is known. An energy counter stands still and then
 * moves on, every 10 to 100 ms: it tells the energy exactly at the moments of its moves, and each
 * move is noted with the stretch of time in which it must have been. Without a counter, power is
 * integrated. The curve also says when to look next, for it learns the counter's rhythm. Pure: no
 * clock, no lock, no driver. */
#ifndef HARPE_CLIENT_ENERGY_CURVE_H
#define HARPE_CLIENT_ENERGY_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_CURVE_POINTS_MAX = 1 << 20, HARPE_RHYTHM_LENGTH = 8 };

/* Times are GPU time. */
typedef struct harpe_curve_point {
    int64_t time_ns;
    int64_t blur_ns; /* the moment may be so much earlier or later */
    double energy_j;
    bool follows_gap; /* what was used since the point before is not known */
} harpe_curve_point;

/* Zero-initialise. */
typedef struct harpe_energy_curve {
    harpe_curve_point *points; /* ascending times */
    size_t count, capacity;
    bool is_broken; /* until a reading succeeds */
    bool has_gap;   /* before the next point */
    bool has_reading;
    bool is_sampled; /* power, not a counter */
    uint64_t counter_mj;
    int64_t unmoved_ns;     /* when the counter was last seen not to have moved */
    int64_t still_since_ns; /* when it was last seen to move, or first read */
    double power_w;
    int64_t sampled_ns;
    double sampled_j;
    uint64_t samples;
    int64_t rhythm_ns[HARPE_RHYTHM_LENGTH]; /* between the latest moves */
    size_t rhythm_count;
} harpe_energy_curve;

void harpe_energy_curve_clear(harpe_energy_curve *curve);

/* A reading of the counter that began and ended at these times. False: the counter ran backwards
 * (it restarted), which is a gap. */
bool harpe_energy_curve_add_counter(harpe_energy_curve *curve, int64_t began_ns, int64_t ended_ns,
                                    uint64_t counter_mj);
/* A reading of power. Samples further apart than `gap_ns` leave a gap. */
void harpe_energy_curve_add_power(harpe_energy_curve *curve, int64_t time_ns, double power_w,
                                  int64_t gap_ns);
/* The reading failed: from the last point to the next one nothing is known. */
void harpe_energy_curve_break(harpe_energy_curve *curve);

/* How long to wait for the next reading when `period_ns` apart is usual: less when the counter is
 * about to move, for the moment of its moves is what is looked for. */
int64_t harpe_energy_curve_delay_ns(const harpe_energy_curve *curve, int64_t now_ns,
                                    int64_t period_ns);

/* The last point at or before `time_ns`; SIZE_MAX: none. */
size_t harpe_energy_curve_find(const harpe_energy_curve *curve, int64_t time_ns);
/* The points around a stretch of time: from `*first` to `*last`, without a gap in between. False:
 * the energy of the stretch is not known. */
bool harpe_energy_curve_covers(const harpe_energy_curve *curve, int64_t start_ns, int64_t end_ns,
                               size_t *first, size_t *last);
/* True once the curve has gone past `time_ns`. */
bool harpe_energy_curve_has_passed(const harpe_energy_curve *curve, int64_t time_ns);
/* Forgets what is not needed for times from `time_ns` on. */
void harpe_energy_curve_trim(harpe_energy_curve *curve, int64_t time_ns);

#endif
