/* SPDX-License-Identifier: Apache-2.0 */
/* Takes changes of clock out of a plan that cost more than they save. Private to src/plan. */
#ifndef HARPE_PLAN_SWITCHING_H
#define HARPE_PLAN_SWITCHING_H

#include "plan/problem.h"

harpe_status harpe_clock_switch_check(const harpe_clock_switch *cost, harpe_error *error);

/* Raises frequencies in place until no change is left whose clock would hold for less than the
 * minimum dwell or the latency, or whose energy is more than what it saves. Only raises: the
 * iteration does not become longer. O(instructions) for each round, few rounds. */
harpe_status harpe_switching_merge(const harpe_problem *problem, const harpe_clock_switch *cost,
                                   int *frequency_mhz, harpe_error *error);

#endif
