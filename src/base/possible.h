/* SPDX-License-Identifier: Apache-2.0 */
/* Which energies and powers cannot be. Whatever measures, or takes measurements from others, uses
 * this one rule. */
#ifndef HARPE_BASE_POSSIBLE_H
#define HARPE_BASE_POSSIBLE_H

#include <stdbool.h>

/* No GPU draws more power, and none that works draws less. No package of a CPU, and no DRAM of a
 * package, draws more than HARPE_CPU_HIGHEST_W. */
#define HARPE_GPU_HIGHEST_W 3000.0
#define HARPE_GPU_LOWEST_W 5.0
#define HARPE_CPU_HIGHEST_W 1000.0

/* Every energy counter moves more often. In a shorter time, a step of a counter looks like any
 * power, so the power is judged as if the time were this long. */
#define HARPE_COUNTER_STEP_S 0.5

/* Returns true if a device can have used `energy_j` in `time_s`. `highest_w` is at least twice the
 * power that the device draws for a step of its counter. */
static inline bool harpe_energy_is_possible(double energy_j, double time_s, double highest_w) {
    double judged_s = time_s > HARPE_COUNTER_STEP_S ? time_s : HARPE_COUNTER_STEP_S;
    return energy_j <= highest_w * judged_s;
}

#endif
