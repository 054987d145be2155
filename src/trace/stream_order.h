/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the order within GPU streams to a trace with dependencies. */
#ifndef HARPE_TRACE_STREAM_ORDER_H
#define HARPE_TRACE_STREAM_ORDER_H

#include "trace/trace.h"

/* Makes each event of a stream wait for the event before it. The event before it is the one that
 * starts earlier; if both start at the same time, the one that comes earlier in the file. The
 * dependencies of the trace go before this order. Adds a note about communications that still wait
 * for no computation. The trace must be resolved. `start_s` is the recorded start. O(n log n) */
harpe_status harpe_trace_order_streams(harpe_trace *trace, harpe_error *error);

#endif
