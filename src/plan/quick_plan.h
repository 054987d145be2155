/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one plan for one iteration time by rounding the relaxed solution, without the search for
 * better plans. It is some percent of the work of harpe_plan_set_new. */
#ifndef HARPE_PLAN_QUICK_PLAN_H
#define HARPE_PLAN_QUICK_PLAN_H

#include <harpe/plan.h>

typedef struct harpe_quick_plan {
    double time_s, energy_j; /* of the plan, by the profile */
    double lower_bound_j;    /* no plan of the wanted time needs less */
} harpe_quick_plan;

/* Makes the plan for `time_s`, or for T_min if that is longer, or for T* if that is shorter. Writes
 * the clock of each instruction into `frequency_mhz`, which has room for all. On failure, writes
 * nothing. */
harpe_status harpe_quick_plan_make(const harpe_problem *problem, double time_s, int *frequency_mhz,
                                   harpe_quick_plan *out, harpe_error *error);

#endif
