/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the clocks of an AMD GPU and locks them with AMD's pair of limits. Functions return AMD
 * SMI's codes. */
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

/* The two limits of one clock as Harpe has set them. */
typedef struct harpe_amdsmi_limits {
    bool is_set;
    uint32_t minimum_mhz, maximum_mhz;
} harpe_amdsmi_limits;

/* The struct behind a back-end's handle. The GPU's mutex in settings.c guards its limits. */
typedef struct harpe_amdsmi_gpu {
    const harpe_amdsmi *amdsmi;
    amdsmi_processor_handle processor;
    bool are_limits_known; /* true: only these limits hold */
    harpe_amdsmi_limits limits[HARPE_AMDSMI_CLOCKS];
} harpe_amdsmi_gpu;

/* Reads the clocks into an allocated list, in any order. */
int harpe_amdsmi_read_clocks(const harpe_amdsmi_gpu *gpu, amdsmi_clk_type_t type, uint32_t **out,
                             size_t *out_count);

int harpe_amdsmi_lock_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock, uint32_t minimum_mhz,
                             uint32_t maximum_mhz);
int harpe_amdsmi_reset_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock);

#endif
