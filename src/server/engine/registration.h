/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of jobs and ranks. */
#ifndef HARPE_SERVER_ENGINE_REGISTRATION_H
#define HARPE_SERVER_ENGINE_REGISTRATION_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"

void harpe_register_job(harpe_jobs *jobs, harpe_call *call);
void harpe_register_rank(harpe_job *job, harpe_call *call);

#endif
