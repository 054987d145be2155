/* SPDX-License-Identifier: Apache-2.0 */
/* The power limit optimizer's state machine: tries one limit after another while a job trains, then
 * holds the best. It stands between the training loop's callbacks and a device, and knows neither
 * GPUs nor how one chooses. The rules are a table in docs/power-limit.md. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/power_limit.h>

#include "base/array.h"
#include "base/error.h"
#include "powerlimit/profile_file.h"

enum {
    DEFAULT_WAIT_STEPS = 1,
    DEFAULT_WARMUP_STEPS = 10,
    DEFAULT_PROFILE_STEPS = 40,
    DEFAULT_STEP_W = 25,
    STEPS_MAX = 1000000000,
    POWER_LIMIT_MAX_W = 1000000,
    WINDOW_NAME_SIZE = 64,
};

typedef enum phase {
    PHASE_READY,     /* at the highest limit, about to try one */
    PHASE_WARMUP,    /* at the limit under trial, settling */
    PHASE_PROFILING, /* the same, with a window open */
    PHASE_DONE,      /* holding the optimum */
    PHASE_FAILED,    /* limits are put back; nothing more is done */
} phase;

struct harpe_power_limit_optimizer {
    const harpe_power_limit_device *device;
    harpe_power_limit_options options; /* defaults filled in; texts owned */
    char *profile_path, *device_model;
    harpe_selector_parameters default_parameters; /* of the default selector */

    int *limits_w; /* to try, highest first */
    size_t limit_count;
    harpe_power_limit_measurement *measurements;
    size_t measurement_count;

    phase phase;
    size_t trial;   /* index into limits_w: the limit under trial, or next */
    int steps_left; /* on_step_begin calls until the phase ends */
    int current_w;  /* as last set; 0: not by us */
    int optimum_w;
    bool window_is_open;
    /* Something went wrong on this rank, and the others have not been told yet: steps are still
     * counted, so that the next meeting is kept, but the device is left alone. */
    bool failed_here;
};

/* ---- What went wrong ---------------------------------------------------------------------- */

static void say(const harpe_power_limit_optimizer *optimizer, harpe_log_level level,
                const char *format, ...) HARPE_PRINTF(3, 4);

static void say(const harpe_power_limit_optimizer *optimizer, harpe_log_level level,
                const char *format, ...) {
    const harpe_log *log = &optimizer->options.log;
    if (!log->write) return;
    char line[HARPE_ERROR_MESSAGE_SIZE + 128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log->write(log->user, level, line);
}

static void window_name(const harpe_power_limit_optimizer *optimizer, char name[WINDOW_NAME_SIZE]) {
    snprintf(name, WINDOW_NAME_SIZE, "__GlobalPowerLimitOptimizer_%d",
             optimizer->limits_w[optimizer->trial]);
}

/* Closes what is open and puts back what was found. Never tells a failure but through the log. */
static void leave_device(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    harpe_error error;
    if (optimizer->window_is_open) {
        char name[WINDOW_NAME_SIZE];
        window_name(optimizer, name);
        optimizer->window_is_open = false;
        if (device->end_window(device->user, name, true, NULL, NULL, &error) != HARPE_OK) {
            say(optimizer, HARPE_LOG_DEBUG, "power limit: %s", error.message);
        }
    }
    optimizer->current_w = 0;
    if (device->restore && device->restore(device->user, &error) != HARPE_OK) {
        say(optimizer, HARPE_LOG_ERROR, "power limits could not be put back: %s", error.message);
    }
}

static void log_and_leave(harpe_power_limit_optimizer *optimizer, const char *reason) {
    say(optimizer, HARPE_LOG_ERROR, "power limit optimization stops here, limits are put back: %s",
        reason);
    leave_device(optimizer);
    optimizer->optimum_w = 0;
}

/* The end, on all ranks at once (or in the only process). */
static void give_up(harpe_power_limit_optimizer *optimizer, const char *reason) {
    if (!optimizer->failed_here) {
        log_and_leave(optimizer, reason);
    }
    optimizer->failed_here = false; /* nobody is left to be told */
    optimizer->phase = PHASE_FAILED;
}

/* This process's device has failed. A rank among others goes on counting until it can tell them. */
static void fail_here(harpe_power_limit_optimizer *optimizer, const char *reason) {
    log_and_leave(optimizer, reason);
    if (optimizer->options.all_reduce) {
        optimizer->failed_here = true;
    } else {
        optimizer->phase = PHASE_FAILED;
    }
}

static bool device_is_left(const harpe_power_limit_optimizer *optimizer) {
    return optimizer->failed_here || optimizer->phase == PHASE_FAILED;
}

/* ---- The device, while nothing has gone wrong ----------------------------------------------- */

static void set_limit(harpe_power_limit_optimizer *optimizer, int limit_w) {
    const harpe_power_limit_device *device = optimizer->device;
    if (device_is_left(optimizer) || limit_w == optimizer->current_w) return;
    harpe_error error;
    if (device->set_limit(device->user, limit_w, &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
        return;
    }
    optimizer->current_w = limit_w;
}

static void begin_window(harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_device *device = optimizer->device;
    if (device_is_left(optimizer)) return;
    char name[WINDOW_NAME_SIZE];
    window_name(optimizer, name);
    harpe_error error;
    if (device->begin_window(device->user, name, &error) != HARPE_OK) {
        fail_here(optimizer, error.message);
        return;
    }
    optimizer->window_is_open = true;
}

/* `one` is NULL to cancel. A number that cannot be true is a failure, never a measurement. */
static void end_window(harpe_power_limit_optimizer *optimizer, harpe_power_limit_measurement *one) {
    const harpe_power_limit_device *device = optimizer->device;
    if (device_is_left(optimizer) || !optimizer->window_is_open) return;
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
                 "at %d W the window took %g s and %g J, which cannot be used; raise profile_steps",
                 one->power_limit_w, time_s, energy_j);
        fail_here(optimizer, reason);
        return;
    }
    one->energy_j = energy_j;
    one->time_s = time_s;
}

/* ---- Meetings of all ranks ------------------------------------------------------------------ */

static harpe_status reduce(const harpe_power_limit_options *options, double *values, size_t count,
                           bool maximum, harpe_error *error) {
    if (!options->all_reduce) return HARPE_OK;
    return options->all_reduce(options->all_reduce_user, values, count, maximum, error);
}

/* True when all ranks have the same value. Exact for whole numbers below 2^53. */
static harpe_status all_agree(const harpe_power_limit_options *options, double value, bool *agree,
                              harpe_error *error) {
    double ends[2] = {value, -value};
    harpe_status status = reduce(options, ends, 2, true, error);
    if (status == HARPE_OK) {
        *agree = ends[0] == -ends[1];
    }
    return status;
}

/* Makes this rank's measurement the job's. False: the optimizer has given up. */
static bool meet(harpe_power_limit_optimizer *optimizer, harpe_power_limit_measurement *one) {
    double sums[2] = {optimizer->failed_here ? 0 : one->energy_j, optimizer->failed_here};
    double time_s = optimizer->failed_here ? 0 : one->time_s;
    harpe_error error;
    if (reduce(&optimizer->options, sums, 2, false, &error) != HARPE_OK ||
        reduce(&optimizer->options, &time_s, 1, true, &error) != HARPE_OK) {
        give_up(optimizer, error.message);
        return false;
    }
    if (sums[1] != 0) {
        give_up(optimizer, "it failed on another rank, whose log says why");
        return false;
    }
    if (!(sums[0] > 0) || !(time_s > 0) || !isfinite(sums[0]) || !isfinite(time_s)) {
        give_up(optimizer, "the all-reduce returned a value that cannot be true");
        return false;
    }
    one->energy_j = sums[0];
    one->time_s = time_s;
    return true;
}

/* Whether any rank has failed since the last meeting. */
static void meet_about_failures(harpe_power_limit_optimizer *optimizer) {
    double failures = optimizer->failed_here;
    harpe_error error;
    if (reduce(&optimizer->options, &failures, 1, false, &error) != HARPE_OK) {
        give_up(optimizer, error.message);
    } else if (failures != 0) {
        give_up(optimizer, "it failed on another rank, whose log says why");
    }
}

/* ---- The state machine ---------------------------------------------------------------------- */

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
        say(optimizer, HARPE_LOG_WARNING, "the power limit profile was not saved: %s",
            error.message);
    }
}

/* The selector's answer, or the highest measured limit when it has none. */
static int choose(const harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_selector *selector = &optimizer->options.selector;
    int choice =
        selector->select(selector->user, optimizer->measurements, optimizer->measurement_count);
    if (choice < 0 || (size_t)choice >= optimizer->measurement_count) {
        say(optimizer, HARPE_LOG_WARNING,
            "the selector chose no power limit: the highest, %d W, is held",
            optimizer->measurements[0].power_limit_w);
        choice = 0;
    }
    return optimizer->measurements[choice].power_limit_w;
}

/* One answer for all ranks, also where their selectors differ. */
static harpe_status choose_together(const harpe_power_limit_optimizer *optimizer, int *optimum_w,
                                    harpe_error *error) {
    int choice_w = choose(optimizer);
    bool agree = true;
    harpe_status status = all_agree(&optimizer->options, choice_w, &agree, error);
    if (status != HARPE_OK) return status;
    if (!agree) {
        choice_w = optimizer->measurements[0].power_limit_w;
        say(optimizer, HARPE_LOG_WARNING,
            "the ranks' selectors chose different power limits: the highest, %d W, is held",
            choice_w);
    }
    *optimum_w = choice_w;
    return HARPE_OK;
}

static void finish(harpe_power_limit_optimizer *optimizer) {
    int optimum_w = 0;
    harpe_error error;
    if (choose_together(optimizer, &optimum_w, &error) != HARPE_OK) {
        give_up(optimizer, error.message);
        return;
    }
    optimizer->phase = PHASE_DONE;
    optimizer->optimum_w = optimum_w;
    set_limit(optimizer, optimum_w);
    meet_about_failures(optimizer);
    if (optimizer->phase == PHASE_DONE) {
        save_profile(optimizer);
    }
}

static void begin_profiling(harpe_power_limit_optimizer *optimizer) {
    optimizer->phase = PHASE_PROFILING;
    optimizer->steps_left = optimizer->options.profile_steps;
    begin_window(optimizer);
}

static void begin_warmup(harpe_power_limit_optimizer *optimizer) {
    optimizer->phase = PHASE_WARMUP;
    optimizer->steps_left = optimizer->options.warmup_steps;
    set_limit(optimizer, optimizer->limits_w[optimizer->trial]);
    if (optimizer->steps_left == 0 && optimizer->phase == PHASE_WARMUP) {
        begin_profiling(optimizer);
    }
}

static void end_profiling(harpe_power_limit_optimizer *optimizer) {
    harpe_power_limit_measurement one = {.power_limit_w = optimizer->limits_w[optimizer->trial]};
    end_window(optimizer, &one);
    if (optimizer->phase == PHASE_FAILED || !meet(optimizer, &one)) return;
    optimizer->measurements[optimizer->measurement_count++] = one;
    optimizer->trial++;
    if (optimizer->trial == optimizer->limit_count) {
        finish(optimizer);
    } else {
        begin_warmup(optimizer);
    }
}

void harpe_power_limit_on_step_begin(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer || optimizer->phase == PHASE_DONE || optimizer->phase == PHASE_FAILED) return;
    if (--optimizer->steps_left > 0) return;
    if (optimizer->phase == PHASE_READY) {
        begin_warmup(optimizer);
    } else if (optimizer->phase == PHASE_WARMUP) {
        begin_profiling(optimizer);
    } else {
        end_profiling(optimizer);
    }
}

void harpe_power_limit_on_step_end(harpe_power_limit_optimizer *optimizer) { (void)optimizer; }

void harpe_power_limit_on_epoch_begin(harpe_power_limit_optimizer *optimizer) { (void)optimizer; }

void harpe_power_limit_on_epoch_end(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer) return;
    if (optimizer->phase != PHASE_WARMUP && optimizer->phase != PHASE_PROFILING) return;
    optimizer->phase = PHASE_READY;
    optimizer->steps_left = 1;
    end_window(optimizer, NULL);
    set_limit(optimizer, optimizer->limits_w[0]);
}

/* ---- What the caller may ask ---------------------------------------------------------------- */

bool harpe_power_limit_is_done(const harpe_power_limit_optimizer *optimizer) {
    return optimizer && optimizer->phase == PHASE_DONE;
}

bool harpe_power_limit_has_failed(const harpe_power_limit_optimizer *optimizer) {
    return optimizer && device_is_left(optimizer);
}

int harpe_power_limit_current_w(const harpe_power_limit_optimizer *optimizer) {
    return optimizer ? optimizer->current_w : 0;
}

int harpe_power_limit_optimum_w(const harpe_power_limit_optimizer *optimizer) {
    return optimizer ? optimizer->optimum_w : 0;
}

const harpe_power_limit_measurement *
harpe_power_limit_measurements(const harpe_power_limit_optimizer *optimizer, size_t *count) {
    if (count) {
        *count = optimizer ? optimizer->measurement_count : 0;
    }
    return optimizer ? optimizer->measurements : NULL;
}

/* ---- Construction --------------------------------------------------------------------------- */

static int step_count(int given, int default_count) { return given == -1 ? default_count : given; }

static harpe_status check_device(const harpe_power_limit_device *device, harpe_error *error) {
    if (!device->set_limit || !device->begin_window || !device->end_window) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "power limit: the device lacks set_limit, begin_window or end_window");
    }
    if (device->gpu_count < 1) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "power limit: the device has no GPU");
    }
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
    if (status == HARPE_OK) {
        status = check_steps("warmup_steps", options->warmup_steps, 0, error);
    }
    if (status == HARPE_OK) {
        status = check_steps("profile_steps", options->profile_steps, 1, error);
    }
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

/* From the highest down by step_w; the lowest allowed is always the last. */
static harpe_status list_limits(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    int minimum_w = optimizer->device->minimum_w;
    int maximum_w = optimizer->device->maximum_w;
    int step_w = optimizer->options.step_w;
    size_t below = (size_t)((maximum_w - minimum_w) / step_w);
    size_t count = 1 + below + ((maximum_w - minimum_w) % step_w != 0);
    optimizer->limits_w = harpe_calloc(count, sizeof *optimizer->limits_w);
    optimizer->measurements = harpe_calloc(count, sizeof *optimizer->measurements);
    if (!optimizer->limits_w || !optimizer->measurements) return harpe_fail_memory(error);
    for (size_t i = 0; i <= below; i++) {
        optimizer->limits_w[i] = maximum_w - (int)i * step_w;
    }
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
    if (status == HARPE_NOT_FOUND) return HARPE_OK; /* the first run: it will be written */
    if (status != HARPE_OK) return harpe_fail(error, status, "%s", reason.message);
    status =
        harpe_power_limit_profile_check(&profile, optimizer->profile_path, optimizer->device_model,
                                        device->minimum_w, device->maximum_w, error);
    if (status == HARPE_OK) {
        /* Room for what is tried, too: the ranks may agree not to use the file. */
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
    if (status == HARPE_OK) {
        status = fill_options(&optimizer->options, error);
    }
    if (status == HARPE_OK) {
        status = copy_text(optimizer->options.profile_path, &optimizer->profile_path, error);
    }
    if (status == HARPE_OK) {
        status = copy_text(optimizer->options.device_model, &optimizer->device_model, error);
    }
    if (status == HARPE_OK) {
        status = list_limits(optimizer, error);
    }
    if (status == HARPE_OK) {
        status = load_profile(optimizer, error);
    }
    return status;
}

/* ---- Construction among ranks ---------------------------------------------------------------- */

/* FNV-1a over the bytes of a number, cut to the 53 bits that a double holds exactly. */
static uint64_t hash_number(uint64_t hash, uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
        hash = (hash ^ (number >> shift & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static uint64_t hash_double(uint64_t hash, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return hash_number(hash, bits);
}

#define HASH_START UINT64_C(0xcbf29ce484222325)

static double as_double(uint64_t hash) { return (double)(hash >> 11); }

/* What must be the same on all ranks for their steps to stay together. */
static double settings_hash(const harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_options *options = &optimizer->options;
    int settings[6] = {options->wait_steps,          options->warmup_steps,
                       options->profile_steps,       options->step_w,
                       optimizer->device->minimum_w, optimizer->device->maximum_w};
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        hash = hash_number(hash, (uint64_t)settings[i]);
    }
    return as_double(hash);
}

static double profile_hash(const harpe_power_limit_optimizer *optimizer) {
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < optimizer->measurement_count; i++) {
        const harpe_power_limit_measurement *one = &optimizer->measurements[i];
        hash = hash_number(hash, (uint64_t)one->power_limit_w);
        hash = hash_double(hash, one->energy_j);
        hash = hash_double(hash, one->time_s);
    }
    return as_double(hash);
}

/* Every rank comes here, also one that cannot go on, or the others would wait for it. */
static harpe_status meet_at_start(harpe_power_limit_optimizer *optimizer, harpe_status prepared,
                                  harpe_error *error) {
    const harpe_power_limit_options *options = &optimizer->options;
    double sums[2] = {prepared != HARPE_OK, optimizer->device->gpu_count};
    error = prepared == HARPE_OK ? error : NULL; /* it has its text already */
    bool same_settings = true;
    bool same_profile = true;
    harpe_status status = reduce(options, sums, 2, false, error);
    if (status == HARPE_OK) {
        status = all_agree(options, settings_hash(optimizer), &same_settings, error);
    }
    if (status == HARPE_OK) {
        status = all_agree(options, profile_hash(optimizer), &same_profile, error);
    }
    if (prepared != HARPE_OK || status != HARPE_OK) return prepared ? prepared : status;
    if (sums[0] != 0) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "power limit: another rank could not start, its message says why");
    }
    if (!same_settings) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "power limit: the ranks differ in their step counts or in the range of "
                          "their GPUs' limits; give all the same");
    }
    if (!same_profile) {
        say(optimizer, HARPE_LOG_WARNING,
            "not every rank sees the same power limit profile: measuring again");
        optimizer->measurement_count = 0;
    }
    if (optimizer->options.world_size == 0) {
        optimizer->options.world_size = (int)sums[1];
    }
    return HARPE_OK;
}

static harpe_status choose_selector(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    if (optimizer->options.selector.select) return HARPE_OK;
    optimizer->default_parameters =
        (harpe_selector_parameters){.eta = 0.5, .world_size = optimizer->options.world_size};
    return harpe_selector_zeus_cost(&optimizer->default_parameters, &optimizer->options.selector,
                                    error);
}

/* The first set is the one that tells whether sets are allowed at all: its failure is the caller's.
 */
static harpe_status start(harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    const harpe_power_limit_device *device = optimizer->device;
    bool is_loaded = optimizer->measurement_count > 0;
    int limit_w = optimizer->limits_w[0];
    if (is_loaded) {
        harpe_status chosen = choose_together(optimizer, &limit_w, error);
        if (chosen != HARPE_OK) return chosen;
    }
    harpe_status set = device->set_limit(device->user, limit_w, error);
    double failures = set != HARPE_OK;
    harpe_status status =
        reduce(&optimizer->options, &failures, 1, false, set == HARPE_OK ? error : NULL);
    if (set != HARPE_OK || status != HARPE_OK) return set ? set : status;
    if (failures != 0) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "power limit: another rank could not set %d W, its message says why",
                          limit_w);
    }
    optimizer->current_w = limit_w;
    optimizer->optimum_w = is_loaded ? limit_w : 0;
    optimizer->phase = is_loaded ? PHASE_DONE : PHASE_READY;
    optimizer->steps_left = optimizer->options.wait_steps + 1;
    return HARPE_OK;
}

static void free_memory(harpe_power_limit_optimizer *optimizer) {
    free(optimizer->profile_path);
    free(optimizer->device_model);
    free(optimizer->limits_w);
    free(optimizer->measurements);
    free(optimizer);
}

harpe_status harpe_power_limit_optimizer_new(const harpe_power_limit_device *device,
                                             const harpe_power_limit_options *options,
                                             harpe_power_limit_optimizer **out,
                                             harpe_error *error) {
    if (!device || !out) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "power limit: no device was given");
    }
    harpe_power_limit_optimizer *optimizer = harpe_calloc(1, sizeof *optimizer);
    if (!optimizer) return harpe_fail_memory(error);
    optimizer->device = device;
    optimizer->options = options ? *options
                                 : (harpe_power_limit_options){
                                       .wait_steps = -1, .warmup_steps = -1, .profile_steps = -1};
    harpe_status status = meet_at_start(optimizer, prepare(optimizer, error), error);
    if (status == HARPE_OK) {
        status = choose_selector(optimizer, error);
    }
    if (status == HARPE_OK) {
        status = start(optimizer, error);
        if (status != HARPE_OK) {
            leave_device(optimizer);
        }
    }
    if (status != HARPE_OK) {
        free_memory(optimizer);
        return status;
    }
    *out = optimizer;
    return HARPE_OK;
}

void harpe_power_limit_optimizer_free(harpe_power_limit_optimizer *optimizer) {
    if (!optimizer) return;
    if (!device_is_left(optimizer)) {
        leave_device(optimizer);
    }
    free_memory(optimizer);
}
