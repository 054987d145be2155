/* SPDX-License-Identifier: Apache-2.0 */
/* The plans that an online job may run: the planner's frontier for the measured profile, and the
 * choice among the plans that job requests permit. They are made on a worker, and do not change
 * afterwards. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_PLANS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_PLANS_H

#include <harpe/plan.h>

#include "server/scheduler/perseus/online_pipeline.h"

typedef struct harpe_online_plans {
    harpe_problem *problem;
    harpe_frontier *frontier;
    harpe_plan_set *set; /* fastest (T_min) first */
    harpe_plan all_maximum;
    harpe_plan_set *one_clock; /* the plans with one clock for all GPUs */
    double undisturbed_s;      /* the lowest measured T_min, without corrections for drift */
} harpe_online_plans;

/* Makes plans. `blocking_power_w` is the blocking power of one GPU of each rank. The profile has
 * the number of GPUs of each stage. `undisturbed_s` is 0 if the profile has no corrections for
 * drift. Returns HARPE_INTERNAL if the profile is not of this pipeline. Free the plans with
 * harpe_online_plans_free. */
harpe_status harpe_online_plans_new(const harpe_online_pipeline *pipeline,
                                    const harpe_profile *profile, const double *blocking_power_w,
                                    int plan_count, double undisturbed_s, harpe_online_plans **out,
                                    harpe_error *error);
void harpe_online_plans_free(harpe_online_plans *plans);

/* Computes time and energy of an iteration with these clocks, as for the plans: with late changes
 * if the profile has latencies. The other members of `*out` are 0. */
harpe_status harpe_online_plans_evaluate(const harpe_online_plans *plans, const int *frequency_mhz,
                                         harpe_plan *out, harpe_error *error);

/* Returns the plan with one clock for all GPUs that needs the least energy of those that are as
 * fast as a plan, or as the highest clocks if these are slower. */
const harpe_plan *harpe_online_plans_one_clock(const harpe_online_plans *plans,
                                               const harpe_plan *plan);

/* The job requests; 0: none. */
typedef struct harpe_online_requests {
    double slowdown, iteration_time_s; /* a straggler: at most one of the two is set */
    double plan_time_s;
    double power_cap_w;
} harpe_online_requests;

/* The time and energy of a measured iteration outside of the pipeline (optimizer step, all-reduce).
 * Both are 0 or more. */
typedef struct harpe_online_outside {
    double time_s, energy_j;
} harpe_online_outside;

/* Returns the iteration time that a straggler allows, or 0 without a straggler. Like the times of
 * plans, it does not include `outside`. A slowdown is relative to undisturbed_s and not to a newer
 * T_min, because the straggler may have caused the change since then. */
double harpe_online_straggler_time_s(const harpe_online_plans *plans,
                                     const harpe_online_requests *requests,
                                     harpe_online_outside outside);

/* Returns the time that job requests allow a plan: the time of the requested plan, or `slowdown`
 * times `fastest_s` without such a request, or the straggler's time if that is longer. Like the
 * times of plans, it does not include `outside`. */
double harpe_online_allowed_s(double fastest_s, double undisturbed_s, double slowdown,
                              const harpe_online_requests *requests, harpe_online_outside outside);

/* Chooses a plan. The time limit is the time of the requested plan, or `slowdown` times the time of
 * the highest clocks without such a request. If the straggler's time is longer, that is the limit.
 * The search begins with the slowest plan within the limit, or with the fastest plan if no plan is
 * within the limit. From there, it continues with slower plans, and ends at the first plan whose
 * power is within the cap. If there is no such plan, the result is the slowest plan. */
size_t harpe_online_plans_choose(const harpe_online_plans *plans, double slowdown,
                                 const harpe_online_requests *requests,
                                 harpe_online_outside outside);
/* Returns true if the average power of the whole job with this plan is within the cap. */
bool harpe_online_plan_is_within(const harpe_plan *plan, double power_cap_w,
                                 harpe_online_outside outside);

#endif
