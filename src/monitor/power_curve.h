/* SPDX-License-Identifier: Apache-2.0 */
/* The energy of a GPU as a curve over time, integrated from power samples by trapezoids. A ring
 * keeps the latest points, and the curve interpolates between them. The curve also counts the time
 * that it had to bridge without samples. It uses no clock and no lock. */
#ifndef HARPE_MONITOR_POWER_CURVE_H
#define HARPE_MONITOR_POWER_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_POWER_CURVE_POINTS = 512 };

typedef struct harpe_power_point {
    int64_t time_ns;
    double power_w;
    /* Totals since the first point: */
    double energy_j;
    double sparse_s;  /* time between samples that came late */
    double unknown_s; /* the part of sparse_s in which the power is unknown */
} harpe_power_point;

/* Initialise with zeros. */
typedef struct harpe_power_curve {
    harpe_power_point points[HARPE_POWER_CURVE_POINTS];
    size_t count; /* number of valid points */
    size_t next;  /* place of the next point */
} harpe_power_curve;

/* Adds a sample. A period without samples longer than `sparse_ns` counts as sparse; if it is
 * longer than `unknown_ns`, it also counts as unknown. A point that is not later than the last one
 * is dropped, because two threads may have raced. */
void harpe_power_curve_add(harpe_power_curve *curve, int64_t time_ns, double power_w,
                           int64_t sparse_ns, int64_t unknown_ns);

/* Returns the point of the curve at a time. It is interpolated between points; after the last
 * point, its power is held. Returns false and writes nothing for an empty curve and for a time
 * that the ring no longer has. */
bool harpe_power_curve_at(const harpe_power_curve *curve, int64_t time_ns, harpe_power_point *out);

#endif
