/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the readings of a window, with clock and counters in the right order, and computes the
 * difference of two readings. It does not handle names, locks or logs. A counter that ran backwards
 * never becomes a value. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "monitor/monitor_state.h"

/* ---- Reading --------------------------------------------------------------------------------- */

/* Records a value of the energy counter. Returns how often the counter had restarted before it had
 * this value. `restarts` and `latest_mj` are the counts and the value that were known before the
 * read began.
 *
 * A value below `latest_mj` proves that the counter has restarted. If another thread has already
 * counted a restart since the read began, that is the same restart, and it is not counted again.
 * For any other value the function returns `restarts`, even if another thread has counted a
 * restart, because the value may be from before or after that restart. */
static unsigned note_counter(harpe_monitor *monitor, harpe_monitor_gpu *gpu, unsigned restarts,
                             uint64_t latest_mj, uint64_t energy_mj) {
    pthread_mutex_lock(&monitor->counter_lock);
    bool has_restarted = energy_mj < latest_mj;
    if (gpu->restarts == restarts && has_restarted) {
        gpu->restarts++;
        gpu->latest_mj = energy_mj;
    } else if (gpu->restarts == restarts || has_restarted) {
        if (energy_mj > gpu->latest_mj) gpu->latest_mj = energy_mj;
    }
    unsigned seen = has_restarted ? gpu->restarts : restarts;
    pthread_mutex_unlock(&monitor->counter_lock);
    return seen;
}

/* Calls the driver without the lock, because the driver may be slow. */
static harpe_status read_counter(harpe_monitor *monitor, harpe_monitor_gpu *gpu,
                                 harpe_gpu_reading *reading, harpe_error *error) {
    const harpe_energy_source *source = &monitor->source;
    uint64_t energy_mj = 0;
    pthread_mutex_lock(&monitor->counter_lock);
    unsigned restarts = gpu->restarts;
    uint64_t latest_mj = gpu->latest_mj;
    pthread_mutex_unlock(&monitor->counter_lock);
    harpe_status status = source->energy_mj(source->user, gpu->index, &energy_mj, error);
    if (status != HARPE_OK) return status;
    reading->counter_mj = energy_mj;
    reading->restarts = note_counter(monitor, gpu, restarts, latest_mj, energy_mj);
    return HARPE_OK;
}

static harpe_status read_gpu(harpe_monitor *monitor, size_t i, harpe_window_reading *reading,
                             harpe_error *error) {
    harpe_monitor_gpu *gpu = &monitor->gpus[i];
    return gpu->is_sampled ? harpe_sampler_sample(monitor->sampler, gpu->place, error)
                           : read_counter(monitor, gpu, &reading->gpus[i], error);
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
        status = read_gpu(monitor, i, reading, error);
    if (status == HARPE_OK) status = read_cpus(monitor, reading, error);
    reading->reading_ns = monitor->source.clock_ns(monitor->source.user) - reading->time_ns;
    return status == HARPE_OK ? place_samples(monitor, reading, error) : status;
}

harpe_status harpe_window_read_end(harpe_monitor *monitor, harpe_window_reading *reading,
                                   harpe_error *error) {
    int64_t begun_ns = monitor->source.clock_ns(monitor->source.user);
    harpe_status status = read_cpus(monitor, reading, error);
    for (size_t i = monitor->gpu_count; i > 0 && status == HARPE_OK; i--)
        status = read_gpu(monitor, i - 1, reading, error);
    if (status != HARPE_OK) return status;
    reading->time_ns = monitor->source.clock_ns(monitor->source.user);
    reading->reading_ns = reading->time_ns - begun_ns;
    return place_samples(monitor, reading, error);
}

/* ---- Difference of two readings -------------------------------------------------------------- */

static harpe_status gpu_difference(harpe_monitor *monitor, harpe_monitor_gpu *gpu,
                                   const harpe_gpu_reading *start, const harpe_gpu_reading *end,
                                   double *energy_j, harpe_error *error) {
    if (gpu->is_sampled) {
        return harpe_sampler_energy(monitor->sampler, gpu->place, &start->sampled, &end->sampled,
                                    energy_j, error);
    }
    if (end->counter_mj < start->counter_mj) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d: its energy counter ran backwards, from %" PRIu64 " to %" PRIu64
                          " mJ (the driver was reloaded or the GPU reset); the energy is not "
                          "known, measure again",
                          gpu->index, start->counter_mj, end->counter_mj);
    }
    if (end->restarts != start->restarts) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d: its energy counter restarted meanwhile, as another window has "
                          "seen (the driver was reloaded or the GPU reset); the energy is not "
                          "known, measure again",
                          gpu->index);
    }
    *energy_j = (double)(end->counter_mj - start->counter_mj) / 1e3;
    return HARPE_OK;
}

static harpe_status check_cpu(const harpe_monitor *monitor, size_t cpu,
                              const harpe_window_reading *start, const harpe_window_reading *end,
                              harpe_error *error) {
    bool is_package = end->cpus->package_restarts[cpu] != start->cpus->package_restarts[cpu];
    bool is_dram = end->cpus->dram_restarts[cpu] != start->cpus->dram_restarts[cpu];
    if (!is_package && !is_dram) return HARPE_OK;
    return harpe_fail(
        error, HARPE_DRIVER_ERROR,
        "%sCPU %s: its energy counter restarted, or wrapped where max_energy_range_uj "
        "does not say; the energy is not known, measure again",
        is_package ? "" : "the DRAM of ", harpe_rapl_package_name(monitor->rapl, cpu));
}

static harpe_status cpu_difference(const harpe_monitor *monitor, const harpe_window_reading *start,
                                   const harpe_window_reading *end,
                                   harpe_window_measurement *measurement, harpe_error *error) {
    for (size_t i = 0; i < measurement->cpu_count; i++) {
        harpe_status status = check_cpu(monitor, i, start, end, error);
        if (status != HARPE_OK) return status;
        uint64_t package_uj = end->cpus->package_uj[i] - start->cpus->package_uj[i];
        uint64_t dram_uj = end->cpus->dram_uj[i] - start->cpus->dram_uj[i];
        bool has_dram = harpe_rapl_has_dram(monitor->rapl, i);
        measurement->cpu_energy_j[i] = (double)package_uj / 1e6;
        measurement->dram_energy_j[i] = has_dram ? (double)dram_uj / 1e6 : (double)NAN;
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
                                             &end->gpus[i], energy_j, error);
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
