/* SPDX-License-Identifier: Apache-2.0 */
/* A lower bound for plans whose changes of clock take time or cost energy. Private to src/plan.
 *
 * The proof. Take any flow through the network (network.h) that is conserved at every node, F W in
 * all from source to sink, and any plan of the time t <= T. Add, over all edges, flow times (time
 * of the tail + length - time of the head): because the flow is conserved, the times of all nodes
 * but source and sink cancel. The energy of the plan is therefore exactly (P - F) t, where P is the
 * power of the whole iteration, plus, for each instruction, its effective energy and its flow times
 * its duration, plus, for each edge, its flow times its slack, plus the energy of the changes. A
 * wait of a rank is slack of the edges between two neighbours of its list, so a second of it costs
 * at least the least flow of these edges. All other slack costs at least 0. The
 * remaining sum has one part for each rank. If a rank changes its clock, the runs of instructions
 * at one clock form a circle, and each of them lasts, with the waits in it and after it, as long as
 * its clock must hold; a run that is shorter waits for what is missing, at no less than the least
 * price of its waits. rank_clocks.c finds the least cost of a rank exactly, but for the run that
 * contains the cut of the circle, which need not hold, and is thus never above the plan's. Runs
 * that no iteration of at most T has room for are left out; so are all changes if T has no room for
 * two clocks that hold. As F >= P, the sum is least at t = T. Where doubles do not quite conserve
 * the flow, the times of the nodes, at most T, do not quite cancel, and the bound is lowered by
 * what is lost times T. */
#ifndef HARPE_PLAN_CLOCK_BOUND_H
#define HARPE_PLAN_CLOCK_BOUND_H

#include "plan/frontier_solver.h"
#include "plan/rank_clocks.h"
#include "plan/walk.h"

typedef struct harpe_flow {
    const harpe_network *network;
    double total_w;
    double *edge_w; /* [edge], >= 0 */
    double *time_s; /* [node]: near the times that explain the lengths of the last step */
    double *memory; /* 4 numbers for each node */
} harpe_flow;

typedef struct harpe_clock_bound {
    harpe_rank_clocks clocks;
    harpe_rank_proof proof;
    harpe_flow flow;
    harpe_arena arena;
    double best_j, best_total_w, *best_w; /* of the flow that proves most; [edge] */
    double *length_s;                     /* [edge]: mean of the last steps */
    int32_t *wait_edge;       /* [instruction]: the edge of the wait before it, or below 0 */
    double *wait_w;           /* [instruction]: its price */
    double *early_s, *tail_s; /* [instruction]: the least time before its start, after its end */
    bool *is_free; /* [rank]: its instructions have no clock in common, so it need not hold one */
} harpe_clock_bound;

harpe_status harpe_clock_bound_init(harpe_clock_bound *bound, const harpe_problem *problem,
                                    const harpe_clock_switch *cost, const harpe_network *network,
                                    harpe_error *error);
void harpe_clock_bound_clear(harpe_clock_bound *bound);

/* Adds to the walk's frontier the bound that its present flow proves for plans that take at most
 * `longest_s`. */
harpe_status harpe_clock_bound_add(harpe_clock_bound *bound, harpe_walk *walk, double longest_s,
                                   harpe_error *error);

#endif
