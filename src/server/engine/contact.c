/* SPDX-License-Identifier: Apache-2.0 */
/* A client of Harpe keeps its connection while it trains, so the kernel closes the connection when
 * the process is killed. If this has happened to all ranks of a job that have not ended, the job is
 * out of contact until one of them sends a request. This changes only what is shown. Published
 * clients close their connections after each request, and the routes do not report those. */
#include "server/engine/contact.h"

#include "server/engine/job.h"
#include "server/engine/job_ranks.h"
#include "server/engine/job_times.h"
#include "server/engine/marked_jobs.h"
#include "server/engine/replies.h"

/* The engine may handle a request so long after its arrival. */
static const double slack_s = 2;

bool harpe_job_is_out_of_contact(const harpe_job *job) {
    return job->lost > 0 && job->lost + job->ended >= job->registered && !job->failure &&
           !job->is_evicted;
}

static void set_lost(harpe_job *job, harpe_rank *slot, bool is_lost) {
    if (slot->is_lost == is_lost) return;
    slot->is_lost = is_lost;
    job->lost += is_lost ? 1 : -1;
    harpe_job_changed(job);
}

void harpe_rank_is_heard(harpe_job *job, int rank) {
    harpe_rank *slot = harpe_job_rank(job, rank);
    if (!slot) return;
    slot->heard_s = harpe_jobs_steady_s(job->jobs);
    set_lost(job, slot, false);
}

void harpe_take_loss(harpe_job *job, harpe_call *call) {
    harpe_rank *slot = harpe_job_rank(job, (int)call->rank);
    double asked_s = harpe_jobs_steady_s(job->jobs) - (double)call->round / 1000;
    /* A rank that was heard later has another connection. */
    if (slot && slot->is_registered && !slot->has_ended && slot->heard_s < asked_s + slack_s) {
        set_lost(job, slot, true);
        job->lost_s = harpe_jobs_now_s(job->jobs);
    }
    harpe_reply_null(call, -1);
}
