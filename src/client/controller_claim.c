/* SPDX-License-Identifier: Apache-2.0 */
/* Claims the controller's GPU (gpu/saved_settings.h). If a trainer is killed and restarted, its old
 * controller may still be restoring the GPU. Without a claim, the new controller would save a power
 * limit that is not restored yet, and the old controller would then reset the clocks that the new
 * one has set. */
#include "client/controller_claim.h"

#include <stdio.h>

#include "base/helper_process.h"
#include "base/process.h"

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
    status = harpe_controller_gpu_restore_saved(&own, state, error);
    harpe_zeusd_close(own.zeusd);
    return status;
}
