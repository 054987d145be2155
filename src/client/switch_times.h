/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of the table of switching latencies, in real time and by clock, for the thread that sets
 * clocks. The copy is made again from time to time. */
#ifndef HARPE_CLIENT_SWITCH_TIMES_H
#define HARPE_CLIENT_SWITCH_TIMES_H

#include <stdbool.h>

#include "client/anticipation.h"
#include "client/switch_table.h"

typedef struct harpe_switch_times harpe_switch_times;

/* Returns NULL if there is no memory. */
harpe_switch_times *harpe_switch_times_new(const harpe_switch_table *table);
void harpe_switch_times_free(harpe_switch_times *times);

/* Brings the copy up to date, about ten times a second. `real_per_gpu_time` converts from GPU time.
 * Returns true if changes of the clock take long enough to be anticipated. */
bool harpe_switch_times_update(harpe_switch_times *times, double real_per_gpu_time);

/* A harpe_switch_time_of. `times` is a harpe_switch_times. A clock to which no change was measured
 * has the highest median of all clocks. */
harpe_switch_time harpe_switch_time_from_table(const void *times, uint32_t mhz);

#endif
