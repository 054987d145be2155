/* SPDX-License-Identifier: Apache-2.0 */
/* Removes those clock changes from a plan that cost more energy than they save. Private to
 * src/plan. */
#ifndef HARPE_PLAN_SWITCHING_H
#define HARPE_PLAN_SWITCHING_H

#include "plan/problem.h"

harpe_status harpe_clock_switch_check(const harpe_clock_switch *cost, harpe_error *error);

/* Raises frequencies in place until every clock holds for at least the minimum dwell time and at
 * least the latency, and until no change costs more energy than it saves. Frequencies only rise, so
 * the iteration does not become longer. A round takes O(instructions), and few rounds are
 * needed. */
harpe_status harpe_switching_merge(const harpe_problem *problem, const harpe_clock_switch *cost,
                                   int *frequency_mhz, harpe_error *error);

#endif
