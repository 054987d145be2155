/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a power limit optimizer: checks the options, lists the limits to try, loads the profile of
 * an earlier run, and sets the first limit. optimizer.c does the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
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

/* Sets a limit on all ranks. `*in_force_w` is the lowest limit that is then in force on a GPU, and
 * `*gpu` is the number of that GPU; -1: it is a GPU of another rank. */
static harpe_status set_first(harpe_power_limit_optimizer *optimizer, int limit_w, int *in_force_w,
                              int *gpu, harpe_error *error) {
    const harpe_power_limit_device *device = optimizer->device;
    int own_w = limit_w;
    harpe_status set = device->set_limit(device->user, limit_w, error);
    if (set == HARPE_OK && device->limit_in_force)
        set = device->limit_in_force(device->user, &own_w, gpu, error);
    *in_force_w = own_w;
    harpe_status status = harpe_ranks_share_first_set(optimizer, set, limit_w, in_force_w, error);
    if (*in_force_w < own_w) *gpu = -1;
    if (status == HARPE_OK) optimizer->current_w = limit_w;
    return status;
}

/* Leaves out limits and loaded measurements above `highest_w`, because something else limits a GPU
 * to `highest_w`. With all these limits the GPU has the same limit, which is tried once. */
static harpe_status leave_out_above(harpe_power_limit_optimizer *optimizer, int highest_w, int gpu,
                                    harpe_error *error) {
    char name[32] = "a GPU of another rank";
    size_t first = 0;
    size_t first_measured = 0;
    if (gpu >= 0) snprintf(name, sizeof name, "GPU %d", gpu);
    if (highest_w < optimizer->device->minimum_w) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "power limit: %s is limited to %d W by its board, its rack or another "
                          "program; the lowest power limit is %d W, so none has an effect",
                          name, highest_w, optimizer->device->minimum_w);
    }
    while (optimizer->limits_w[first] > highest_w)
        first++;
    if (optimizer->limits_w[first] < highest_w) optimizer->limits_w[--first] = highest_w;
    optimizer->limit_count -= first;
    memmove(optimizer->limits_w, optimizer->limits_w + first,
            optimizer->limit_count * sizeof *optimizer->limits_w);
    while (first_measured < optimizer->measurement_count &&
           optimizer->measurements[first_measured].power_limit_w > highest_w)
        first_measured++;
    optimizer->measurement_count -= first_measured;
    memmove(optimizer->measurements, optimizer->measurements + first_measured,
            optimizer->measurement_count * sizeof *optimizer->measurements);
    harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                   "%s is limited to %d W by its board, its rack or another program: power limits "
                   "above it have no effect and are left out",
                   name, highest_w);
    return HARPE_OK;
}

/* Sets the first limit. This call shows whether limits can be set at all, so its failure is
 * returned to the caller. If a fleet will be given the plans of a loaded profile, the highest of
 * them is set first, which shows whether all of them can run. */
static harpe_status start(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    bool is_loaded = optimizer->measurement_count > 0;
    bool tries_highest = !is_loaded || optimizer->is_in_fleet;
    bool is_lowered = false;
    for (bool is_set = false; !is_set;) {
        int limit_w = is_loaded ? optimizer->measurements[0].power_limit_w : optimizer->limits_w[0];
        int in_force_w = 0;
        int gpu = 0;
        harpe_status status = HARPE_OK;
        if (is_loaded && !tries_highest) status = harpe_ranks_choose(optimizer, &limit_w, error);
        if (status == HARPE_OK) status = set_first(optimizer, limit_w, &in_force_w, &gpu, error);
        if (status != HARPE_OK) return status;
        /* A slightly lower limit may be the driver's rounding, and setting it decides this. */
        bool is_in_force =
            in_force_w >= limit_w ||
            ((is_loaded || is_lowered) && harpe_optimizer_is_in_force(in_force_w, limit_w));
        is_lowered = !is_in_force;
        if (!is_in_force) status = leave_out_above(optimizer, in_force_w, gpu, error);
        if (status != HARPE_OK) return status;
        is_set = is_in_force && (!is_loaded || !tries_highest);
        if (is_in_force) tries_highest = false;
        is_loaded = optimizer->measurement_count > 0;
    }
    optimizer->optimum_w = is_loaded ? optimizer->current_w : 0;
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
