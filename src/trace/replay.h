/* SPDX-License-Identifier: Apache-2.0 */
/* Finds when the events of traces with dependencies run. */
#ifndef HARPE_TRACE_REPLAY_H
#define HARPE_TRACE_REPLAY_H

#include "trace/communications.h"

/* Sets `start_s` of all events: each starts as soon as everything for which it waits has ended. A
 * GPU computes one event at a time, in the order in which they become ready. A communication starts
 * when all its ranks have come to it; `start_s` of a part is when its own rank came. `order[t]`
 * receives the indices of the events of trace t in the order of their ends: an event comes after
 * all for which it waits. Fails if an event can never start. O(n log n) */
harpe_status harpe_trace_replay(harpe_trace *traces, size_t trace_count,
                                const harpe_communications *communications, size_t *const *order,
                                harpe_error *error);

#endif
