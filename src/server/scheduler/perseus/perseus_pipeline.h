/* SPDX-License-Identifier: Apache-2.0 */
/* Shows one plan of an online job as a pipeline. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_PIPELINE_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_PIPELINE_H

#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/perseus_job.h"

/* These functions keep the measurements of a round that ran a plan, and drop them. */
void harpe_perseus_see(harpe_perseus *self, const harpe_online_round *round);
void harpe_perseus_forget_seen(harpe_perseus *self);

harpe_status harpe_perseus_pipeline(const void *state, int64_t number, char **json,
                                    harpe_error *error);

#endif
