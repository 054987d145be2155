/* SPDX-License-Identifier: Apache-2.0 */
/* Groups the events of traces into activities. The computation of each rank is divided at the
 * communications that the graph keeps; all other communications become a part of an activity. */
#ifndef HARPE_TRACE_ACTIVITIES_H
#define HARPE_TRACE_ACTIVITIES_H

#include "trace/communications.h"

/* Two moments of one rank that are closer count as the same: older versions of Kineto write whole
 * microseconds. */
#define HARPE_TRACE_RESOLUTION_S 1e-6

/* A time in which the GPU computes without a pause, on any of its streams. */
typedef struct harpe_trace_block {
    double start_s, end_s;
    double kernel_s; /* the part with a kernel; otherwise, only copies run */
} harpe_trace_block;

/* Blocks of one rank that become one activity. */
typedef struct harpe_trace_piece {
    size_t trace;
    size_t first_block, end_block; /* of the rank's lane */
    double start_s, end_s;
    double kernel_s, copy_s; /* in the rest of the time, the GPU waits */
} harpe_trace_piece;

/* The computation of one rank, in order. */
typedef struct harpe_trace_lane {
    size_t block_count;
    harpe_trace_block *blocks;
    bool *is_cut;     /* [block_count + 1]: an activity begins at this block */
    size_t *block_of; /* [events]: of a compute event */
    size_t *piece_of; /* [block_count] */
    double zero_s;    /* start of the rank's first event */
} harpe_trace_lane;

/* Where a communication stands in the lane of one of its ranks. */
typedef struct harpe_trace_place {
    size_t need;   /* it waits for all blocks before this one */
    size_t next;   /* this block and the later ones wait for it; HARPE_TRACE_NONE: none does */
    bool must_cut; /* otherwise the first activity that begins at `next` or later waits */
} harpe_trace_place;

typedef struct harpe_activities {
    harpe_trace_lane *lanes;   /* [traces] */
    harpe_trace_place *places; /* [parts of the communications] */
    bool *is_kept;             /* [communications]: becomes an activity of its own */
    size_t piece_count;
    harpe_trace_piece *pieces; /* rank by rank, in order */
} harpe_activities;

/* `order` is that of harpe_trace_replay for traces with dependencies, and NULL for traces with
 * known starts. Free with harpe_activities_free, also after a failure. */
harpe_status harpe_activities_new(const harpe_trace *traces, size_t trace_count,
                                  const harpe_communications *communications, size_t *const *order,
                                  double min_activity_s, harpe_activities *out, harpe_error *error);
void harpe_activities_free(harpe_activities *activities, size_t trace_count);

#endif
