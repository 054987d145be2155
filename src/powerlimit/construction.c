/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a power limit optimizer: checks the options, lists the limits to try, loads the profile of
 * an earlier run, and sets the first limit. optimizer.c does the rest. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "powerlimit/follow.h"
#include "powerlimit/optimizer_internal.h"
#include "powerlimit/profile_file.h"

enum {
    DEFAULT_WAIT_STEPS = 1,
    DEFAULT_WARMUP_STEPS = 10,
    DEFAULT_PROFILE_STEPS = 40,
    DEFAULT_STEP_W = 25,
    STEPS_MAX = 1000000000,
    POWER_LIMIT_MAX_W = 1000000,
};

/* ---- Options --------------------------------------------------------------------------------- */

static int step_count(int given, int default_count) { return given == -1 ? default_count : given; }

static harpe_status check_device(const harpe_power_limit_device *device, harpe_error *error) {
    if (!device->set_limit || !device->begin_window || !device->end_window) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "power limit: the device lacks set_limit, begin_window or end_window");
    }
    if (device->gpu_count < 1)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "power limit: the device has no GPU");
    if (device->minimum_w < 1 || device->maximum_w < device->minimum_w ||
        device->maximum_w > POWER_LIMIT_MAX_W) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "power limit: a range of %d to %d W cannot be", device->minimum_w,
                          device->maximum_w);
    }
    return HARPE_OK;
}

static harpe_status check_steps(const char *name, int value, int minimum, harpe_error *error) {
    if (value >= minimum && value <= STEPS_MAX) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "power limit: %s must be from %d to %d, not %d", name, minimum, STEPS_MAX,
                      value);
}

static harpe_status fill_options(harpe_power_limit_options *options, harpe_error *error) {
    options->wait_steps = step_count(options->wait_steps, DEFAULT_WAIT_STEPS);
    options->warmup_steps = step_count(options->warmup_steps, DEFAULT_WARMUP_STEPS);
    options->profile_steps = step_count(options->profile_steps, DEFAULT_PROFILE_STEPS);
    options->step_w = options->step_w == 0 ? DEFAULT_STEP_W : options->step_w;
    harpe_status status = check_steps("wait_steps", options->wait_steps, 0, error);
    if (status == HARPE_OK) status = check_steps("warmup_steps", options->warmup_steps, 0, error);
    if (status == HARPE_OK) status = check_steps("profile_steps", options->profile_steps, 1, error);
    if (status == HARPE_OK && options->step_w < 1) {
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "power limit: step_w must be above 0 W, not %d", options->step_w);
    }
    if (status == HARPE_OK && options->world_size < 0) {
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "power limit: world_size must not be below 0, found %d",
                            options->world_size);
    }
    return status;
}

/* Lists the limits from the highest down in steps of step_w. The lowest allowed limit is always
 * the last. */
static harpe_status list_limits(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    int minimum_w = optimizer->device->minimum_w;
    int maximum_w = optimizer->device->maximum_w;
    int step_w = optimizer->options.step_w;
    size_t below = (size_t)((maximum_w - minimum_w) / step_w);
    size_t count = 1 + below + ((maximum_w - minimum_w) % step_w != 0);
    optimizer->limits_w = harpe_calloc(count, sizeof *optimizer->limits_w);
    optimizer->measurements = harpe_calloc(count, sizeof *optimizer->measurements);
    if (!optimizer->limits_w || !optimizer->measurements) return harpe_fail_memory(error);
    for (size_t i = 0; i <= below; i++)
        optimizer->limits_w[i] = maximum_w - (int)i * step_w;
    optimizer->limits_w[count - 1] = minimum_w;
    optimizer->limit_count = count;
    return HARPE_OK;
}

static harpe_status copy_text(const char *text, char **copy, harpe_error *error) {
    if (!text) return HARPE_OK;
    *copy = strdup(text);
    return *copy ? HARPE_OK : harpe_fail_memory(error);
}

static harpe_status load_profile(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    if (!optimizer->profile_path) return HARPE_OK;
    const harpe_power_limit_device *device = optimizer->device;
    harpe_power_limit_profile profile = {0};
    harpe_error reason;
    harpe_status status =
        harpe_power_limit_profile_read(optimizer->profile_path, &profile, &reason);
    if (status == HARPE_NOT_FOUND) return HARPE_OK; /* the first run, which will write the file */
    if (status != HARPE_OK) return harpe_fail(error, status, "%s", reason.message);
    status =
        harpe_power_limit_profile_check(&profile, optimizer->profile_path, optimizer->device_model,
                                        device->minimum_w, device->maximum_w, error);
    if (status == HARPE_OK) {
        /* Includes room for trials, because the ranks may agree not to use the file. */
        size_t room =
            profile.count > optimizer->limit_count ? profile.count : optimizer->limit_count;
        void *larger =
            harpe_realloc(optimizer->measurements, room, sizeof *optimizer->measurements);
        if (larger) {
            optimizer->measurements = larger;
            optimizer->measurement_count = profile.count;
            memcpy(larger, profile.measurements, profile.count * sizeof *profile.measurements);
        } else {
            status = harpe_fail_memory(error);
        }
    }
    harpe_power_limit_profile_clear(&profile);
    return status;
}

static harpe_status prepare(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    harpe_status status = check_device(optimizer->device, error);
    if (status == HARPE_OK) status = fill_options(&optimizer->options, error);
    if (status == HARPE_OK)
        status = copy_text(optimizer->options.profile_path, &optimizer->profile_path, error);
    if (status == HARPE_OK)
        status = copy_text(optimizer->options.device_model, &optimizer->device_model, error);
    if (status == HARPE_OK)
        status = harpe_power_member_take_terms(optimizer->options.fleet, &optimizer->terms, error);
    if (status == HARPE_OK) status = list_limits(optimizer, error);
    if (status == HARPE_OK) status = load_profile(optimizer, error);
    return status;
}

/* ---- The first limit ------------------------------------------------------------------------- */

static harpe_status choose_selector(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    if (optimizer->options.selector.select) return HARPE_OK;
    optimizer->default_parameters =
        (harpe_selector_parameters){.eta = 0.5, .world_size = optimizer->options.world_size};
    return harpe_selector_zeus_cost(&optimizer->default_parameters, &optimizer->options.selector,
                                    error);
}

/* Sets the first limit. This call shows whether limits can be set at all, so its failure is
 * returned to the caller. */
static harpe_status start(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    const harpe_power_limit_device *device = optimizer->device;
    bool is_loaded = optimizer->measurement_count > 0;
    int limit_w = optimizer->limits_w[0];
    if (is_loaded) {
        harpe_status chosen = harpe_ranks_choose(optimizer, &limit_w, error);
        if (chosen != HARPE_OK) return chosen;
    }
    harpe_status set = device->set_limit(device->user, limit_w, error);
    harpe_status status = harpe_ranks_share_first_set(optimizer, set, limit_w, error);
    if (status != HARPE_OK) return status;
    optimizer->current_w = limit_w;
    optimizer->optimum_w = is_loaded ? limit_w : 0;
    optimizer->phase = is_loaded ? HARPE_POWER_LIMIT_DONE : HARPE_POWER_LIMIT_READY;
    optimizer->steps_left = optimizer->options.wait_steps + 1;
    return HARPE_OK;
}

static void free_memory(harpe_power_limit_optimizer *optimizer) {
    free(optimizer->profile_path);
    free(optimizer->device_model);
    free(optimizer->limits_w);
    free(optimizer->measurements);
    free(optimizer->plans);
    harpe_power_member_forget_terms(optimizer->terms);
    free(optimizer);
}

harpe_status harpe_optimizer_new_with(const harpe_power_limit_device *device,
                                      const harpe_power_limit_options *options,
                                      const harpe_power_member_times *times,
                                      harpe_power_limit_optimizer **out, harpe_error *error) {
    if (!device || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "power limit: no device was given");
    harpe_power_limit_optimizer *optimizer = harpe_calloc(1, sizeof *optimizer);
    if (!optimizer) return harpe_fail_memory(error);
    optimizer->device = device;
    optimizer->options = options ? *options
                                 : (harpe_power_limit_options){
                                       .wait_steps = -1, .warmup_steps = -1, .profile_steps = -1};
    harpe_status status = harpe_ranks_meet_at_start(optimizer, prepare(optimizer, error), error);
    if (status == HARPE_OK) status = choose_selector(optimizer, error);
    if (status == HARPE_OK) {
        status = start(optimizer, error);
        if (status != HARPE_OK) (void)harpe_optimizer_leave(optimizer, NULL);
    }
    if (status != HARPE_OK) {
        free_memory(optimizer);
        return status;
    }
    harpe_follow_join(optimizer, times);
    harpe_follow_begin(optimizer);
    *out = optimizer;
    return HARPE_OK;
}

harpe_status harpe_power_limit_optimizer_new(const harpe_power_limit_device *device,
                                             const harpe_power_limit_options *options,
                                             harpe_power_limit_optimizer **out,
                                             harpe_error *error) {
    return harpe_optimizer_new_with(device, options, &harpe_power_member_usual_times, out, error);
}

void harpe_power_limit_optimizer_free(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer) return;
    harpe_error error;
    if (!harpe_optimizer_has_left(optimizer) &&
        harpe_optimizer_leave(optimizer, &error) != HARPE_OK) {
        harpe_log_line(
            &optimizer->options.log, HARPE_LOG_ERROR,
            "power limits could not be restored yet: %s; the guard, if there is one, tries again",
            error.message);
    }
    harpe_power_member_leave(optimizer->member);
    free_memory(optimizer);
}
