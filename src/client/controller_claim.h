/* SPDX-License-Identifier: Apache-2.0 */
/* Ensures that each GPU has at most one controller: a new controller waits until the old controller
 * has restored the GPU. Private to the controller's process and the program. */
#ifndef HARPE_CLIENT_CONTROLLER_CLAIM_H
#define HARPE_CLIENT_CONTROLLER_CLAIM_H

#include "client/controller_gpu.h"
#include "gpu/saved_settings.h"

/* Claims the GPU for this process until harpe_gpu_claim_release. First restores all GPUs that dead
 * jobs have left changed. Then waits while another process has this GPU. Fails with
 * HARPE_ALREADY_EXISTS after 10 s, and with HARPE_INTERRUPTED if the trainer is gone. Copies into
 * `changes` the settings that an earlier controller of the same trainer saved. */
harpe_status harpe_controller_claim_gpu(const harpe_controller_gpu *gpu,
                                        const harpe_controller_header *header,
                                        harpe_controller_changes *changes, harpe_gpu_claim **out,
                                        harpe_error *error);

/* Records the saved settings on disk before anything changes. */
harpe_status harpe_controller_save_settings(const harpe_controller_gpu *gpu,
                                            const harpe_controller_header *header,
                                            const harpe_controller_changes *changes,
                                            harpe_gpu_claim *claim, harpe_error *error);

/* Restores a GPU through zeusd. Used as `through_zeusd` of a harpe_saved_settings_recovery. */
harpe_status harpe_controller_restore_through_zeusd(harpe_gpus *gpus, int gpu,
                                                    const harpe_saved_settings *state,
                                                    harpe_error *error);

#endif
