/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks of the engine, and the time of a job's last request. */
#ifndef HARPE_SERVER_ENGINE_JOB_TIMES_H
#define HARPE_SERVER_ENGINE_JOB_TIMES_H

#include <stdint.h>

#include "server/engine/job_state.h"

/* Returns the time of the wall clock, in s since 1970. This clock may jump, so it serves only for
 * times that people see or name. */
double harpe_jobs_wall_s(const harpe_jobs *jobs);
/* Returns the same in whole seconds. */
int64_t harpe_jobs_now_s(const harpe_jobs *jobs);
/* Returns the time of a clock that never jumps, in s. Its zero has no meaning. */
double harpe_jobs_steady_s(const harpe_jobs *jobs);
/* Starts to count the uptime of this server. */
void harpe_jobs_start_uptime(harpe_jobs *jobs);
/* Returns the number of seconds for which servers have run with this store, as measured by their
 * CLOCK_MONOTONIC. The count stops while no server runs, and while the server's machine is
 * suspended, because clients cannot send requests then. */
int64_t harpe_jobs_uptime_s(const harpe_jobs *jobs);
/* Returns the time of the job's last request, in s since 1970, as the wall clock counts now. It is
 * only for people, and is never in the future. If this server received the request, the result is
 * right even if the wall clock was set after the request. */
int64_t harpe_job_seen_s(const harpe_job *job);

#endif
