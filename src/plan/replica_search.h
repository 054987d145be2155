/* SPDX-License-Identifier: Apache-2.0 */
/* Plans one problem for an iteration of a given time, which does not depend on the plan, and finds
 * the frontier of the problem from this time on. This header is private to src/plan. */
#ifndef HARPE_PLAN_REPLICA_SEARCH_H
#define HARPE_PLAN_REPLICA_SEARCH_H

#include <stddef.h>

#include "plan/problem.h"

#define HARPE_REPLICA_WIDTH 4 /* of the dive for the plan of a replica */

/* A lower bound of the energy of an iteration, for each time of the iteration. The bound is a
 * convex, piecewise linear function of the time. */
typedef struct harpe_replica_curve {
    size_t count;
    harpe_frontier_vertex *vertices; /* slowest first; owned. Below the last one, the last slope
                                      * goes on down to fastest_s */
    double fastest_s;
    double iteration_power_w; /* the slope beyond the slowest vertex */
} harpe_replica_curve;

/* Makes a plan that takes at most `time_s` and needs the least energy if the GPUs wait until then.
 * If the problem's shortest time is a little above `time_s`, because of rounding, the plan takes
 * the shortest time. `width` is that of the dive. `numbers` receives the frequencies of the
 * harpe_problem. `curve` receives the bound for all times from `least_s` on. */
harpe_status harpe_replica_search(const harpe_problem *problem, double time_s, double least_s,
                                  int width, int *numbers, harpe_replica_curve *curve,
                                  harpe_error *error);

/* Returns the lower bound at a time; +infinity below the shortest time. */
double harpe_replica_curve_at(const harpe_replica_curve *curve, double time_s);

/* Returns the power that a shorter iteration costs just below a time; 0 beyond the slowest vertex.
 */
double harpe_replica_curve_marginal_w(const harpe_replica_curve *curve, double time_s);

void harpe_replica_curve_clear(harpe_replica_curve *curve);

#endif
