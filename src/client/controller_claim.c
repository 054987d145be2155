/* SPDX-License-Identifier: Apache-2.0 */
/* Claims the controller's GPU (gpu/found.h). A trainer that is killed and started again would
 * otherwise find the power limit that its last controller has yet to put back, and have that reset
 * its new clocks. */
#include "client/controller_claim.h"

#include <stdio.h>

#include "base/side_process.h"

#define PATIENCE_S 10.0

static bool trainer_is_gone(void *user) {
    (void)user;
    return harpe_side_process_wait(0);
}

harpe_status harpe_controller_claim_gpu(const harpe_controller_gpu *gpu,
                                        const harpe_controller_header *header,
                                        harpe_controller_slot *slot, harpe_found_claim **out,
                                        harpe_error *error) {
    harpe_found_recovery recovery = {.through_zeusd = harpe_controller_restore_through_zeusd,
                                     .report = harpe_found_report_to_syslog};
    harpe_found_claim_options options = {.kind = HARPE_FOUND_CLOCKS,
                                         .trainer = (pid_t)header->trainer,
                                         .patience_s = PATIENCE_S,
                                         .gives_up = trainer_is_gone};
    harpe_found_state earlier;
    /* A failure on another GPU does not concern this job; the claim reports a failure on its own
     * GPU. */
    (void)harpe_found_recover(gpu->gpus, &recovery, NULL);
    harpe_status status =
        harpe_found_claim_gpu(gpu->gpus, gpu->index, &options, out, &earlier, error);
    if (status != HARPE_OK) return status;
    if (earlier.uuid[0] && !atomic_load(&slot->is_found)) {
        slot->found_power_limit_mw = earlier.power_limit_mw;
        atomic_store(&slot->is_found, 1);
    }
    return HARPE_OK;
}

harpe_status harpe_controller_note_found(const harpe_controller_gpu *gpu,
                                         const harpe_controller_header *header,
                                         const harpe_controller_slot *slot,
                                         harpe_found_claim *claim, harpe_error *error) {
    harpe_found_state state = {
        .power_limit_mw = slot->found_power_limit_mw, .persistence = -1, .resets_clocks = true};
    if (gpu->zeusd) {
        snprintf(state.zeusd_socket, sizeof state.zeusd_socket, "%s", header->zeusd_socket);
    }
    return harpe_found_note(claim, &state, error);
}

harpe_status harpe_controller_restore_through_zeusd(harpe_gpus *gpus, int gpu,
                                                    const harpe_found_state *state,
                                                    harpe_error *error) {
    harpe_controller_gpu own = {.gpus = gpus, .index = gpu};
    harpe_status status = harpe_zeusd_open(
        state->zeusd_socket, harpe_gpu_info_at(gpus, gpu)->driver_index, &own.zeusd, error);
    if (status != HARPE_OK) return status;
    status = harpe_controller_gpu_put_back_found(&own, state->power_limit_mw, error);
    harpe_zeusd_close(own.zeusd);
    return status;
}
