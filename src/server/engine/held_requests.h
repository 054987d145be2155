/* SPDX-License-Identifier: Apache-2.0 */
/* The requests for schedules that a job holds, and the calls in its queue. */
#ifndef HARPE_SERVER_ENGINE_HELD_REQUESTS_H
#define HARPE_SERVER_ENGINE_HELD_REQUESTS_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"

/* Holds a request for the next schedule. Answers an older request of the same rank with 409. */
void harpe_job_hold(harpe_job *job, harpe_call *call);
/* Stops holding the request. The caller answers the request. */
void harpe_job_unhold(harpe_job *job, harpe_call *call);
/* Call this when a rank has registered: its held request will no longer be refused to make room for
 * others. */
void harpe_job_keep_held(harpe_job *job, int rank);
/* Answers all held requests with an error. */
void harpe_job_refuse_asking(harpe_job *job, int http_status, const char *detail);
/* Answers all held requests, and all calls of the queue, with an error. */
void harpe_job_refuse_held(harpe_job *job, int http_status, const char *detail);

#endif
