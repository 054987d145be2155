/* SPDX-License-Identifier: Apache-2.0 */
/* Who looks on: calls that are held until something of a job, or of any, has changed. Every change
 * gives its job the next version; a call says which version it has seen and is answered with what
 * is newer, not at once but after a moment, so that a burst is told as one. Versions begin anywhere
 * in each engine: one of an earlier engine, or of another server's, is not taken for its own. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/job.h"

enum { TELL_AFTER_MS = 200 };

static void tell(void *user);

void harpe_changes_begin(harpe_jobs *jobs) {
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) < 0) seed = (uint32_t)jobs->started_s;
    jobs->first_version = jobs->version = (int64_t)(seed >> 2) << 32;
}

static void tell_soon(harpe_jobs *jobs) {
    if (!jobs->onlookers || jobs->tell_timer || jobs->is_stopping) return;
    /* Out of memory: the next change tries again. */
    (void)harpe_loop_after(jobs->options.loop, TELL_AFTER_MS, tell, jobs, &jobs->tell_timer, NULL);
}

void harpe_job_changed(harpe_job *job) {
    job->version = ++job->jobs->version;
    tell_soon(job->jobs);
}

/* ---- Answering ---------------------------------------------------------------------------- */

static bool is_known(const harpe_jobs *jobs, int64_t version) {
    return version >= jobs->first_version && version <= jobs->version;
}

static void hold(harpe_jobs *jobs, harpe_call *call) {
    call->next = jobs->onlookers;
    jobs->onlookers = call;
}

static void reply(harpe_jobs *jobs, const harpe_job *job, harpe_call *call) {
    int64_t since = is_known(jobs, call->round) ? call->round : -1;
    char *text = job ? harpe_job_row(job) : harpe_jobs_rows(jobs, since);
    harpe_reply(call, text ? 200 : 503, text, text ? strlen(text) : 0, jobs->version);
}

/* Answers it or holds it again. */
static void look_again(harpe_jobs *jobs, harpe_call *call) {
    const harpe_job *job = call->job_id ? harpe_job_table_find(&jobs->table, call->job_id) : NULL;
    if (call->job_id && (!job || job->is_evicted))
        harpe_reply_evicted(call, call->job_id);
    else if ((job ? job->version : jobs->version) > call->round)
        reply(jobs, job, call);
    else
        hold(jobs, call);
}

/* No answer brings a call or the loss of one before this is over. */
static void tell(void *user) {
    harpe_jobs *jobs = user;
    jobs->tell_timer = NULL;
    harpe_call *call = jobs->onlookers;
    jobs->onlookers = NULL;
    for (harpe_call *next; call; call = next) {
        next = call->next;
        look_again(jobs, call);
    }
}

void harpe_ask_for_changes(harpe_jobs *jobs, const harpe_job *job, harpe_call *call) {
    if (!is_known(jobs, call->round)) {
        reply(jobs, job, call);
        return;
    }
    hold(jobs, call);
    if ((job ? job->version : jobs->version) > call->round) tell_soon(jobs);
}

void harpe_changes_end(harpe_jobs *jobs) {
    harpe_timer_cancel(jobs->tell_timer);
    jobs->tell_timer = NULL;
    for (harpe_call *call; (call = jobs->onlookers) != NULL;) {
        jobs->onlookers = call->next;
        harpe_reply_stopping(call);
    }
}
