/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the convex decreasing curve that the relaxation uses, from the options of a (stage,
 * instruction). */
#ifndef HARPE_PLAN_COST_MODEL_H
#define HARPE_PLAN_COST_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/plan.h>
#include <harpe/profile.h>

/* A convex, strictly decreasing, piecewise linear curve, fastest point first. Its slopes strictly
 * increase towards 0. The owner frees time_s and effective_energy_j with free(). */
typedef struct harpe_curve {
    size_t count; /* >= 1 */
    double *time_s;
    double *effective_energy_j;
} harpe_curve;

/* Finds the corners of the options' lower convex hull, as indices in `corners` (room for
 * option_count). Returns their number; the first and the last option are always corners. Options
 * must be in the order of harpe_options_from_points. The slopes between neighbouring corners,
 * computed in doubles, strictly increase. A point that lies on an edge, within 1e-12 of the
 * energies, is not a corner. O(option_count). */
size_t harpe_hull_corners(const harpe_option *options, size_t option_count, size_t *corners);

/* Makes the curve that follows the lower convex hull of the options. */
harpe_status harpe_curve_from_hull(const harpe_option *options, size_t option_count,
                                   harpe_curve *out, harpe_error *error);

void harpe_curve_clear(harpe_curve *curve);

#endif
