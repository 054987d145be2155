/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the exact frontier of the relaxation from the longest useful iteration to the shortest, one
 * vertex after the other, by a parametric network simplex. It can be stopped at any time on the way
 * to read off the optimal durations and flows there. Knows nothing of frequencies.
 *
 * The state is a spanning tree of tight edges, cut in two: the early side hangs on the source, the
 * late side on the sink. Shortening the iteration moves the late side towards the early side until
 * an edge across the cut becomes tight; flow is then sent source -> early path -> that edge -> late
 * path -> sink until some edge on the way is full. That edge leaves the tree, the part of the tree
 * it carried changes sides, and the next vertex is found. Flow sent so far is the marginal energy
 * -dE/dT. Every pivot keeps positive room from the root to each event along the tree (a strongly
 * feasible tree: W. H. Cunningham, A network simplex method, 1976), so pivots that move no flow
 * cannot cycle. */
#ifndef HARPE_PLAN_FRONTIER_SOLVER_H
#define HARPE_PLAN_FRONTIER_SOLVER_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/network.h"

__extension__ typedef __int128 harpe_int128;

/* A stretch of the frontier: down from `from_ps`, every picosecond costs flow_uw. */
typedef struct harpe_frontier_segment {
    int64_t from_ps;
    int64_t flow_uw;
    double energy_j; /* compute energy (effective) at from_ps */
} harpe_frontier_segment;

/* Flow state of an edge, laid out for the path walks. The edge is on segment `segment` of its
 * curve when it is a tree edge; otherwise flow equals lowest: the segment is empty and the next
 * slower one is full. */
typedef struct harpe_edge_state {
    int64_t flow, lowest, highest; /* uW; lowest and highest of the current segment */
    int32_t tail, head;
    int32_t segment, curve;
} harpe_edge_state;

typedef struct harpe_frontier_solver {
    const harpe_network *network;
    /* Time. An event on the late side lies at position[v] + late_offset, others at position[v]. */
    int64_t time_ps; /* iteration time of the current tree */
    int64_t late_offset;
    int64_t *position;
    uint8_t *is_late;
    /* Tree. The source's and the sink's parent is -1. */
    int32_t *parent, *parent_edge;
    harpe_edge_state *edges;
    /* Edges across the cut by the iteration time at which they become tight, longest first; may
     * hold edges that no longer cross, which are dropped when they surface. */
    int32_t *heap, *heap_index;
    int64_t *tight_at_ps;
    int32_t heap_size;
    /* The walk. */
    int64_t flow_uw;
    harpe_int128 spent; /* energy added since everything was slowest, in 1e-18 J */
    bool at_end;        /* T_min is reached */
    int32_t entering, early_end, late_end; /* the edge that becomes tight next and its ends */
    int32_t *subtree, *boundary;           /* scratch: nodes that change sides, edges to look at */
    harpe_work work;
} harpe_frontier_solver;

harpe_status harpe_frontier_solver_init(harpe_frontier_solver *solver, const harpe_network *network,
                                        harpe_error *error);
void harpe_frontier_solver_clear(harpe_frontier_solver *solver);

/* Bytes that a solver for `network` allocates. */
uint64_t harpe_frontier_solver_bytes(const harpe_network *network);

/* Pivots until time can move; then fills in the segment that begins here and returns true. Returns
 * false at T_min. Follow with harpe_frontier_solver_advance. */
bool harpe_frontier_solver_next(harpe_frontier_solver *solver, harpe_frontier_segment *segment);

/* Where the current segment ends: the iteration time at which the next edge becomes tight. */
int64_t harpe_frontier_solver_segment_end_ps(const harpe_frontier_solver *solver);

/* Moves to iteration time `time_ps`, not below the segment's end. */
void harpe_frontier_solver_advance(harpe_frontier_solver *solver, int64_t time_ps);

/* Compute energy (effective, without blocking) at the current time. */
double harpe_frontier_solver_energy_j(const harpe_frontier_solver *solver);

/* When an event happens at the current time, from the start of the iteration. */
static inline int64_t harpe_frontier_solver_event_ps(const harpe_frontier_solver *solver,
                                                     int32_t node) {
    return solver->position[node] + (solver->is_late[node] ? solver->late_offset : 0);
}

#endif
