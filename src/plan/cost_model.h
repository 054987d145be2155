/* SPDX-License-Identifier: Apache-2.0 */
/* From a (stage, instruction)'s measured points to what the planner chooses among: the
 * Pareto-optimal options, and the convex decreasing curve that the relaxation uses. */
#ifndef HARPE_PLAN_COST_MODEL_H
#define HARPE_PLAN_COST_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/plan.h>
#include <harpe/profile.h>

/* The Pareto-optimal points in (time, effective energy), fastest first: strictly increasing time,
 * strictly decreasing effective energy; of equal points the lowest frequency is kept. is_on_hull is
 * set for the corners of their lower convex hull (first and last always; collinear points in
 * between are not corners). `*options` (1 .. point_count of them) is to be freed with free(). */
harpe_status harpe_options_from_points(const harpe_profile_point *points, size_t point_count,
                                       double blocking_power_w, harpe_option **options,
                                       size_t *option_count, harpe_error *error);

/* A convex, strictly decreasing piecewise linear curve, fastest first, slopes strictly increasing
 * (towards 0). time_s and effective_energy_j are to be freed with free(). */
typedef struct harpe_curve {
    size_t count; /* >= 1 */
    double *time_s;
    double *effective_energy_j;
} harpe_curve;

/* The corners of the options' lower convex hull, as indices in `corners` (room for option_count);
 * returns how many, the first and the last option always among them. Options must be in the order
 * of harpe_options_from_points. The slopes between neighbouring corners, computed in doubles, rise
 * strictly; points that lie on an edge up to rounding (1e-12 of the energies) are no corners.
 * O(option_count). */
size_t harpe_hull_corners(const harpe_option *options, size_t option_count, size_t *corners);

/* The options' lower convex hull. */
harpe_status harpe_curve_from_hull(const harpe_option *options, size_t option_count,
                                   harpe_curve *out, harpe_error *error);

/* a*exp(b*t)+c (a > 0, b < 0) fitted to the *energy* of the Pareto points of (time, energy), then
 * made effective and sampled every unit_time_s (0: 0.001) from the fastest to the slowest option,
 * both included. Where fewer than 4 Pareto points remain, the filter is relaxed by noise_factor
 * (0: 0.95): a point is dropped only when a strictly faster one costs less than noise_factor times
 * its energy. Falls back to the hull where a curve cannot be fitted (fewer than 3 distinct times,
 * no fall in energy, a single option), and says so by *fitted = false. `coefficients` receives a,
 * b, c (time in s, energy in J), or zeros. More than 20,000 steps are refused with
 * HARPE_LIMIT_EXCEEDED. */
harpe_status harpe_curve_from_exponential(const harpe_profile_point *points, size_t point_count,
                                          const harpe_option *options, size_t option_count,
                                          double blocking_power_w, double unit_time_s,
                                          double noise_factor, harpe_curve *out, bool *fitted,
                                          double coefficients[3], harpe_error *error);

void harpe_curve_clear(harpe_curve *curve);

#endif
