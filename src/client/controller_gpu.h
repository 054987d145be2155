/* SPDX-License-Identifier: Apache-2.0 */
/* The one GPU of a controller process, reached through the driver or through zeusd. Private to the
 * controller's process. */
#ifndef HARPE_CLIENT_CONTROLLER_GPU_H
#define HARPE_CLIENT_CONTROLLER_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>

#include "client/controller.h"
#include "client/zeusd.h"

/* A thread's own way to the GPU: a call under way on one does not hold up the other. */
typedef struct harpe_controller_gpu {
    harpe_gpus *gpus;
    int index;
    harpe_zeusd *zeusd; /* NULL: the driver */
} harpe_controller_gpu;

harpe_status harpe_controller_gpu_open(const harpe_controller_header *header,
                                       harpe_controller_gpu *out, harpe_error *error);
void harpe_controller_gpu_close(harpe_controller_gpu *gpu);

harpe_status harpe_controller_gpu_lock_graphics(harpe_controller_gpu *gpu, uint32_t mhz,
                                                harpe_error *error);

/* After harpe_controller_gpu_remember. Goes to the highest clocks: power limit, memory clock,
 * graphics clock, `*highest_mhz`. Only the last must succeed;
 * the others may be refused. Notes in the slot what it touches. Gives up with HARPE_INTERRUPTED
 * when the trainer is gone. */
harpe_status harpe_controller_gpu_take(harpe_controller_gpu *gpu, harpe_controller_slot *slot,
                                       uint32_t *highest_mhz, harpe_error *error);

/* Stores the present settings in the slot, unless an earlier process has done so. */
void harpe_controller_gpu_remember(const harpe_controller_gpu *gpu, harpe_controller_slot *slot);

/* Resets the clocks and sets the power limit (0: leaves it alone), once. The last failure. */
harpe_status harpe_controller_gpu_put_back_found(harpe_controller_gpu *gpu, uint32_t limit_mw,
                                                 harpe_error *error);

/* Puts back what is touched, as far as it is in the bit set `which`, and tries for half a minute
 * what fails. The last failure, if anything is left. */
harpe_status harpe_controller_gpu_put_back(harpe_controller_gpu *gpu, harpe_controller_slot *slot,
                                           uint32_t which, harpe_error *error);

#endif
