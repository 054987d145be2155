/* SPDX-License-Identifier: Apache-2.0 */
/* Plans one problem for one iteration time: quickly, by rounding the relaxed solution; or for a
 * replica of a job, whose time does not depend on the plan, with a search and with the frontier. */
#ifndef HARPE_PLAN_TIME_PLAN_H
#define HARPE_PLAN_TIME_PLAN_H

#include "plan/problem.h"

typedef struct harpe_quick_plan {
    double time_s, energy_j; /* of the plan, by the profile */
    double lower_bound_j;    /* no plan of the wanted time needs less */
} harpe_quick_plan;

/* Makes the plan for `time_s`, without a search for better plans. A time below T_min counts as
 * T_min, and a time above T* counts as T*. The work is a few percent of that of harpe_plan_set_new.
 * Writes the clock of each instruction into `frequency_mhz`, which has room for all. On failure,
 * writes nothing. */
harpe_status harpe_quick_plan_make(const harpe_problem *problem, double time_s, int *frequency_mhz,
                                   harpe_quick_plan *out, harpe_error *error);

#define HARPE_REPLICA_WIDTH 4 /* width of the dive for a replica */

/* Makes a plan that takes at most `time_s` and needs the least energy if the GPUs wait until then.
 * If the problem's shortest time is a little above `time_s`, because of rounding, the plan takes
 * the shortest time. `width` is the width of the dive. `numbers` receives the frequencies of the
 * harpe_problem. `*frontier` (may be NULL) receives the frontier from `least_s` on, with the
 * vertices above T*; free it with harpe_frontier_free. */
harpe_status harpe_replica_search(const harpe_problem *problem, double time_s, double least_s,
                                  int width, int *numbers, harpe_frontier **frontier,
                                  harpe_error *error);

/* Returns a lower bound of the energy at a time: the frontier, and beyond its slowest vertex also
 * the energy of waiting. The bound is convex over the time, and +infinity below the frontier. */
double harpe_replica_bound_j(const harpe_frontier *frontier, double time_s);

/* Returns the energy that a shorter iteration costs for each second that it saves, just below a
 * time, in W; 0 beyond the slowest vertex. */
double harpe_replica_marginal_w(const harpe_frontier *frontier, double time_s);

#endif
