/* SPDX-License-Identifier: Apache-2.0 */
/* Fits an exponential curve to the energies of an instruction. */
#ifndef HARPE_PLAN_COST_MODEL_EXPONENTIAL_H
#define HARPE_PLAN_COST_MODEL_EXPONENTIAL_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/plan.h>
#include <harpe/profile.h>

#include "plan/cost_model.h"

/* Fits a*exp(b*t)+c (a > 0, b < 0) to the *energy* of the Pareto points of (time, energy), converts
 * it to effective energy, and samples it every unit_time_s (0: 0.001) from the fastest to the
 * slowest option, including both. If fewer than 4 Pareto points remain, noise_factor (0: 0.95)
 * relaxes the filter: it then drops a point p only if a strictly faster point needs less than
 * noise_factor times the energy of p.
 *
 * No curve can be fitted to fewer than 3 distinct times, to a single option, or to energies that do
 * not fall with the time. The function then uses the hull and sets *fitted to false. `coefficients`
 * receives a, b and c (time in s, energy in J), or zeros if no curve is fitted. Fails with
 * HARPE_LIMIT_EXCEEDED for more than 20,000 steps. */
harpe_status harpe_curve_from_exponential(const harpe_profile_point *points, size_t point_count,
                                          const harpe_option *options, size_t option_count,
                                          double blocking_power_w, double unit_time_s,
                                          double noise_factor, harpe_curve *out, bool *fitted,
                                          double coefficients[3], harpe_error *error);

#endif
