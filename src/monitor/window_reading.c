/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the readings of a window, with clock and counters in the right order, and computes the
 * difference of two readings. It does not handle names, locks or logs. A counter that ran backwards
 * or jumped never becomes a value. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "monitor/monitor_state.h"

/* ---- Reading --------------------------------------------------------------------------------- */

static harpe_status read_gpu(harpe_monitor *monitor, size_t i, int64_t now_ns,
                             harpe_window_reading *reading, harpe_error *error) {
    harpe_monitor_gpu *gpu = &monitor->gpus[i];
    return gpu->is_sampled ? harpe_sampler_sample(monitor->sampler, gpu->place, error)
                           : harpe_counter_read(&gpu->counter, &monitor->source, gpu->index, now_ns,
                                                &reading->gpus[i].counter, error);
}

static harpe_status read_cpus(harpe_monitor *monitor, harpe_window_reading *reading,
                              harpe_error *error) {
    return monitor->rapl ? harpe_rapl_read(monitor->rapl, reading->cpus, error) : HARPE_OK;
}

/* Finds the points of the sampled curves at the reading's time. By now, there are samples before
 * and after this time. */
static harpe_status place_samples(harpe_monitor *monitor, harpe_window_reading *reading,
                                  harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; monitor->sampler && i < monitor->gpu_count && status == HARPE_OK; i++) {
        const harpe_monitor_gpu *gpu = &monitor->gpus[i];
        if (!gpu->is_sampled) continue;
        status = harpe_sampler_at(monitor->sampler, gpu->place, reading->time_ns,
                                  &reading->gpus[i].sampled, error);
    }
    return status;
}

harpe_status harpe_window_read_start(harpe_monitor *monitor, harpe_window_reading *reading,
                                     harpe_error *error) {
    reading->time_ns = monitor->source.clock_ns(monitor->source.user);
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < monitor->gpu_count && status == HARPE_OK; i++)
        status = read_gpu(monitor, i, reading->time_ns, reading, error);
    if (status == HARPE_OK) status = read_cpus(monitor, reading, error);
    reading->reading_ns = monitor->source.clock_ns(monitor->source.user) - reading->time_ns;
    return status == HARPE_OK ? place_samples(monitor, reading, error) : status;
}

harpe_status harpe_window_read_end(harpe_monitor *monitor, harpe_window_reading *reading,
                                   harpe_error *error) {
    int64_t begun_ns = monitor->source.clock_ns(monitor->source.user);
    harpe_status status = read_cpus(monitor, reading, error);
    for (size_t i = monitor->gpu_count; i > 0 && status == HARPE_OK; i--)
        status = read_gpu(monitor, i - 1, begun_ns, reading, error);
    if (status != HARPE_OK) return status;
    reading->time_ns = monitor->source.clock_ns(monitor->source.user);
    reading->reading_ns = reading->time_ns - begun_ns;
    return place_samples(monitor, reading, error);
}

/* ---- Difference of two readings -------------------------------------------------------------- */

static harpe_status gpu_difference(harpe_monitor *monitor, harpe_monitor_gpu *gpu,
                                   const harpe_gpu_reading *start, const harpe_gpu_reading *end,
                                   double time_s, double *energy_j, harpe_error *error) {
    if (gpu->is_sampled) {
        return harpe_sampler_energy(monitor->sampler, gpu->place, &start->sampled, &end->sampled,
                                    energy_j, error);
    }
    if (end->counter.breaks != start->counter.breaks)
        return harpe_counter_fail(&gpu->counter, gpu->index, error);
    double value_j = (double)(end->counter.energy_mj - start->counter.energy_mj) * 1e-3;
    double highest_w = harpe_energy_source_highest_w(&monitor->source, gpu->index);
    if (!harpe_energy_is_possible(value_j, time_s, highest_w)) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d: its energy counter says %.0f J in %.3f s, more than the GPU can "
                          "use (%.0f W); the energy is not known",
                          gpu->index, value_j, time_s, highest_w);
    }
    *energy_j = value_j;
    return HARPE_OK;
}

/* Returns the energy of a package or its DRAM in `*energy_j`. */
static harpe_status cpu_energy(const char *what, const char *name, uint64_t moved_uj, bool is_known,
                               double time_s, double *energy_j, harpe_error *error) {
    *energy_j = (double)moved_uj * 1e-6;
    if (is_known && harpe_energy_is_possible(*energy_j, time_s, HARPE_CPU_HIGHEST_W))
        return HARPE_OK;
    return harpe_fail(error, HARPE_DRIVER_ERROR,
                      "%sCPU %s: its energy counter restarted, jumped, or wrapped where "
                      "max_energy_range_uj does not say; the energy is not known, measure again",
                      what, name);
}

static harpe_status cpu_difference(const harpe_monitor *monitor, const harpe_window_reading *start,
                                   const harpe_window_reading *end,
                                   harpe_window_measurement *measurement, harpe_error *error) {
    const harpe_rapl_reading *from = start->cpus, *to = end->cpus;
    for (size_t i = 0; i < measurement->cpu_count; i++) {
        const char *name = harpe_rapl_package_name(monitor->rapl, i);
        double time_s = (double)(to->time_ns - from->time_ns) * 1e-9;
        harpe_status status = cpu_energy("", name, to->package_uj[i] - from->package_uj[i],
                                         to->package_restarts[i] == from->package_restarts[i],
                                         time_s, &measurement->cpu_energy_j[i], error);
        if (status == HARPE_OK)
            status = cpu_energy("the DRAM of ", name, to->dram_uj[i] - from->dram_uj[i],
                                to->dram_restarts[i] == from->dram_restarts[i], time_s,
                                &measurement->dram_energy_j[i], error);
        if (status != HARPE_OK) return status;
        if (!harpe_rapl_has_dram(monitor->rapl, i)) measurement->dram_energy_j[i] = (double)NAN;
    }
    return HARPE_OK;
}

harpe_status harpe_window_reading_difference(harpe_monitor *monitor,
                                             const harpe_window_reading *start,
                                             const harpe_window_reading *end,
                                             harpe_window_measurement *measurement,
                                             harpe_error *error) {
    if (end->time_ns < start->time_ns) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "the GPUs' clock ran backwards; the window has no length");
    }
    measurement->time_s = (double)(end->time_ns - start->time_ns) / 1e9;
    measurement->total_gpu_energy_j = 0;
    for (size_t i = 0; i < monitor->gpu_count; i++) {
        double *energy_j = &measurement->gpu_energy_j[i];
        measurement->gpu_index[i] = monitor->gpus[i].index;
        harpe_status status = gpu_difference(monitor, &monitor->gpus[i], &start->gpus[i],
                                             &end->gpus[i], measurement->time_s, energy_j, error);
        if (status != HARPE_OK) return status;
        measurement->total_gpu_energy_j += *energy_j;
    }
    return cpu_difference(monitor, start, end, measurement, error);
}

harpe_status harpe_measurement_new(const harpe_monitor *monitor,
                                   harpe_window_measurement *measurement, harpe_error *error) {
    size_t gpus = monitor->gpu_count;
    size_t cpus = harpe_rapl_package_count(monitor->rapl);
    double *block = malloc((gpus + 2 * cpus + 1) * sizeof *block + gpus * sizeof(int));
    if (!block) return harpe_fail_memory(error);
    *measurement = (harpe_window_measurement){
        .gpu_count = gpus,
        .gpu_energy_j = block, /* the member that is freed */
        .cpu_count = cpus,
        .cpu_energy_j = block + gpus,
        .dram_energy_j = block + gpus + cpus,
        .gpu_index = (int *)(void *)(block + gpus + 2 * cpus),
    };
    return HARPE_OK;
}

void harpe_window_measurement_clear(harpe_window_measurement *measurement) {
    if (!measurement) return;
    free(measurement->gpu_energy_j);
    *measurement = (harpe_window_measurement){0};
}
