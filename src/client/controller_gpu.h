/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of a controller process, reached through the driver or through zeusd. Private to the
 * controller's process. */
#ifndef HARPE_CLIENT_CONTROLLER_GPU_H
#define HARPE_CLIENT_CONTROLLER_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>

#include "client/controller.h"
#include "client/zeusd.h"

/* A thread's own handle of the GPU. A call on one handle does not delay calls on another. */
typedef struct harpe_controller_gpu {
    harpe_gpus *gpus;
    int index;
    harpe_zeusd *zeusd; /* NULL: the driver */
    harpe_lease_terms terms;
} harpe_controller_gpu;

harpe_status harpe_controller_gpu_open(const harpe_controller_header *header,
                                       harpe_controller_gpu *out, harpe_error *error);
void harpe_controller_gpu_close(harpe_controller_gpu *gpu);

harpe_status harpe_controller_gpu_lock_graphics(harpe_controller_gpu *gpu, uint32_t mhz,
                                                harpe_error *error);

/* Sets the default power limit, the highest memory clock and the highest graphics clock, and writes
 * the latter to `*highest_mhz`. Call harpe_controller_gpu_remember first. Fails if the graphics
 * clock cannot be set; the driver may refuse the other two. Records in `changes` the settings
 * that it changes. Gives up with HARPE_INTERRUPTED if the trainer is gone. */
harpe_status harpe_controller_gpu_take(harpe_controller_gpu *gpu, harpe_controller_changes *changes,
                                       uint32_t *highest_mhz, harpe_error *error);

/* Stores the present settings in `changes`, unless an earlier process has stored some. */
void harpe_controller_gpu_remember(const harpe_controller_gpu *gpu,
                                   harpe_controller_changes *changes);

/* Resets the clocks and sets the power limit (0: leaves it alone). Tries each call once. Returns
 * the last failure. */
harpe_status harpe_controller_gpu_restore_saved(harpe_controller_gpu *gpu,
                                                const harpe_saved_settings *state,
                                                harpe_error *error);

/* Restores the changed settings that are in the bit set `which`. Tries again for half a minute
 * after a failure. Returns the last failure if any setting is not restored. */
harpe_status harpe_controller_gpu_restore(harpe_controller_gpu *gpu,
                                          harpe_controller_changes *changes, uint32_t which,
                                          harpe_error *error);

#endif
