/* SPDX-License-Identifier: Apache-2.0 */
/* The relaxation as a flow network. Nodes are events. An edge is an instruction (from its start to
 * its end, with a convex cost) or a dependency (length 0). An instruction's start and the end of
 * its single predecessor are one node. An instruction's end and the start of its single successor
 * are one node. If a wait of a rank is cheaper than the rank's other waits, it is an edge with a
 * cost too, and its ends are events of their own. A deadline is an edge of negative length from the
 * event that it limits back to the source. All numbers are whole: times in picoseconds, flow in
 * microwatts. frontier_solver.c solves the network. */
#ifndef HARPE_PLAN_NETWORK_H
#define HARPE_PLAN_NETWORK_H

#include <stdint.h>

#include "base/array.h"
#include "plan/problem.h"

#define HARPE_PS_PER_S 1e12
#define HARPE_UW_PER_W 1e6
#define HARPE_FLOW_INFINITE (INT64_C(1) << 60)

/* Rounds `value` down to whole units. A value that doubles cannot distinguish from a whole number
 * becomes that number. A lower bound that is computed from rounded values is never too high. */
int64_t harpe_round_down(double value);

/* Limit for the energy saved per second by which an instruction becomes longer. A profile with a
 * steeper curve is refused. */
#define HARPE_STEEPEST_W 1e9

/* A convex cost in whole numbers. Segment k (0 .. segment_count) is an arc of length time_ps[k]
 * that carries flow between rate_uw[k + 1] and rate_uw[k]. rate_uw[k] is the energy saved per
 * second between time_ps[k - 1] and time_ps[k]. rate_uw[0] is infinite, and rate_uw[segment_count +
 * 1] is 0. */
typedef struct harpe_network_curve {
    int32_t segment_count;   /* K */
    int64_t *time_ps;        /* [K + 1], increasing */
    int64_t *rate_uw;        /* [K + 2], decreasing */
    double slowest_energy_j; /* effective energy at time_ps[K] */
} harpe_network_curve;

/* An edge from the view of one of its ends. */
typedef struct harpe_incidence {
    int32_t edge;
    int32_t node; /* the other end */
} harpe_incidence;

/* A wait that saves energy as it becomes longer, up to the longest wait of any plan. */
typedef struct harpe_network_wait {
    int32_t edge;
    int32_t rank;
    int32_t before, after; /* instructions of the rank; -1: the start, the end of the iteration */
    double saving_w;
} harpe_network_wait;

typedef struct harpe_network {
    harpe_arena arena;
    int32_t node_count;
    int32_t source, sink;
    int32_t edge_count; /* edges 0 .. instruction_count - 1 are the instructions */
    int32_t instruction_count;
    int32_t *tail, *head; /* [edge_count] */
    int32_t *curve_of;    /* [edge_count]; dependencies have curve 0 */
    int32_t curve_count;
    harpe_network_curve *curves; /* curves[0]: dependencies, one segment of length 0; then the
                                  * choices; then the waits */
    int32_t wait_count;
    harpe_network_wait *waits;
    int32_t *first_incidence;    /* [node_count + 1] */
    harpe_incidence *incidences; /* [2 * edge_count], by node */
    int32_t *topological_order;  /* [node_count] nodes, without the edges of deadlines */
    int64_t iteration_power_uw;  /* blocking power of all ranks together, and overhead */
    double slowest_energy_j;     /* sum of effective energies with all instructions at their
                                  * slowest */
} harpe_network;

/* Returns true if an edge is a deadline. All others lead away from the source. */
static inline bool harpe_network_is_deadline(const harpe_network *network, int32_t edge) {
    return network->head[edge] == network->source;
}

harpe_status harpe_network_build(const harpe_problem *problem, harpe_network *out,
                                 harpe_error *error);
void harpe_network_clear(harpe_network *network);

#endif
