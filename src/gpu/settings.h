/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for the settings of a GPU that the public header does not have. */
#ifndef HARPE_GPU_SETTINGS_H
#define HARPE_GPU_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>

/* Returns true if a power limit is the requested one, except that the driver may have rounded it.
 */
bool harpe_is_power_limit(uint32_t limit_mw, uint32_t requested_mw);

/* Forgets which clock locks this handle has set or reset, so that the next call of each kind
 * reaches the driver. Use it where other programs change the same locks. */
void harpe_gpu_forget_clock_locks(harpe_gpus *gpus, int gpu);

/* Returns true if the driver refused a change before it did anything. */
bool harpe_gpu_refused(harpe_status status);

#endif
