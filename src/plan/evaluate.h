/* SPDX-License-Identifier: Apache-2.0 */
/* The two parts of evaluating a plan: finding each instruction's measured point, and running the
 * pipeline with any points. Private to src/plan. */
#ifndef HARPE_PLAN_EVALUATE_H
#define HARPE_PLAN_EVALUATE_H

#include "plan/problem.h"

/* Returns the point that was measured at a frequency (0: the highest frequency), or NULL if the
 * profile has no such point. */
const harpe_profile_point *harpe_choice_point(const harpe_choice *choice, int frequency_mhz);

/* Finds the point of every instruction; `points` has room for all. The error names the first
 * instruction without a point. */
harpe_status harpe_evaluate_find_points(const harpe_problem *problem, const int *frequency_mhz,
                                        const harpe_profile_point **points, harpe_error *error);

/* Computes the time and the energies if every instruction starts as early as possible. `start_s`
 * receives every start. lower_bound_j and frequency_mhz stay 0. */
harpe_plan harpe_evaluate_points(const harpe_problem *problem,
                                 const harpe_profile_point *const *points, double *start_s);

#endif
