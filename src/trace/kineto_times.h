/* SPDX-License-Identifier: Apache-2.0 */
/* Finds events of a Kineto trace whose times cannot be right. */
#ifndef HARPE_TRACE_KINETO_TIMES_H
#define HARPE_TRACE_KINETO_TIMES_H

#include <jansson.h>

#include "trace/trace.h"

/* The events of a stream run one after another, so this function cuts each event at the start of
 * the next one on its stream, and adds a note. It adds another note about a pause that takes most
 * of the trace. It fails if the time between an event and the others is longer than any step.
 * `list` is the list of events in the file. O(n log n) */
harpe_status harpe_kineto_check_times(const json_t *list, harpe_trace *trace, harpe_error *error);

#endif
