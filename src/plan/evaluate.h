/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of evaluating a plan: finding each instruction's measured point, and running the
 * pipeline with any points. Private to src/plan. */
#ifndef HARPE_PLAN_EVALUATE_H
#define HARPE_PLAN_EVALUATE_H

#include "plan/problem.h"

/* The point of a frequency (0: of the highest), or NULL where the profile has none. */
const harpe_profile_point *harpe_choice_point(const harpe_choice *choice, int frequency_mhz);

/* The same for every instruction; `points` has room for all. Names the first that has none. */
harpe_status harpe_evaluate_find_points(const harpe_problem *problem, const int *frequency_mhz,
                                        const harpe_profile_point **points, harpe_error *error);

/* Time and energies of the earliest schedule; `start_s` receives every start. lower_bound_j and
 * frequency_mhz are left 0. */
harpe_plan harpe_evaluate_points(const harpe_problem *problem,
                                 const harpe_profile_point *const *points, double *start_s);

#endif
