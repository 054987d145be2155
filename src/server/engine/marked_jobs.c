/* SPDX-License-Identifier: Apache-2.0 */
/* Collects jobs that have changed, and calls that must be handled again, until the loop has time
 * for them. Because of this, no function of the engine calls the engine again, and the stack stays
 * small with any number of jobs and waiting calls. */
#include "server/engine/marked_jobs.h"

#include "server/engine/call.h"

/* Asks the loop to handle the collected jobs and calls. When the program ends, the loop may not run
 * any more, so this function handles them itself. */
static void have_drained(harpe_jobs *jobs) {
    if (jobs->is_draining) return;
    if (jobs->is_ending) {
        jobs->drain(jobs);
    } else if (!jobs->is_posted) {
        jobs->is_posted = true;
        harpe_loop_post(jobs->options.loop, &jobs->posted);
    }
}

void harpe_job_wake(harpe_job *job) {
    harpe_jobs *jobs = job->jobs;
    if (!job->is_marked) {
        job->is_marked = true;
        job->next_marked = NULL;
        if (jobs->first_marked)
            jobs->last_marked->next_marked = job;
        else
            jobs->first_marked = job;
        jobs->last_marked = job;
    }
    have_drained(jobs);
}

void harpe_job_changed(harpe_job *job) {
    job->version = ++job->jobs->version;
    job->jobs->has_news = true;
    harpe_job_wake(job);
}

harpe_job *harpe_jobs_take_marked(harpe_jobs *jobs) {
    harpe_job *job = jobs->first_marked;
    if (!job) return NULL;
    jobs->first_marked = job->next_marked;
    job->is_marked = false;
    return job;
}

void harpe_jobs_handle_again(harpe_jobs *jobs, harpe_call_list *calls) {
    for (harpe_call *call; (call = harpe_calls_take_first(calls));) {
        call->operation = NULL;
        harpe_calls_append(&jobs->again, call);
    }
    if (jobs->again.first) have_drained(jobs);
}
