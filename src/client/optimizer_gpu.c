/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer and its GPU: which clocks there are, and a frequency controller that is kept alive.
 * Sets no clock itself. Without a GPU, or without permission, training and measuring go on. */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/controller.h"
#include "client/optimizer_parts.h"
#include "gpu/gpus.h"

#define FIRST_PAUSE_S 1.0
#define LONGEST_PAUSE_S 30.0

/* ---- Clocks ---------------------------------------------------------------------------------- */

static harpe_status list_clocks(harpe_pipeline *optimizer, harpe_error *error) {
    uint32_t memory_mhz;
    uint32_t *graphics = NULL;
    size_t count = 0;
    harpe_status status = harpe_gpus_full_speed_clocks(
        optimizer->gpus, optimizer->options.device_id, &memory_mhz, &graphics, &count, error);
    if (status) return status;
    int *clocks = harpe_calloc(count, sizeof *clocks);
    for (size_t i = 0; clocks && i < count; i++) {
        clocks[i] = (int)graphics[i];
    }
    free(graphics);
    if (!clocks) return harpe_fail_memory(error);
    optimizer->clocks_mhz = clocks;
    optimizer->clock_count = count;
    return HARPE_OK;
}

harpe_status harpe_pipeline_find_gpu(harpe_pipeline *optimizer, harpe_error *error) {
    const harpe_pipeline_frequency_options *options = &optimizer->options;
    optimizer->gpus = options->gpus;
    if (!optimizer->gpus) {
        harpe_gpus_options how = {.log = options->log};
        harpe_status status = harpe_gpus_open(&how, &optimizer->gpus, error);
        if (status) return status;
        optimizer->owns_gpus = true;
    }
    int count = harpe_gpus_count(optimizer->gpus);
    if (options->device_id < count) return list_clocks(optimizer, error);
    if (optimizer->owns_gpus) harpe_gpus_close(optimizer->gpus);
    optimizer->owns_gpus = false;
    optimizer->gpus = NULL;
    return harpe_fail(error, HARPE_NOT_FOUND,
                      "there is no GPU %d: device_id counts the %d visible GPUs from 0",
                      options->device_id, count);
}

/* ---- Controller ------------------------------------------------------------------------------ */

harpe_status harpe_pipeline_start_controller(harpe_pipeline *optimizer, harpe_error *error) {
    harpe_frequency_controller_options how = optimizer->options.controller;
    how.gpus = optimizer->gpus;
    how.gpu = optimizer->options.device_id;
    how.log = optimizer->options.log;
    harpe_frequency_controller *controller = NULL;
    harpe_status status =
        harpe_frequency_controller_start_unless(&how, &optimizer->is_stopping, &controller, error);
    if (status) return status;
    atomic_store_explicit(&optimizer->controller, controller, memory_order_release);
    return HARPE_OK;
}

static void plan_next_try(harpe_controller_care *care) {
    care->pause_s = care->pause_s == 0 ? FIRST_PAUSE_S : care->pause_s * 2;
    if (care->pause_s > LONGEST_PAUSE_S) care->pause_s = LONGEST_PAUSE_S;
    care->next_try_ns = harpe_clock_ns() + (int64_t)(care->pause_s * 1e9);
}

/* One line when it goes wrong, or wrong in another way; one when it is well again. */
static void tell(harpe_pipeline *optimizer, harpe_status status, const char *reason) {
    harpe_controller_care *care = &optimizer->care;
    if (status == care->told) return;
    care->told = status;
    if (status) {
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                           "clocks are not controlled, training goes on: %s", reason);
    } else {
        harpe_pipeline_say(optimizer, HARPE_LOG_INFO, "clocks are controlled again");
    }
}

/* A refused set is reported once; that all is well again shows in the next one. */
static void tend_living(harpe_pipeline *optimizer, const harpe_frequency_controller *controller,
                        harpe_status status, const char *reason) {
    harpe_controller_care *care = &optimizer->care;
    if (harpe_clock_ns() > care->next_try_ns) care->pause_s = 0;
    if (status == HARPE_OK && care->told == HARPE_OK) return;
    uint64_t written = harpe_frequency_controller_count(controller).written;
    if (status) {
        care->written_before = written;
        tell(optimizer, status, reason);
    } else if (written != care->written_before) {
        tell(optimizer, HARPE_OK, NULL);
    }
}

/* zeusd's absence has the status of a death, and nothing to restart. */
void harpe_pipeline_tend_controller(harpe_pipeline *optimizer) {
    harpe_controller_care *care = &optimizer->care;
    if (!care->is_wanted) return;
    harpe_frequency_controller *controller =
        atomic_load_explicit(&optimizer->controller, memory_order_relaxed);
    harpe_error error;
    if (controller) {
        bool has_died = harpe_frequency_controller_has_died(controller);
        harpe_status status = harpe_frequency_controller_check(controller, &error);
        if (!has_died) {
            tend_living(optimizer, controller, status, error.message);
            return;
        }
        if (status) tell(optimizer, status, error.message);
    }
    if (harpe_clock_ns() < care->next_try_ns) return;
    harpe_status status = controller ? harpe_frequency_controller_restart(controller, &error)
                                     : harpe_pipeline_start_controller(optimizer, &error);
    plan_next_try(care);
    if (status == HARPE_INTERRUPTED) return; /* the optimizer is to end */
    /* After a death, why there is no other one yet is no news. */
    if (status == HARPE_OK || !controller) tell(optimizer, status, error.message);
}
