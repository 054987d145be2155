/* SPDX-License-Identifier: Apache-2.0 */
/* Compares measurements with the plan that ran. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_WATCH_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_WATCH_H

#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/perseus_job.h"

/* Compares a round that ran a plan with the plan. If there is drift, corrects the profile and the
 * plans. */
harpe_status harpe_perseus_watch(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error);
/* Restores the profile of the sweep and makes plans with it. Call it when a straggler may have
 * caused the changes since the sweep. */
void harpe_perseus_forget_drift(harpe_perseus *self);
/* Makes the first plans of a sweep, if a straggler is a GPU of this job: the plans without it, to
 * which later measurements are compared, and then those with it. */
void harpe_perseus_plan_beside_straggler(harpe_perseus *self);
/* Returns true if another sweep may begin. Each sweep delays the next one. */
bool harpe_perseus_may_sweep(const harpe_perseus *self);
void harpe_perseus_put_sweep_off(harpe_perseus *self);

#endif
