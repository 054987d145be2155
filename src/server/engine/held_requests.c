/* SPDX-License-Identifier: Apache-2.0 */
/* Holds requests for schedules until the next round begins. Ranks that are not registered can also
 * ask, but only a limited number of their requests is held. */
#include "server/engine/held_requests.h"

#include "server/engine/call.h"
#include "server/engine/job_ranks.h"
#include "server/engine/marked_jobs.h"
#include "server/engine/replies.h"

/* ---- Ranks that are not registered ----------------------------------------------------------- */

/* Ranks usually ask after they have registered, but any client can ask for ranks that are not
 * registered. At most this many of these requests are held. They may be refused to make room for
 * other requests. */
enum { UNREGISTERED_MAX = 1024, CONNECTIONS_PER_UNREGISTERED = 8 };

static void tell_gives_way(harpe_call *call, bool gives_way) {
    if (call->gives_way) call->gives_way(call, gives_way);
}

static void leave_unregistered(harpe_call *call) {
    if (!call->list) return;
    harpe_calls_remove(call);
    tell_gives_way(call, false);
}

static void join_unregistered(harpe_jobs *jobs, harpe_call *call) {
    size_t limit = (size_t)jobs->options.settings->max_connections / CONNECTIONS_PER_UNREGISTERED;
    if (limit > UNREGISTERED_MAX) limit = UNREGISTERED_MAX;
    harpe_calls_append(&jobs->unregistered, call);
    tell_gives_way(call, true);
    while (jobs->unregistered.count > limit && jobs->unregistered.first != call) {
        harpe_call *oldest = jobs->unregistered.first;
        harpe_job *job = oldest->held_by;
        harpe_job_changed(job);
        harpe_job_unhold(job, oldest);
        harpe_reply_detail(oldest, 503,
                           "rank %lld is not registered, and too many such requests are held: "
                           "register it first",
                           (long long)oldest->rank);
    }
}

/* ---- Held requests --------------------------------------------------------------------------- */

static void reply_replaced(harpe_call *call) {
    harpe_reply_detail(call, 409, "rank %lld asked again: this request was replaced",
                       (long long)call->rank);
}

void harpe_job_hold(harpe_job *job, harpe_call *call) {
    harpe_rank *slot = harpe_job_make_rank(job, (int)call->rank);
    if (!slot) {
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_call *older = slot->asking;
    /* The older request is removed from the list first. Otherwise the older request could be
     * refused to make room for the new request. */
    if (older) leave_unregistered(older);
    slot->asking = call;
    call->held_by = job;
    if (!slot->is_registered) join_unregistered(job->jobs, call);
    if (older) {
        reply_replaced(older);
        return;
    }
    job->asking++;
    job->jobs->counts.ranks_waiting++;
}

void harpe_job_unhold(harpe_job *job, harpe_call *call) {
    leave_unregistered(call);
    call->held_by = NULL;
    harpe_job_rank(job, (int)call->rank)->asking = NULL;
    job->asking--;
    job->jobs->counts.ranks_waiting--;
}

void harpe_job_keep_held(harpe_job *job, int rank) {
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot && slot->asking) leave_unregistered(slot->asking);
}

void harpe_job_refuse_asking(harpe_job *job, int http_status, const char *detail) {
    const harpe_rank *slot;
    for (int r = 0; job->asking > 0 && (slot = harpe_job_next_rank(job, &r)); r++) {
        harpe_call *call = slot->asking;
        if (!call) continue;
        harpe_job_unhold(job, call);
        harpe_reply_detail(call, http_status, "%s", detail);
    }
}

void harpe_job_refuse_held(harpe_job *job, int http_status, const char *detail) {
    harpe_job_refuse_asking(job, http_status, detail);
    for (harpe_call *call; (call = harpe_calls_take_first(&job->queue));)
        harpe_reply_detail(call, http_status, "%s", detail);
}
