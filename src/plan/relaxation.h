/* SPDX-License-Identifier: Apache-2.0 */
/* Solves the relaxation at one iteration time, again and again while single instructions are fixed
 * to a measured option or released. The walk along the frontier (frontier_solver.h) changes the
 * iteration time and keeps the curves; this solver keeps the iteration time and changes curves.
 *
 * The dual of the relaxation is a circulation of maximum gain: the graph of events, with one more
 * edge of length -T from the sink to the source. Every flow is feasible for every curve, because
 * the only limit of a flow is that it is not negative. After a change of a curve the last flow is
 * therefore still feasible, and a few pivots of the primal network simplex method make it optimal
 * again. The objective of any feasible flow is a lower bound, so a trial can stop as soon as it is
 * above a known value.
 *
 * The spanning tree is strongly feasible (flow can be sent from the root to each event), so pivots
 * that move no flow cannot cycle. Changes of curves keep this property.
 *
 * Times are in picoseconds, flows in microwatts, energies in joules without blocking energy. */
#ifndef HARPE_PLAN_RELAXATION_H
#define HARPE_PLAN_RELAXATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "plan/frontier_solver.h"

/* A convex cost; the members are those of harpe_network_curve, and the energy of each point
 * according to the rounded rates. */
typedef struct harpe_relaxation_curve {
    int32_t segment_count;
    const int64_t *time_ps; /* [segment_count + 1] */
    const int64_t *rate_uw; /* [segment_count + 2] */
    const double *energy_j; /* [segment_count + 1] */
} harpe_relaxation_curve;

/* The curves of a problem. They do not change, and several solvers may share them. */
typedef struct harpe_relaxation_curves {
    harpe_arena arena;
    harpe_relaxation_curve *hull;   /* [choice]: free; then one for each wait of the network */
    harpe_relaxation_curve *option; /* one for each option of each choice: fixed */
    int32_t *first_option;          /* [choice + 1]: index of its first option */
    int64_t *option_time_ps;        /* [option] */
    double *option_energy_j;        /* [option], effective */
} harpe_relaxation_curves;

harpe_status harpe_relaxation_curves_init(harpe_relaxation_curves *curves,
                                          const harpe_problem *problem,
                                          const harpe_network *network, harpe_error *error);
void harpe_relaxation_curves_clear(harpe_relaxation_curves *curves);

/* The flow of an edge. An edge outside of the tree has the lowest flow of its segment, except
 * between a change of its curve and the next pivots. */
typedef struct harpe_relaxation_edge {
    const harpe_relaxation_curve *curve;
    int64_t flow, lowest, highest;
    int32_t tail, head;
    int32_t segment;
} harpe_relaxation_edge;

typedef struct harpe_relaxation {
    harpe_arena arena;
    int32_t node_count, edge_count;
    int32_t source, sink;
    int64_t deadline_ps; /* T */
    double objective_j;  /* of the present flow */
    harpe_relaxation_edge *edges;
    harpe_relaxation_curve back;   /* of the edge from the sink to the source */
    int64_t back_ps;               /* -T */
    int64_t *position;             /* time of each event, relative to the others */
    int32_t *parent, *parent_edge; /* the tree; the root is the source */
    int32_t *first_incidence;
    harpe_incidence *incidences;
    int32_t *suspects; /* edges that may violate the optimality conditions */
    uint8_t *is_suspect;
    int32_t suspect_count, next_suspect;
    int32_t *subtree; /* working memory */
    uint8_t *is_inside;
    uint32_t *mark; /* stamps of the search for an apex */
    uint32_t stamp;
    uint64_t pivots;
} harpe_relaxation;

typedef enum harpe_relaxation_outcome {
    HARPE_RELAXATION_OPTIMAL,
    HARPE_RELAXATION_ABOVE,      /* the optimum is above the limit */
    HARPE_RELAXATION_INFEASIBLE, /* no durations meet the deadline */
} harpe_relaxation_outcome;

/* Allocates memory for the network. */
harpe_status harpe_relaxation_init(harpe_relaxation *relaxation, const harpe_network *network,
                                   harpe_error *error);
void harpe_relaxation_clear(harpe_relaxation *relaxation);

/* Takes over the whole network, and the optimal tree and flow of a walk at its present iteration
 * time. All instructions are free, and edge i is instruction i. O(edges). */
void harpe_relaxation_load(harpe_relaxation *relaxation, const harpe_relaxation_curves *curves,
                           const harpe_frontier_solver *solver);

/* Gives an edge another curve. harpe_relaxation_solve must be called afterwards. O(events). */
void harpe_relaxation_change(harpe_relaxation *relaxation, int32_t edge,
                             const harpe_relaxation_curve *curve);

/* Finds the optimum, or stops when the optimum is known to be at least `limit_j`. Whatever the
 * outcome, more changes may follow. */
harpe_relaxation_outcome harpe_relaxation_solve(harpe_relaxation *relaxation, double limit_j);

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

/* Allocates a state. Returns false if there is no memory. */
bool harpe_relaxation_state_make(harpe_relaxation_state *state, harpe_arena *arena,
                                 const harpe_network *network);

/* Exchanges the present solution and one that was set aside. Copies no array. */
void harpe_relaxation_swap(harpe_relaxation *relaxation, harpe_relaxation_state *state);

/* Copies a solution that was set aside. O(edges). */
void harpe_relaxation_state_copy(const harpe_relaxation *relaxation, harpe_relaxation_state *to,
                                 const harpe_relaxation_state *from);

/* Returns the time between the events at both ends of an edge. After an optimal solution, the
 * instruction may take this time. */
static inline int64_t harpe_relaxation_span_ps(const harpe_relaxation *relaxation, int32_t edge) {
    const harpe_relaxation_edge *of = &relaxation->edges[edge];
    return relaxation->position[of->head] - relaxation->position[of->tail];
}

/* Returns the time of an event since the start of the iteration. */
static inline int64_t harpe_relaxation_event_ps(const harpe_relaxation *relaxation, int32_t node) {
    return relaxation->position[node] - relaxation->position[relaxation->source];
}

#endif
