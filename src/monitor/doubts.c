/* SPDX-License-Identifier: Apache-2.0 */
/* What a window's numbers are worth: told where they are less than they seem, and mended where the
 * caller asked for that. It runs after a window was measured; what gives no number at all (a
 * counter that restarted, power that could not be read) has failed before, in edge.c and sampler.c.
 */
#include "monitor/monitor_state.h"

enum { ZERO_ENERGY_TOLD_MAX = 20 };

/* No GPU draws so little that its counter stands still for so long. */
static const double counter_stands_still_s = 1;

/* The share of a window in which samples may come late before it is told. */
static const double sparse_share = 0.001;

/* What reading may take of a window before its average power is off. */
static const double slow_reading_s = 0.01, slow_reading_share = 0.05;

/* ---- Zero energy -------------------------------------------------------------------------- */

static bool may_tell_zero_energy(harpe_monitor *monitor, harpe_window *window) {
    pthread_mutex_lock(&monitor->lock);
    bool is_new = !window->zero_energy_told && monitor->zero_energy_told < ZERO_ENERGY_TOLD_MAX;
    window->zero_energy_told = true;
    monitor->zero_energy_told += is_new;
    pthread_mutex_unlock(&monitor->lock);
    return is_new;
}

static void tell_zero_energy(harpe_monitor *monitor, harpe_window *window, int gpu, double time_s) {
    if (!may_tell_zero_energy(monitor, window)) return;
    const char *advice = time_s < counter_stands_still_s
                             ? "it moves every 10 to 100 ms, measure longer windows or approximate "
                               "by power"
                             : "it stands still, so 0 J is not what the GPU took";
    harpe_monitor_tell(monitor, HARPE_LOG_WARNING,
                       "window '%.100s': the energy counter of GPU %d did not move in %.6f s; %s",
                       window->name, gpu, time_s, advice);
}

/* A counter that did not move in a short window: power times time, or a warning. */
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

/* ---- Sparse samples, slow reading --------------------------------------------------------- */

static bool may_tell(harpe_monitor *monitor, bool *told) {
    pthread_mutex_lock(&monitor->lock);
    bool is_new = !*told;
    *told = true;
    pthread_mutex_unlock(&monitor->lock);
    return is_new;
}

static void tell_sparse_samples(harpe_monitor *monitor, const harpe_window *window, double time_s) {
    for (size_t i = 0; i < monitor->gpu_count; i++) {
        const harpe_monitor_gpu *gpu = &monitor->gpus[i];
        if (!gpu->is_sampled) continue;
        double sparse_s =
            window->end.gpus[i].sampled.sparse_s - window->start.gpus[i].sampled.sparse_s;
        if (sparse_s <= sparse_share * time_s ||
            !may_tell(monitor, &monitor->sparse_samples_told)) {
            continue;
        }
        harpe_monitor_tell(monitor, HARPE_LOG_WARNING,
                           "window '%.100s': the power of GPU %d was read too seldom in %.3f of "
                           "%.3f s and is interpolated there: the driver or the machine is slow "
                           "(told once)",
                           window->name, gpu->index, sparse_s, time_s);
    }
}

/* Time has all of the reading in it, the counters' difference only a part. */
static void tell_slow_reading(harpe_monitor *monitor, const harpe_window *window, double time_s) {
    double reading_s = (double)(window->start.reading_ns + window->end.reading_ns) * 1e-9;
    if (reading_s < slow_reading_s || reading_s < slow_reading_share * time_s ||
        !may_tell(monitor, &monitor->slow_reading_told)) {
        return;
    }
    harpe_monitor_tell(monitor, HARPE_LOG_WARNING,
                       "window '%.100s': reading the counters took %.3f of its %.3f s, so its "
                       "energy divided by its time is less than the power: the driver is slow, "
                       "measure longer windows (told once)",
                       window->name, reading_s, time_s);
}

void harpe_window_doubts(harpe_monitor *monitor, harpe_window *window,
                         harpe_window_measurement *measurement) {
    mend_zero_energy(monitor, window, measurement);
    tell_sparse_samples(monitor, window, measurement->time_s);
    tell_slow_reading(monitor, window, measurement->time_s);
}
