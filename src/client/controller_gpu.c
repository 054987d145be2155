/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of a controller process: claims it, sets its highest clocks at the start through the
 * driver or zeusd, and restores it at the end. controller_process.c sets the requested frequencies.
 */
#include "client/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings.h"
#include "gpu/settings.h"
#include "gpu/visible.h"

#define TRY_FOR_S 30.0

/* ---- Opening --------------------------------------------------------------------------------- */

/* The GPU is found by UUID, because the indices differ: the trainer sees the GPUs that its
 * environment variables select. */
harpe_status harpe_controller_gpu_open(const harpe_controller_header *header,
                                       harpe_controller_gpu *out, harpe_error *error) {
    bool is_name = harpe_visible_is_uuid(header->uuid, strlen(header->uuid));
    harpe_gpus_options options = {.library_path =
                                      *header->library_path ? header->library_path : NULL,
                                  .visible_devices = is_name ? header->uuid : "all"};
    harpe_controller_gpu gpu = {.terms = header->terms,
                                .keeps_power_limit = header->keeps_power_limit != 0};
    harpe_status status = harpe_gpus_open(&options, &gpu.gpus, error);
    if (status != HARPE_OK) return status;
    gpu.index = harpe_gpus_find_uuid(gpu.gpus, header->uuid);
    if (gpu.index < 0) {
        status = harpe_fail(error, HARPE_NOT_FOUND, "there is no GPU %s", header->uuid);
    } else if (harpe_zeusd_is_given(&header->zeusd.place)) {
        status = harpe_zeusd_open(&header->zeusd, harpe_gpu_info_at(gpu.gpus, gpu.index),
                                  &gpu.zeusd, error);
    }
    if (status != HARPE_OK) {
        harpe_controller_gpu_close(&gpu);
        return status;
    }
    *out = gpu;
    return HARPE_OK;
}

void harpe_controller_gpu_close(harpe_controller_gpu *gpu) {
    harpe_zeusd_close(gpu->zeusd);
    harpe_gpus_close(gpu->gpus);
    *gpu = (harpe_controller_gpu){0};
}

/* ---- Driver or zeusd ------------------------------------------------------------------------- */

/* Returns the command that resets a clock. zeusd resets all clocks of an AMD GPU at once. */
static const char *reset_command(const harpe_controller_gpu *gpu, harpe_setting clock) {
    if (strcmp(harpe_gpus_backend_name(gpu->gpus), "amdsmi") == 0) return "reset_locked_clocks";
    return clock == HARPE_SET_MEMORY_CLOCKS ? "reset_mem_locked_clocks" : "reset_gpu_locked_clocks";
}

/* Changes a setting through zeusd: a harpe_setter. */
static harpe_status set_by_zeusd(void *user, harpe_setting setting, harpe_setting_value value,
                                 harpe_error *error) {
    const harpe_controller_gpu *gpu = user;
    harpe_setting_value now;
    switch (setting) {
    case HARPE_SET_POWER_LIMIT:
        if (harpe_gpu_read_setting(gpu->gpus, gpu->index, setting, &now, NULL) == HARPE_OK &&
            now.low == value.low)
            return HARPE_OK;
        return harpe_zeusd_call(gpu->zeusd, error, "set_power_limit", "&power_limit_mw=%u",
                                value.low);
    case HARPE_SET_PERSISTENCE:
        return harpe_zeusd_call(gpu->zeusd, error, "set_persistence_mode", "&enabled=%s",
                                value.low ? "true" : "false");
    default:
        if (value.high == 0)
            return harpe_zeusd_call(gpu->zeusd, error, reset_command(gpu, setting), "%s", "");
        return harpe_zeusd_call(gpu->zeusd, error,
                                setting == HARPE_SET_MEMORY_CLOCKS ? "set_mem_locked_clocks"
                                                                   : "set_gpu_locked_clocks",
                                "&min_clock_mhz=%u&max_clock_mhz=%u", value.low, value.high);
    }
}

harpe_status harpe_controller_gpu_lock_graphics(harpe_controller_gpu *gpu, uint32_t mhz,
                                                harpe_error *error) {
    harpe_setting_value value = {mhz, mhz};
    if (gpu->zeusd) return set_by_zeusd(gpu, HARPE_SET_GRAPHICS_CLOCKS, value, error);
    return harpe_gpu_set(gpu->gpus, gpu->index, HARPE_SET_GRAPHICS_CLOCKS, value, error);
}

/* ---- Start ----------------------------------------------------------------------------------- */

static bool has_power_guard(const harpe_controller_gpu *gpu) {
    harpe_saved_settings saved;
    return harpe_saved_settings_find(gpu->gpus, gpu->index, HARPE_SAVED_POWER, &saved, NULL);
}

/* Returns the power limit to restore at the end; 0: the controller leaves the power limit alone. It
 * does so if the trainer wants it, for a lease of clocks, which does not include the power limit,
 * and if a power limit guard has the GPU. Otherwise the guard and the controller would both restore
 * a power limit, and the controller would restore the limit that the guard's job has set. The
 * second look finds a guard that has started while the limit was read. */
static uint32_t limit_to_restore(const harpe_controller_gpu *gpu) {
    uint32_t limit_mw = 0;
    if (gpu->keeps_power_limit || gpu->terms.is_lease || has_power_guard(gpu) ||
        harpe_gpu_power_limit(gpu->gpus, gpu->index, &limit_mw, NULL) != HARPE_OK)
        return 0;
    return has_power_guard(gpu) ? 0 : limit_mw;
}

/* Changes one setting. Only the graphics clock must succeed; the driver may refuse the others, and
 * may set another power limit. */
static harpe_status take_step(harpe_holding *holding, harpe_setting setting,
                              harpe_setting_value value, harpe_error *error) {
    harpe_error told;
    if (harpe_helper_process_wait(0))
        return harpe_fail(error, HARPE_INTERRUPTED, "the training process has ended");
    harpe_status status = harpe_holding_set(holding, setting, value, &told);
    if (harpe_gpu_refused(status) && setting != HARPE_SET_GRAPHICS_CLOCKS) return HARPE_OK;
    if (status == HARPE_DRIVER_ERROR && setting == HARPE_SET_POWER_LIMIT) return HARPE_OK;
    if (status != HARPE_OK && error) *error = told;
    return status;
}

/* Returns the highest clock that the terms allow, or the lowest clock if they allow none. `clocks`
 * are highest first. */
static uint32_t highest_allowed(const harpe_lease_terms *terms, const uint32_t *clocks,
                                size_t count) {
    size_t i = 0;
    while (terms->highest_mhz > 0 && i + 1 < count && clocks[i] > terms->highest_mhz)
        i++;
    return clocks[i];
}

/* Sets the highest memory clock, the highest graphics clock and, if it is to be restored, the
 * default power limit. */
static harpe_status set_highest(harpe_controller_gpu *gpu, harpe_holding *holding,
                                uint32_t *highest_mhz, harpe_error *error) {
    harpe_setting_value limit = {0}, memory = {0}, graphics = {0};
    uint32_t *clocks = NULL;
    size_t count = 0;
    harpe_status status =
        harpe_gpus_full_speed_clocks(gpu->gpus, gpu->index, &memory.low, &clocks, &count, error);
    if (status != HARPE_OK) return status;
    memory.high = memory.low;
    graphics.low = graphics.high = highest_allowed(&gpu->terms, clocks, count);
    free(clocks);
    if (holding->record.state.power_limit_mw > 0 &&
        harpe_gpu_default_power_limit(gpu->gpus, gpu->index, &limit.low, NULL) == HARPE_OK)
        status = take_step(holding, HARPE_SET_POWER_LIMIT, limit, error);
    if (status == HARPE_OK) status = take_step(holding, HARPE_SET_MEMORY_CLOCKS, memory, error);
    if (status == HARPE_OK) status = take_step(holding, HARPE_SET_GRAPHICS_CLOCKS, graphics, error);
    *highest_mhz = graphics.high;
    return status;
}

/* The controller takes its GPU (gpu/saved_settings.h). If a trainer is killed and restarted, its
 * old controller may still be restoring the GPU. Without the holding, the new controller would save
 * a power limit that is not restored yet, and the old controller would then reset the clocks that
 * the new one has set. */

#define TIMEOUT_S 10.0
/* In a world, more are those of a large simulated job, in which each controller looks after its own
 * GPU. */
enum { MOST_RECORDS = 128 };

static bool trainer_is_gone(void *user) {
    (void)user;
    return harpe_helper_process_wait(0);
}

harpe_status harpe_controller_gpu_take(harpe_controller_gpu *gpu,
                                       const harpe_controller_header *header,
                                       harpe_controller_slot *slot, harpe_holding **out,
                                       uint32_t *highest_mhz, harpe_error *error) {
    harpe_saved_settings_recovery recovery = {
        .through_zeusd = harpe_controller_restore_through_zeusd,
        .report = harpe_saved_settings_report_to_syslog,
        .most_records = harpe_process_world_directory() ? MOST_RECORDS : 0};
    harpe_holding_options options = {.kind = HARPE_SAVED_CLOCKS,
                                     .trainer = (pid_t)header->trainer,
                                     .timeout_s = TIMEOUT_S,
                                     .gives_up = trainer_is_gone,
                                     .set = gpu->zeusd ? set_by_zeusd : NULL,
                                     .user = gpu};
    /* A failure on another GPU does not concern this job; the holding reports a failure on its own
     * GPU. */
    (void)harpe_saved_settings_recover(gpu->gpus, &recovery, NULL);
    harpe_status status = harpe_holding_take(gpu->gpus, gpu->index, &options, out, error);
    if (status != HARPE_OK) return status;
    harpe_saved_settings *state = &(*out)->record.state;
    if (!(*out)->is_continued && !gpu->terms.is_lease)
        state->power_limit_mw = atomic_load(&slot->saved_power_limit_mw);
    if (!(*out)->is_continued && state->power_limit_mw == 0)
        state->power_limit_mw = limit_to_restore(gpu);
    if (!gpu->terms.is_lease) atomic_store(&slot->saved_power_limit_mw, state->power_limit_mw);
    state->resets_clocks = true;
    state->locks = header->terms.locks;
    if (gpu->zeusd) state->zeusd = header->zeusd.place;
    status = harpe_holding_save(*out, error);
    return status == HARPE_OK ? set_highest(gpu, *out, highest_mhz, error) : status;
}

/* ---- End ------------------------------------------------------------------------------------- */

harpe_status harpe_controller_gpu_restore(harpe_controller_gpu *gpu, const harpe_holding *holding,
                                          unsigned which, harpe_error *error) {
    harpe_saved_settings state = holding->record.state;
    harpe_restoration how = {.gpus = gpu->gpus,
                             .gpu = gpu->index,
                             .state = &state,
                             .which = which & holding->changed,
                             .try_for_s = TRY_FOR_S,
                             .set = gpu->zeusd ? set_by_zeusd : NULL,
                             .user = gpu};
    return harpe_restore(&how, error);
}

harpe_status harpe_controller_restore_through_zeusd(harpe_restoration *how, harpe_error *error) {
    harpe_controller_gpu own = {.gpus = how->gpus, .index = how->gpu};
    harpe_zeusd_address address = {.place = how->state->zeusd};
    harpe_status status = harpe_zeusd_take_token(&address, error);
    if (status == HARPE_OK)
        status =
            harpe_zeusd_open(&address, harpe_gpu_info_at(own.gpus, own.index), &own.zeusd, error);
    if (status != HARPE_OK) return status;
    if (own.zeusd) how->set = set_by_zeusd; /* NULL in the program of the node agent */
    how->user = &own;
    status = harpe_restore(how, error);
    harpe_zeusd_close(own.zeusd);
    return status;
}
