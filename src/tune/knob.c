/* SPDX-License-Identifier: Apache-2.0 */
/* The table of knobs. The clock goes through a frequency controller for each GPU, and the power
 * limit through the device of the power limit optimizer: with an agent, through its leases. */
#include "tune/knob.h"

#include <inttypes.h>
#include <stdlib.h>

#include <harpe/frequency_controller.h>
#include <harpe/power_limit.h>

#include "base/array.h"
#include "base/error.h"
#include "client/controller.h"
#include "client/controller_obedience.h"
#include "gpu/gpus.h"

#define LOWEST_SHARE 0.33 /* of the highest clock; a lower one saves nothing */

enum {
    LIMIT_STEP_W = 5,
    TRIES = 3, /* looks at a GPU that must all find another clock */
    /* Reasons for a lower clock that are not disobedience (harpe_gpu_throttle_reasons): idle, power
     * limit, slowdown of the hardware, heat, power brake. */
    REASONS = 0x1 | 0x4 | 0x8 | 0x20 | 0x40 | 0x80,
};

struct harpe_knob {
    const struct knob_row *row;
    harpe_gpus *gpus;
    int *values;
    size_t value_count;
    int wanted; /* 0: nothing was set yet */
    harpe_frequency_controller **controllers;
    harpe_frequency_controller_obedience *at_begin; /* of each controller */
    harpe_power_limit_gpus *limits;
};

typedef struct knob_row {
    const char *name;
    harpe_status (*open)(harpe_knob *knob, const atomic_bool *gives_up, harpe_log log,
                         harpe_error *error);
    harpe_status (*set)(harpe_knob *knob, int value, harpe_error *error);
    harpe_status (*check)(harpe_knob *knob, bool *is_in_force, harpe_error *error);
    harpe_status (*was_held)(harpe_knob *knob, harpe_error *error);
} knob_row;

static harpe_status add_value(harpe_knob *knob, int value, harpe_error *error) {
    int *values = harpe_realloc(knob->values, knob->value_count + 1, sizeof *values);
    if (!values) return harpe_fail_memory(error);
    knob->values = values;
    values[knob->value_count++] = value;
    return HARPE_OK;
}

/* ---- Clock ----------------------------------------------------------------------------------- */

/* Lists the clocks of the first GPU that a lease allows, down to a third of the highest. All GPUs
 * are of one model. */
static harpe_status list_clocks(harpe_knob *knob, harpe_error *error) {
    uint32_t memory_mhz = 0;
    uint32_t *clocks = NULL;
    size_t count = 0;
    const harpe_lease_terms *terms = &knob->controllers[0]->terms;
    harpe_status status =
        harpe_gpus_full_speed_clocks(knob->gpus, 0, &memory_mhz, &clocks, &count, error);
    for (size_t i = 0; status == HARPE_OK && i < count; i++) {
        uint32_t mhz = clocks[i];
        bool is_allowed =
            (terms->highest_mhz == 0 || mhz <= terms->highest_mhz) && mhz >= terms->lowest_mhz;
        if (is_allowed && mhz >= LOWEST_SHARE * clocks[0])
            status = add_value(knob, (int)mhz, error);
    }
    free(clocks);
    return status;
}

static harpe_status open_clock(harpe_knob *knob, const atomic_bool *gives_up, harpe_log log,
                               harpe_error *error) {
    int count = harpe_gpus_count(knob->gpus);
    knob->controllers = harpe_calloc((size_t)count, sizeof *knob->controllers);
    knob->at_begin = harpe_calloc((size_t)count, sizeof *knob->at_begin);
    if (!knob->controllers || !knob->at_begin) return harpe_fail_memory(error);
    harpe_status status = harpe_gpus_check_same_model(knob->gpus, error);
    for (int gpu = 0; status == HARPE_OK && gpu < count; gpu++) {
        harpe_frequency_controller_options options = {.gpus = knob->gpus,
                                                      .gpu = gpu,
                                                      .keeps_power_limit = true,
                                                      .poll_interval_s = -1,
                                                      .log = log};
        status = harpe_frequency_controller_start_unless(&options, gives_up,
                                                         &knob->controllers[gpu], error);
    }
    return status == HARPE_OK ? list_clocks(knob, error) : status;
}

static harpe_status set_clock(harpe_knob *knob, int value, harpe_error *error) {
    (void)error;
    for (int gpu = 0; gpu < harpe_gpus_count(knob->gpus); gpu++)
        harpe_frequency_controller_set(knob->controllers[gpu], value);
    return HARPE_OK;
}

/* A GPU without work may have any lower clock. */
static harpe_status check_clock(harpe_knob *knob, bool *is_in_force, harpe_error *error) {
    *is_in_force = true;
    for (int gpu = 0; gpu < harpe_gpus_count(knob->gpus); gpu++) {
        uint32_t mhz = 0;
        uint64_t reasons = 0;
        harpe_status status = harpe_frequency_controller_check(knob->controllers[gpu], error);
        if (status == HARPE_OK)
            status = harpe_gpu_current_clocks(knob->gpus, gpu, &mhz, NULL, error);
        if (status != HARPE_OK) return status;
        (void)harpe_gpu_throttle_reasons(knob->gpus, gpu, &reasons, NULL);
        uint32_t wanted = (uint32_t)knob->wanted;
        uint32_t lowest = reasons & REASONS ? 0 : wanted;
        if (!harpe_obedience_holds(mhz, lowest, wanted)) *is_in_force = false;
    }
    return HARPE_OK;
}

static harpe_status clock_was_held(harpe_knob *knob, harpe_error *error) {
    for (int gpu = 0; gpu < harpe_gpus_count(knob->gpus); gpu++) {
        harpe_frequency_controller_obedience now =
            harpe_frequency_controller_obeys(knob->controllers[gpu]);
        uint64_t looks = now.looks - knob->at_begin[gpu].looks;
        uint64_t wrong = now.disobeyed - knob->at_begin[gpu].disobeyed;
        bool is_slowed = now.held_mhz < now.wanted_mhz && (now.reasons & REASONS);
        if (wrong < TRIES || 2 * wrong < looks || !now.disobeys || is_slowed) continue;
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d (%s): its clock was set to %d MHz and is %d MHz: it ignores the "
                          "lock, or another program sets clocks",
                          gpu, harpe_gpu_info_at(knob->gpus, gpu)->name, now.wanted_mhz,
                          now.held_mhz);
    }
    return HARPE_OK;
}

/* ---- Power limit ----------------------------------------------------------------------------- */

static harpe_status open_limit(harpe_knob *knob, const atomic_bool *gives_up, harpe_log log,
                               harpe_error *error) {
    (void)gives_up;
    (void)log;
    harpe_status status = harpe_power_limit_gpus_new(knob->gpus, true, &knob->limits, error);
    if (status != HARPE_OK) return status;
    const harpe_power_limit_device *device = harpe_power_limit_gpus_device(knob->limits);
    /* A limit that an administrator has made lower is not raised. */
    int highest_w = device->maximum_w;
    for (int gpu = 0; gpu < device->gpu_count; gpu++) {
        uint32_t found_mw = 0;
        if (harpe_gpu_power_limit(knob->gpus, gpu, &found_mw, NULL) == HARPE_OK &&
            (int)(found_mw / 1000) < highest_w && (int)(found_mw / 1000) >= device->minimum_w)
            highest_w = (int)(found_mw / 1000);
    }
    for (int limit_w = highest_w; status == HARPE_OK && limit_w >= device->minimum_w;
         limit_w = (limit_w - 1) / LIMIT_STEP_W * LIMIT_STEP_W)
        status = add_value(knob, limit_w, error);
    return status;
}

static harpe_status set_limit(harpe_knob *knob, int value, harpe_error *error) {
    const harpe_power_limit_device *device = harpe_power_limit_gpus_device(knob->limits);
    return device->set_limit(device->user, value, error);
}

/* Fails if another program has raised the limit. A lower limit of the board is in force, too. */
static harpe_status check_limit(harpe_knob *knob, bool *is_in_force, harpe_error *error) {
    const harpe_power_limit_device *device = harpe_power_limit_gpus_device(knob->limits);
    int limit_w = 0;
    int gpu = 0;
    harpe_status status = device->limit_in_force(device->user, &limit_w, &gpu, error);
    if (status == HARPE_OK) *is_in_force = limit_w <= knob->wanted;
    return status;
}

static harpe_status limit_was_held(harpe_knob *knob, harpe_error *error) {
    bool is_in_force = false;
    return check_limit(knob, &is_in_force, error);
}

/* ---- The table ------------------------------------------------------------------------------- */

static const knob_row rows[HARPE_TUNE_KNOBS] = {
    [HARPE_TUNE_CLOCK] = {"clock", open_clock, set_clock, check_clock, clock_was_held},
    [HARPE_TUNE_LIMIT] = {"limit", open_limit, set_limit, check_limit, limit_was_held},
};

const char *harpe_knob_name(harpe_tune_knob which) { return rows[which].name; }

harpe_status harpe_knob_open(harpe_tune_knob which, harpe_gpus *gpus, const atomic_bool *gives_up,
                             harpe_log log, harpe_knob **out, harpe_error *error) {
    harpe_knob *knob = harpe_calloc(1, sizeof *knob);
    if (!knob) return harpe_fail_memory(error);
    knob->row = &rows[which];
    knob->gpus = gpus;
    harpe_status status = knob->row->open(knob, gives_up, log, error);
    if (status == HARPE_OK && knob->value_count == 0)
        status = harpe_fail(error, HARPE_NOT_SUPPORTED, "the GPUs have no %s that can be set",
                            knob->row->name);
    if (status != HARPE_OK) {
        harpe_knob_close(knob);
        return status;
    }
    *out = knob;
    return HARPE_OK;
}

void harpe_knob_close(harpe_knob *knob) {
    if (!knob) return;
    for (int gpu = 0; knob->controllers && gpu < harpe_gpus_count(knob->gpus); gpu++)
        harpe_frequency_controller_stop(knob->controllers[gpu]);
    harpe_power_limit_gpus_free(knob->limits);
    free(knob->controllers);
    free(knob->at_begin);
    free(knob->values);
    free(knob);
}

harpe_tune_range harpe_knob_range(const harpe_knob *knob) {
    return (harpe_tune_range){knob->values, knob->value_count};
}

harpe_status harpe_knob_set(harpe_knob *knob, int value, harpe_error *error) {
    int wanted = value > 0 ? value : knob->values[0];
    if (wanted == knob->wanted) return HARPE_OK;
    harpe_status status = knob->row->set(knob, wanted, error);
    if (status == HARPE_OK) knob->wanted = wanted;
    return status;
}

harpe_status harpe_knob_check(harpe_knob *knob, bool *is_in_force, harpe_error *error) {
    return knob->row->check(knob, is_in_force, error);
}

void harpe_knob_begin(harpe_knob *knob) {
    for (int gpu = 0; knob->controllers && gpu < harpe_gpus_count(knob->gpus); gpu++)
        knob->at_begin[gpu] = harpe_frequency_controller_obeys(knob->controllers[gpu]);
}

harpe_status harpe_knob_was_held(harpe_knob *knob, harpe_error *error) {
    return knob->row->was_held(knob, error);
}
