/* SPDX-License-Identifier: Apache-2.0 */
/* Energy windows by name: begin, end, restart, cancel. A name is looked up with the lock held, and
 * counters are read without it, so a slow driver does not delay other threads. The counters and the
 * clock are read in the right order, and a counter that ran backwards or jumped never becomes a
 * value. A finished window with a value that is less reliable than it looks is warned about. */
#include "monitor/monitor_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"

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

/* Takes a reading. The start reads the clock, the GPUs and the CPUs, in this order. The end reads
 * them in reverse order. So the window's time includes both readings. */
static harpe_status read_start(harpe_monitor *monitor, harpe_window_reading *reading,
                               harpe_error *error) {
    reading->time_ns = monitor->source.clock_ns(monitor->source.user);
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < monitor->gpu_count && status == HARPE_OK; i++)
        status = read_gpu(monitor, i, reading->time_ns, reading, error);
    if (status == HARPE_OK) status = read_cpus(monitor, reading, error);
    reading->reading_ns = monitor->source.clock_ns(monitor->source.user) - reading->time_ns;
    return status == HARPE_OK ? place_samples(monitor, reading, error) : status;
}

static harpe_status read_end(harpe_monitor *monitor, harpe_window_reading *reading,
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

/* Computes the energy between two readings. */
static harpe_status difference_of(harpe_monitor *monitor, const harpe_window_reading *start,
                                  const harpe_window_reading *end,
                                  harpe_window_measurement *measurement, harpe_error *error) {
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

/* Makes a measurement with one allocation for all arrays. */
static harpe_status new_measurement(const harpe_monitor *monitor,
                                    harpe_window_measurement *measurement, harpe_error *error) {
    size_t gpus = monitor->gpu_count;
    size_t cpus = harpe_rapl_package_count(monitor->rapl);
    double *block = calloc(1, (gpus + 2 * cpus + 1) * sizeof *block + gpus * sizeof(int));
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

/* ---- Plausibility ---------------------------------------------------------------------------- */

enum { ZERO_ENERGY_TOLD_MAX = 20 };

/* Every GPU draws enough power to change its counter within this time. */
static const double counter_stands_still_s = 1;

/* The share of a window in which samples may come late without a warning. */
static const double sparse_share = 0.001;

/* If reading takes longer than this time and this share of the window, the average power is
 * wrong. */
static const double slow_reading_s = 0.01, slow_reading_share = 0.05;

/* ---- Plausibility: zero energy --------------------------------------------------------------- */

static bool may_tell_zero_energy(harpe_monitor *monitor, harpe_window *window) {
    harpe_lock(&monitor->lock);
    bool is_new = !window->zero_energy_told && monitor->zero_energy_told < ZERO_ENERGY_TOLD_MAX;
    window->zero_energy_told = true;
    monitor->zero_energy_told += is_new;
    harpe_unlock(&monitor->lock);
    return is_new;
}

static void tell_zero_energy(harpe_monitor *monitor, harpe_window *window, int gpu, double time_s) {
    if (!may_tell_zero_energy(monitor, window)) return;
    const char *advice = time_s < counter_stands_still_s
                             ? "it moves every 10 to 100 ms, measure longer windows or approximate "
                               "by power"
                             : "it does not move, so 0 J is not the GPU's energy";
    harpe_log_line(&monitor->log, HARPE_LOG_WARNING,
                   "window '%.100s': the energy counter of GPU %d did not move in %.6f s; %s",
                   window->name, gpu, time_s, advice);
}

/* Handles a counter that did not move in a short window: uses power times time, or warns. */
static void mend_zero_energy(harpe_monitor *monitor, harpe_window *window,
                             harpe_window_measurement *measurement) {
    const harpe_energy_source *source = &monitor->source;
    for (size_t i = 0; i < monitor->gpu_count; i++) {
        const harpe_monitor_gpu *gpu = &monitor->gpus[i];
        uint32_t power_mw = 0;
        if (gpu->is_sampled || measurement->gpu_energy_j[i] > 0) continue;
        if (monitor->approximate_instant_energy &&
            source->power_mw(source->user, gpu->index, &power_mw, NULL) == HARPE_OK) {
            measurement->gpu_energy_j[i] = power_mw / 1e3 * measurement->time_s;
            measurement->total_gpu_energy_j += measurement->gpu_energy_j[i];
        } else {
            tell_zero_energy(monitor, window, gpu->index, measurement->time_s);
        }
    }
}

/* ---- Plausibility: sparse samples, slow reading ---------------------------------------------- */

static bool may_tell(harpe_monitor *monitor, bool *told) {
    harpe_lock(&monitor->lock);
    bool is_new = !*told;
    *told = true;
    harpe_unlock(&monitor->lock);
    return is_new;
}

static void tell_sparse_samples(harpe_monitor *monitor, const harpe_window *window, double time_s) {
    for (size_t i = 0; i < monitor->gpu_count; i++) {
        const harpe_monitor_gpu *gpu = &monitor->gpus[i];
        if (!gpu->is_sampled) continue;
        double sparse_s =
            window->end.gpus[i].sampled.sparse_s - window->start.gpus[i].sampled.sparse_s;
        if (sparse_s <= sparse_share * time_s || !may_tell(monitor, &monitor->sparse_samples_told))
            continue;
        harpe_log_line(&monitor->log, HARPE_LOG_WARNING,
                       "window '%.100s': the power of GPU %d was read too seldom in %.3f of %.3f s "
                       "and is interpolated there: the driver or the machine is slow (logged once)",
                       window->name, gpu->index, sparse_s, time_s);
    }
}

/* Warns about a slow driver. The window's time includes all of the reading, but the difference of
 * the counters includes only a part of it. */
static void tell_slow_reading(harpe_monitor *monitor, const harpe_window *window, double time_s) {
    double reading_s = (double)(window->start.reading_ns + window->end.reading_ns) * 1e-9;
    if (reading_s < slow_reading_s || reading_s < slow_reading_share * time_s ||
        !may_tell(monitor, &monitor->slow_reading_told))
        return;
    harpe_log_line(
        &monitor->log, HARPE_LOG_WARNING,
        "window '%.100s': reading the counters took %.3f of its %.3f s, so its energy divided by "
        "its time is less than the power: the driver is slow, measure longer windows (logged once)",
        window->name, reading_s, time_s);
}

/* Replaces a zero energy by power times time if the caller has asked for this. Warns about a
 * counter that did not move, sparse samples and a slow driver. */
static void check_plausibility(harpe_monitor *monitor, harpe_window *window,
                               harpe_window_measurement *measurement) {
    mend_zero_energy(monitor, window, measurement);
    tell_sparse_samples(monitor, window, measurement->time_s);
    tell_slow_reading(monitor, window, measurement->time_s);
}

/* ---- Windows --------------------------------------------------------------------------------- */

enum {
    NAME_LENGTH_MAX = 1024,
    OPEN_MAX = 4096,       /* windows open at the same time */
    CLOSED_KEPT_MAX = 256, /* if more names are kept, closed names are discarded */
};

/* ---- Windows: names -------------------------------------------------------------------------- */

/* Hashes a name with FNV-1a. Equal hashes do not prove equal names, so names are compared too. */
static uint64_t hash_of(const char *name) {
    uint64_t hash = 14695981039346656037U;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211U;
    return hash;
}

static harpe_window *find(const harpe_monitor *monitor, const char *name) {
    uint64_t hash = hash_of(name);
    for (size_t i = 0; i < monitor->window_count; i++) {
        harpe_window *window = monitor->windows[i];
        if (window->hash == hash && strcmp(window->name, name) == 0) return window;
    }
    return NULL;
}

void harpe_window_free(harpe_window *window) {
    if (!window) return;
    free(window->name);
    free(window->start.gpus);
    free(window->end.gpus);
    free(window->start.cpus);
    free(window->end.cpus);
    free(window);
}

static bool allocate_reading(const harpe_monitor *monitor, harpe_window_reading *reading) {
    reading->gpus = harpe_calloc(monitor->gpu_count, sizeof *reading->gpus);
    reading->cpus = monitor->rapl ? calloc(1, sizeof *reading->cpus) : NULL;
    return reading->gpus && (reading->cpus || !monitor->rapl);
}

/* Returns a closed window to reuse for another name, or NULL while more names may be kept. */
static harpe_window *recycle(harpe_monitor *monitor) {
    if (monitor->window_count < CLOSED_KEPT_MAX) return NULL;
    for (size_t tried = 0; tried < monitor->window_count; tried++) {
        harpe_window *window = monitor->windows[monitor->recycle_next];
        monitor->recycle_next = (monitor->recycle_next + 1) % monitor->window_count;
        if (window->state == HARPE_WINDOW_CLOSED) return window;
    }
    return NULL;
}

static harpe_status name_window(harpe_window *window, const char *name, harpe_error *error) {
    char *copy = strdup(name);
    if (!copy) return harpe_fail_memory(error);
    free(window->name);
    window->name = copy;
    window->hash = hash_of(name);
    window->zero_energy_told = false;
    return HARPE_OK;
}

static harpe_status add(harpe_monitor *monitor, const char *name, harpe_window **out,
                        harpe_error *error) {
    harpe_window *window = recycle(monitor);
    if (window) {
        *out = window;
        return name_window(window, name, error);
    }
    if (monitor->window_count >= OPEN_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "window '%.100s': %d windows are open already; end or cancel some", name,
                          OPEN_MAX);
    }
    window = calloc(1, sizeof *window);
    if (!window || !allocate_reading(monitor, &window->start) ||
        !allocate_reading(monitor, &window->end) ||
        !HARPE_ARRAY_RESERVE(monitor->windows, monitor->window_capacity,
                             monitor->window_count + 1)) {
        harpe_window_free(window);
        return harpe_fail_memory(error);
    }
    harpe_status status = name_window(window, name, error);
    if (status != HARPE_OK) {
        harpe_window_free(window);
        return status;
    }
    monitor->windows[monitor->window_count++] = window;
    *out = window;
    return HARPE_OK;
}

/* ---- Windows: taking and releasing ----------------------------------------------------------- */

static harpe_status fail_busy(const char *name, harpe_error *error) {
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "window '%.100s': another thread is just beginning or ending it", name);
}

/* Marks the window as busy, so that no other thread uses it. */
static harpe_status take_for_begin(harpe_monitor *monitor, const char *name, bool restart,
                                   harpe_window **out, harpe_error *error) {
    harpe_window *window = find(monitor, name);
    harpe_status status = window ? HARPE_OK : add(monitor, name, &window, error);
    if (status != HARPE_OK) return status;
    if (window->state == HARPE_WINDOW_BUSY) return fail_busy(name, error);
    if (window->state == HARPE_WINDOW_OPEN && !restart) {
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "window '%.100s' is open already: end it, cancel it or restart it", name);
    }
    window->state = HARPE_WINDOW_BUSY;
    *out = window;
    return HARPE_OK;
}

static harpe_status take_open(harpe_monitor *monitor, const char *name, harpe_window **out,
                              harpe_error *error) {
    harpe_window *window = find(monitor, name);
    if (!window || window->state == HARPE_WINDOW_CLOSED) {
        return harpe_fail(error, HARPE_NOT_FOUND,
                          "window '%.100s' is not open: it was never begun, or has ended", name);
    }
    if (window->state == HARPE_WINDOW_BUSY) return fail_busy(name, error);
    window->state = HARPE_WINDOW_BUSY;
    *out = window;
    return HARPE_OK;
}

static void leave(harpe_monitor *monitor, harpe_window *window, harpe_window_state state) {
    harpe_lock(&monitor->lock);
    window->state = state;
    harpe_unlock(&monitor->lock);
}

static harpe_status check_call(const harpe_monitor *monitor, const char *name, harpe_error *error) {
    if (!monitor || !name)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a window needs a monitor and a name");
    if (strnlen(name, NAME_LENGTH_MAX + 1) > NAME_LENGTH_MAX) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "window '%.40s...': its name is longer than %d bytes", name,
                          NAME_LENGTH_MAX);
    }
    return HARPE_OK;
}

/* Adds the window's name before the reason. */
static harpe_status fail_window(const char *name, const harpe_error *reason, harpe_error *error) {
    int vendor_code = reason->vendor_code;
    harpe_status status =
        harpe_fail(error, reason->status, "window '%.100s': %.800s", name, reason->message);
    if (error) error->vendor_code = vendor_code;
    return status;
}

static void synchronize(harpe_monitor *monitor) {
    if (monitor->synchronize)
        monitor->synchronize(monitor->synchronize_user, monitor->gpu_indices, monitor->gpu_count);
}

/* ---- Windows: begin -------------------------------------------------------------------------- */

harpe_status harpe_monitor_begin(harpe_monitor *monitor, const char *name, bool restart,
                                 harpe_error *error) {
    harpe_status status = check_call(monitor, name, error);
    if (status != HARPE_OK) return status;
    status = harpe_sampler_check(monitor->sampler, error);
    if (status != HARPE_OK) return status;
    harpe_window *window = NULL;
    harpe_lock(&monitor->lock);
    status = take_for_begin(monitor, name, restart, &window, error);
    harpe_unlock(&monitor->lock);
    if (status != HARPE_OK) return status;

    synchronize(monitor);
    harpe_error reason;
    window->start_time_s = harpe_clock_wall_s();
    status = read_start(monitor, &window->start, &reason);
    leave(monitor, window, status == HARPE_OK ? HARPE_WINDOW_OPEN : HARPE_WINDOW_CLOSED);
    return status == HARPE_OK ? HARPE_OK : fail_window(name, &reason, error);
}

/* ---- Windows: end ---------------------------------------------------------------------------- */

static harpe_status measure(harpe_monitor *monitor, harpe_window *window,
                            harpe_window_measurement *measurement, harpe_error *error) {
    harpe_status status = harpe_sampler_check(monitor->sampler, error);
    if (status != HARPE_OK) return status;
    synchronize(monitor);
    status = read_end(monitor, &window->end, error);
    if (status != HARPE_OK) return status;
    status = new_measurement(monitor, measurement, error);
    if (status != HARPE_OK) return status;
    status = difference_of(monitor, &window->start, &window->end, measurement, error);
    if (status != HARPE_OK) harpe_window_measurement_clear(measurement);
    return status;
}

/* Writes the log line. The measurement is valid even if the disk is full, so a failure is logged
 * once and training continues. */
static void write_log(harpe_monitor *monitor, const harpe_window *window,
                      const harpe_window_measurement *measurement) {
    harpe_error error;
    if (!monitor->window_log ||
        harpe_window_log_write(monitor->window_log, window->start_time_s, window->name, measurement,
                               &error) == HARPE_OK)
        return;
    if (may_tell(monitor, &monitor->log_failure_told))
        harpe_log_line(&monitor->log, HARPE_LOG_ERROR, "window '%.100s' is missing in the log: %s",
                       window->name, error.message);
}

/* Reads a window that this thread has taken, and releases it. */
static harpe_status finish(harpe_monitor *monitor, harpe_window *window, const char *name,
                           bool closes, harpe_window_measurement *out, harpe_error *error) {
    harpe_error reason;
    harpe_window_measurement measurement = {0};
    harpe_status status = measure(monitor, window, &measurement, &reason);
    if (status == HARPE_OK && closes) {
        check_plausibility(monitor, window, &measurement);
        write_log(monitor, window, &measurement);
    }
    leave(monitor, window, closes ? HARPE_WINDOW_CLOSED : HARPE_WINDOW_OPEN);
    if (status != HARPE_OK) return fail_window(name, &reason, error);
    if (out)
        *out = measurement;
    else
        harpe_window_measurement_clear(&measurement);
    return HARPE_OK;
}

harpe_status harpe_monitor_end(harpe_monitor *monitor, const char *name, bool cancel,
                               harpe_window_measurement *out, harpe_error *error) {
    harpe_status status = check_call(monitor, name, error);
    if (status != HARPE_OK) return status;
    harpe_window *window = NULL;
    harpe_lock(&monitor->lock);
    status = take_open(monitor, name, &window, error);
    if (status == HARPE_OK && cancel) window->state = HARPE_WINDOW_CLOSED;
    harpe_unlock(&monitor->lock);
    if (status != HARPE_OK || cancel) return status;
    return finish(monitor, window, name, true, out, error);
}

harpe_status harpe_monitor_peek(harpe_monitor *monitor, const char *name,
                                harpe_window_measurement *out, harpe_error *error) {
    harpe_status status = check_call(monitor, name, error);
    if (status != HARPE_OK) return status;
    harpe_window *window = NULL;
    harpe_lock(&monitor->lock);
    status = take_open(monitor, name, &window, error);
    harpe_unlock(&monitor->lock);
    return status == HARPE_OK ? finish(monitor, window, name, false, out, error) : status;
}
