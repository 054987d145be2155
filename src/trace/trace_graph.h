/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the graph of a job from the traces of its ranks. */
#ifndef HARPE_TRACE_TRACE_GRAPH_H
#define HARPE_TRACE_TRACE_GRAPH_H

#include <harpe/graph.h>

#include "trace/trace.h"

typedef struct harpe_trace_graph_options {
    const char *gpu_model;   /* one of harpe_synth_gpu_models(); NULL: all times are fixed */
    double compute_share;    /* 0 .. 1: the part of a kernel's time that scales with the clock */
    double min_activity_s;   /* an activity that is shorter keeps the highest clock */
    double blocking_power_w; /* of each GPU; negative: that of the model, or 0 */
} harpe_trace_graph_options;

/* What became of the traces. */
typedef struct harpe_trace_graph_counts {
    size_t computing;      /* activities that compute */
    size_t with_options;   /* of these, the ones with several options */
    size_t communications; /* activities that communicate */
    size_t without_others; /* of these, the ones of which only one rank was found */
    size_t inside;         /* communications that are a part of an activity that computes */
    double inside_s;       /* their time on the rank where it is longest */
    double longest_s;      /* from the first to the last event of a rank, on the longest one */
} harpe_trace_graph_counts;

/* Makes a graph: a resource for each rank, and activities as activities.h describes. With the
 * highest clocks, an iteration of the graph takes as long as in the traces. Fails if two traces
 * have the same rank or different formats, if an event can never start, or if the traces contradict
 * each other. Traces with dependencies must be resolved; their times change. */
harpe_status harpe_trace_graph_new(harpe_trace *traces, size_t trace_count,
                                   const harpe_trace_graph_options *options, harpe_graph **out,
                                   harpe_trace_graph_counts *counts, harpe_error *error);

#endif
