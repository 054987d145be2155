/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for the settings of a GPU that the public header does not have. */
#ifndef HARPE_GPU_SETTINGS_H
#define HARPE_GPU_SETTINGS_H

#include <harpe/gpu.h>

/* Forgets which clock locks this handle has set or reset, so that the next call of each kind
 * reaches the driver. Use it where other programs change the same locks. */
void harpe_gpu_forget_clock_locks(harpe_gpus *gpus, int gpu);

#endif
