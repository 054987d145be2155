/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks of an AMD GPU: which there are, and locking them with AMD's pair of limits. Functions
 * return AMD SMI's codes. */
#ifndef HARPE_GPU_AMDSMI_CLOCKS_H
#define HARPE_GPU_AMDSMI_CLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/amdsmi_library.h"

typedef enum harpe_amdsmi_clock {
    HARPE_AMDSMI_GRAPHICS,
    HARPE_AMDSMI_MEMORY,
    HARPE_AMDSMI_CLOCKS,
} harpe_amdsmi_clock;

/* Limits of one clock that Harpe has set. */
typedef struct harpe_amdsmi_limits {
    bool is_set;
    uint32_t minimum_mhz, maximum_mhz;
} harpe_amdsmi_limits;

/* What a back-end's handle points to. Its limits are guarded by settings.c's mutex of the GPU. */
typedef struct harpe_amdsmi_gpu {
    const harpe_amdsmi *amdsmi;
    amdsmi_processor_handle processor;
    bool are_limits_known; /* no limits hold but these: */
    harpe_amdsmi_limits limits[HARPE_AMDSMI_CLOCKS];
} harpe_amdsmi_gpu;

/* The list is allocated; any order. */
int harpe_amdsmi_read_clocks(const harpe_amdsmi_gpu *gpu, amdsmi_clk_type_t type, uint32_t **out,
                             size_t *out_count);

int harpe_amdsmi_lock_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock, uint32_t minimum_mhz,
                             uint32_t maximum_mhz);
int harpe_amdsmi_reset_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock);

#endif
