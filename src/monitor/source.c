/* SPDX-License-Identifier: Apache-2.0 */
/* The energy source of real monitors: a thin layer over harpe_gpus, or the monotonic clock if
 * there are no GPUs. The tests contain scripted sources with the same interface. */
#include "monitor/source.h"

#include "base/clock.h"
#include "base/possible.h"
#include "gpu/gpus.h"

static int gpus_count(void *user) { return harpe_gpus_count(user); }

static int64_t gpus_clock_ns(void *user) { return harpe_gpus_clock_ns(user); }

static harpe_status gpus_energy_mj(void *user, int gpu, uint64_t *energy_mj, harpe_error *error) {
    return harpe_gpu_total_energy(user, gpu, energy_mj, error);
}

/* Reads the power of the parts that the energy counter covers, because it replaces the counter. */
static harpe_status gpus_power_mw(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    if (harpe_gpu_energy_scope(user, gpu) == HARPE_ENERGY_OF_MODULE)
        return harpe_gpu_module_power(user, gpu, power_mw, error);
    return harpe_gpu_instant_power(user, gpu, power_mw, error);
}

static double gpus_highest_w(void *user, int gpu) { return harpe_gpu_highest_w(user, gpu); }

static int no_gpus(void *user) {
    (void)user;
    return 0;
}

static int64_t system_clock_ns(void *user) {
    (void)user;
    return harpe_clock_ns();
}

harpe_energy_source harpe_energy_source_of_gpus(harpe_gpus *gpus) {
    if (!gpus) return (harpe_energy_source){.count = no_gpus, .clock_ns = system_clock_ns};
    return (harpe_energy_source){
        .user = gpus,
        .count = gpus_count,
        .clock_ns = gpus_clock_ns,
        .energy_mj = gpus_energy_mj,
        .power_mw = gpus_power_mw,
        .highest_w = gpus_highest_w,
    };
}

double harpe_energy_source_highest_w(const harpe_energy_source *source, int gpu) {
    return source->highest_w ? source->highest_w(source->user, gpu) : HARPE_GPU_HIGHEST_W;
}
