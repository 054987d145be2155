/* SPDX-License-Identifier: Apache-2.0 */
/* Improves a plan with few changes of clock: moves its changes, removes some, and adds some where
 * they pay. Private to src/plan. */
#ifndef HARPE_PLAN_CHANGE_MOVES_H
#define HARPE_PLAN_CHANGE_MOVES_H

#include "plan/problem.h"

/* Improves `count` plans, which are one after the other in `plans_mhz` and are scratch afterwards,
 * and writes the best into `frequency_mhz`. The clocks of a plan must hold
 * (harpe_clock_switch_hold_s), and so do those of the result, which takes at most `deadline_s`, or
 * as long as the plan if that is longer, and needs at most as much energy. A plan whose clocks do
 * not hold is not improved; if this is true of all, the result is the first. The work grows with
 * the square of the instructions; it is limited. */
harpe_status harpe_change_moves_improve(const harpe_problem *problem,
                                        const harpe_clock_switch *cost, double deadline_s,
                                        int *plans_mhz, size_t count, int *frequency_mhz,
                                        harpe_error *error);

#endif
