/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in which each clock holds for a minimum time. The list of each rank is divided into groups
 * of neighbouring instructions that run at one clock. The group is the unit of choice. */
#ifndef HARPE_PLAN_DWELL_H
#define HARPE_PLAN_DWELL_H

#include "plan/problem.h"

/* Improves a plan in place so that every clock holds for at least the minimum dwell time and at
 * least the latency of `cost`. `frequency_mhz` contains a plan that takes at most `deadline_ps`. If
 * the clocks of this plan hold, the result takes no longer than the deadline, and needs at most as
 * much energy, with `cost->energy_j` added for each change. Otherwise the result is the best plan
 * found that takes no longer than the deadline, or, if none was found, the best that takes no
 * longer than the fastest plan found whose clocks hold. A caller with several deadlines must
 * therefore look at the times of the results.
 *
 * The clocks of the result always hold, except on a rank whose instructions have no clock in
 * common, and which cannot hold its clocks even if it changes them only where it must. The work
 * grows with the instructions times the groups; it is limited. */
harpe_status harpe_dwell_improve(const harpe_problem *problem, const harpe_clock_switch *cost,
                                 int64_t deadline_ps, int *frequency_mhz, harpe_error *error);

#endif
