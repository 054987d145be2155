/* SPDX-License-Identifier: Apache-2.0 */
/* Energy of GPUs without an energy counter: a background thread reads their power and integrates
 * it. Started only when there is such a GPU. Between two samples power is interpolated, over 5
 * periods as over 1; beyond that the samples are sparse, which the windows tell. Where reads failed
 * meanwhile, or after 50 periods, the energy is unknown: a window that lies in it by more than 1 %
 * gets no number. */
#ifndef HARPE_MONITOR_SAMPLER_H
#define HARPE_MONITOR_SAMPLER_H

#include "monitor/power_curve.h"
#include "monitor/source.h"

typedef struct harpe_sampler harpe_sampler;

/* Reads every GPU once, then starts the thread. `period_s` is in the source's time (which may be
 * scaled); at most a sample a real millisecond. With `period_s` 0 there is no thread: samples are
 * those of harpe_sampler_sample alone (tests). */
harpe_status harpe_sampler_new(const harpe_energy_source *source, const int *gpus, size_t gpu_count,
                               double period_s, harpe_sampler **out, harpe_error *error);
void harpe_sampler_free(harpe_sampler *sampler);

/* HARPE_NOT_SUPPORTED in a forked child, where nothing samples. Call before the two below. */
harpe_status harpe_sampler_check(const harpe_sampler *sampler, harpe_error *error);

/* Reads the power of one of the GPUs (by its place in `gpus`) now. A window does so at its edges,
 * so that an edge never lies in a stretch that is not measured yet. */
harpe_status harpe_sampler_sample(harpe_sampler *sampler, size_t place, harpe_error *error);

/* Where the curve of a GPU stands at `time_ns`, which is close to now. */
harpe_status harpe_sampler_at(harpe_sampler *sampler, size_t place, int64_t time_ns,
                              harpe_power_point *out, harpe_error *error);

/* The energy between two points of a curve; HARPE_DRIVER_ERROR where it is unknown. */
harpe_status harpe_sampler_energy(harpe_sampler *sampler, size_t place,
                                  const harpe_power_point *start, const harpe_power_point *end,
                                  double *energy_j, harpe_error *error);

#endif
