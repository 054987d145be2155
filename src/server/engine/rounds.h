/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds of a job. */
#ifndef HARPE_SERVER_ENGINE_ROUNDS_H
#define HARPE_SERVER_ENGINE_ROUNDS_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"

void harpe_ask_for_schedule(harpe_job *job, harpe_call *call);
/* Call this when the answer with the schedule of `round` may not have arrived at its rank. */
void harpe_job_schedule_is_lost(harpe_job *job, int rank, int64_t round);
/* Does the next step that the job's state requires, if any. The loop calls this for marked jobs. */
void harpe_job_advance(harpe_job *job);

#endif
