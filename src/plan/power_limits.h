/* SPDX-License-Identifier: Apache-2.0 */
/* Plans whose power keeps the limits of a request. Private to src/plan. */
#ifndef HARPE_PLAN_POWER_LIMITS_H
#define HARPE_PLAN_POWER_LIMITS_H

#include "plan/power_repair.h"

/* Fails with HARPE_INVALID_ARGUMENT if a limit is below 0 or no number. */
harpe_status harpe_power_limits_check(double peak_w, double swing_w, double swing_share,
                                      harpe_error *error);

/* Returns limits with INFINITY in place of 0, and whether there is any. */
harpe_power_limits harpe_power_limits_of(double peak_w, double swing_w, double swing_share);
bool harpe_power_limits_any(const harpe_power_limits *limits);

/* Returns whether a request has limits. */
bool harpe_power_limits_are_wanted(const harpe_plan_request *request);

/* Writes to `error` that no plans within a time (0: any) were found. */
harpe_status harpe_power_limits_fail(const harpe_power_repair *repair, double time_s,
                                     harpe_error *error);

/* Receives the part of the work that is done, 0 to 1, and returns false to stop. NULL: none. */
typedef struct harpe_power_reporter {
    bool (*report)(void *user, double done);
    void *user;
} harpe_power_reporter;

/* Replaces the plans of a set that break the limits by plans that keep them and take no longer. If
 * the slowest plan breaks them, makes slower plans too. The set contains no dominated plans,
 * fastest first; the result may, in any order. Returns at once if all plans keep the limits. Fails
 * with HARPE_INFEASIBLE if no plan is left, or none for one of the times that were asked for. */
harpe_status harpe_power_limits_keep(const harpe_problem *problem,
                                     const harpe_plan_request *request,
                                     const harpe_power_reporter *reporter, harpe_plan_set *set,
                                     harpe_error *error);

#endif
