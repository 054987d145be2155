/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the energy of GPUs without an energy counter: a background thread reads their power and
 * integrates it. It starts only if there is such a GPU. Between two samples up to 5 periods apart,
 * power is interpolated. Samples further apart are sparse, and the windows warn about them. If a
 * read has failed between two samples, or if the samples are more than 50 periods apart, the energy
 * between them is unknown. A window gets no value if its energy is unknown for more than 1 % of its
 * time.
 *
 * The energy of a GPU is a curve over time, integrated from power samples by trapezoids. A ring
 * keeps the latest points, and the curve interpolates between them. The curve also counts the time
 * that it had to bridge without samples. It uses no clock and no lock. */
#ifndef HARPE_MONITOR_SAMPLER_H
#define HARPE_MONITOR_SAMPLER_H

#include <stddef.h>

#include "monitor/counter.h"

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

typedef struct harpe_sampler harpe_sampler;

/* Reads every GPU once, then starts the thread. `period_s` is in the source's time, which may be
 * scaled; there is at most one sample per real millisecond. With `period_s` 0 there is no thread,
 * and only harpe_sampler_sample takes samples (for tests). */
harpe_status harpe_sampler_new(const harpe_energy_source *source, const int *gpus, size_t gpu_count,
                               double period_s, harpe_sampler **out, harpe_error *error);
void harpe_sampler_free(harpe_sampler *sampler);

/* Fails with HARPE_NOT_SUPPORTED in a forked child, which has no sampling thread. Call it before
 * the two functions below. */
harpe_status harpe_sampler_check(const harpe_sampler *sampler, harpe_error *error);

/* Reads the power of a GPU (by its place in `gpus`) now. A window calls it when it takes a
 * reading, so every reading has a sample close to it. */
harpe_status harpe_sampler_sample(harpe_sampler *sampler, size_t place, harpe_error *error);

/* Returns the point of a GPU's curve at `time_ns`, which is close to now. */
harpe_status harpe_sampler_at(harpe_sampler *sampler, size_t place, int64_t time_ns,
                              harpe_power_point *out, harpe_error *error);

/* Computes the energy between two points of a curve. Fails with HARPE_DRIVER_ERROR if the energy is
 * unknown. */
harpe_status harpe_sampler_energy(harpe_sampler *sampler, size_t place,
                                  const harpe_power_point *start, const harpe_power_point *end,
                                  double *energy_j, harpe_error *error);

#endif
