/* SPDX-License-Identifier: Apache-2.0 */
/* The two parts of evaluating a plan: finding each instruction's measured point, and running the
 * pipeline with any points. Private to src/plan. */
#ifndef HARPE_PLAN_EVALUATE_H
#define HARPE_PLAN_EVALUATE_H

#include "plan/problem.h"

/* Returns true if an instruction was measured at clocks. Otherwise its only point is at 0 MHz: it
 * runs at any clock, always takes the same time, and leaves the clock as it is. */
static inline bool harpe_choice_has_clocks(const harpe_choice *choice) {
    return choice->points[0].frequency_mhz != 0;
}

/* Returns the point of an instruction while its GPU has a clock, or NULL if it was not measured at
 * this clock. */
const harpe_profile_point *harpe_choice_point(const harpe_choice *choice, int clock_mhz);
/* The same, but NULL also for a clock that the GPU did not reach. Plans are made of these points.
 */
const harpe_profile_point *harpe_choice_reached(const harpe_choice *choice, int clock_mhz);

/* Returns the clock that a plan leaves at the end of a rank's list, which is also that at its
 * beginning; 0: the rank has no clock. */
int harpe_evaluate_last_clock_mhz(const harpe_problem *problem, int rank, const int *frequency_mhz);

/* Returns how often the clocks of a plan change in an iteration. */
size_t harpe_evaluate_changes(const harpe_problem *problem, const int *frequency_mhz);

/* Finds the point of every instruction; `points` has room for all. At 0 MHz it is the point at this
 * frequency if there is one, else that at the clock which the rank has at this place of its list,
 * or at the highest if the rank has none. The error names the first instruction without a point. */
harpe_status harpe_evaluate_find_points(const harpe_problem *problem, const int *frequency_mhz,
                                        const harpe_profile_point **points, harpe_error *error);

/* Computes the time and the energies if every instruction starts as early as possible. `start_s`
 * receives every start. lower_bound_j and frequency_mhz stay 0. */
harpe_plan harpe_evaluate_points(const harpe_problem *problem,
                                 const harpe_profile_point *const *points, double *start_s);

/* Computes the latest start of every instruction. `latest_s` must contain the latest end of each of
 * them: the end of the iteration, or a deadline. */
void harpe_evaluate_latest_starts(const harpe_problem *problem,
                                  const harpe_profile_point *const *points, double *latest_s);

#endif
