/* SPDX-License-Identifier: Apache-2.0 */
/* Walks along the exact frontier of the relaxation with a parametric network simplex method. The
 * walk begins at the longest useful iteration, goes from vertex to vertex, and ends at the shortest
 * iteration. The caller may stop it at any time and read the optimal durations and flows. The
 * solver does not use frequencies.
 *
 * The state is a spanning tree of tight edges and a cut through it. The source is on the early side
 * of the cut, the sink on the late side. One pivot does this:
 * 1. The iteration becomes shorter: all events of the late side move towards the early side, until
 *    an edge across the cut becomes tight.
 * 2. Flow is sent from the source through the early side, that edge and the late side to the sink,
 *    until an edge on this path is full.
 * 3. The full edge leaves the tree, and the part of the tree below it changes sides.
 * The sum of the flow that was sent is the marginal energy -dE/dT.
 *
 * After each pivot, flow can still be sent from the root to each event along the tree (a strongly
 * feasible tree: W. H. Cunningham, A network simplex method, 1976). Pivots that send no flow can
 * therefore not cycle. */
#ifndef HARPE_PLAN_FRONTIER_SOLVER_H
#define HARPE_PLAN_FRONTIER_SOLVER_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/network.h"

__extension__ typedef __int128 harpe_int128;

/* A segment of the frontier, from the iteration time `from_ps` to shorter times. */
typedef struct harpe_frontier_segment {
    int64_t from_ps;
    int64_t flow_uw; /* energy for each second by which the iteration becomes shorter */
    double energy_j; /* compute energy (effective) at from_ps */
} harpe_frontier_segment;

/* The flow of an edge. A walk along a path needs all of these members, so they are next to each
 * other in memory. */
typedef struct harpe_edge_state {
    /* In uW. The edge's curve is at the segment `segment`, whose flow limits are `lowest` and
     * `highest`. An edge that is not in the tree has the lowest flow. */
    int64_t flow, lowest, highest;
    int32_t tail, head;
    int32_t segment, curve;
} harpe_edge_state;

#define HARPE_MOST_GROUPS 128 /* at most 256 */

typedef struct harpe_frontier_solver {
    harpe_arena arena;
    const harpe_network *network;
    int32_t sink;    /* the event that moves: the network's sink, or one that has a deadline */
    int64_t time_ps; /* iteration time of the current tree */
    /* All events of a group are on the same side of the cut and move together. Event v is at
     * position[v] plus the offset of its group. */
    uint8_t *group; /* [node] */
    int64_t *position, offset_ps[HARPE_MOST_GROUPS];
    bool is_late[HARPE_MOST_GROUPS];
    int32_t group_count;
    /* The tree: the parent of each event, and the edge to the parent; -1 for the source and the
     * sink. */
    int32_t *parent, *parent_edge;
    harpe_edge_state *edges;
    /* The edges across the cut, ordered by the iteration time at which they become tight; the
     * longest time is first. The heap may also contain edges that no longer cross the cut. They are
     * removed when they reach the top. */
    int32_t *heap, *heap_index;
    int64_t *tight_at_ps;
    int32_t heap_size;
    int64_t flow_uw;    /* the sum of the flow that was sent */
    harpe_int128 spent; /* energy added since all instructions were at their slowest, in 1e-18 J */
    bool at_end;        /* the walk has reached T_min */
    int32_t entering, early_end, late_end; /* the edge that becomes tight next, and its ends */
    int32_t *subtree, *rest; /* working memory: events that change sides, and others that do not */
    harpe_work work;
} harpe_frontier_solver;

harpe_status harpe_frontier_solver_init(harpe_frontier_solver *solver, const harpe_network *network,
                                        harpe_error *error);
void harpe_frontier_solver_clear(harpe_frontier_solver *solver);

/* Makes pivots until the iteration can become shorter, writes the segment that begins here to
 * `*segment`, and returns true. The caller must then call harpe_frontier_solver_advance. Returns
 * false at T_min. */
bool harpe_frontier_solver_next(harpe_frontier_solver *solver, harpe_frontier_segment *segment);

/* Returns the iteration time at which the current segment ends, because the next edge becomes
 * tight. */
int64_t harpe_frontier_solver_segment_end_ps(const harpe_frontier_solver *solver);

/* Continues the walk to the iteration time `time_ps`, which must not be below the end of the
 * segment. */
void harpe_frontier_solver_advance(harpe_frontier_solver *solver, int64_t time_ps);

/* Returns the compute energy (effective, without blocking) at the current time. */
double harpe_frontier_solver_energy_j(const harpe_frontier_solver *solver);

static inline bool harpe_frontier_solver_is_late(const harpe_frontier_solver *solver,
                                                 int32_t node) {
    return solver->is_late[solver->group[node]];
}

/* Returns the time of an event in ps since the start of the iteration, if the iteration takes the
 * current iteration time. */
static inline int64_t harpe_frontier_solver_event_ps(const harpe_frontier_solver *solver,
                                                     int32_t node) {
    return solver->position[node] + solver->offset_ps[solver->group[node]];
}

#endif
