/* SPDX-License-Identifier: Apache-2.0 */
/* Watchers are calls that are held until one job, or any job, has changed. Each change gives its
 * job the next version. A call contains the version that its client has seen. Its answer contains
 * all newer changes. The answer is sent after a short delay, so that several changes in quick
 * succession need one answer. Each engine begins with a random version. A version of an earlier
 * engine or of another server is therefore not mistaken for a version of this engine.
 *
 * Watchers must not delay training. A text for many watchers is therefore written once. Watchers
 * that are not answered within some milliseconds wait until the loop has handled its other work. */
#include "server/engine/changes.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/platform.h"
#include "rights/tokens.h"
#include "server/engine/call.h"
#include "server/engine/job_group.h"
#include "server/engine/job_table.h"
#include "server/engine/job_view.h"
#include "server/engine/replies.h"

enum {
    TELL_AFTER_MS = 200,
    TELL_ON_AFTER_MS = 20, /* the delay for watchers that were not answered in time */
};
static const int64_t turn_ns = 5000000;

/* The text of the last answer. The next watcher may get the same text. */
typedef struct telling {
    harpe_job *job; /* NULL: all jobs */
    char *scope;    /* of the watcher of all jobs */
    int64_t since;
    char *text; /* NULL: no answer yet */
    size_t length;
} telling;

static void tell(void *user);

void harpe_changes_begin(harpe_jobs *jobs) {
    uint32_t seed = 0;
    if (!harpe_random_now(&seed, sizeof seed)) seed = (uint32_t)harpe_clock_boot_ns();
    jobs->first_version = jobs->version = (int64_t)(seed >> 2) << 32;
    jobs->table.first_serial = jobs->table.last_serial = jobs->first_version;
}

static void tell_after(harpe_jobs *jobs, int64_t delay_ms) {
    if (!jobs->watchers.first || jobs->tell_timer || jobs->is_stopping) return;
    /* If there is no memory for the timer, the next change sets it. */
    (void)harpe_loop_after(jobs->options.loop, delay_ms, tell, jobs, &jobs->tell_timer, NULL);
}

void harpe_changes_tell(harpe_jobs *jobs) { tell_after(jobs, TELL_AFTER_MS); }

/* ---- Answering ------------------------------------------------------------------------------- */

static bool is_known(const harpe_jobs *jobs, int64_t version) {
    return version >= jobs->first_version && version <= jobs->version;
}

/* Returns the version after which the client has seen all jobs that it may see; -1: none. */
static int64_t seen_by(const harpe_jobs *jobs, const harpe_job *job, const harpe_call *call) {
    bool has_other_jobs = !job && call->scope && call->round < jobs->regrouped;
    return is_known(jobs, call->round) && !has_other_jobs ? call->round : -1;
}

static int64_t version_of(const harpe_jobs *jobs, const harpe_job *job) {
    return job ? job->version : jobs->version;
}

/* Answers with a piece of the list of all jobs. Only clients that have just connected ask for it,
 * so the text is not kept for other watchers. */
static void reply_piece(const harpe_jobs *jobs, harpe_call *call) {
    char *piece = harpe_jobs_piece(jobs, call->scope, call->rank);
    if (piece && !*piece) {
        free(piece);
        harpe_reply_detail(call, 503, "another server leads now: ask again");
        return;
    }
    harpe_reply(call, piece ? 200 : 503, piece, piece ? strlen(piece) : 0, jobs->version);
}

static void free_telling(telling *told) {
    free(told->text);
    free(told->scope);
}

/* Returns true if a watcher of this job (NULL: of all jobs) gets the same text. */
static bool is_same_text(const telling *last, const harpe_job *job, int64_t since,
                         const char *scope) {
    if (!last->text || last->job != job) return false;
    return job || (last->since == since && harpe_scope_equal(last->scope, scope));
}

static void tell_anew(harpe_jobs *jobs, harpe_job *job, int64_t since, const char *scope,
                      telling *last) {
    free_telling(last);
    *last = (telling){.job = job, .since = since};
    if (scope && !(last->scope = strdup(scope))) return;
    last->text = job ? harpe_job_row(job) : harpe_jobs_rows(jobs, scope, since);
    last->length = last->text ? strlen(last->text) : 0;
}

static void reply(harpe_jobs *jobs, harpe_job *job, harpe_call *call, telling *last) {
    int64_t since = seen_by(jobs, job, call);
    if (!job && since < 0) {
        reply_piece(jobs, call);
        return;
    }
    if (!is_same_text(last, job, since, call->scope))
        tell_anew(jobs, job, since, call->scope, last);
    char *text = last->text ? malloc(last->length + 1) : NULL;
    if (text) memcpy(text, last->text, last->length + 1);
    harpe_reply(call, text ? 200 : 503, text, last->length, jobs->version);
}

/* Answers the watcher, or holds it again. */
static void look_again(harpe_jobs *jobs, harpe_call *call, telling *last) {
    harpe_job *job = call->job_id ? harpe_job_table_find(&jobs->table, call->job_id) : NULL;
    if (call->job_id && (!job || job->is_evicted))
        harpe_reply_evicted(call, call->job_id);
    else if (job && !harpe_job_is_in_scope(job, call->scope))
        harpe_reply_out_of_scope(call, job, call->scope);
    else if (version_of(jobs, job) > call->round)
        reply(jobs, job, call, last);
    else
        harpe_calls_append(&jobs->watchers, call);
}

/* Answers do not change the list of watchers while this function runs. */
static void tell(void *user) {
    harpe_jobs *jobs = user;
    int64_t end_ns = harpe_clock_ns() + turn_ns;
    telling last = {0};
    jobs->tell_timer = NULL;
    /* Calls that are held again are put at the end of the list. The count ensures that this
     * function looks at each call once. */
    size_t left = jobs->watchers.count;
    for (; left > 0 && harpe_clock_ns() < end_ns; left--)
        look_again(jobs, harpe_calls_take_first(&jobs->watchers), &last);
    free_telling(&last);
    if (left > 0) tell_after(jobs, TELL_ON_AFTER_MS);
}

void harpe_ask_for_changes(harpe_jobs *jobs, harpe_job *job, harpe_call *call) {
    if (!is_known(jobs, call->round)) {
        telling once = {0};
        reply(jobs, job, call, &once);
        free_telling(&once);
        return;
    }
    harpe_calls_append(&jobs->watchers, call);
    if (version_of(jobs, job) > call->round) tell_after(jobs, TELL_AFTER_MS);
}

void harpe_changes_regroup(harpe_jobs *jobs) {
    jobs->regrouped = ++jobs->version;
    harpe_changes_tell(jobs);
}

void harpe_changes_end(harpe_jobs *jobs) {
    harpe_timer_cancel(jobs->tell_timer);
    jobs->tell_timer = NULL;
    for (harpe_call *call; (call = harpe_calls_take_first(&jobs->watchers));)
        harpe_reply_stopping(call);
}
