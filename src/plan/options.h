/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the Pareto-optimal options of a (stage, instruction) from its measured points. */
#ifndef HARPE_PLAN_OPTIONS_H
#define HARPE_PLAN_OPTIONS_H

#include <stddef.h>

#include <harpe/plan.h>
#include <harpe/profile.h>

/* Finds the Pareto-optimal points in (time, effective energy), fastest first: time strictly
 * increases, and effective energy strictly decreases. If points are equal, the point with the
 * lowest frequency is kept. Sets is_on_hull for the corners of the lower convex hull. The first and
 * the last option are always corners. Collinear points between two corners are not corners.
 * `*options` receives 1 to point_count options; the caller frees it with free(). */
harpe_status harpe_options_from_points(const harpe_profile_point *points, size_t point_count,
                                       double blocking_power_w, harpe_option **options,
                                       size_t *option_count, harpe_error *error);

#endif
