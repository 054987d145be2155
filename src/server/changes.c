/* SPDX-License-Identifier: Apache-2.0 */
/* Who looks on: calls that are held until something of a job, or of any, has changed. Every change
 * gives its job the next version; a call says which version it has seen and is answered with what
 * is newer, not at once but after a moment, so that a burst is told as one. Versions begin anywhere
 * in each engine: one of an earlier engine, or of another server's, is not taken for its own.
 *
 * Nobody who trains waits for it: what many want to hear is written once, and after some
 * milliseconds the rest has to wait for the next turn. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "server/job.h"

enum {
    TELL_AFTER_MS = 200,
    TELL_ON_AFTER_MS = 20, /* those for whom there was no time */
};
static const int64_t turn_ns = 5000000;

/* What was told last. */
typedef struct telling {
    harpe_job *job; /* NULL: all */
    int64_t since;
    char *text; /* NULL: nothing yet */
    size_t length;
} telling;

static void tell(void *user);

void harpe_changes_begin(harpe_jobs *jobs) {
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) < 0) seed = (uint32_t)harpe_clock_boot_ns();
    jobs->first_version = jobs->version = (int64_t)(seed >> 2) << 32;
    jobs->table.first_serial = jobs->table.last_serial = jobs->first_version;
}

static void tell_after(harpe_jobs *jobs, int64_t delay_ms) {
    if (!jobs->onlookers.first || jobs->tell_timer || jobs->is_stopping) return;
    /* Out of memory: the next change tries again. */
    (void)harpe_loop_after(jobs->options.loop, delay_ms, tell, jobs, &jobs->tell_timer, NULL);
}

void harpe_job_changed(harpe_job *job) {
    job->version = ++job->jobs->version;
    tell_after(job->jobs, TELL_AFTER_MS);
}

/* ---- Answering ---------------------------------------------------------------------------- */

static bool is_known(const harpe_jobs *jobs, int64_t version) {
    return version >= jobs->first_version && version <= jobs->version;
}

static int64_t version_of(const harpe_jobs *jobs, const harpe_job *job) {
    return job ? job->version : jobs->version;
}

static void reply(harpe_jobs *jobs, harpe_job *job, harpe_call *call, telling *last) {
    int64_t since = is_known(jobs, call->round) ? call->round : -1;
    if (!last->text || last->job != job || (!job && last->since != since)) {
        free(last->text);
        *last = (telling){job, since, job ? harpe_job_row(job) : harpe_jobs_rows(jobs, since), 0};
        last->length = last->text ? strlen(last->text) : 0;
    }
    char *text = last->text ? malloc(last->length + 1) : NULL;
    if (text) memcpy(text, last->text, last->length + 1);
    harpe_reply(call, text ? 200 : 503, text, last->length, jobs->version);
}

/* Answers it or holds it again. */
static void look_again(harpe_jobs *jobs, harpe_call *call, telling *last) {
    harpe_job *job = call->job_id ? harpe_job_table_find(&jobs->table, call->job_id) : NULL;
    if (call->job_id && (!job || job->is_evicted))
        harpe_reply_evicted(call, call->job_id);
    else if (version_of(jobs, job) > call->round)
        reply(jobs, job, call, last);
    else
        harpe_calls_append(&jobs->onlookers, call);
}

/* No answer brings a call or the loss of one before this is over. */
static void tell(void *user) {
    harpe_jobs *jobs = user;
    int64_t end_ns = harpe_clock_ns() + turn_ns;
    telling last = {0};
    jobs->tell_timer = NULL;
    /* Calls that are held again are put after those for which there is no time now. */
    size_t left = jobs->onlookers.count;
    for (; left > 0 && harpe_clock_ns() < end_ns; left--) {
        look_again(jobs, harpe_calls_take_first(&jobs->onlookers), &last);
    }
    free(last.text);
    if (left > 0) tell_after(jobs, TELL_ON_AFTER_MS);
}

void harpe_ask_for_changes(harpe_jobs *jobs, harpe_job *job, harpe_call *call) {
    if (!is_known(jobs, call->round)) {
        telling once = {0};
        reply(jobs, job, call, &once);
        free(once.text);
        return;
    }
    harpe_calls_append(&jobs->onlookers, call);
    if (version_of(jobs, job) > call->round) tell_after(jobs, TELL_AFTER_MS);
}

void harpe_changes_end(harpe_jobs *jobs) {
    harpe_timer_cancel(jobs->tell_timer);
    jobs->tell_timer = NULL;
    for (harpe_call *call; (call = harpe_calls_take_first(&jobs->onlookers)) != NULL;) {
        harpe_reply_stopping(call);
    }
}
