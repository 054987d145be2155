/* SPDX-License-Identifier: Apache-2.0 */
/* Computes at which clocks a GPU ran during a span of time, from the requests for clocks and from
 * the times that changes take. Needs no samples of the clock. Plain data and no state. */
#ifndef HARPE_CLIENT_CLOCK_SHARES_H
#define HARPE_CLIENT_CLOCK_SHARES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/switch_learning.h"
#include "pfo/rank_clocks.h"

/* A clock, and the GPU time from which on the GPU has it. */
typedef struct harpe_clock_since {
    uint64_t from_us;
    uint32_t mhz;
} harpe_clock_since;

enum { HARPE_CLOCK_SPEEDS = 3 }; /* of changes: usual, fast and slow */

/* The clocks of a GPU over time: if changes take as long as usual, or are fast, or are slow. */
typedef struct harpe_clock_timeline {
    harpe_clock_since *changes[HARPE_CLOCK_SPEEDS];
    size_t count[HARPE_CLOCK_SPEEDS];
} harpe_clock_timeline;

/* Makes the timeline of requests. A request replaces an older one that has not taken effect. A
 * change takes the time of its target clock in the table. If the target is not known, it takes the
 * longest time of the table, or no time if it is fast. If the table has no time that can be used, a
 * slow change takes 0.5 s, so that only long runs at one clock are known. A request for 0 MHz makes
 * the clock unknown at once. The timeline of requests that are not in the order of time is empty,
 * so that no clock is known. Returns false if memory runs out. Free with harpe_clock_timeline_free.
 */
bool harpe_clock_timeline_make(harpe_clock_timeline *timeline, const harpe_clock_ask *asks,
                               size_t count, const harpe_switch_table *table);
void harpe_clock_timeline_free(harpe_clock_timeline *timeline);

/* Returns the time from which on the clock is known, however long the first change takes;
 * UINT64_MAX: never. */
uint64_t harpe_clock_timeline_begin(const harpe_clock_timeline *timeline);

/* Computes the clocks of a span. They are not known if the span begins before the first change, has
 * more parts than a run may have, or has clearly other parts if changes are fast or slow. */
harpe_run_clocks harpe_clock_shares_of(const harpe_clock_timeline *timeline, uint64_t start_us,
                                       uint64_t end_us);

/* Adds the clocks of one more run to the mean of `runs` runs. The mean is not known if one of its
 * runs is not. */
void harpe_clock_shares_add(harpe_run_clocks *mean, size_t runs, const harpe_run_clocks *run);

#endif
