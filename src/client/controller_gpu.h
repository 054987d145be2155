/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of a controller process, reached through the driver or through zeusd. Each GPU has at
 * most one controller: a new controller waits until the old one has restored the GPU. Private to
 * the controller's process and the program. */
#ifndef HARPE_CLIENT_CONTROLLER_GPU_H
#define HARPE_CLIENT_CONTROLLER_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>

#include "client/controller.h"
#include "client/zeusd.h"
#include "gpu/saved_settings.h"

/* A thread's own handle of the GPU. A call on one handle does not delay calls on another. */
typedef struct harpe_controller_gpu {
    harpe_gpus *gpus;
    int index;
    harpe_zeusd *zeusd; /* NULL: the driver */
    harpe_lease_terms terms;
    bool keeps_power_limit;
} harpe_controller_gpu;

harpe_status harpe_controller_gpu_open(const harpe_controller_header *header,
                                       harpe_controller_gpu *out, harpe_error *error);
void harpe_controller_gpu_close(harpe_controller_gpu *gpu);

harpe_status harpe_controller_gpu_lock_graphics(harpe_controller_gpu *gpu, uint32_t mhz,
                                                harpe_error *error);

/* Sets the default power limit (unless it keeps the present one), the highest memory clock and the
 * highest graphics clock, and writes the latter to `*highest_mhz`. Call
 * harpe_controller_gpu_remember first. Fails if the graphics clock cannot be set; the driver may
 * refuse the other two. Records in `changes` the settings that it changes. Gives up with
 * HARPE_INTERRUPTED if the trainer is gone. */
harpe_status harpe_controller_gpu_take(harpe_controller_gpu *gpu, harpe_controller_changes *changes,
                                       uint32_t *highest_mhz, harpe_error *error);

/* Stores the present settings in `changes`, unless an earlier process has stored some. */
void harpe_controller_gpu_remember(const harpe_controller_gpu *gpu,
                                   harpe_controller_changes *changes);

/* Restores the changed settings that are in the bit set `which`. Tries again for half a minute
 * after a failure. Returns the last failure if any setting is not restored. */
harpe_status harpe_controller_gpu_restore(harpe_controller_gpu *gpu,
                                          harpe_controller_changes *changes, uint32_t which,
                                          harpe_error *error);

/* ---- The claim ------------------------------------------------------------------------------- */

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
