/* SPDX-License-Identifier: Apache-2.0 */
/* Locks the clocks of AMD GPUs. In AMD's interface each clock has two limits, written by two calls,
 * and one call frees all clocks. From these calls this file makes one lock for each clock. Each
 * lock can be reset on its own. */
#include "gpu/amdsmi_clocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Since MI200 the graphics clock accepts any frequency of a range; see harpe_amdsmi_read_clocks. */
enum { RANGE_STEP_MHZ = 25, RANGE_LEVELS = 3, CLOCK_MAX_MHZ = 100000 };

static const amdsmi_clk_type_t types[HARPE_AMDSMI_CLOCKS] = {AMDSMI_CLK_TYPE_SYS,
                                                             AMDSMI_CLK_TYPE_MEM};

/* ---- Lists ----------------------------------------------------------------------------------- */

static uint32_t megahertz(uint64_t frequency) {
    return (uint32_t)(frequency >= 1000000 ? frequency / 1000000 : frequency);
}

/* Reads the list of clocks. If the graphics clock accepts any frequency of a range, the driver
 * lists only the two ends and the current clock between them. In this case, the returned list
 * contains the range in steps. */
int harpe_amdsmi_read_clocks(const harpe_amdsmi_gpu *gpu, amdsmi_clk_type_t type, uint32_t **out,
                             size_t *out_count) {
    amdsmi_frequencies_t listed;
    memset(&listed, 0, sizeof listed);
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, frequencies, gpu->processor, type, &listed);
    if (code) return code;
    uint32_t first = listed.has_deep_sleep ? 1 : 0;
    if (listed.num_supported <= first || listed.num_supported > AMDSMI_MAX_NUM_FREQUENCIES)
        return AMDSMI_STATUS_NOT_SUPPORTED;
    uint32_t lowest = UINT32_MAX;
    uint32_t highest = 0;
    for (uint32_t i = first; i < listed.num_supported; i++) {
        uint32_t mhz = megahertz(listed.frequency[i]);
        lowest = mhz < lowest ? mhz : lowest;
        highest = mhz > highest ? mhz : highest;
    }
    if (highest > CLOCK_MAX_MHZ) return AMDSMI_STATUS_UNEXPECTED_DATA;
    bool is_range = type == AMDSMI_CLK_TYPE_SYS && listed.num_supported - first <= RANGE_LEVELS;
    size_t count = listed.num_supported - first;
    if (is_range) count = (highest - lowest + RANGE_STEP_MHZ - 1) / RANGE_STEP_MHZ + 1;
    uint32_t *clocks = harpe_calloc(count, sizeof *clocks);
    if (!clocks) return AMDSMI_STATUS_OUT_OF_RESOURCES;
    for (size_t i = 0; i < count; i++) {
        uint32_t below = (uint32_t)i * RANGE_STEP_MHZ;
        clocks[i] = !is_range                  ? megahertz(listed.frequency[first + i])
                    : below < highest - lowest ? highest - below
                                               : lowest;
    }
    *out = clocks;
    *out_count = count;
    return AMDSMI_STATUS_SUCCESS;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* Frees all clocks of the GPU, because AMD has no call that frees a single clock. */
static int free_clocks(harpe_amdsmi_gpu *gpu) {
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, set_level, gpu->processor, AMDSMI_DEV_PERF_LEVEL_AUTO);
    gpu->are_limits_known = code == AMDSMI_STATUS_SUCCESS;
    if (gpu->are_limits_known) memset(gpu->limits, 0, sizeof gpu->limits);
    return code;
}

/* Writes the two limits in an order that never puts the minimum above the maximum: first the
 * maximum if the new range is above the old one, and first the minimum otherwise. For this, Harpe
 * must know the old range. */
static int write_limits(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock, uint32_t minimum_mhz,
                        uint32_t maximum_mhz) {
    harpe_amdsmi_limits *limits = &gpu->limits[clock];
    bool is_above = limits->is_set && minimum_mhz > limits->maximum_mhz;
    int code = 0;
    gpu->are_limits_known = false; /* until both are written */
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, set_clock_limit, gpu->processor, types[clock],
                      is_above ? AMDSMI_CLK_LIMIT_MAX : AMDSMI_CLK_LIMIT_MIN,
                      is_above ? maximum_mhz : minimum_mhz);
    if (code) return code;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, set_clock_limit, gpu->processor, types[clock],
                      is_above ? AMDSMI_CLK_LIMIT_MIN : AMDSMI_CLK_LIMIT_MAX,
                      is_above ? minimum_mhz : maximum_mhz);
    if (code) return code;
    gpu->are_limits_known = true;
    *limits = (harpe_amdsmi_limits){true, minimum_mhz, maximum_mhz};
    return AMDSMI_STATUS_SUCCESS;
}

/* Frees all clocks, then locks the other clock again if it was locked. */
int harpe_amdsmi_reset_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock) {
    harpe_amdsmi_clock other =
        clock == HARPE_AMDSMI_GRAPHICS ? HARPE_AMDSMI_MEMORY : HARPE_AMDSMI_GRAPHICS;
    harpe_amdsmi_limits kept = gpu->limits[other];
    int code = free_clocks(gpu);
    if (code || !kept.is_set) return code;
    return write_limits(gpu, other, kept.minimum_mhz, kept.maximum_mhz);
}

/* Locks a clock. First frees limits that another program has set. If one of the two limits is
 * refused, there is no lock. */
int harpe_amdsmi_lock_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock, uint32_t minimum_mhz,
                             uint32_t maximum_mhz) {
    int code =
        gpu->are_limits_known ? AMDSMI_STATUS_SUCCESS : harpe_amdsmi_reset_clocks(gpu, clock);
    if (code) return code;
    code = write_limits(gpu, clock, minimum_mhz, maximum_mhz);
    if (code) (void)harpe_amdsmi_reset_clocks(gpu, clock);
    return code;
}
