/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks of the engine. Times that people see come from the wall clock. The wall clock may
 * jump, so idle time is measured with the time for which servers have run with this store. */
#include "server/engine/job_times.h"

#include <stdlib.h>

#include "base/clock.h"

double harpe_jobs_wall_s(const harpe_jobs *jobs) {
    return jobs->options.wall_clock_s ? jobs->options.wall_clock_s() : harpe_clock_wall_s();
}

int64_t harpe_jobs_now_s(const harpe_jobs *jobs) { return (int64_t)harpe_jobs_wall_s(jobs); }

double harpe_jobs_steady_s(const harpe_jobs *jobs) {
    return jobs->options.steady_clock_s ? jobs->options.steady_clock_s() : harpe_clock_s();
}

void harpe_jobs_start_uptime(harpe_jobs *jobs) { jobs->steady_start_s = harpe_jobs_steady_s(jobs); }

int64_t harpe_jobs_uptime_s(const harpe_jobs *jobs) {
    return jobs->earlier_uptime_s + (int64_t)(harpe_jobs_steady_s(jobs) - jobs->steady_start_s);
}

enum { STEP_S = 2 }; /* a smaller difference comes from rounding: the clock was not set */

int64_t harpe_job_seen_s(const harpe_job *job) {
    const harpe_jobs *jobs = job->jobs;
    int64_t now_s = harpe_jobs_now_s(jobs);
    if (!job->has_sent_request) return job->seen_s < now_s ? job->seen_s : now_s;
    int64_t seen_s = now_s - (harpe_jobs_uptime_s(jobs) - job->last_request_s);
    bool was_set = job->seen_s > now_s || llabs(seen_s - job->seen_s) > STEP_S;
    return was_set ? seen_s : job->seen_s;
}
