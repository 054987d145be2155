/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which energies, powers and clocks are possible. All code that measures, or takes
 * measurements from others, uses this rule. */
#ifndef HARPE_BASE_POSSIBLE_H
#define HARPE_BASE_POSSIBLE_H

#include <stdbool.h>

/* A GPU never draws more than HARPE_GPU_HIGHEST_W, and a GPU that works never draws less than
 * HARPE_GPU_LOWEST_W. A CPU package, and the DRAM of a package, never draw more than
 * HARPE_CPU_HIGHEST_W. */
#define HARPE_GPU_HIGHEST_W 3000.0
#define HARPE_GPU_LOWEST_W 5.0
#define HARPE_CPU_HIGHEST_W 1000.0

/* No GPU has a higher clock. The fastest GPUs of 2026 have less than 4000 MHz. */
#define HARPE_CLOCK_HIGHEST_MHZ 10000

/* Energy counters move in steps, more often than this. In a shorter time, one step can look like
 * any power. So a shorter time counts as this long. */
#define HARPE_COUNTER_STEP_S 0.5

/* Returns true if a device can have used `energy_j` in `time_s`. `highest_w` is at least twice the
 * power that the device draws for a step of its counter. */
static inline bool harpe_energy_is_possible(double energy_j, double time_s, double highest_w) {
    double judged_s = time_s > HARPE_COUNTER_STEP_S ? time_s : HARPE_COUNTER_STEP_S;
    return energy_j <= highest_w * judged_s;
}

#endif
