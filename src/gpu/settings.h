/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for the settings of a GPU that the public header does not have. */
#ifndef HARPE_GPU_SETTINGS_H
#define HARPE_GPU_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/backend.h"

/* Changes a setting, unless it has this value already. Zeros reset clocks. */
harpe_status harpe_gpu_set(harpe_gpus *gpus, int index, harpe_setting setting,
                           harpe_setting_value value, harpe_error *error);

/* Reads a setting. Returns HARPE_NOT_SUPPORTED for clocks, because drivers do not report locks. */
harpe_status harpe_gpu_read_setting(harpe_gpus *gpus, int index, harpe_setting setting,
                                    harpe_setting_value *out, harpe_error *error);

/* Returns true if a power limit is the requested one, except that the driver may have rounded it.
 */
bool harpe_is_power_limit(uint32_t limit_mw, uint32_t requested_mw);

/* Forgets which clock locks this handle has set or reset, so that the next call of each kind
 * reaches the driver. Use it where other programs change the same locks. */
void harpe_gpu_forget_clock_locks(harpe_gpus *gpus, int gpu);

/* Returns true if the driver refused a change before it did anything. */
bool harpe_gpu_refused(harpe_status status);

#endif
