/* SPDX-License-Identifier: Apache-2.0 */
/* Plans one problem for an iteration of a given time, which does not depend on the plan, and finds
 * the frontier of the problem from this time on. This header is private to src/plan. */
#ifndef HARPE_PLAN_REPLICA_SEARCH_H
#define HARPE_PLAN_REPLICA_SEARCH_H

#include "plan/problem.h"

#define HARPE_REPLICA_WIDTH 4 /* of the dive for the plan of a replica */

/* Makes a plan that takes at most `time_s` and needs the least energy if the GPUs wait until then.
 * If the problem's shortest time is a little above `time_s`, because of rounding, the plan takes
 * the shortest time. `width` is that of the dive. `numbers` receives the frequencies of the
 * harpe_problem. `*frontier` (may be NULL) receives the frontier from `least_s` on, with the
 * vertices above T*; free it with harpe_frontier_free. */
harpe_status harpe_replica_search(const harpe_problem *problem, double time_s, double least_s,
                                  int width, int *numbers, harpe_frontier **frontier,
                                  harpe_error *error);

/* Returns a lower bound of the energy at a time, which is convex over the time: the frontier, and
 * beyond its slowest vertex that of waiting. +infinity below the frontier. */
double harpe_replica_bound_j(const harpe_frontier *frontier, double time_s);

/* Returns the power that a shorter iteration costs just below a time; 0 beyond the slowest vertex.
 */
double harpe_replica_marginal_w(const harpe_frontier *frontier, double time_s);

#endif
