/* SPDX-License-Identifier: Apache-2.0 */
/* The plans that an online job may run: the planner's frontier over what was measured, and the
 * choice among its plans that wishes leave. Made on a worker; immutable once made. */
#ifndef HARPE_SERVER_SCHEDULERS_ONLINE_PLANS_H
#define HARPE_SERVER_SCHEDULERS_ONLINE_PLANS_H

#include <harpe/plan.h>

#include "server/schedulers/online_pipeline.h"

typedef struct harpe_online_plans {
    harpe_problem *problem;
    harpe_frontier *frontier;
    harpe_plan_set *set; /* fastest (T_min) first */
    harpe_plan all_maximum;
    double undisturbed_s; /* T_min as it was swept, the lowest of several; drift leaves it */
} harpe_online_plans;

/* `blocking_power_w` is that of one GPU; the profile says how many a stage has. `undisturbed_s` 0:
 * the profile is as it was swept. HARPE_INTERNAL when profile and pipeline do not belong together.
 * Free with harpe_online_plans_free. */
harpe_status harpe_online_plans_new(const harpe_online_pipeline *pipeline,
                                    const harpe_profile *profile, double blocking_power_w,
                                    int plan_count, double undisturbed_s, harpe_online_plans **out,
                                    harpe_error *error);
void harpe_online_plans_free(harpe_online_plans *plans);

/* What was wished for from outside; 0: nothing. */
typedef struct harpe_online_wishes {
    double slowdown, iteration_time_s; /* a straggler: at most one of them */
    double plan_time_s;
    double power_cap_w;
} harpe_online_wishes;

/* What measured iterations take beyond the pipeline (an optimizer step, all-reduce): 0 or more. */
typedef struct harpe_online_outside {
    double time_s, energy_j;
} harpe_online_outside;

/* The iteration time that a straggler allows, or 0 without one; without `outside`, as plans count.
 * A slowdown is one of undisturbed_s: what was measured since may be the straggler's own doing. */
double harpe_online_straggler_time_s(const harpe_online_plans *plans,
                                     const harpe_online_wishes *wishes,
                                     harpe_online_outside outside);

/* The slowest plan within the time that is allowed (`slowdown` times T_min, or the wished plan's
 * time, or the straggler's where that is later), the fastest one if none is; from there the fastest
 * of the slower ones within the power cap, the slowest if none is. */
size_t harpe_online_plans_choose(const harpe_online_plans *plans, double slowdown,
                                 const harpe_online_wishes *wishes, harpe_online_outside outside);
/* Is a plan's average power, of the whole job, within the cap? */
bool harpe_online_plan_is_within(const harpe_plan *plan, double power_cap_w,
                                 harpe_online_outside outside);

#endif
