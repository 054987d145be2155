/* SPDX-License-Identifier: Apache-2.0 */
/* The energy of a GPU as a curve over time, integrated from power samples by trapezoids. A bounded
 * ring of its latest points is kept; a point at a time between two of them is interpolated. The
 * curve also counts the time that it had to bridge without samples. Pure arithmetic: no clock, no
 * lock. */
#ifndef HARPE_MONITOR_POWER_CURVE_H
#define HARPE_MONITOR_POWER_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_POWER_CURVE_POINTS = 512 };

typedef struct harpe_power_point {
    int64_t time_ns;
    double power_w;
    /* All since the first point: */
    double energy_j;
    double sparse_s;  /* time between samples that came late */
    double unknown_s; /* the part of it in which nothing is known of the power */
} harpe_power_point;

/* Zero-initialise. */
typedef struct harpe_power_curve {
    harpe_power_point points[HARPE_POWER_CURVE_POINTS];
    size_t count; /* of valid points, the latest ones */
    size_t next;  /* where the next one goes */
} harpe_power_curve;

/* A stretch without samples longer than `sparse_ns` counts as sparse, one longer than `unknown_ns`
 * as unknown too. A point that is no later than the last one is dropped: two threads may have
 * raced.
 */
void harpe_power_curve_add(harpe_power_curve *curve, int64_t time_ns, double power_w,
                           int64_t sparse_ns, int64_t unknown_ns);

/* The curve at a time: interpolated between points, with the last power held after the last one.
 * False (and nothing written) for an empty curve and for a time the ring has forgotten. */
bool harpe_power_curve_at(const harpe_power_curve *curve, int64_t time_ns, harpe_power_point *out);

#endif
