/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans in which each clock holds for a minimum time. Private to src/plan. */
#ifndef HARPE_PLAN_CLOCK_RUNS_H
#define HARPE_PLAN_CLOCK_RUNS_H

#include "plan/problem.h"

/* Searches plans that take at most `deadline_s` and need little energy, with that of the changes of
 * clock. The instructions between two changes take at least as long as a clock must hold
 * (harpe_clock_switch_hold_s). On a rank whose instructions have no clock in common, clocks hold if
 * they can; if they cannot, the rank has as few changes as possible. If no plan is fast enough, the
 * time of the fastest plan found takes the place of the deadline. `price_uw` has the price of a
 * second of each instruction in microwatts: the flow of the relaxation near the deadline.
 * `frequency_mhz` receives the best plans found, one after the other, the best first, and `*found`
 * their number, from 1 to `room`; `room` is at most 16. The work grows with the instructions times
 * the clocks of a rank. The same arguments give the same plans. */
harpe_status harpe_clock_runs_find(const harpe_problem *problem, const harpe_clock_switch *cost,
                                   const int64_t *price_uw, double deadline_s, size_t room,
                                   int *frequency_mhz, size_t *found, harpe_error *error);

#endif
