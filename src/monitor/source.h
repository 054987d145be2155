/* SPDX-License-Identifier: Apache-2.0 */
/* The source of clock, energy and power for windows and the sampler: a small table of functions
 * over harpe_gpus, so that tests can replace GPUs and time by scripts. Indices of GPUs are those of
 * the training process. A source keeps no state and converts no units. */
#ifndef HARPE_MONITOR_SOURCE_H
#define HARPE_MONITOR_SOURCE_H

#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/monitor.h>

/* All functions may be called from several threads at once. */
typedef struct harpe_energy_source {
    void *user;
    int (*count)(void *user);
    int64_t (*clock_ns)(void *user); /* monotonic, in the time of the GPUs */
    harpe_status (*energy_mj)(void *user, int gpu, uint64_t *energy_mj, harpe_error *error);
    harpe_status (*power_mw)(void *user, int gpu, uint32_t *power_mw, harpe_error *error);
    double (*highest_w)(void *user, int gpu); /* NULL: HARPE_GPU_HIGHEST_W */
} harpe_energy_source;

/* Returns a power that the GPU never draws for as long as a counter shows. */
double harpe_energy_source_highest_w(const harpe_energy_source *source, int gpu);

/* Returns the source of real GPUs. `gpus` NULL: no GPUs and CLOCK_MONOTONIC. */
harpe_energy_source harpe_energy_source_of_gpus(harpe_gpus *gpus);

#endif
