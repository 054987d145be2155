/* SPDX-License-Identifier: Apache-2.0 */
/* Job requests, and requests for the frontier. */
#ifndef HARPE_SERVER_ENGINE_JOB_REQUESTS_H
#define HARPE_SERVER_ENGINE_JOB_REQUESTS_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"

void harpe_take_job_request(harpe_job *job, harpe_call *call);
void harpe_take_frontier_request(harpe_job *job, harpe_call *call);
/* Begins the turn of the first call in the job's queue. */
void harpe_begin_queued(harpe_job *job);
/* Returns true if the call only reads from the scheduler, so it is not a job request. */
bool harpe_call_only_reads(const harpe_call *call);
/* Adds a stored job request to the job. */
harpe_status harpe_job_read_request(harpe_job *job, const harpe_change *record, harpe_error *error);

#endif
