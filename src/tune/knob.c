/* SPDX-License-Identifier: Apache-2.0 */
/* The table of knobs. The clock goes through a frequency controller for each GPU, and the power
 * limit through the device of the power limit optimizer: with an agent, through its leases. */
#include "tune/tune_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include <harpe/frequency_controller.h>
#include <harpe/power_limit.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "client/control.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings.h"

#define LOWEST_SHARE 0.33 /* of the highest clock; a lower one saves nothing */

enum {
    LIMIT_STEP_W = 5,
    TRIES = 3, /* looks at a GPU that must all find another clock */
    /* Reasons for a lower clock that are not disobedience (harpe_gpu_throttle_reasons): idle, power
     * limit, slowdown of the hardware, heat, power brake. */
    REASONS = 0x1 | 0x4 | 0x8 | 0x20 | 0x40 | 0x80,
};

typedef struct knob {
    harpe_gpus *gpus;
    int *values; /* NULL: it is not wanted */
    size_t value_count;
    int wanted; /* 0: nothing was set yet */
    harpe_frequency_controller **controllers;
    harpe_frequency_controller_obedience *at_begin; /* of each controller */
    harpe_power_limit_gpus *limits;
    uint32_t *found_mw; /* the limit of each GPU before; 0: not known */
} knob;

struct harpe_knobs {
    knob each[HARPE_TUNE_KNOBS];
    harpe_log log;
};

typedef struct knob_row {
    const char *name;
    harpe_status (*open)(knob *self, const atomic_bool *gives_up, harpe_log log,
                         harpe_error *error);
    harpe_status (*set)(knob *self, int value, harpe_error *error);
    harpe_status (*check)(knob *self, bool *is_in_force, harpe_error *error);
    harpe_status (*was_held)(knob *self, harpe_error *error);
} knob_row;

static harpe_status add_value(knob *self, int value, harpe_error *error) {
    int *values = harpe_realloc(self->values, self->value_count + 1, sizeof *values);
    if (!values) return harpe_fail_memory(error);
    self->values = values;
    values[self->value_count++] = value;
    return HARPE_OK;
}

/* ---- Clock ----------------------------------------------------------------------------------- */

/* Lists the clocks of the first GPU that a lease allows, down to a third of the highest. All GPUs
 * are of one model. */
static harpe_status list_clocks(knob *self, harpe_error *error) {
    uint32_t memory_mhz = 0;
    uint32_t *clocks = NULL;
    size_t count = 0;
    const harpe_lease_terms *terms = &self->controllers[0]->terms;
    harpe_status status =
        harpe_gpus_full_speed_clocks(self->gpus, 0, &memory_mhz, &clocks, &count, error);
    for (size_t i = 0; status == HARPE_OK && i < count; i++) {
        uint32_t mhz = clocks[i];
        bool is_allowed =
            (terms->highest_mhz == 0 || mhz <= terms->highest_mhz) && mhz >= terms->lowest_mhz;
        if (is_allowed && mhz >= LOWEST_SHARE * clocks[0])
            status = add_value(self, (int)mhz, error);
    }
    free(clocks);
    return status;
}

/* A start that waited for a GPU of another process was interrupted: says which one. */
static harpe_status tell_holder(const harpe_gpus *gpus, int gpu, harpe_error *error) {
    harpe_saved_settings saved;
    bool is_in_use = false;
    if (!harpe_saved_settings_find(gpus, gpu, HARPE_SAVED_CLOCKS, &saved, &is_in_use) ||
        !is_in_use || saved.trainer == harpe_process_self())
        return HARPE_INTERRUPTED;
    return harpe_fail(error, HARPE_ALREADY_EXISTS, "GPU %d is held by another process (%d)",
                      harpe_gpu_info_at(gpus, gpu)->driver_index, (int)saved.trainer);
}

static harpe_status open_clock(knob *self, const atomic_bool *gives_up, harpe_log log,
                               harpe_error *error) {
    int count = harpe_gpus_count(self->gpus);
    self->controllers = harpe_calloc((size_t)count, sizeof *self->controllers);
    self->at_begin = harpe_calloc((size_t)count, sizeof *self->at_begin);
    if (!self->controllers || !self->at_begin) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (int gpu = 0; status == HARPE_OK && gpu < count; gpu++) {
        harpe_frequency_controller_options options = {.gpus = self->gpus,
                                                      .gpu = gpu,
                                                      .keeps_power_limit = true,
                                                      .poll_interval_s = -1,
                                                      .log = log};
        status = harpe_frequency_controller_start_unless(&options, gives_up,
                                                         &self->controllers[gpu], error);
        if (status == HARPE_INTERRUPTED) status = tell_holder(self->gpus, gpu, error);
    }
    return status == HARPE_OK ? list_clocks(self, error) : status;
}

static harpe_status set_clock(knob *self, int value, harpe_error *error) {
    (void)error;
    for (int gpu = 0; gpu < harpe_gpus_count(self->gpus); gpu++)
        harpe_frequency_controller_set(self->controllers[gpu], value);
    return HARPE_OK;
}

/* A GPU without work may have any lower clock. */
static harpe_status check_clock(knob *self, bool *is_in_force, harpe_error *error) {
    *is_in_force = true;
    for (int gpu = 0; gpu < harpe_gpus_count(self->gpus); gpu++) {
        uint32_t mhz = 0;
        uint64_t reasons = 0;
        harpe_status status = harpe_frequency_controller_check(self->controllers[gpu], error);
        if (status == HARPE_OK)
            status = harpe_gpu_current_clocks(self->gpus, gpu, &mhz, NULL, error);
        if (status != HARPE_OK) return status;
        (void)harpe_gpu_throttle_reasons(self->gpus, gpu, &reasons, NULL);
        uint32_t wanted = (uint32_t)self->wanted;
        uint32_t lowest = reasons & REASONS ? 0 : wanted;
        if (!harpe_obedience_holds(mhz, lowest, wanted)) *is_in_force = false;
    }
    return HARPE_OK;
}

static harpe_status clock_was_held(knob *self, harpe_error *error) {
    for (int gpu = 0; gpu < harpe_gpus_count(self->gpus); gpu++) {
        harpe_frequency_controller_obedience now =
            harpe_frequency_controller_obeys(self->controllers[gpu]);
        uint64_t looks = now.looks - self->at_begin[gpu].looks;
        uint64_t wrong = now.disobeyed - self->at_begin[gpu].disobeyed;
        bool is_slowed = now.held_mhz < now.wanted_mhz && (now.reasons & REASONS);
        if (wrong < TRIES || 2 * wrong < looks || !now.disobeys || is_slowed) continue;
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d (%s): its clock was set to %d MHz and is %d MHz: it ignores the "
                          "lock, or another program sets clocks",
                          gpu, harpe_gpu_info_at(self->gpus, gpu)->name, now.wanted_mhz,
                          now.held_mhz);
    }
    return HARPE_OK;
}

/* ---- Power limit ----------------------------------------------------------------------------- */

static harpe_status open_limit(knob *self, const atomic_bool *gives_up, harpe_log log,
                               harpe_error *error) {
    (void)gives_up;
    (void)log;
    harpe_status status = harpe_power_limit_gpus_new(self->gpus, true, &self->limits, error);
    if (status != HARPE_OK) return status;
    const harpe_power_limit_device *device = harpe_power_limit_gpus_device(self->limits);
    /* A limit that an administrator has made lower is not raised. */
    int highest_w = device->maximum_w;
    self->found_mw = harpe_calloc((size_t)device->gpu_count, sizeof *self->found_mw);
    if (!self->found_mw) return harpe_fail_memory(error);
    for (int gpu = 0; gpu < device->gpu_count; gpu++) {
        if (harpe_gpu_power_limit(self->gpus, gpu, &self->found_mw[gpu], NULL) != HARPE_OK)
            continue;
        int found_w = (int)(self->found_mw[gpu] / 1000);
        if (found_w < highest_w && found_w >= device->minimum_w) highest_w = found_w;
    }
    for (int limit_w = highest_w; status == HARPE_OK && limit_w >= device->minimum_w;
         limit_w = (limit_w - 1) / LIMIT_STEP_W * LIMIT_STEP_W)
        status = add_value(self, limit_w, error);
    return status;
}

static harpe_status set_limit(knob *self, int value, harpe_error *error) {
    const harpe_power_limit_device *device = harpe_power_limit_gpus_device(self->limits);
    return device->set_limit(device->user, value, error);
}

/* Fails if another program has raised the limit. A lower limit of the board is in force, too. */
static harpe_status check_limit(knob *self, bool *is_in_force, harpe_error *error) {
    const harpe_power_limit_device *device = harpe_power_limit_gpus_device(self->limits);
    int limit_w = 0;
    int gpu = 0;
    harpe_status status = device->limit_in_force(device->user, &limit_w, &gpu, error);
    if (status == HARPE_OK) *is_in_force = limit_w <= self->wanted;
    return status;
}

static harpe_status limit_was_held(knob *self, harpe_error *error) {
    bool is_in_force = false;
    return check_limit(self, &is_in_force, error);
}

/* ---- The table ------------------------------------------------------------------------------- */

static const knob_row rows[HARPE_TUNE_KNOBS] = {
    [HARPE_TUNE_CLOCK] = {"clock", open_clock, set_clock, check_clock, clock_was_held},
    [HARPE_TUNE_LIMIT] = {"power limit", open_limit, set_limit, check_limit, limit_was_held},
};

/* The limit is opened first: a controller then leaves it alone. */
harpe_status harpe_knobs_open(harpe_gpus *gpus, const bool wanted[HARPE_TUNE_KNOBS],
                              const atomic_bool *gives_up, harpe_log log, harpe_knobs **out,
                              harpe_error *error) {
    harpe_knobs *knobs = harpe_calloc(1, sizeof *knobs);
    if (!knobs) return harpe_fail_memory(error);
    *out = knobs;
    knobs->log = log;
    harpe_status status = harpe_gpus_check_same_model(gpus, error);
    for (int i = HARPE_TUNE_KNOBS - 1; status == HARPE_OK && i >= 0; i--) {
        knob *one = &knobs->each[i];
        one->gpus = gpus;
        if (!wanted[i]) continue;
        status = rows[i].open(one, gives_up, log, error);
        if (status == HARPE_OK && one->value_count == 0)
            status = harpe_fail(error, HARPE_NOT_SUPPORTED, "the GPUs have no %s that can be set",
                                rows[i].name);
    }
    return status;
}

bool harpe_knobs_are_open(const harpe_knobs *knobs) {
    const knob *clock = &knobs->each[HARPE_TUNE_CLOCK];
    return knobs->each[HARPE_TUNE_LIMIT].limits || (clock->controllers && clock->controllers[0]);
}

static void tell_unrestored(const harpe_knobs *knobs, const knob *one, int gpu, const char *what) {
    harpe_log_line(&knobs->log, HARPE_LOG_WARNING,
                   "GPU %d: its %s could not be restored, or it is not known whether it is: run "
                   "'harpe gpus --restore'",
                   harpe_gpu_info_at(one->gpus, gpu)->driver_index, what);
}

bool harpe_knobs_close(harpe_knobs *knobs) {
    bool are_restored = true;
    if (!knobs) return true;
    knob *clock = &knobs->each[HARPE_TUNE_CLOCK], *limit = &knobs->each[HARPE_TUNE_LIMIT];
    for (int gpu = 0; clock->controllers && gpu < harpe_gpus_count(clock->gpus); gpu++) {
        if (harpe_frequency_controller_restores(clock->controllers[gpu])) continue;
        are_restored = false;
        tell_unrestored(knobs, clock, gpu, "clock");
    }
    harpe_power_limit_gpus_free(limit->limits);
    for (int gpu = 0; limit->found_mw && gpu < harpe_gpus_count(limit->gpus); gpu++) {
        uint32_t now_mw = 0;
        if (limit->found_mw[gpu] == 0 ||
            (harpe_gpu_power_limit(limit->gpus, gpu, &now_mw, NULL) == HARPE_OK &&
             harpe_is_power_limit(now_mw, limit->found_mw[gpu])))
            continue;
        are_restored = false;
        tell_unrestored(knobs, limit, gpu, "power limit");
    }
    free(clock->controllers);
    free(clock->at_begin);
    free(clock->values);
    free(limit->found_mw);
    free(limit->values);
    free(knobs);
    return are_restored;
}

harpe_tune_range harpe_knobs_range(const harpe_knobs *knobs, harpe_tune_knob which) {
    return (harpe_tune_range){knobs->each[which].values, knobs->each[which].value_count};
}

harpe_status harpe_knobs_set(harpe_knobs *knobs, harpe_tune_setting setting, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (int i = 0; status == HARPE_OK && i < HARPE_TUNE_KNOBS; i++) {
        knob *one = &knobs->each[i];
        if (!one->values) continue;
        int wanted = setting.value[i] > 0 ? setting.value[i] : one->values[0];
        if (wanted == one->wanted) continue;
        status = rows[i].set(one, wanted, error);
        if (status == HARPE_OK) one->wanted = wanted;
    }
    return status;
}

harpe_status harpe_knobs_check(harpe_knobs *knobs, bool *is_in_force, harpe_error *error) {
    harpe_status status = HARPE_OK;
    bool are_all = true;
    for (int i = 0; status == HARPE_OK && i < HARPE_TUNE_KNOBS; i++) {
        bool is_one = true;
        if (knobs->each[i].values) status = rows[i].check(&knobs->each[i], &is_one, error);
        are_all = are_all && is_one;
    }
    *is_in_force = are_all;
    return status;
}

void harpe_knobs_begin(harpe_knobs *knobs) {
    knob *clock = &knobs->each[HARPE_TUNE_CLOCK];
    for (int gpu = 0; clock->controllers && gpu < harpe_gpus_count(clock->gpus); gpu++)
        clock->at_begin[gpu] = harpe_frequency_controller_obeys(clock->controllers[gpu]);
}

harpe_status harpe_knobs_were_held(harpe_knobs *knobs, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (int i = 0; status == HARPE_OK && i < HARPE_TUNE_KNOBS; i++)
        if (knobs->each[i].values) status = rows[i].was_held(&knobs->each[i], error);
    return status;
}
