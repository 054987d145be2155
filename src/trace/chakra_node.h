/* SPDX-License-Identifier: Apache-2.0 */
/* A node of a Chakra trace. Both readers of Chakra traces (protobuf and JSON) make nodes, and
 * harpe_chakra_add_node makes an event of each. */
#ifndef HARPE_TRACE_CHAKRA_NODE_H
#define HARPE_TRACE_CHAKRA_NODE_H

#include "trace/trace.h"

/* The values of NodeType in et_def.proto (github.com/mlcommons/chakra, schema/protobuf). */
enum {
    HARPE_CHAKRA_COMP_NODE = 4,
    HARPE_CHAKRA_COMM_SEND_NODE = 5,
    HARPE_CHAKRA_COMM_RECV_NODE = 6,
    HARPE_CHAKRA_COMM_COLL_NODE = 7,
    HARPE_CHAKRA_NODE_TYPES = 11,
};

#define HARPE_CHAKRA_GROUP "pg_name" /* the only attribute with a text that Harpe needs */

typedef struct harpe_chakra_node {
    uint64_t id;
    const char *name; /* lives as long as the trace; NULL: missing */
    int64_t type;
    uint64_t start_us, time_us; /* the start may be missing: 0 */
    int64_t stream;             /* -1: missing */
    bool is_on_cpu;
    const char *group;           /* HARPE_CHAKRA_GROUP; lives as long as the trace; NULL: missing */
    int64_t source, target, tag; /* comm_src, comm_dst, comm_tag; -1: missing */
    int64_t collective;          /* comm_type; -1: missing */
    /* As in harpe_trace_event: numbers of nodes; the first `parent_count` ones are the parents,
     * which Chakra calls control dependencies. */
    size_t wait_count, parent_count;
    uint64_t *waits;
} harpe_chakra_node;

/* A node without attributes. */
#define HARPE_CHAKRA_NODE \
    (harpe_chakra_node) { .stream = -1, .source = -1, .target = -1, .collective = -1 }

/* Adds the event of a node. */
harpe_status harpe_chakra_add_node(harpe_trace *trace, const harpe_chakra_node *node,
                                   harpe_error *error);
/* Ends the reading: finds the nodes that others wait for, and orders the streams. */
harpe_status harpe_chakra_finish(harpe_trace *trace, harpe_error *error);
/* Sets an attribute that is a whole number by its name. Other names are ignored. */
void harpe_chakra_set_integer(harpe_chakra_node *node, const char *name, int64_t value);

#endif
