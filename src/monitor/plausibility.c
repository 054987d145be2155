/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the plausibility of a finished window: warns about values that are less reliable than they
 * look, and replaces a zero energy if the caller has asked for this. Windows without a value (a
 * counter that restarted, power that could not be read) have already failed in window_reading.c and
 * sampler.c. */
#include "base/log.h"
#include "base/wait.h"
#include "monitor/monitor_state.h"

enum { ZERO_ENERGY_TOLD_MAX = 20 };

/* Every GPU draws enough power to change its counter within this time. */
static const double counter_stands_still_s = 1;

/* The share of a window in which samples may come late without a warning. */
static const double sparse_share = 0.001;

/* If reading takes longer than this time and this share of the window, the average power is
 * wrong. */
static const double slow_reading_s = 0.01, slow_reading_share = 0.05;

/* ---- Zero energy ----------------------------------------------------------------------------- */

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

/* ---- Sparse samples, slow reading ------------------------------------------------------------ */

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

void harpe_window_check_plausibility(harpe_monitor *monitor, harpe_window *window,
                                     harpe_window_measurement *measurement) {
    mend_zero_energy(monitor, window, measurement);
    tell_sparse_samples(monitor, window, measurement->time_s);
    tell_slow_reading(monitor, window, measurement->time_s);
}
