/* SPDX-License-Identifier: Apache-2.0 */
/* Reads MLCommons Chakra execution traces in JSON. */
#ifndef HARPE_TRACE_CHAKRA_JSON_H
#define HARPE_TRACE_CHAKRA_JSON_H

#include <jansson.h>

#include "trace/trace.h"

/* Adds the nodes to the trace, whose `file` and `rank` are set. `objects` is the list of the JSON
 * objects in the file: a GlobalMetadata and Nodes, as chakra_jsonizer writes them, or one object
 * with a list "workload_graph". */
harpe_status harpe_trace_read_chakra_json(const json_t *objects, harpe_trace *trace,
                                          harpe_error *error);

#endif
