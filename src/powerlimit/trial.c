/* SPDX-License-Identifier: Apache-2.0 */
/* Contains all uses of the device by the optimizer. After a failure, logs one line, restores
 * everything, and no longer uses the device. This file never decides which limit to try. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "gpu/settings.h"
#include "powerlimit/optimizer_internal.h"

#define WATCH_NS INT64_C(5000000000)

enum { WINDOW_NAME_SIZE = 64 };

/* ---- Failures -------------------------------------------------------------------------------- */

static void window_name(const harpe_power_limit_optimizer *optimizer, char name[WINDOW_NAME_SIZE]) {
    snprintf(name, WINDOW_NAME_SIZE, "__GlobalPowerLimitOptimizer_%d",
             optimizer->limits_w[optimizer->trial]);
}

bool harpe_optimizer_has_left(const harpe_power_limit_optimizer *optimizer) {
    return optimizer->failed_here || optimizer->phase == HARPE_POWER_LIMIT_FAILED;
}

harpe_status harpe_optimizer_leave(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    const harpe_power_limit_device *device = optimizer->device;
    if (optimizer->window_is_open) {
        char name[WINDOW_NAME_SIZE];
        window_name(optimizer, name);
        optimizer->window_is_open = false;
        harpe_error reason;
        if (device->end_window(device->user, name, true, NULL, NULL, &reason) != HARPE_OK) {
            harpe_log_line(&optimizer->options.log, HARPE_LOG_DEBUG, "power limit: %s",
                           reason.message);
        }
    }
    optimizer->current_w = 0;
    return device->restore ? device->restore(device->user, error) : HARPE_OK;
}

/* Leaves the device. Often the same fault also makes restoring the limits fail, so both failures
 * are logged in one line. */
static void leave_and_tell(harpe_power_limit_optimizer *optimizer, const char *reason) {
    harpe_error not_restored;
    if (harpe_optimizer_leave(optimizer, &not_restored) == HARPE_OK) {
        harpe_log_line(
            &optimizer->options.log, HARPE_LOG_ERROR,
            "power limit optimization stops, limits are restored, and training continues: %s",
            reason);
    } else {
        harpe_log_line(
            &optimizer->options.log, HARPE_LOG_ERROR,
            "power limit optimization stops, and training continues: %s; not all limits could be "
            "restored yet (%s); the guard, if there is one, tries again at the end",
            reason, not_restored.message);
    }
    optimizer->optimum_w = 0;
    harpe_power_member_give_up(optimizer->member);
}

void harpe_optimizer_give_up(harpe_power_limit_optimizer *optimizer, const char *reason) {
    if (!optimizer->failed_here) leave_and_tell(optimizer, reason);
    optimizer->failed_here = false; /* no other rank needs to know */
    optimizer->phase = HARPE_POWER_LIMIT_FAILED;
}

/* Records that this process's device has failed. In a job of several ranks, this rank still counts
 * steps until the next meeting. */
static void fail_here(harpe_power_limit_optimizer *optimizer, const char *reason) {
    leave_and_tell(optimizer, reason);
    if (optimizer->options.all_reduce)
        optimizer->failed_here = true;
    else
        optimizer->phase = HARPE_POWER_LIMIT_FAILED;
}

/* ---- Limits and windows ---------------------------------------------------------------------- */

void harpe_optimizer_set_limit(harpe_power_limit_optimizer *optimizer, int limit_w) {
    const harpe_power_limit_device *device = optimizer->device;
    if (harpe_optimizer_has_left(optimizer) || limit_w == optimizer->current_w) return;
    harpe_error error;
    if (device->set_limit(device->user, limit_w, &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
        return;
    }
    optimizer->current_w = limit_w;
}

bool harpe_optimizer_is_in_force(int in_force_w, int limit_w) {
    return in_force_w > limit_w ||
           harpe_is_power_limit((uint32_t)in_force_w * 1000, (uint32_t)limit_w * 1000);
}

int harpe_optimizer_check_limit(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    int limit_w = optimizer->current_w;
    int in_force_w = 0;
    int gpu = 0;
    harpe_error error;
    if (harpe_optimizer_has_left(optimizer) || !device->limit_in_force) return limit_w;
    if (device->limit_in_force(device->user, &in_force_w, &gpu, &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
    } else if (!harpe_optimizer_is_in_force(in_force_w, limit_w)) {
        (void)harpe_fail(&error, HARPE_DRIVER_ERROR,
                         "GPU %d: its power limit was set to %d W, but only %d W are in force: its "
                         "board, its rack or another program limits it to less; start the job "
                         "again to measure again",
                         gpu, limit_w, in_force_w);
        fail_here(optimizer, error.message);
    }
    return in_force_w;
}

void harpe_optimizer_watch_limit(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    int in_force_w = 0;
    int gpu = 0;
    harpe_error error;
    if (harpe_optimizer_has_left(optimizer) || !device->limit_in_force) return;
    if (harpe_clock_ns() < optimizer->watch_ns) return;
    optimizer->watch_ns = harpe_clock_ns() + WATCH_NS;
    if (device->limit_in_force(device->user, &in_force_w, &gpu, &error) == HARPE_OK) return;
    fail_here(optimizer, error.message);
    if (optimizer->is_in_fleet) return;
    optimizer->failed_here = false; /* the ranks do not meet any more */
    optimizer->phase = HARPE_POWER_LIMIT_FAILED;
}

void harpe_optimizer_begin_window(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    (void)harpe_optimizer_check_limit(optimizer);
    if (harpe_optimizer_has_left(optimizer)) return;
    char name[WINDOW_NAME_SIZE];
    window_name(optimizer, name);
    harpe_error error;
    if (device->begin_window(device->user, name, &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
        return;
    }
    optimizer->window_is_open = true;
}

void harpe_optimizer_check_window(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    (void)harpe_optimizer_check_limit(optimizer);
    if (harpe_optimizer_has_left(optimizer) || !device->check_window) return;
    harpe_error error;
    if (device->check_window(device->user, &error) != HARPE_OK) fail_here(optimizer, error.message);
}

void harpe_optimizer_end_window(harpe_power_limit_optimizer *optimizer,
                                harpe_power_limit_measurement *one) {
    const harpe_power_limit_device *device = optimizer->device;
    if (one) one->power_limit_w = harpe_optimizer_check_limit(optimizer);
    if (harpe_optimizer_has_left(optimizer) || !optimizer->window_is_open) return;
    char name[WINDOW_NAME_SIZE];
    window_name(optimizer, name);
    optimizer->window_is_open = false;
    double energy_j = NAN;
    double time_s = NAN;
    harpe_error error;
    if (device->end_window(device->user, name, !one, one ? &energy_j : NULL, one ? &time_s : NULL,
                           &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
        return;
    }
    if (!one) return;
    if (!(energy_j > 0) || !(time_s > 0) || !isfinite(energy_j) || !isfinite(time_s)) {
        char reason[256];
        snprintf(reason, sizeof reason,
                 "at %d W the window took %s s and %s J, which cannot be used; raise profile_steps",
                 one->power_limit_w, HARPE_DIGITS(time_s, 6), HARPE_DIGITS(energy_j, 6));
        fail_here(optimizer, reason);
        return;
    }
    one->energy_j = energy_j;
    one->time_s = time_s;
}
