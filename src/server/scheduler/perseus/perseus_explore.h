/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the exploration of an online job: before the first plan, and again when a job request makes
 * clocks useful that were not measured. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_EXPLORE_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_EXPLORE_H

#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/perseus_job.h"

/* Returns true if the results that are expected now are those of an exploration. */
bool harpe_perseus_is_exploring(const harpe_perseus *self);
/* Takes the results of a round of an exploration into the curves and the points of the sweep. */
harpe_status harpe_perseus_learn(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error);
/* Makes the next round, or ends the exploration with a plan. Call it after harpe_perseus_learn. */
harpe_status harpe_perseus_explore_on(harpe_perseus *self, harpe_error *error);
/* Adapts the exploration to new job requests, or begins one if they need it. */
void harpe_perseus_explore_request(harpe_perseus *self);
/* The straggler is gone. An exploration that has measured the job only with it begins again. */
void harpe_perseus_end_straggler(harpe_perseus *self);

#endif
