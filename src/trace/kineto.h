/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the traces of PyTorch's profiler (Kineto): the trace event format of Chrome, in JSON. */
#ifndef HARPE_TRACE_KINETO_H
#define HARPE_TRACE_KINETO_H

#include <jansson.h>

#include "trace/trace.h"

#define HARPE_TRACE_LAST_STEP (-1)

/* Adds the GPU's events of one step to the trace, whose `file` and `rank` are set. The rank that
 * the trace names replaces `rank`. `step` is the number after "ProfilerStep#", or
 * HARPE_TRACE_LAST_STEP. A trace without steps is read as a whole. */
harpe_status harpe_trace_read_kineto(const json_t *root, int64_t step, harpe_trace *trace,
                                     harpe_error *error);

#endif
