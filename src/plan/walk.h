/* SPDX-License-Identifier: Apache-2.0 */
/* One walk along the frontier: drives the solver from the minimum-energy time T* to T_min, records
 * the vertices on the way, and stops where a plan is wanted. Between the solver, which knows only
 * events and flow, and the public frontier and plan sets. */
#ifndef HARPE_PLAN_WALK_H
#define HARPE_PLAN_WALK_H

#include <stdbool.h>

#include "plan/assignment.h"
#include "plan/frontier_solver.h"

struct harpe_frontier {
    harpe_frontier_vertex *vertices; /* slowest first while walking, fastest first when done */
    size_t count, capacity;
    double blocking_w; /* all ranks' together */
    harpe_work work;
};

typedef struct harpe_walk {
    const harpe_problem *problem;
    const harpe_progress *progress; /* NULL: none */
    harpe_network network;
    harpe_frontier_solver solver;
    harpe_frontier frontier;
    bool in_segment;           /* the solver stands on a segment that is not used up */
    int64_t slowest_ps;        /* where the solver began */
    int64_t minimum_energy_ps; /* T* */
    int64_t fastest_ps;        /* T_min */
    uint32_t steps;            /* segments since progress was last reported */
    /* Called (unless NULL) at every vertex below T*, the solver standing on it; `kink_uw` is how
     * much steeper the frontier becomes there. */
    void (*at_vertex)(void *user, int64_t kink_uw);
    void *user;
} harpe_walk;

/* How far a time may be below T_min and still count as T_min. */
double harpe_time_slack_s(double iteration_s);

/* Builds the network and walks to T*. On failure there is nothing to clear. */
harpe_status harpe_walk_begin(harpe_walk *walk, const harpe_problem *problem,
                              const harpe_progress *progress, harpe_error *error);

/* Walks down to `time_ps` (not below T_min, not above the current time). */
harpe_status harpe_walk_to(harpe_walk *walk, int64_t time_ps, harpe_error *error);

/* Walks down to the next vertex; at T_min stays there. */
harpe_status harpe_walk_to_next_vertex(harpe_walk *walk, harpe_error *error);

/* Fills in the optimal durations and prices at the current time; the arrays have room for all
 * instructions. */
void harpe_walk_read(const harpe_walk *walk, harpe_relaxed *relaxed);

/* Lower bound (blocking included) at a time that has been walked already, or by the current slope
 * below it. */
double harpe_walk_bound_j(const harpe_walk *walk, double time_s);

/* Walks to T_min, closes the list of vertices and hands the frontier over. */
harpe_status harpe_walk_finish(harpe_walk *walk, harpe_frontier **out, harpe_error *error);

void harpe_walk_clear(harpe_walk *walk);

#endif
