/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a GPU's power limit, persistence mode and clock locks. Skips calls that would change
 * nothing, because a call takes 10 to 20 ms, and frequent calls can stall collectives. Counts the
 * calls, and remembers the original settings so that they can be restored. gpus.c reads
 * settings. */
#include "gpu/settings.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "gpu/gpus_internal.h"

/* Calls that change one GPU exclude each other; different GPUs can be changed at the same time. */

/* Counts a write according to its result. */
static int counted(harpe_gpu *gpu, int code) {
    if (code)
        gpu->writes.failed++;
    else
        gpu->writes.written++;
    return code;
}

/* Drivers round limits to whole watts, or to multiples of 5 W at most. */
#define ROUNDING_MW 5000
/* For how long a limit is read after it was set, because a driver may set it late. */
#define SETTLE_NS 100000000
#define READ_AGAIN_NS 1000000

/* ---- Power limit ----------------------------------------------------------------------------- */

static harpe_status fail_power_limit(harpe_gpus *gpus, harpe_gpu *gpu, int code, uint32_t limit_mw,
                                     harpe_error *error) {
    harpe_status status = HARPE_DRIVER_ERROR;
    const char *name = NULL;
    const char *advice = NULL;
    gpus->backend->explain(code, &status, &name, &advice);
    uint32_t minimum = 0;
    uint32_t maximum = 0;
    char what[160];
    if (status == HARPE_INVALID_ARGUMENT &&
        gpus->backend->power_limit_range(gpu->handle, &minimum, &maximum) == 0) {
        snprintf(what, sizeof what,
                 "setting the power limit to %.10g W (its range is %.10g to %.10g W)",
                 limit_mw / 1e3, minimum / 1e3, maximum / 1e3);
    } else {
        snprintf(what, sizeof what, "setting the power limit to %.10g W", limit_mw / 1e3);
    }
    return harpe_gpus_fail(gpus, gpu, code, what, error);
}

bool harpe_is_power_limit(uint32_t limit_mw, uint32_t requested_mw) {
    uint32_t difference_mw =
        limit_mw > requested_mw ? limit_mw - requested_mw : requested_mw - limit_mw;
    return difference_mw < ROUNDING_MW;
}

/* Returns true if a call would change nothing. If a driver rounds a limit, the rounded limit counts
 * as the requested one. */
static bool is_set(const harpe_gpu *gpu, uint32_t current_mw, uint32_t limit_mw) {
    if (gpu->power_limit_is_unsure) return false;
    return current_mw == limit_mw || (limit_mw == gpu->asked_power_limit_mw && limit_mw != 0 &&
                                      current_mw == gpu->made_power_limit_mw);
}

/* Reads the limit after it was set. If the limit is not yet set and enforced, reads it again for a
 * short time. */
static int read_back(const harpe_backend *backend, const harpe_gpu *gpu, uint32_t limit_mw,
                     uint32_t *made_mw) {
    int64_t end_ns = harpe_clock_ns() + SETTLE_NS;
    for (;;) {
        bool is_late = harpe_clock_ns() >= end_ns;
        int code = backend->power_limit(gpu->handle, made_mw);
        uint32_t enforced_mw = *made_mw;
        if (code) return code;
        if (backend->enforced_power_limit)
            (void)backend->enforced_power_limit(gpu->handle, &enforced_mw);
        bool is_settled =
            harpe_is_power_limit(*made_mw, limit_mw) && harpe_is_power_limit(enforced_mw, limit_mw);
        if (is_settled || is_late) return code;
        harpe_sleep_ns(READ_AGAIN_NS);
    }
}

/* Fails if the driver has accepted a limit without effect, or has set another limit. */
static harpe_status check_made(harpe_gpus *gpus, harpe_gpu *gpu, uint32_t limit_mw,
                               harpe_error *error) {
    uint32_t made_mw = 0;
    gpu->power_limit_is_unsure = true;
    int code = read_back(gpus->backend, gpu, limit_mw, &made_mw);
    if (code) return harpe_gpus_fail(gpus, gpu, code, "reading the power limit back", error);
    if (!harpe_is_power_limit(made_mw, limit_mw)) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d (%s): the driver has accepted a power limit of %.10g W, but the "
                          "limit is %.10g W; end other programs that set power limits, or do not "
                          "set them on this GPU",
                          gpu->info.index, gpu->info.name, limit_mw / 1e3, made_mw / 1e3);
    }
    gpu->power_limit_is_unsure = false;
    gpu->asked_power_limit_mw = limit_mw;
    gpu->made_power_limit_mw = made_mw;
    return HARPE_OK;
}

/* Notes the value before the first change. Call it before the driver call, because a call that
 * fails (a timeout) may still take effect. */
static void note_found(harpe_gpu *gpu, harpe_setting setting, uint32_t value) {
    if (gpu->is_changed[setting]) return;
    gpu->is_changed[setting] = true;
    gpu->found[setting] = (harpe_setting_value){.low = value};
}

static harpe_status set_power_limit(harpe_gpus *gpus, harpe_gpu *gpu, uint32_t limit_mw,
                                    harpe_error *error) {
    uint32_t current_mw = 0;
    int code = gpus->backend->power_limit(gpu->handle, &current_mw);
    if (code) {
        gpu->writes.failed++;
        return fail_power_limit(gpus, gpu, code, limit_mw, error);
    }
    if (is_set(gpu, current_mw, limit_mw)) {
        gpu->writes.skipped++;
        return HARPE_OK;
    }
    note_found(gpu, HARPE_SET_POWER_LIMIT, current_mw);
    code = counted(gpu, gpus->backend->set_power_limit(gpu->handle, limit_mw));
    if (code) return fail_power_limit(gpus, gpu, code, limit_mw, error);
    return check_made(gpus, gpu, limit_mw, error);
}

/* ---- Persistence mode ------------------------------------------------------------------------ */

static harpe_status set_persistence(harpe_gpus *gpus, harpe_gpu *gpu, bool is_enabled,
                                    harpe_error *error) {
    bool current = false;
    const char *what = is_enabled ? "turning persistence mode on" : "turning persistence mode off";
    int code = gpus->backend->persistence_mode(gpu->handle, &current);
    if (code) {
        gpu->writes.failed++;
        return harpe_gpus_fail(gpus, gpu, code, what, error);
    }
    if (current == is_enabled) {
        gpu->writes.skipped++;
        return HARPE_OK;
    }
    note_found(gpu, HARPE_SET_PERSISTENCE, current);
    code = counted(gpu, gpus->backend->set_persistence_mode(gpu->handle, is_enabled));
    if (code) return harpe_gpus_fail(gpus, gpu, code, what, error);
    return HARPE_OK;
}

/* ---- Clock locks ----------------------------------------------------------------------------- */

static const char *const clock_names[] = {"graphics", "memory"};

bool harpe_gpu_refused(harpe_status status) {
    return status == HARPE_PERMISSION_DENIED || status == HARPE_NOT_SUPPORTED ||
           status == HARPE_INVALID_ARGUMENT;
}

static int call_lock(const harpe_backend *backend, const harpe_gpu *gpu, harpe_setting clock,
                     harpe_setting_value value) {
    return clock == HARPE_SET_MEMORY_CLOCKS
               ? backend->lock_memory_clocks(gpu->handle, value.low, value.high)
               : backend->lock_graphics_clocks(gpu->handle, value.low, value.high);
}

static harpe_status lock_clocks(harpe_gpus *gpus, harpe_gpu *gpu, harpe_setting clock,
                                harpe_setting_value value, harpe_error *error) {
    harpe_clock_lock *lock = &gpu->locks[clock];
    if (lock->state == HARPE_LOCK_SET && lock->value.low == value.low &&
        lock->value.high == value.high) {
        gpu->writes.skipped++;
        return HARPE_OK;
    }
    int code = counted(gpu, call_lock(gpus->backend, gpu, clock, value));
    if (code) {
        char what[96];
        snprintf(what, sizeof what, "locking %s clocks to %" PRIu32 "-%" PRIu32 " MHz",
                 clock_names[clock], value.low, value.high);
        harpe_status status = harpe_gpus_fail(gpus, gpu, code, what, error);
        /* After any failure except a refusal, either the old or the new lock may hold. */
        lock->state = HARPE_LOCK_UNKNOWN;
        gpu->is_changed[clock] = gpu->is_changed[clock] || !harpe_gpu_refused(status);
        return status;
    }
    *lock = (harpe_clock_lock){HARPE_LOCK_SET, value};
    gpu->is_changed[clock] = true;
    return HARPE_OK;
}

static harpe_status reset_clocks(harpe_gpus *gpus, harpe_gpu *gpu, harpe_setting clock,
                                 harpe_error *error) {
    const harpe_backend *backend = gpus->backend;
    harpe_clock_lock *lock = &gpu->locks[clock];
    if (lock->state == HARPE_LOCK_RESET) {
        gpu->writes.skipped++;
        return HARPE_OK;
    }
    int code = counted(gpu, clock == HARPE_SET_MEMORY_CLOCKS
                                ? backend->reset_memory_clocks(gpu->handle)
                                : backend->reset_graphics_clocks(gpu->handle));
    if (code) {
        lock->state = HARPE_LOCK_UNKNOWN;
        char what[64];
        snprintf(what, sizeof what, "resetting %s clocks", clock_names[clock]);
        return harpe_gpus_fail(gpus, gpu, code, what, error);
    }
    lock->state = HARPE_LOCK_RESET;
    gpu->is_changed[clock] = false;
    return HARPE_OK;
}

void harpe_gpu_forget_clock_locks(harpe_gpus *gpus, int gpu) {
    harpe_gpu *found = NULL;
    if (harpe_gpus_find(gpus, gpu, &found, NULL) != HARPE_OK) return;
    harpe_lock(&found->mutex);
    found->locks[0].state = found->locks[1].state = HARPE_LOCK_UNKNOWN;
    harpe_unlock(&found->mutex);
}

/* ---- Any setting ----------------------------------------------------------------------------- */

/* The caller holds the mutex. */
static harpe_status change(harpe_gpus *gpus, harpe_gpu *gpu, harpe_setting setting,
                           harpe_setting_value value, harpe_error *error) {
    switch (setting) {
    case HARPE_SET_POWER_LIMIT: return set_power_limit(gpus, gpu, value.low, error);
    case HARPE_SET_PERSISTENCE: return set_persistence(gpus, gpu, value.low != 0, error);
    default:
        return value.high > 0 ? lock_clocks(gpus, gpu, setting, value, error)
                              : reset_clocks(gpus, gpu, setting, error);
    }
}

harpe_status harpe_gpu_set(harpe_gpus *gpus, int index, harpe_setting setting,
                           harpe_setting_value value, harpe_error *error) {
    harpe_gpu *gpu = NULL;
    harpe_status status = harpe_gpus_find(gpus, index, &gpu, error);
    if (status != HARPE_OK) return status;
    harpe_lock(&gpu->mutex);
    status = change(gpus, gpu, setting, value, error);
    harpe_unlock(&gpu->mutex);
    return status;
}

harpe_status harpe_gpu_read_setting(harpe_gpus *gpus, int index, harpe_setting setting,
                                    harpe_setting_value *out, harpe_error *error) {
    bool is_on = false;
    harpe_setting_value value = {0};
    harpe_status status = HARPE_NOT_SUPPORTED;
    if (setting == HARPE_SET_POWER_LIMIT)
        status = harpe_gpu_power_limit(gpus, index, &value.low, error);
    else if (setting == HARPE_SET_PERSISTENCE)
        status = harpe_gpu_persistence_mode(gpus, index, &is_on, error);
    else
        return harpe_fail(error, status, "GPU %d: drivers do not report locks of clocks", index);
    if (status != HARPE_OK) return status;
    if (is_on) value.low = 1;
    *out = value;
    return HARPE_OK;
}

static harpe_status lock_range(harpe_gpus *gpus, int index, harpe_setting clock,
                               uint32_t minimum_mhz, uint32_t maximum_mhz, harpe_error *error) {
    harpe_gpu *gpu = NULL;
    harpe_status status = harpe_gpus_find(gpus, index, &gpu, error);
    if (status != HARPE_OK) return status;
    if (minimum_mhz != 0 && minimum_mhz <= maximum_mhz)
        return harpe_gpu_set(gpus, index, clock, (harpe_setting_value){minimum_mhz, maximum_mhz},
                             error);
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "GPU %d (%s): %s clocks cannot be locked to %" PRIu32 "-%" PRIu32
                      " MHz: expected a minimum above 0 and no lower maximum",
                      gpu->info.index, gpu->info.name, clock_names[clock], minimum_mhz,
                      maximum_mhz);
}

harpe_status harpe_gpu_set_power_limit(harpe_gpus *gpus, int index, uint32_t limit_mw,
                                       harpe_error *error) {
    return harpe_gpu_set(gpus, index, HARPE_SET_POWER_LIMIT, (harpe_setting_value){.low = limit_mw},
                         error);
}

harpe_status harpe_gpu_set_persistence_mode(harpe_gpus *gpus, int index, bool is_enabled,
                                            harpe_error *error) {
    return harpe_gpu_set(gpus, index, HARPE_SET_PERSISTENCE,
                         (harpe_setting_value){.low = is_enabled}, error);
}

harpe_status harpe_gpu_lock_graphics_clocks(harpe_gpus *gpus, int index, uint32_t minimum_mhz,
                                            uint32_t maximum_mhz, harpe_error *error) {
    return lock_range(gpus, index, HARPE_SET_GRAPHICS_CLOCKS, minimum_mhz, maximum_mhz, error);
}

harpe_status harpe_gpu_lock_memory_clocks(harpe_gpus *gpus, int index, uint32_t minimum_mhz,
                                          uint32_t maximum_mhz, harpe_error *error) {
    return lock_range(gpus, index, HARPE_SET_MEMORY_CLOCKS, minimum_mhz, maximum_mhz, error);
}

harpe_status harpe_gpu_reset_graphics_clocks(harpe_gpus *gpus, int index, harpe_error *error) {
    return harpe_gpu_set(gpus, index, HARPE_SET_GRAPHICS_CLOCKS, (harpe_setting_value){0}, error);
}

harpe_status harpe_gpu_reset_memory_clocks(harpe_gpus *gpus, int index, harpe_error *error) {
    return harpe_gpu_set(gpus, index, HARPE_SET_MEMORY_CLOCKS, (harpe_setting_value){0}, error);
}

/* ---- Restoring ------------------------------------------------------------------------------- */

/* Restores one GPU. If a setting cannot be restored, it stays recorded, so a later call tries
 * again. Keeps the first failure and its text. */
static void restore(harpe_gpus *gpus, harpe_gpu *gpu, harpe_status *first, harpe_error *error) {
    for (int i = 0; i < HARPE_SETTINGS; i++) {
        harpe_error told;
        if (!gpu->is_changed[i]) continue;
        harpe_status status = change(gpus, gpu, (harpe_setting)i, gpu->found[i], &told);
        gpu->is_changed[i] = status != HARPE_OK;
        if (status == HARPE_OK || *first != HARPE_OK) continue;
        *first = status;
        if (error) *error = told;
    }
}

harpe_status harpe_gpus_restore(harpe_gpus *gpus, harpe_error *error) {
    harpe_status first = HARPE_OK;
    for (int i = 0; gpus && i < gpus->count; i++) {
        harpe_lock(&gpus->gpus[i].mutex);
        restore(gpus, &gpus->gpus[i], &first, error);
        harpe_unlock(&gpus->gpus[i].mutex);
    }
    return first;
}

harpe_gpu_writes harpe_gpu_write_count(const harpe_gpus *gpus, int index) {
    harpe_gpu_writes writes = {0};
    if (index < 0 || index >= gpus->count) return writes;
    harpe_gpu *gpu = &gpus->gpus[index];
    harpe_lock(&gpu->mutex);
    writes = gpu->writes;
    harpe_unlock(&gpu->mutex);
    return writes;
}
