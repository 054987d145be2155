/* SPDX-License-Identifier: Apache-2.0 */
/* The power limit device of real or emulated GPUs. It sets limits through the GPU layer, measures
 * with the monitor, and starts the guard before anything changes. It makes no decisions. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <harpe/power_limit.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "gpu/gpus_internal.h"
#include "gpu/settings.h"
#include "monitor/monitor.h"
#include "power_limit/guard.h"

#define MEAN_WINDOW "power since the last call"
#define SHORTEST_S 1.0 /* from one call to the next */

enum { RESTORE_MS = 3000 };

/* ---- The device ------------------------------------------------------------------------------ */

struct harpe_power_limit_gpus {
    harpe_power_limit_device device;
    harpe_gpus *gpus;
    harpe_monitor *monitor;
    harpe_guard *guard;        /* NULL: no guard; this process then holds `claims` */
    harpe_power_claims claims; /* used if there is no guard */
    int *leases;               /* socket of each GPU's lease, -1: none; NULL: no agent */
    char agent[HARPE_LEASE_SOCKET_SIZE];
    char window[64]; /* name of the open window */
    int limit_w; /* limit that was set last; 0: none, or a subclass in Python sets limits itself */
};

/* ---- The device's functions ------------------------------------------------------------------ */

static harpe_status take_lease(harpe_power_limit_gpus *all, int gpu, harpe_lease_terms *terms,
                               harpe_error *error) {
    harpe_lease_request request = {.uuid = harpe_gpu_info_at(all->gpus, gpu)->uuid,
                                   .control = HARPE_SAVED_POWER,
                                   .memory = -1};
    harpe_lease lease;
    harpe_status status = harpe_lease_take(all->agent, &request, &lease, error);
    if (status != HARPE_OK) return status;
    all->leases[gpu] = lease.socket;
    *terms = lease.terms;
    return HARPE_OK;
}

static harpe_status set_through(harpe_power_limit_gpus *all, int gpu,
                                harpe_lease_power_setting setting, uint32_t value,
                                harpe_error *error) {
    if (!all->leases) {
        return setting == HARPE_LEASE_POWER_LIMIT
                   ? harpe_gpu_set_power_limit(all->gpus, gpu, value, error)
                   : harpe_gpu_set_persistence_mode(all->gpus, gpu, value != 0, error);
    }
    return harpe_lease_power_set(all->leases[gpu], setting, value, error);
}

/* Sets a GPU's limit. If the lease has ended, for example because the agent was stopped, takes the
 * lease again and tries once more. */
static harpe_status set_limit(harpe_power_limit_gpus *all, int gpu, uint32_t limit_mw,
                              harpe_error *error) {
    harpe_status status = set_through(all, gpu, HARPE_LEASE_POWER_LIMIT, limit_mw, error);
    if (status != HARPE_UNAVAILABLE || !all->leases) return status;
    harpe_lease_terms terms;
    if (all->leases[gpu] >= 0) close(all->leases[gpu]);
    all->leases[gpu] = -1;
    status = take_lease(all, gpu, &terms, error);
    if (status != HARPE_OK) return status;
    return set_through(all, gpu, HARPE_LEASE_POWER_LIMIT, limit_mw, error);
}

static harpe_status gpus_set_limit(void *user, int limit_w, harpe_error *error) {
    harpe_power_limit_gpus *all = user;
    for (int gpu = 0; gpu < all->device.gpu_count; gpu++) {
        harpe_status status = set_limit(all, gpu, (uint32_t)limit_w * 1000, error);
        if (status != HARPE_OK) return status;
    }
    all->limit_w = limit_w;
    return HARPE_OK;
}

static harpe_status gpus_limit_in_force(void *user, int *limit_w, int *gpu, harpe_error *error) {
    harpe_power_limit_gpus *all = user;
    uint32_t asked_mw = all->limit_w ? (uint32_t)all->limit_w * 1000 : UINT32_MAX;
    uint32_t lowest_mw = UINT32_MAX;
    int lowest_gpu = 0;
    for (int i = 0; i < all->device.gpu_count; i++) {
        uint32_t made_mw = 0;
        uint32_t enforced_mw = 0;
        harpe_status status = harpe_gpu_power_limit(all->gpus, i, &made_mw, error);
        if (status == HARPE_OK)
            status = harpe_gpu_enforced_power_limit(all->gpus, i, &enforced_mw, error);
        if (status != HARPE_OK) return status;
        if (made_mw > asked_mw && !harpe_is_power_limit(made_mw, asked_mw)) {
            return harpe_fail(error, HARPE_DRIVER_ERROR,
                              "GPU %d (%s): its power limit was set to %d W, and is now %.10g W; "
                              "end the other program that sets it",
                              i, harpe_gpu_info_at(all->gpus, i)->name, all->limit_w,
                              made_mw / 1e3);
        }
        uint32_t in_force_mw = enforced_mw < made_mw ? enforced_mw : made_mw;
        if (in_force_mw >= lowest_mw) continue;
        lowest_mw = in_force_mw;
        lowest_gpu = i;
    }
    *limit_w = (int)((lowest_mw + 500) / 1000);
    *gpu = lowest_gpu;
    return HARPE_OK;
}

/* Checks the counters at each step. If a counter restarts early in a window, it may exceed its
 * first value again at the end of the window. Sampled power has no counter. */
static harpe_status gpus_check_window(void *user, harpe_error *error) {
    harpe_power_limit_gpus *all = user;
    if (harpe_monitor_is_sampled(all->monitor)) return HARPE_OK;
    return harpe_monitor_peek(all->monitor, all->window, NULL, error);
}

static harpe_status gpus_begin_window(void *user, const char *name, harpe_error *error) {
    harpe_power_limit_gpus *all = user;
    (void)snprintf(all->window, sizeof all->window, "%s", name);
    return harpe_monitor_begin(all->monitor, name, true, error);
}

/* Checks each GPU, because a sum over GPUs can hide a fault of one GPU. */
static harpe_status check_measurement(const harpe_power_limit_gpus *all,
                                      const harpe_window_measurement *measurement,
                                      harpe_error *error) {
    for (size_t i = 0; i < measurement->gpu_count; i++) {
        if (measurement->gpu_energy_j[i] > 0) continue;
        int gpu = measurement->gpu_index[i];
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d (%s): a measurement of %s took %s J, which cannot be true; "
                          "energy counters move every 10 to 100 ms: raise profile_steps",
                          gpu, harpe_gpu_info_at(all->gpus, gpu)->name,
                          HARPE_TIME(measurement->time_s),
                          HARPE_DIGITS(measurement->gpu_energy_j[i], 6));
    }
    return HARPE_OK;
}

static harpe_status gpus_end_window(void *user, const char *name, bool cancel, double *energy_j,
                                    double *time_s, harpe_error *error) {
    harpe_power_limit_gpus *all = user;
    if (cancel) return harpe_monitor_end(all->monitor, name, true, NULL, error);
    harpe_window_measurement measurement = {0};
    harpe_status status = harpe_monitor_end(all->monitor, name, false, &measurement, error);
    if (status != HARPE_OK) return status;
    status = check_measurement(all, &measurement, error);
    if (status == HARPE_OK) {
        *energy_j = measurement.total_gpu_energy_j;
        *time_s = measurement.time_s;
    }
    harpe_window_measurement_clear(&measurement);
    return status;
}

/* Energy counters move every 10 to 100 ms, so over a short time they give no power. Samples of the
 * power cannot replace them: the fleet remembers the highest power that a member has reported, and
 * a single sample may be a peak. */
static harpe_status gpus_mean_power(void *user, double *power_w, harpe_error *error) {
    harpe_power_limit_gpus *all = user;
    harpe_window_measurement since = {0};
    *power_w = 0;
    if (harpe_monitor_is_sampled(all->monitor)) return HARPE_OK;
    /* Fails at the first call, and if a counter has restarted. */
    (void)harpe_monitor_end(all->monitor, MEAN_WINDOW, false, &since, NULL);
    if (since.time_s >= SHORTEST_S) *power_w = since.total_gpu_energy_j / since.time_s;
    harpe_window_measurement_clear(&since);
    return harpe_monitor_begin(all->monitor, MEAN_WINDOW, true, error);
}

/* Ends the leases, and waits a short time until the guards have restored the GPUs. */
static void end_leases(harpe_power_limit_gpus *all) {
    for (int gpu = 0; all->leases && gpu < all->device.gpu_count; gpu++)
        if (all->leases[gpu] >= 0) (void)shutdown(all->leases[gpu], SHUT_WR);
    for (int gpu = 0; all->leases && gpu < all->device.gpu_count; gpu++) {
        char ignored;
        if (all->leases[gpu] < 0) continue;
        /* Returns false when the guard has restored the GPU and has ended. */
        (void)harpe_helper_process_receive(all->leases[gpu], &ignored, 1, RESTORE_MS);
        close(all->leases[gpu]);
        all->leases[gpu] = -1;
    }
}

static harpe_status gpus_restore(void *user, harpe_error *error) {
    harpe_power_limit_gpus *all = user;
    end_leases(all);
    return harpe_gpus_restore(all->gpus, error);
}

/* ---- Construction ---------------------------------------------------------------------------- */

/* Computes the range in whole watts that every GPU allows. */
static harpe_status read_range(harpe_power_limit_gpus *all, harpe_error *error) {
    harpe_power_limit_device *device = &all->device;
    device->maximum_w = INT32_MAX;
    for (int gpu = 0; gpu < device->gpu_count; gpu++) {
        uint32_t minimum_mw = 0;
        uint32_t maximum_mw = 0;
        harpe_status status =
            harpe_gpu_power_limit_range(all->gpus, gpu, &minimum_mw, &maximum_mw, error);
        if (status != HARPE_OK) return status;
        int minimum_w = (int)(minimum_mw / 1000 + (minimum_mw % 1000 != 0));
        int maximum_w = (int)(maximum_mw / 1000);
        device->minimum_w = minimum_w > device->minimum_w ? minimum_w : device->minimum_w;
        device->maximum_w = maximum_w < device->maximum_w ? maximum_w : device->maximum_w;
    }
    if (device->minimum_w > device->maximum_w) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "no power limit is allowed on all of the %d GPUs", device->gpu_count);
    }
    return HARPE_OK;
}

/* Claims the GPUs for this process and records their settings. Called if there is no guard. */
static harpe_status claim_gpus(harpe_power_limit_gpus *all, harpe_error *error) {
    harpe_guarded_gpu *saved = harpe_guarded_gpus_new(all->gpus);
    if (!saved) return harpe_fail_memory(error);
    harpe_status status = harpe_power_claims_take(all->gpus, saved, (size_t)all->device.gpu_count,
                                                  harpe_process_self(), NULL, &all->claims, error);
    free(saved);
    return status;
}

/* Enables persistence mode. Without it a driver may forget the limit when no process has the GPU
 * open. */
static harpe_status enable_persistence(harpe_power_limit_gpus *all, harpe_error *error) {
    for (int gpu = 0; gpu < all->device.gpu_count; gpu++) {
        harpe_error reason;
        harpe_status status = set_through(all, gpu, HARPE_LEASE_PERSISTENCE, 1, &reason);
        if (status == HARPE_NOT_SUPPORTED) continue;
        if (status != HARPE_OK) return harpe_fail(error, status, "%s", reason.message);
    }
    return HARPE_OK;
}

static void narrow(harpe_power_limit_device *device, const harpe_lease_terms *terms) {
    int lowest_w = (int)((terms->lowest_mw + 999) / 1000);
    int highest_w = (int)(terms->highest_mw / 1000);
    if (lowest_w > device->minimum_w) device->minimum_w = lowest_w;
    if (highest_w > 0 && highest_w < device->maximum_w) device->maximum_w = highest_w;
}

/* Takes a lease for each GPU, and reduces the range of limits to the range of the agent. */
static harpe_status take_leases(harpe_power_limit_gpus *all, harpe_error *error) {
    size_t count = (size_t)all->device.gpu_count;
    all->leases = harpe_calloc(count, sizeof *all->leases);
    if (!all->leases) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        all->leases[i] = -1;
    for (int gpu = 0; gpu < all->device.gpu_count; gpu++) {
        harpe_lease_terms terms;
        harpe_status status = take_lease(all, gpu, &terms, error);
        if (status != HARPE_OK) return status;
        narrow(&all->device, &terms);
    }
    if (all->device.minimum_w <= all->device.maximum_w) return HARPE_OK;
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "the node agent's rules allow no power limit that all of the %d GPUs have",
                      all->device.gpu_count);
}

static harpe_status take_control_directly(harpe_power_limit_gpus *all, bool with_guard,
                                          harpe_error *error) {
    return with_guard ? harpe_guard_start(all->gpus, all->gpus->log, &all->guard, error)
                      : claim_gpus(all, error);
}

/* Takes leases of the GPUs from the node agent. If there is no agent, claims the GPUs directly. */
static harpe_status take_control(harpe_power_limit_gpus *all, bool with_guard, harpe_error *error) {
    if (!harpe_lease_find_agent(all->gpus, all->agent))
        return take_control_directly(all, with_guard, error);
    harpe_error unreachable;
    harpe_status status = take_leases(all, &unreachable);
    if (status == HARPE_OK) return HARPE_OK;
    if (status == HARPE_UNAVAILABLE) {
        end_leases(all);
        free(all->leases);
        all->leases = NULL;
        status = take_control_directly(all, with_guard, error);
        if (status != HARPE_PERMISSION_DENIED) return status;
    }
    return harpe_fail(error, status, "%s", unreachable.message);
}

static harpe_status prepare(harpe_power_limit_gpus *all, bool with_guard, harpe_error *error) {
    harpe_status status = harpe_gpus_check_same_model(all->gpus, error);
    if (status == HARPE_OK) status = read_range(all, error);
    if (status == HARPE_OK) {
        harpe_monitor_options options = {.gpus = all->gpus};
        status = harpe_monitor_new(&options, &all->monitor, error);
    }
    if (status == HARPE_OK) status = take_control(all, with_guard, error);
    return status == HARPE_OK ? enable_persistence(all, error) : status;
}

harpe_status harpe_power_limit_gpus_new(harpe_gpus *gpus, bool with_guard,
                                        harpe_power_limit_gpus **out, harpe_error *error) {
    if (!gpus || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "power limit: no GPUs were given");
    harpe_power_limit_gpus *all = harpe_calloc(1, sizeof *all);
    if (!all) return harpe_fail_memory(error);
    all->gpus = gpus;
    all->device = (harpe_power_limit_device){
        .user = all,
        .gpu_count = harpe_gpus_count(gpus),
        .set_limit = gpus_set_limit,
        .begin_window = gpus_begin_window,
        .end_window = gpus_end_window,
        .restore = gpus_restore,
        .check_window = gpus_check_window,
        .mean_power = gpus_mean_power,
        .limit_in_force = gpus_limit_in_force,
    };
    harpe_status status = prepare(all, with_guard, error);
    if (status != HARPE_OK) {
        harpe_power_limit_gpus_free(all);
        return status;
    }
    *out = all;
    return HARPE_OK;
}

const harpe_power_limit_device *harpe_power_limit_gpus_device(harpe_power_limit_gpus *gpus) {
    return gpus ? &gpus->device : NULL;
}

void harpe_power_limit_gpus_free(harpe_power_limit_gpus *gpus) {
    if (!gpus) return;
    end_leases(gpus);
    free(gpus->leases);
    harpe_status restored = harpe_gpus_restore(gpus->gpus, NULL);
    harpe_guard_stop(gpus->guard, restored == HARPE_OK);
    harpe_power_claims_release(&gpus->claims, restored == HARPE_OK);
    harpe_monitor_free(gpus->monitor);
    free(gpus);
}
