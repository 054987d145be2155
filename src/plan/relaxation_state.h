/* SPDX-License-Identifier: Apache-2.0 */
/* Solutions of a relaxation that are set aside, so that a search can go on from several of them. */
#ifndef HARPE_PLAN_RELAXATION_STATE_H
#define HARPE_PLAN_RELAXATION_STATE_H

#include "plan/relaxation.h"

/* A solution that is set aside: the part of a relaxation that pivots change. */
typedef struct harpe_relaxation_state {
    harpe_relaxation_edge *edges;
    int64_t *position;
    int32_t *parent, *parent_edge;
    int32_t *suspects;
    uint8_t *is_suspect;
    int32_t suspect_count, next_suspect;
    double objective_j;
} harpe_relaxation_state;

/* Allocates a state for graphs of at most so many events and edges. Returns false if there is no
 * memory. */
bool harpe_relaxation_state_make(harpe_relaxation_state *state, harpe_arena *arena,
                                 size_t most_nodes, size_t most_edges);

/* Exchanges the present solution and one that was set aside. Both must be of the same graph, or the
 * relaxation must get a new graph before it is used again. Copies no array. */
void harpe_relaxation_swap(harpe_relaxation *relaxation, harpe_relaxation_state *state);

/* Copies a solution of the relaxation's graph that was set aside. O(edges). */
void harpe_relaxation_state_copy(const harpe_relaxation *relaxation, harpe_relaxation_state *to,
                                 const harpe_relaxation_state *from);

#endif
