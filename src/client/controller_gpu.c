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

#define TRY_AGAIN_NS 20000000
#define TRY_FOR_S 30.0

/* ---- Opening --------------------------------------------------------------------------------- */

/* Finds the GPU by UUID, because the indices differ: the trainer sees the GPUs that its environment
 * variables select. */
static int find(const harpe_gpus *gpus, const char *uuid) {
    for (int gpu = 0; gpu < harpe_gpus_count(gpus); gpu++)
        if (strcmp(harpe_gpu_info_at(gpus, gpu)->uuid, uuid) == 0) return gpu;
    return -1;
}

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
    gpu.index = find(gpu.gpus, header->uuid);
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

static harpe_status set_power_limit(harpe_controller_gpu *gpu, uint32_t limit_mw,
                                    harpe_error *error) {
    if (!gpu->zeusd) return harpe_gpu_set_power_limit(gpu->gpus, gpu->index, limit_mw, error);
    uint32_t current_mw = 0;
    if (harpe_gpu_power_limit(gpu->gpus, gpu->index, &current_mw, NULL) == HARPE_OK &&
        current_mw == limit_mw)
        return HARPE_OK;
    return harpe_zeusd_call(gpu->zeusd, error, "set_power_limit", "&power_limit_mw=%u", limit_mw);
}

static harpe_status lock_memory(harpe_controller_gpu *gpu, uint32_t mhz, harpe_error *error) {
    if (!gpu->zeusd) return harpe_gpu_lock_memory_clocks(gpu->gpus, gpu->index, mhz, mhz, error);
    return harpe_zeusd_call(gpu->zeusd, error, "set_mem_locked_clocks",
                            "&min_clock_mhz=%u&max_clock_mhz=%u", mhz, mhz);
}

harpe_status harpe_controller_gpu_lock_graphics(harpe_controller_gpu *gpu, uint32_t mhz,
                                                harpe_error *error) {
    if (!gpu->zeusd) return harpe_gpu_lock_graphics_clocks(gpu->gpus, gpu->index, mhz, mhz, error);
    return harpe_zeusd_call(gpu->zeusd, error, "set_gpu_locked_clocks",
                            "&min_clock_mhz=%u&max_clock_mhz=%u", mhz, mhz);
}

/* Returns true if resetting one clock resets all of them, as zeusd does for an AMD GPU. */
static bool resets_all_at_once(const harpe_controller_gpu *gpu) {
    return strcmp(harpe_gpus_backend_name(gpu->gpus), "amdsmi") == 0;
}

static harpe_status reset_clocks(harpe_controller_gpu *gpu, bool of_memory, harpe_error *error) {
    if (gpu->zeusd) {
        const char *command = of_memory ? "reset_mem_locked_clocks" : "reset_gpu_locked_clocks";
        if (resets_all_at_once(gpu)) command = "reset_locked_clocks";
        return harpe_zeusd_call(gpu->zeusd, error, command, "%s", "");
    }
    const harpe_default_locks *locks = &gpu->terms.locks;
    return of_memory ? harpe_gpu_restore_memory_clocks(gpu->gpus, gpu->index, locks, error)
                     : harpe_gpu_restore_graphics_clocks(gpu->gpus, gpu->index, locks, error);
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

void harpe_controller_gpu_remember(const harpe_controller_gpu *gpu,
                                   harpe_controller_changes *changes) {
    if (atomic_load(&changes->is_saved)) return;
    changes->saved_power_limit_mw = limit_to_restore(gpu);
    atomic_store(&changes->is_saved, 1);
}

static harpe_status take_one(harpe_controller_gpu *gpu, uint32_t what, uint32_t value,
                             harpe_error *error) {
    switch (what) {
    case HARPE_TOUCHED_POWER_LIMIT: return set_power_limit(gpu, value, error);
    case HARPE_TOUCHED_MEMORY_CLOCKS: return lock_memory(gpu, value, error);
    default: return harpe_controller_gpu_lock_graphics(gpu, value, error);
    }
}

static uint32_t locked_bit(uint32_t what) {
    if (what == HARPE_TOUCHED_MEMORY_CLOCKS) return HARPE_LOCKED_MEMORY_CLOCKS;
    return what == HARPE_TOUCHED_GRAPHICS_CLOCKS ? HARPE_LOCKED_GRAPHICS_CLOCKS : 0;
}

/* Changes one setting. Marks the setting as changed before the call, because a call that fails may
 * still take effect. If the driver refuses the call, removes the mark, unless an earlier process
 * set it. */
static harpe_status take_step(harpe_controller_gpu *gpu, harpe_controller_changes *changes,
                              uint32_t what, uint32_t value, harpe_error *error) {
    if (harpe_helper_process_wait(0))
        return harpe_fail(error, HARPE_INTERRUPTED, "the training process has ended");
    uint32_t before = atomic_fetch_or(&changes->touched, what);
    harpe_error told;
    harpe_status status = take_one(gpu, what, value, &told);
    if (harpe_gpu_refused(status) && !(before & what)) atomic_fetch_and(&changes->touched, ~what);
    if (status == HARPE_OK) atomic_fetch_or(&changes->touched, locked_bit(what));
    /* Only the graphics clock must succeed; the driver may refuse the others. */
    if (harpe_gpu_refused(status) && what != HARPE_TOUCHED_GRAPHICS_CLOCKS) return HARPE_OK;
    /* The driver has set another limit, which may have to be restored. */
    if (status == HARPE_DRIVER_ERROR && what == HARPE_TOUCHED_POWER_LIMIT) return HARPE_OK;
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

harpe_status harpe_controller_gpu_take(harpe_controller_gpu *gpu, harpe_controller_changes *changes,
                                       uint32_t *highest_mhz, harpe_error *error) {
    uint32_t default_mw = 0;
    uint32_t memory_mhz = 0;
    uint32_t graphics_mhz = 0;
    uint32_t *clocks = NULL;
    size_t count = 0;
    harpe_status status =
        harpe_gpus_full_speed_clocks(gpu->gpus, gpu->index, &memory_mhz, &clocks, &count, error);
    if (status != HARPE_OK) return status;
    graphics_mhz = highest_allowed(&gpu->terms, clocks, count);
    free(clocks);
    if (changes->saved_power_limit_mw > 0 &&
        harpe_gpu_default_power_limit(gpu->gpus, gpu->index, &default_mw, NULL) == HARPE_OK)
        status = take_step(gpu, changes, HARPE_TOUCHED_POWER_LIMIT, default_mw, error);
    if (status == HARPE_OK)
        status = take_step(gpu, changes, HARPE_TOUCHED_MEMORY_CLOCKS, memory_mhz, error);
    if (status == HARPE_OK)
        status = take_step(gpu, changes, HARPE_TOUCHED_GRAPHICS_CLOCKS, graphics_mhz, error);
    if (status == HARPE_OK) *highest_mhz = graphics_mhz;
    return status;
}

/* ---- End ------------------------------------------------------------------------------------- */

static harpe_status restore_one(harpe_controller_gpu *gpu, const harpe_controller_changes *changes,
                                uint32_t what, harpe_error *error) {
    switch (what) {
    case HARPE_TOUCHED_POWER_LIMIT:
        return set_power_limit(gpu, changes->saved_power_limit_mw, error);
    default: {
        /* A driver may deny for a moment what it has done before. */
        bool may_lack = !(atomic_load(&changes->touched) & locked_bit(what));
        harpe_status status = reset_clocks(gpu, what == HARPE_TOUCHED_MEMORY_CLOCKS, error);
        return status == HARPE_NOT_SUPPORTED && may_lack ? HARPE_OK : status;
    }
    }
}

/* Resets the clocks and sets the power limit (0: leaves it alone). Tries each call once. Returns
 * the last failure. */
static harpe_status restore_saved(harpe_controller_gpu *gpu, const harpe_saved_settings *state,
                                  harpe_error *error) {
    harpe_error told;
    harpe_status last = HARPE_OK;
    for (int of_memory = 0; of_memory <= 1; of_memory++) {
        harpe_status status = reset_clocks(gpu, of_memory, &told);
        bool may_lack = !(of_memory ? state->locks_memory : state->locks_graphics);
        if (status == HARPE_OK || (status == HARPE_NOT_SUPPORTED && may_lack)) continue;
        if (error) *error = told;
        last = status;
    }
    if (state->power_limit_mw == 0) return last;
    harpe_status status = set_power_limit(gpu, state->power_limit_mw, &told);
    if (status == HARPE_OK) return last;
    if (error) *error = told;
    return status;
}

/* Tries once to restore the settings. Restores clocks first, because a locked clock slows down the
 * next user of the GPU. Clears the bit of a setting before the call, and sets the bit again if the
 * call fails. If a late write of the other thread sets the bit during the call, the bit stays
 * set. */
static harpe_status restore_once(harpe_controller_gpu *gpu, harpe_controller_changes *changes,
                                 uint32_t which, harpe_error *error) {
    static const uint32_t order[] = {HARPE_TOUCHED_GRAPHICS_CLOCKS, HARPE_TOUCHED_MEMORY_CLOCKS,
                                     HARPE_TOUCHED_POWER_LIMIT};
    harpe_status last = HARPE_OK;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        uint32_t what = which & order[i];
        if (!(atomic_fetch_and(&changes->touched, ~what) & what)) continue;
        harpe_status status = restore_one(gpu, changes, what, error);
        if (status == HARPE_OK) continue;
        atomic_fetch_or(&changes->touched, what);
        last = status;
    }
    return last;
}

harpe_status harpe_controller_gpu_restore(harpe_controller_gpu *gpu,
                                          harpe_controller_changes *changes, uint32_t which,
                                          harpe_error *error) {
    harpe_patience patience = harpe_patience_for(TRY_FOR_S);
    for (;;) {
        harpe_status status = restore_once(gpu, changes, which, error);
        /* A lost GPU returns only after a reset. Then its record is used. */
        if (status == HARPE_OK || status == HARPE_GPU_LOST || harpe_patience_is_over(&patience))
            return status;
        harpe_sleep_ns(TRY_AGAIN_NS);
    }
}

/* ---- The claim ------------------------------------------------------------------------------- */

/* The controller claims its GPU (gpu/saved_settings.h). If a trainer is killed and restarted, its
 * old controller may still be restoring the GPU. Without a claim, the new controller would save a
 * power limit that is not restored yet, and the old controller would then reset the clocks that the
 * new one has set. */

#define TIMEOUT_S 10.0
/* In a world, more are those of a large simulated job, in which each controller looks after its own
 * GPU. */
enum { MOST_RECORDS = 128 };

static bool trainer_is_gone(void *user) {
    (void)user;
    return harpe_helper_process_wait(0);
}

harpe_status harpe_controller_claim_gpu(const harpe_controller_gpu *gpu,
                                        const harpe_controller_header *header,
                                        harpe_controller_changes *changes, harpe_gpu_claim **out,
                                        harpe_error *error) {
    harpe_saved_settings_recovery recovery = {
        .through_zeusd = harpe_controller_restore_through_zeusd,
        .report = harpe_saved_settings_report_to_syslog,
        .most_records = harpe_process_world_directory() ? MOST_RECORDS : 0};
    harpe_gpu_claim_options options = {.kind = HARPE_SAVED_CLOCKS,
                                       .trainer = (pid_t)header->trainer,
                                       .timeout_s = TIMEOUT_S,
                                       .gives_up = trainer_is_gone};
    harpe_saved_settings earlier;
    /* A failure on another GPU does not concern this job; the claim reports a failure on its own
     * GPU. */
    (void)harpe_saved_settings_recover(gpu->gpus, &recovery, NULL);
    harpe_status status =
        harpe_gpu_claim_take(gpu->gpus, gpu->index, &options, out, &earlier, error);
    if (status != HARPE_OK) return status;
    /* The earlier process may have changed everything that its record restores. */
    if (earlier.uuid[0] && !atomic_load(&changes->is_saved)) {
        uint32_t touched = 0;
        if (earlier.power_limit_mw > 0) touched |= HARPE_TOUCHED_POWER_LIMIT;
        if (earlier.resets_clocks)
            touched |= HARPE_TOUCHED_MEMORY_CLOCKS | HARPE_TOUCHED_GRAPHICS_CLOCKS;
        if (earlier.locks_graphics) touched |= HARPE_LOCKED_GRAPHICS_CLOCKS;
        if (earlier.locks_memory) touched |= HARPE_LOCKED_MEMORY_CLOCKS;
        changes->saved_power_limit_mw = earlier.power_limit_mw;
        atomic_fetch_or(&changes->touched, touched);
        atomic_store(&changes->is_saved, 1);
    }
    return HARPE_OK;
}

harpe_status harpe_controller_save_settings(const harpe_controller_gpu *gpu,
                                            const harpe_controller_header *header,
                                            const harpe_controller_changes *changes,
                                            harpe_gpu_claim *claim, harpe_error *error) {
    harpe_saved_settings state = {
        .power_limit_mw = changes->saved_power_limit_mw,
        .persistence = -1,
        .resets_clocks = true,
        .locks_graphics = atomic_load(&changes->touched) & HARPE_LOCKED_GRAPHICS_CLOCKS,
        .locks_memory = atomic_load(&changes->touched) & HARPE_LOCKED_MEMORY_CLOCKS,
        .locks = header->terms.locks,
    };
    if (gpu->zeusd) state.zeusd = header->zeusd.place;
    return harpe_gpu_claim_save(claim, &state, error);
}

harpe_status harpe_controller_restore_through_zeusd(harpe_gpus *gpus, int gpu,
                                                    const harpe_saved_settings *state,
                                                    harpe_error *error) {
    harpe_controller_gpu own = {.gpus = gpus, .index = gpu};
    harpe_zeusd_address address = {.place = state->zeusd};
    harpe_status status = harpe_zeusd_take_token(&address, error);
    if (status == HARPE_OK)
        status = harpe_zeusd_open(&address, harpe_gpu_info_at(gpus, gpu), &own.zeusd, error);
    if (status != HARPE_OK) return status;
    status = restore_saved(&own, state, error);
    harpe_zeusd_close(own.zeusd);
    return status;
}
