/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of the power limit optimizer: tries one limit after another while a job trains,
 * then holds the best. The training loop's callbacks drive the state machine, which acts on a
 * device. Selectors choose the limit. docs/power-limit.md contains the rules as a table. */
#include "base/error.h"
#include "base/log.h"
#include "powerlimit/follow.h"
#include "powerlimit/optimizer_internal.h"
#include "powerlimit/profile_file.h"

/* ---- The state machine ----------------------------------------------------------------------- */

static void save_profile(const harpe_power_limit_optimizer *optimizer) {
    if (!optimizer->profile_path) return;
    harpe_power_limit_profile profile = {
        .measurements = optimizer->measurements,
        .count = optimizer->measurement_count,
        .device_model = optimizer->device_model,
        .minimum_w = optimizer->device->minimum_w,
        .maximum_w = optimizer->device->maximum_w,
    };
    harpe_error error;
    if (harpe_power_limit_profile_write(optimizer->profile_path, &profile, &error) != HARPE_OK) {
        harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                       "the power limit profile was not saved: %s", error.message);
    }
}

static void finish(harpe_power_limit_optimizer *optimizer) {
    int optimum_w = 0;
    harpe_error error;
    if (harpe_ranks_choose(optimizer, &optimum_w, &error) != HARPE_OK) {
        harpe_optimizer_give_up(optimizer, error.message);
        return;
    }
    optimizer->phase = HARPE_POWER_LIMIT_DONE;
    optimizer->optimum_w = optimum_w;
    harpe_optimizer_set_limit(optimizer, optimum_w);
    (void)harpe_optimizer_check_limit(optimizer);
    harpe_ranks_share_failures(optimizer);
    if (optimizer->phase == HARPE_POWER_LIMIT_DONE) save_profile(optimizer);
    harpe_follow_begin(optimizer);
}

static void begin_profiling(harpe_power_limit_optimizer *optimizer) {
    optimizer->phase = HARPE_POWER_LIMIT_PROFILING;
    optimizer->steps_left = optimizer->options.profile_steps;
    harpe_optimizer_begin_window(optimizer);
}

static void begin_warmup(harpe_power_limit_optimizer *optimizer) {
    optimizer->phase = HARPE_POWER_LIMIT_WARMUP;
    optimizer->steps_left = optimizer->options.warmup_steps;
    harpe_optimizer_set_limit(optimizer, optimizer->limits_w[optimizer->trial]);
    if (optimizer->steps_left == 0 && optimizer->phase == HARPE_POWER_LIMIT_WARMUP)
        begin_profiling(optimizer);
}

static void end_profiling(harpe_power_limit_optimizer *optimizer) {
    harpe_power_limit_measurement one = {.power_limit_w = optimizer->limits_w[optimizer->trial]};
    harpe_optimizer_end_window(optimizer, &one);
    if (optimizer->phase == HARPE_POWER_LIMIT_FAILED ||
        !harpe_ranks_share_measurement(optimizer, &one))
        return;
    /* A driver that rounds limits may have made two of them equal. Such limits are one. */
    size_t count = optimizer->measurement_count;
    if (count == 0 || optimizer->measurements[count - 1].power_limit_w != one.power_limit_w)
        optimizer->measurements[optimizer->measurement_count++] = one;
    optimizer->trial++;
    if (optimizer->trial == optimizer->limit_count)
        finish(optimizer);
    else
        begin_warmup(optimizer);
}

void harpe_power_limit_on_step_begin(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer || optimizer->phase == HARPE_POWER_LIMIT_FAILED) return;
    if (optimizer->phase == HARPE_POWER_LIMIT_DONE) {
        harpe_optimizer_watch_limit(optimizer);
        harpe_follow_step(optimizer);
        return;
    }
    if (--optimizer->steps_left > 0) {
        if (optimizer->phase == HARPE_POWER_LIMIT_PROFILING)
            harpe_optimizer_check_window(optimizer);
        return;
    }
    if (optimizer->phase == HARPE_POWER_LIMIT_READY)
        begin_warmup(optimizer);
    else if (optimizer->phase == HARPE_POWER_LIMIT_WARMUP)
        begin_profiling(optimizer);
    else
        end_profiling(optimizer);
}

void harpe_power_limit_on_step_end(harpe_power_limit_optimizer *optimizer) { (void)optimizer; }

void harpe_power_limit_on_epoch_begin(harpe_power_limit_optimizer *optimizer) { (void)optimizer; }

void harpe_power_limit_on_epoch_end(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer) return;
    if (optimizer->phase != HARPE_POWER_LIMIT_WARMUP &&
        optimizer->phase != HARPE_POWER_LIMIT_PROFILING)
        return;
    optimizer->phase = HARPE_POWER_LIMIT_READY;
    optimizer->steps_left = 1;
    harpe_optimizer_end_window(optimizer, NULL);
    harpe_optimizer_set_limit(optimizer, optimizer->limits_w[0]);
}

/* ---- State for the caller -------------------------------------------------------------------- */

harpe_power_limit_state harpe_power_limit_get_state(const harpe_power_limit_optimizer *optimizer) {
    if (!optimizer || harpe_optimizer_has_left(optimizer))
        return (harpe_power_limit_state){.phase = HARPE_POWER_LIMIT_FAILED};
    if (optimizer->phase == HARPE_POWER_LIMIT_DONE)
        return (harpe_power_limit_state){HARPE_POWER_LIMIT_DONE, optimizer->optimum_w, 0};
    /* After the last measurement, while the best limit is chosen, there is no next limit. */
    size_t trial =
        optimizer->trial < optimizer->limit_count ? optimizer->trial : optimizer->limit_count - 1;
    return (harpe_power_limit_state){optimizer->phase, optimizer->limits_w[trial],
                                     optimizer->steps_left};
}

bool harpe_power_limit_is_done(const harpe_power_limit_optimizer *optimizer) {
    return optimizer && optimizer->phase == HARPE_POWER_LIMIT_DONE;
}

bool harpe_power_limit_has_failed(const harpe_power_limit_optimizer *optimizer) {
    return optimizer && harpe_optimizer_has_left(optimizer);
}

int harpe_power_limit_current_w(const harpe_power_limit_optimizer *optimizer) {
    return optimizer ? optimizer->current_w : 0;
}

int harpe_power_limit_optimum_w(const harpe_power_limit_optimizer *optimizer) {
    return optimizer ? optimizer->optimum_w : 0;
}

const harpe_power_limit_measurement *
harpe_power_limit_measurements(const harpe_power_limit_optimizer *optimizer, size_t *count) {
    if (count) *count = optimizer ? optimizer->measurement_count : 0;
    return optimizer ? optimizer->measurements : NULL;
}
