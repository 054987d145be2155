/* SPDX-License-Identifier: Apache-2.0 */
/* What the two targets of traces check. For any bytes, the result is an error of one printable
 * line, or a graph with the same activities at each clock. */
#ifndef HARPE_FUZZ_TRACE_CHECKS_H
#define HARPE_FUZZ_TRACE_CHECKS_H

#include <stdlib.h>
#include <string.h>

#include "plan/graphs.h"
#include "trace/trace.h"

enum { TRACES = 2 };

static inline void require(bool holds) {
    if (!holds) abort();
}

static inline void require_line(harpe_status status, const harpe_error *error) {
    require(error->status == status);
    require(strncmp(error->message, "fuzz", 4) == 0 || status == HARPE_OUT_OF_MEMORY);
    require(!strpbrk(error->message, "\n\r\x1B"));
}

/* The graph is complete: it does not change when it is written and read again. */
static inline void check_graph(const harpe_graph *graph, const harpe_trace_graph_counts *counts) {
    harpe_text text = {0};
    harpe_graph *read = NULL;
    /* A rank whose trace goes on after its last activity has one more. */
    size_t described = counts->computing + counts->communications;
    require(harpe_graph_activity_count(graph) >= described);
    require(harpe_graph_activity_count(graph) <= described + TRACES);
    require(counts->with_options <= counts->computing && counts->longest_s >= 0);
    harpe_graph_json_format(&text, graph);
    require(harpe_graph_parse_json(text.data, text.length, "again", &read, NULL) == HARPE_OK);
    require(harpe_graph_activity_count(read) == harpe_graph_activity_count(graph));
    harpe_graph_free(read);
    harpe_text_free(&text);
}

/* Reads the bytes as the traces of two ranks, which then communicate with each other, and makes
 * their graph. */
static inline void check_traces(const uint8_t *data, size_t size, harpe_trace_format format) {
    harpe_trace_request request = {.format = format, .step = HARPE_TRACE_LAST_STEP};
    const harpe_trace_graph_options options = {
        .gpu_model = "A100", .compute_share = 0.8, .min_activity_s = 1e-4, .blocking_power_w = -1};
    static const char *const names[] = {"fuzz.0", "fuzz.1"};
    harpe_trace traces[TRACES] = {0};
    harpe_error error = {.message = ""};
    harpe_status status = harpe_kernel_names_new(NULL, 0, &request.names, &error);
    for (int t = 0; t < TRACES && status == HARPE_OK; t++)
        status = harpe_trace_file_parse((const char *)data, size, names[t], t, &request, &traces[t],
                                        &error);
    if (status == HARPE_OK) {
        harpe_graph *graph = NULL;
        harpe_trace_graph_counts counts;
        traces[1].rank = traces[0].rank + 1;
        status = harpe_trace_graph_new(traces, TRACES, &options, &graph, &counts, &error);
        if (status == HARPE_OK) check_graph(graph, &counts);
        harpe_graph_free(graph);
    }
    if (status != HARPE_OK) require_line(status, &error);
    for (int t = 0; t < TRACES; t++)
        harpe_trace_free(&traces[t]);
    harpe_kernel_names_free(request.names);
}

#endif
