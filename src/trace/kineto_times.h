/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the times of the events of a Kineto trace. */
#ifndef HARPE_TRACE_KINETO_TIMES_H
#define HARPE_TRACE_KINETO_TIMES_H

#include <jansson.h>

#include "trace/trace.h"

/* Cuts each event at the start of the next one on its stream, because the events of a stream run
 * one after another, and notes it. Notes a pause that is most of the trace. Fails if an event is
 * much farther from the others than a step can take. `list` is that of the file. O(n log n) */
harpe_status harpe_kineto_check_times(const json_t *list, harpe_trace *trace, harpe_error *error);

#endif
