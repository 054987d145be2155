/* SPDX-License-Identifier: Apache-2.0 */
/* Reads MLCommons Chakra execution traces as Protocol Buffers: nodes with dependencies. */
#ifndef HARPE_TRACE_CHAKRA_H
#define HARPE_TRACE_CHAKRA_H

#include "trace/trace.h"

/* Reads a stream of messages, each with its length before it: a GlobalMetadata, then Nodes. Adds
 * the nodes to the trace, whose `file` and `rank` are set. */
harpe_status harpe_trace_read_chakra(const void *bytes, size_t length, harpe_trace *trace,
                                     harpe_error *error);
#endif
