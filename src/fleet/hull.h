/* SPDX-License-Identifier: Apache-2.0 */
/* From the plans of a job to its options and their lower convex hull. */
#ifndef HARPE_FLEET_HULL_H
#define HARPE_FLEET_HULL_H

#include "fleet/fleet_state.h"

/* Returns the cost of a plan: its part of the objective. `overhead` is that of the whole fleet. */
double harpe_fleet_cost(const harpe_fleet_member *job, const harpe_fleet_price *price,
                        double overhead, size_t plan);

/* Makes the hull of a job again. O(plans * log plans), or O(plans) if the powers fall with the
 * times. On failure the hull is unchanged. */
harpe_status harpe_fleet_hull_make(harpe_fleet_member *job, const harpe_fleet_price *price,
                                   double overhead, harpe_error *error);
void harpe_fleet_hull_clear(harpe_fleet_hull *hull);

/* Returns how many segments between the vertices `low` and `high` gain more than `gain`. The result
 * is a vertex. `hint` is a vertex that may be the result. */
size_t harpe_fleet_hull_above(const harpe_fleet_hull *hull, double gain, size_t low, size_t high,
                              size_t hint);

#endif
