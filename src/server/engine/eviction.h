/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction of jobs. */
#ifndef HARPE_SERVER_ENGINE_EVICTION_H
#define HARPE_SERVER_ENGINE_EVICTION_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"

/* Evicts the job and answers the call. `call` NULL: the job has been idle for too long. */
void harpe_evict(harpe_job *job, harpe_call *call);
/* Evicts the jobs that have been idle for too long, and stores the last requests of the others. */
void harpe_jobs_check_idle(harpe_jobs *jobs);
/* Starts a timer that calls harpe_jobs_check_idle regularly. */
harpe_status harpe_jobs_watch_idle(harpe_jobs *jobs, harpe_error *error);

#endif
