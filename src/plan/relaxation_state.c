/* SPDX-License-Identifier: Apache-2.0 */
/* Solutions of a relaxation that are set aside; see relaxation_state.h. */
#include "plan/relaxation_state.h"

#include <string.h>

bool harpe_relaxation_state_make(harpe_relaxation_state *state, harpe_arena *arena,
                                 size_t most_nodes, size_t most_edges) {
    most_edges++; /* the edge from the sink to the source */
    harpe_relaxation_state s = {0};
    s.edges = harpe_arena_alloc(arena, most_edges, sizeof *s.edges);
    s.position = harpe_arena_alloc(arena, most_nodes, sizeof *s.position);
    s.parent = harpe_arena_alloc(arena, most_nodes, sizeof *s.parent);
    s.parent_edge = harpe_arena_alloc(arena, most_nodes, sizeof *s.parent_edge);
    s.suspects = harpe_arena_alloc(arena, most_edges, sizeof *s.suspects);
    s.is_suspect = harpe_arena_alloc(arena, most_edges, sizeof *s.is_suspect);
    if (!s.edges || !s.position || !s.parent || !s.parent_edge || !s.suspects || !s.is_suspect)
        return false;
    *state = s;
    return true;
}

void harpe_relaxation_swap(harpe_relaxation *relaxation, harpe_relaxation_state *state) {
    harpe_relaxation *r = relaxation;
    harpe_relaxation_state present = {r->edges,         r->position,     r->parent,
                                      r->parent_edge,   r->suspects,     r->is_suspect,
                                      r->suspect_count, r->next_suspect, r->objective_j};
    r->edges = state->edges;
    r->position = state->position;
    r->parent = state->parent;
    r->parent_edge = state->parent_edge;
    r->suspects = state->suspects;
    r->is_suspect = state->is_suspect;
    r->suspect_count = state->suspect_count;
    r->next_suspect = state->next_suspect;
    r->objective_j = state->objective_j;
    *state = present;
}

void harpe_relaxation_state_copy(const harpe_relaxation *relaxation, harpe_relaxation_state *to,
                                 const harpe_relaxation_state *from) {
    size_t nodes = (size_t)relaxation->node_count, edges = (size_t)relaxation->edge_count;
    for (int32_t i = 0; i < to->suspect_count; i++)
        to->is_suspect[to->suspects[i]] = 0;
    for (int32_t i = 0; i < from->suspect_count; i++) {
        to->suspects[i] = from->suspects[i];
        to->is_suspect[from->suspects[i]] = 1;
    }
    memcpy(to->edges, from->edges, edges * sizeof *to->edges);
    memcpy(to->position, from->position, nodes * sizeof *to->position);
    memcpy(to->parent, from->parent, nodes * sizeof *to->parent);
    memcpy(to->parent_edge, from->parent_edge, nodes * sizeof *to->parent_edge);
    to->suspect_count = from->suspect_count;
    to->next_suspect = from->next_suspect;
    to->objective_j = from->objective_j;
}
