/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the results of a finished sweep: the profile and the plans. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_PLAN_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_PLAN_H

#include "server/scheduler/perseus/perseus_job.h"

/* Makes plans with the measurements of `self->sweep`. If this fails, keeps the old plans.
 * `undisturbed_s` has the same meaning as for harpe_online_plans_new. */
harpe_status harpe_perseus_make_plans(harpe_perseus *self, double undisturbed_s,
                                      harpe_error *error);
/* Makes plans and chooses one to run. Call it after the round at the highest frequency that follows
 * the sweep. */
void harpe_perseus_plan_swept(harpe_perseus *self);
size_t harpe_perseus_chosen(const harpe_perseus *self);
void harpe_perseus_hold(harpe_perseus *self, const char *reason);
/* Returns to the existing plans. */
void harpe_perseus_keep_plan(harpe_perseus *self, const char *reason);
/* Makes the profile as CSV for harpe_scheduler_take_file, if the profile must be written. Logs a
 * failure. */
void harpe_perseus_hand_over_profile(harpe_perseus *self);

#endif
