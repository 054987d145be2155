/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a plan fast enough for GPUs whose clocks change late. Private to src/plan and the server.
 */
#ifndef HARPE_PLAN_LATE_REPAIR_H
#define HARPE_PLAN_LATE_REPAIR_H

#include <harpe/plan.h>

/* Raises clocks in place until the iteration takes at most `time_s` with late changes, as
 * harpe_plan_evaluate_late computes it. An instruction that is slow because its clock comes late
 * gets it earlier: the instruction before it runs at this clock, too. If that is not enough, or if
 * the late plan needs more energy than the highest clocks, all instructions get the highest clocks.
 * `*out` is the evaluation of the result. The work is O(instructions) for each step, and few steps
 * are needed. */
harpe_status harpe_late_repair(const harpe_problem *problem, const harpe_clock_switch *cost,
                               double lead_s, double time_s, int *frequency_mhz,
                               harpe_late_plan *out, harpe_error *error);

#endif
