/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the order within GPU streams to a trace with dependencies. */
#ifndef HARPE_TRACE_STREAM_ORDER_H
#define HARPE_TRACE_STREAM_ORDER_H

#include "trace/trace.h"

/* Lets each event of a stream wait for the one before it: the one with the earlier start, or with
 * equal starts the one before it in the file, unless the dependencies say otherwise. Notes
 * communications that still wait for no computation. The trace must be resolved, and `start_s` is
 * the recorded start. O(n log n) */
harpe_status harpe_trace_order_streams(harpe_trace *trace, harpe_error *error);

#endif
