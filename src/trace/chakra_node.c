/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an event of a Chakra node. The names of the attributes are those that Chakra's converter
 * writes and its feeder reads (src/converter and src/feeder in github.com/mlcommons/chakra). */
#include "trace/chakra_node.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "trace/stream_order.h"

/* The values of CollectiveCommType in et_def.proto. */
static const char *const collective_names[] = {
    "all_reduce", "reduce",         "all_gather",           "gather",  "scatter", "broadcast",
    "all_to_all", "reduce_scatter", "reduce_scatter_block", "barrier",
};
#define COLLECTIVE_COUNT ((int64_t)(sizeof collective_names / sizeof collective_names[0]))

void harpe_chakra_set_integer(harpe_chakra_node *node, const char *name, int64_t value) {
    if (strcmp(name, "is_cpu_op") == 0) node->is_on_cpu = value != 0;
    if (strcmp(name, "stream") == 0) node->stream = value;
    if (strcmp(name, "comm_src") == 0) node->source = value;
    if (strcmp(name, "comm_dst") == 0) node->target = value;
    if (strcmp(name, "comm_tag") == 0) node->tag = value;
    if (strcmp(name, "comm_type") == 0) node->collective = value;
}

/* Makes a communication of a kernel whose name says that it is one. */
static void set_named(const harpe_chakra_node *node, harpe_trace_event *event) {
    event->kind = HARPE_TRACE_COLLECTIVE;
    event->group = node->group;
    event->name = node->name;
}

static void set_communication(const harpe_trace *trace, const harpe_chakra_node *node,
                              harpe_trace_event *event) {
    event->group = node->group ? node->group : ""; /* without pg_name: all ranks */
    if (node->type == HARPE_CHAKRA_COMM_COLL_NODE) {
        event->kind = HARPE_TRACE_COLLECTIVE;
        event->name = node->collective >= 0 && node->collective < COLLECTIVE_COUNT
                          ? collective_names[node->collective]
                          : "collective";
        return;
    }
    bool is_send = node->type == HARPE_CHAKRA_COMM_SEND_NODE;
    event->kind = is_send ? HARPE_TRACE_SEND : HARPE_TRACE_RECEIVE;
    event->name = is_send ? "send" : "recv";
    event->source = node->source < 0 && is_send ? trace->rank : node->source;
    event->target = node->target < 0 && !is_send ? trace->rank : node->target;
    event->tag = node->tag;
    if (event->source < 0 || event->target < 0 || event->source == event->target)
        event->group = NULL;
}

harpe_status harpe_chakra_add_node(harpe_trace *trace, const harpe_chakra_node *node,
                                   harpe_error *error) {
    if (node->type < 0 || node->type >= HARPE_CHAKRA_NODE_TYPES) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: node %" PRIu64 ": its type is %" PRId64
                          ", and Chakra has the types 0 to %d",
                          trace->file, node->id, node->type, HARPE_CHAKRA_NODE_TYPES - 1);
    }
    double time_s = (double)node->time_us * 1e-6;
    if (time_s > HARPE_TRACE_TIME_MAX_S) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: node %" PRIu64 ": its duration is %g s, more than %g s: "
                          "duration_micros is in microseconds",
                          trace->file, node->id, time_s, HARPE_TRACE_TIME_MAX_S);
    }
    harpe_trace_event event = {
        .kind = HARPE_TRACE_OTHER,
        .stream = node->is_on_cpu ? -1 : node->stream,
        .start_s = (double)node->start_us * 1e-6,
        .time_s = time_s,
        .sequence = -1,
        .id = node->id,
        .wait_count = node->wait_count,
        .parent_count = node->parent_count,
        .waits = node->waits,
    };
    bool is_computation = node->type == HARPE_CHAKRA_COMP_NODE && !node->is_on_cpu;
    if (is_computation && node->time_us > 0) event.kind = HARPE_TRACE_COMPUTE;
    if (event.kind == HARPE_TRACE_COMPUTE && node->name &&
        harpe_kernel_names_communicate(trace->names, node->name, time_s))
        set_named(node, &event);
    if (node->type >= HARPE_CHAKRA_COMM_SEND_NODE && node->type <= HARPE_CHAKRA_COMM_COLL_NODE &&
        !node->is_on_cpu)
        set_communication(trace, node, &event);
    return harpe_trace_add(trace, &event, error);
}

harpe_status harpe_chakra_finish(harpe_trace *trace, harpe_error *error) {
    harpe_status status = harpe_trace_resolve(trace, error);
    return status == HARPE_OK ? harpe_trace_order_streams(trace, error) : status;
}
