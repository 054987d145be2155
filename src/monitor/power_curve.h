/* SPDX-License-Identifier: Apache-2.0 */
/* The energy of a GPU as a curve over time, integrated from power samples by trapezoids. A bounded
 * ring of its latest points is kept; energy at a time between two points is interpolated. Pure
 * arithmetic: no clock, no thread, no lock. */
#ifndef HARPE_MONITOR_POWER_CURVE_H
#define HARPE_MONITOR_POWER_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_POWER_CURVE_POINTS = 512 };

typedef struct harpe_power_point {
    int64_t time_ns;
    double power_w;
    double energy_j; /* since the first point */
} harpe_power_point;

/* Zero-initialise. */
typedef struct harpe_power_curve {
    harpe_power_point points[HARPE_POWER_CURVE_POINTS];
    size_t count; /* of valid points, the latest ones */
    size_t next;  /* where the next one goes */
} harpe_power_curve;

/* A point that is no later than the last one is dropped: two threads may have raced. */
void harpe_power_curve_add(harpe_power_curve *curve, int64_t time_ns, double power_w);

/* Energy since the first point: interpolated between points, with the last power held after the
 * last one. False (and nothing written) for an empty curve and for a time the ring has forgotten.
 */
bool harpe_power_curve_energy(const harpe_power_curve *curve, int64_t time_ns, double *energy_j);

#endif
