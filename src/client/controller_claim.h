/* SPDX-License-Identifier: Apache-2.0 */
/* One controller per GPU: the next one waits until the last one has put back. Private to the
 * controller's process and the program. */
#ifndef HARPE_CLIENT_CONTROLLER_CLAIM_H
#define HARPE_CLIENT_CONTROLLER_CLAIM_H

#include "client/controller_gpu.h"
#include "gpu/found.h"

/* Claims the GPU for this process until harpe_found_release. First puts back all GPUs that dead
 * jobs have left changed. Then waits while another process has this GPU: HARPE_ALREADY_EXISTS after
 * 10 s, HARPE_INTERRUPTED when the trainer is gone. Copies into the slot what an earlier controller
 * of the same trainer found. */
harpe_status harpe_controller_claim_gpu(const harpe_controller_gpu *gpu,
                                        const harpe_controller_header *header,
                                        harpe_controller_slot *slot, harpe_found_claim **out,
                                        harpe_error *error);

/* Writes to disk what is found on the GPU, before anything is changed. */
harpe_status harpe_controller_note_found(const harpe_controller_gpu *gpu,
                                         const harpe_controller_header *header,
                                         const harpe_controller_slot *slot,
                                         harpe_found_claim *claim, harpe_error *error);

/* harpe_found_recovery's through_zeusd. */
harpe_status harpe_controller_restore_through_zeusd(harpe_gpus *gpus, int gpu,
                                                    const harpe_found_state *state,
                                                    harpe_error *error);

#endif
