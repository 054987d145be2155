/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the energy of GPUs without an energy counter: a background thread reads their power and
 * integrates it. It starts only if there is such a GPU. Between two samples up to 5 periods apart,
 * power is interpolated. Samples further apart are sparse, and the windows warn about them. If a
 * read has failed between two samples, or if the samples are more than 50 periods apart, the energy
 * between them is unknown. A window gets no value if its energy is unknown for more than 1 % of its
 * time. */
#ifndef HARPE_MONITOR_SAMPLER_H
#define HARPE_MONITOR_SAMPLER_H

#include "monitor/power_curve.h"
#include "monitor/source.h"

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
