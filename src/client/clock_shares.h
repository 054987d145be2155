/* SPDX-License-Identifier: Apache-2.0 */
/* Computes at which clocks a GPU ran during a span of time. The functions compute this from the
 * requests for clocks and from the times that changes of the clock take. They do not read the GPU's
 * clock, and they keep no state. */
#ifndef HARPE_CLIENT_CLOCK_SHARES_H
#define HARPE_CLIENT_CLOCK_SHARES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/switch_learning.h"
#include "pfo/rank_clocks.h"

/* From the GPU time `from_us` on, the GPU has the clock `mhz`. */
typedef struct harpe_clock_since {
    uint64_t from_us;
    uint32_t mhz;
} harpe_clock_since;

enum { HARPE_CLOCK_SPEEDS = 3 }; /* of changes: usual, fast and slow */

/* The clocks of a GPU over time. There are three lists: one for changes that take the usual time,
 * one for fast changes, and one for slow changes. */
typedef struct harpe_clock_timeline {
    harpe_clock_since *changes[HARPE_CLOCK_SPEEDS];
    size_t count[HARPE_CLOCK_SPEEDS];
} harpe_clock_timeline;

/* Makes the timeline from the requests. A request replaces an older request that has not taken
 * effect. The table has the times of the changes to each target clock. If it has no time for a
 * target clock, a usual or slow change to this clock takes the longest time in the table, and a
 * fast change takes no time. If the table has no usable time at all, a slow change takes 0.5 s, so
 * that the clocks of only long runs at one clock are known. A request for 0 MHz makes the clock
 * unknown at once. If the requests are not in the order of time, the timeline is empty, so that no
 * clock is known. Returns false if memory runs out. Free with harpe_clock_timeline_free. */
bool harpe_clock_timeline_make(harpe_clock_timeline *timeline, const harpe_clock_ask *asks,
                               size_t count, const harpe_switch_table *table);
void harpe_clock_timeline_free(harpe_clock_timeline *timeline);

/* Returns the GPU time in us at which the clock becomes known, for any speed of the first change.
 * Returns UINT64_MAX if the clock is never known. */
uint64_t harpe_clock_timeline_begin(const harpe_clock_timeline *timeline);

/* Computes the clocks of a span. They are unknown in three cases: the span begins before the first
 * change; the span has more clocks than a run may have; or fast changes would give clearly
 * different clocks than slow changes. */
harpe_run_clocks harpe_clock_shares_of(const harpe_clock_timeline *timeline, uint64_t start_us,
                                       uint64_t end_us);

/* Adds the clocks of one more run to the mean of `runs` runs. If the clocks of one run are not
 * known, the mean is not known. */
void harpe_clock_shares_add(harpe_run_clocks *mean, size_t runs, const harpe_run_clocks *run);

#endif
