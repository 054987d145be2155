/* SPDX-License-Identifier: Apache-2.0 */
/* Counts and prices the changes of clock of a plan, and removes those that belong to an instruction
 * of almost no time. Private to src/plan. */
#ifndef HARPE_PLAN_SWITCHING_H
#define HARPE_PLAN_SWITCHING_H

#include "plan/problem.h"

/* Gives instructions that take almost no time the clock of the instruction before them in their
 * rank, in place. Such an instruction would be over before its own clock holds, and changes of
 * clock around it would cost more than it can save. It may become slower, but takes at most 0.1 ms
 * at its new clock. With `never_worse`, only those instructions follow that take no longer and need
 * no more energy (waiting included), so time and energy of the iteration do not rise. */
void harpe_switching_follow(const harpe_problem *problem, bool never_worse, int *frequency_mhz);

harpe_status harpe_clock_switch_check(const harpe_problem *problem, const harpe_clock_switch *cost,
                                      harpe_error *error);

/* Returns whether a change of clock costs anything. */
bool harpe_clock_switch_has_cost(const harpe_problem *problem, const harpe_clock_switch *cost);

/* Returns the longest latency of all ranks and frequencies. */
double harpe_clock_switch_longest_s(const harpe_problem *problem, const harpe_clock_switch *cost);

/* Returns how long the clock before a change to a frequency must have held: the minimum dwell time,
 * and the latency, because the change is requested after the change before. */
double harpe_clock_switch_hold_s(const harpe_problem *problem, const harpe_clock_switch *cost,
                                 int rank, int frequency_mhz);

/* Computes, for each rank, the shortest time for which a clock of a plan holds; INFINITY: the rank
 * changes no clock. */
harpe_status harpe_switching_dwells(const harpe_problem *problem, const int *frequency_mhz,
                                    double *shortest_s, harpe_error *error);

#endif
