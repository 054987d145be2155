/* SPDX-License-Identifier: Apache-2.0 */
/* The relaxation as a flow network. Nodes are events; an edge is an instruction (from its start to
 * its end, with a convex cost) or a dependency (length 0). Events that a sole predecessor or a sole
 * successor pins to each other are one node. Whole numbers throughout: times in picoseconds, flow
 * in microwatts. The network knows nothing of solving. */
#ifndef HARPE_PLAN_NETWORK_H
#define HARPE_PLAN_NETWORK_H

#include <stdint.h>

#include "plan/problem.h"

#define HARPE_PS_PER_S 1e12
#define HARPE_UW_PER_W 1e6
#define HARPE_FLOW_INFINITE (INT64_C(1) << 60)

/* Rounds `value` down to whole units. A value that doubles cannot distinguish from a whole number
 * becomes that number. This rounding never raises a bound. */
int64_t harpe_round_down(double value);

/* No GPU saves more than this by slowing down; a profile that says so is refused. */
#define HARPE_STEEPEST_W 1e9

/* A convex cost in whole numbers. Segment k (0 .. segment_count) is an arc of length time_ps[k]
 * that carries flow between rate_uw[k + 1] and rate_uw[k]: rate_uw[k] is what stretching from
 * time_ps[k - 1] to time_ps[k] saves; rate_uw[0] is infinite, rate_uw[segment_count + 1] is 0. */
typedef struct harpe_network_curve {
    int32_t segment_count;   /* K */
    int64_t *time_ps;        /* [K + 1], increasing */
    int64_t *rate_uw;        /* [K + 2], decreasing */
    double slowest_energy_j; /* effective energy at time_ps[K] */
} harpe_network_curve;

/* An edge as one of its ends sees it. */
typedef struct harpe_incidence {
    int32_t edge;
    int32_t node; /* the other end */
} harpe_incidence;

typedef struct harpe_network {
    harpe_arena arena;
    int32_t node_count;
    int32_t source, sink;
    int32_t edge_count; /* edges 0 .. instruction_count - 1 are the instructions */
    int32_t instruction_count;
    int32_t *tail, *head; /* [edge_count] */
    int32_t *curve_of;    /* [edge_count]; dependencies have curve 0 */
    int32_t curve_count;
    harpe_network_curve *curves; /* [0] is the dependency's: one segment of length 0 */
    int32_t *first_incidence;    /* [node_count + 1] */
    harpe_incidence *incidences; /* [2 * edge_count], by node */
    int32_t *topological_order;  /* [node_count] nodes */
    int64_t blocking_uw;         /* all ranks' blocking power together */
    double slowest_energy_j;     /* sum of effective energies with everything at its slowest */
} harpe_network;

harpe_status harpe_network_build(const harpe_problem *problem, harpe_network *out,
                                 harpe_error *error);
void harpe_network_clear(harpe_network *network);

#endif
