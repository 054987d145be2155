/* SPDX-License-Identifier: Apache-2.0 */
/* A flow from the source to the sink of a network. The flow of an edge is the price of a second of
 * its length, in W. harpe_flow_step changes the flow, and what flows into a node still flows out of
 * it. Private to src/plan. */
#ifndef HARPE_PLAN_FLOW_H
#define HARPE_PLAN_FLOW_H

#include "plan/frontier_solver.h"

typedef struct harpe_flow {
    const harpe_network *network;
    double total_w;
    double *edge_w; /* [edge], >= 0 */
    double *time_s; /* [node]: near the times that explain the lengths of the last step */
    double *memory; /* 4 numbers for each node */
} harpe_flow;

/* The arena owns the memory. */
harpe_status harpe_flow_init(harpe_flow *flow, const harpe_network *network, harpe_arena *arena,
                             harpe_error *error);

/* Takes the flow of the relaxation. */
void harpe_flow_read(harpe_flow *flow, const harpe_frontier_solver *solver);

/* Distributes a share of the flow over all edges, so that no edge is without flow. */
void harpe_flow_spread(harpe_flow *flow, double share);

/* Returns by how much the flow is not conserved, summed over all nodes. */
double harpe_flow_loss_w(harpe_flow *flow);

/* Raises the flow on paths that are longer than `limit_s`, and lowers it on those that are shorter,
 * if the edges have these lengths. `rate` is the step, relative to the excess of the lengths over
 * the limit. The flow from the source stays at `least_w` at least. Takes O(edges) for each of at
 * most 300 rounds. */
void harpe_flow_step(harpe_flow *flow, const double *length_s, double limit_s, double rate,
                     double least_w);

#endif
