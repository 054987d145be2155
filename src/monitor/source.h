/* SPDX-License-Identifier: Apache-2.0 */
/* Where windows and the sampler get clock, energy and power from: a small table of functions over
 * harpe_gpus, so that both can be tested with scripted GPUs and scripted time. GPUs are named by
 * the index the training process sees. It keeps no state and converts no units. */
#ifndef HARPE_MONITOR_SOURCE_H
#define HARPE_MONITOR_SOURCE_H

#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/monitor.h>

/* All functions may be called from several threads at once. */
typedef struct harpe_energy_source {
    void *user;
    int (*count)(void *user);
    int64_t (*clock_ns)(void *user); /* monotonic, as the GPUs live it */
    harpe_status (*energy_mj)(void *user, int gpu, uint64_t *energy_mj, harpe_error *error);
    harpe_status (*power_mw)(void *user, int gpu, uint32_t *power_mw, harpe_error *error);
} harpe_energy_source;

/* The real one. `gpus` NULL: no GPUs and CLOCK_MONOTONIC. */
harpe_energy_source harpe_energy_source_of_gpus(harpe_gpus *gpus);

/* harpe_monitor_new on any source; `options->gpus` is not looked at. */
harpe_status harpe_monitor_new_on(const harpe_monitor_options *options,
                                  const harpe_energy_source *source, harpe_monitor **out,
                                  harpe_error *error);

#endif
