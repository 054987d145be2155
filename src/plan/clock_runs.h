/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in which each clock holds for a minimum time, from prices of time. Private to src/plan. */
#ifndef HARPE_PLAN_CLOCK_RUNS_H
#define HARPE_PLAN_CLOCK_RUNS_H

#include "plan/problem.h"

/* Searches plans of little energy, changes of clock included, that take at most `deadline_s` and in
 * which the instructions between two changes take at least as long as a clock must hold
 * (harpe_clock_switch_hold_s). `price_uw` has the price of a second of each instruction in
 * microwatts: the flow of the relaxation near the deadline. On a rank whose instructions have no
 * clock in common, clocks hold if they can; if they cannot, the rank has as few changes as
 * possible. Writes the best plans found, at most `room`, one after the other into `frequency_mhz`,
 * the best first, and their number into `*found`, 1 to `room`; `room` is at most 16. If no plan
 * is fast enough, the time of the fastest plan found takes the place of the deadline. The work
 * grows with the instructions times the clocks of a rank. It is always the same. */
harpe_status harpe_clock_runs_find(const harpe_problem *problem, const harpe_clock_switch *cost,
                                   const int64_t *price_uw, double deadline_s, size_t room,
                                   int *frequency_mhz, size_t *found, harpe_error *error);

#endif
