/* SPDX-License-Identifier: Apache-2.0 */
/* A note about plans in which a clock holds for less than the minimum dwell time. */
#ifndef HARPE_CLI_PLAN_PLAN_DWELL_NOTE_H
#define HARPE_CLI_PLAN_PLAN_DWELL_NOTE_H

#include <harpe/plan.h>

/* Writes a sentence that names the first rank whose clock holds too briefly in a plan, or NULL if
 * all clocks hold. The caller frees it. */
harpe_status harpe_plan_dwell_note(const harpe_problem *problem, const harpe_plan_set *plans,
                                   const harpe_clock_switch *cost, char **note, harpe_error *error);

#endif
