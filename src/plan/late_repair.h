/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a plan fast enough for GPUs whose clocks change late. Private to src/plan and the server.
 */
#ifndef HARPE_PLAN_LATE_REPAIR_H
#define HARPE_PLAN_LATE_REPAIR_H

#include <harpe/plan.h>

/* Raises clocks in place until the iteration takes at most `time_s`, whether changes are immediate,
 * take as long as `cost` says, or anything between. An instruction that is slow because its clock
 * comes late gets it earlier: the instruction before it runs at this clock, too. If that is not
 * enough, or if the plan needs more energy than the highest clocks, all instructions get the
 * highest clocks. `*out` is the evaluation of the result, with the latencies of `cost` and a
 * controller that does not ask early. Each step visits all instructions a few times, and at most
 * a million more, whatever the latency. There are at most 1064 steps, and fewer in large problems:
 * 96 for 16,384 instructions.
 */
harpe_status harpe_late_repair(const harpe_problem *problem, const harpe_clock_switch *cost,
                               double time_s, int *frequency_mhz, harpe_late_plan *out,
                               harpe_error *error);

#endif
