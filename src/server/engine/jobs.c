/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that callers of the engine use. They pass each call to its job and remove calls
 * whose client is gone. They also start and stop the engine, and count its jobs. */
#include "server/engine/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/engine/call.h"
#include "server/engine/changes.h"
#include "server/engine/contact.h"
#include "server/engine/dumps.h"
#include "server/engine/ends.h"
#include "server/engine/eviction.h"
#include "server/engine/finished.h"
#include "server/engine/held_requests.h"
#include "server/engine/in_flight.h"
#include "server/engine/job.h"
#include "server/engine/job_group.h"
#include "server/engine/job_query.h"
#include "server/engine/job_ranks.h"
#include "server/engine/job_requests.h"
#include "server/engine/job_table.h"
#include "server/engine/job_times.h"
#include "server/engine/job_view.h"
#include "server/engine/marked_jobs.h"
#include "server/engine/operation.h"
#include "server/engine/profile_dump.h"
#include "server/engine/registration.h"
#include "server/engine/replies.h"
#include "server/engine/restore.h"
#include "server/engine/results.h"
#include "server/engine/rounds.h"

/* ---- Marked jobs ----------------------------------------------------------------------------- */

/* Handles the waiting calls, advances the marked jobs, and then answers the watchers. Handling a
 * call or advancing a job may add calls and marks; these are handled too. */
static void drain(harpe_jobs *jobs) {
    if (jobs->is_draining) return;
    jobs->is_draining = true;
    for (bool is_done = false; !is_done;) {
        harpe_call *call = harpe_calls_take_first(&jobs->again);
        harpe_job *job = call ? NULL : harpe_jobs_take_marked(jobs);
        if (call) harpe_jobs_handle(jobs, call);
        if (job) harpe_job_advance(job);
        is_done = !call && !job;
    }
    jobs->is_draining = false;
    if (jobs->has_news) harpe_changes_tell(jobs);
    jobs->has_news = false;
}

static void drain_on_loop(void *user) {
    harpe_jobs *jobs = user;
    jobs->is_posted = false;
    drain(jobs);
}

/* ---- Start and end --------------------------------------------------------------------------- */

harpe_status harpe_jobs_new(const harpe_jobs_options *options, harpe_jobs **out,
                            harpe_error *error) {
    harpe_jobs *jobs = harpe_calloc(1, sizeof *jobs);
    if (!jobs) return harpe_fail_memory(error);
    jobs->options = *options;
    jobs->drain = drain;
    jobs->posted = (harpe_posted){.call = drain_on_loop, .user = jobs};
    harpe_jobs_start_uptime(jobs);
    harpe_changes_begin(jobs);
    harpe_status status = harpe_jobs_watch_idle(jobs, error);
    if (status == HARPE_OK) status = harpe_jobs_load(jobs, error);
    if (status != HARPE_OK) {
        harpe_jobs_free(jobs);
        return status;
    }
    *out = jobs;
    return HARPE_OK;
}

static void answer_held(harpe_jobs *jobs) {
    harpe_changes_end(jobs);
    for (harpe_job *job = jobs->table.newest; job; job = job->older)
        harpe_job_refuse_held(job, 503, "the server is stopping: try again");
}

static harpe_call *take_held(harpe_jobs *jobs) {
    harpe_call *taken = NULL;
    for (harpe_job *job = jobs->table.newest; job; job = job->older) {
        const harpe_rank *slot;
        for (int r = 0; job->asking > 0 && (slot = harpe_job_next_rank(job, &r)); r++) {
            harpe_call *call = slot->asking;
            if (!call) continue;
            harpe_job_unhold(job, call);
            call->next = taken;
            taken = call;
        }
    }
    return taken;
}

static void give_up_dumps(harpe_jobs *jobs) {
    for (harpe_job *job = jobs->table.newest; job; job = job->older) {
        harpe_dumps_give_up(job);
        harpe_profile_dump_give_up(job);
    }
}

harpe_call *harpe_jobs_retire(harpe_jobs *jobs) {
    jobs->is_stopping = true;
    give_up_dumps(jobs);
    harpe_timer_cancel(jobs->idle_timer);
    jobs->idle_timer = NULL;
    harpe_call *held = take_held(jobs);
    answer_held(jobs);
    return held;
}

void harpe_jobs_stop(harpe_jobs *jobs) {
    jobs->is_stopping = jobs->is_ending = true;
    give_up_dumps(jobs);
    harpe_timer_cancel(jobs->idle_timer);
    jobs->idle_timer = NULL;
    answer_held(jobs);
    drain(jobs); /* the loop may not run any more */
}

bool harpe_jobs_are_idle(const harpe_jobs *jobs) { return !jobs->in_flight && !jobs->is_posted; }

void harpe_jobs_free(harpe_jobs *jobs) {
    if (!jobs) return;
    harpe_jobs_stop(jobs);
    while (jobs->in_flight) {
        harpe_in_flight *first = jobs->in_flight;
        harpe_in_flight_remove(jobs, first);
        first->drop(first);
    }
    harpe_job_table_free(&jobs->table);
    harpe_finished_free(&jobs->finished);
    harpe_text_free(&jobs->dumps_seen.forgotten);
    free(jobs);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void note_request(harpe_job *job, harpe_call *call) {
    job->seen_s = harpe_jobs_now_s(job->jobs);
    job->last_request_s = harpe_jobs_uptime_s(job->jobs);
    job->has_sent_request = true;
    harpe_job_changed(job);
    switch (call->kind) {
    case HARPE_CALL_REGISTER_RANK: harpe_register_rank(job, call); break;
    case HARPE_CALL_SCHEDULE:
        harpe_rank_is_heard(job, (int)call->rank);
        harpe_ask_for_schedule(job, call);
        break;
    case HARPE_CALL_RESULT: harpe_take_result(job, call); break;
    case HARPE_CALL_END: harpe_take_end(job, call); break;
    default: harpe_take_job_request(job, call); break;
    }
}

void harpe_jobs_handle(harpe_jobs *jobs, harpe_call *call) {
    call->held_by = NULL;
    call->operation = NULL;
    call->next = NULL;
    if (jobs->is_stopping) {
        harpe_reply_stopping(call);
        return;
    }
    if (call->kind == HARPE_CALL_REGISTER_JOB) {
        harpe_register_job(jobs, call);
        return;
    }
    if (call->kind == HARPE_CALL_LIST) {
        size_t offset = (size_t)call->rank, limit = (size_t)call->round;
        char *list = call->body ? harpe_jobs_query(jobs, call->scope, call->body, offset, limit)
                                : harpe_jobs_list(jobs, call->scope, call->job_id, offset, limit);
        harpe_reply(call, list ? 200 : 503, list, list ? strlen(list) : 0, -1);
        return;
    }
    if (call->kind == HARPE_CALL_FINISHED) {
        harpe_finished_answer(jobs, call);
        return;
    }
    if (call->kind == HARPE_CALL_CHANGES && !call->job_id) {
        harpe_ask_for_changes(jobs, NULL, call);
        return;
    }
    harpe_job *job = harpe_job_table_find(&jobs->table, call->job_id);
    if (!job && harpe_job_table_has_evicted(&jobs->table, call->job_id)) {
        harpe_reply_evicted(call, call->job_id);
        return;
    }
    if (!job || !job->is_stored) {
        harpe_reply_detail(call, 404, "no job %.512s is known here: register it first",
                           call->job_id);
        return;
    }
    /* The group of an evicted job is not known after a restart, and its client must hear of the
     * eviction. */
    if (job->is_evicted) {
        harpe_reply_evicted(call, job->id);
        return;
    }
    if (!harpe_job_is_in_scope(job, call->scope)) {
        harpe_reply_out_of_scope(call, job, call->scope);
        return;
    }
    if (job->eviction) {
        harpe_call_wait_for(call, job->eviction);
        return;
    }
    switch (call->kind) {
    case HARPE_CALL_EVICT: harpe_evict(job, call); break;
    case HARPE_CALL_LOST: harpe_take_loss(job, call); break;
    case HARPE_CALL_SHOW: harpe_show_job(job, call); break;
    case HARPE_CALL_CHANGES: harpe_ask_for_changes(jobs, job, call); break;
    case HARPE_CALL_FRONTIER:
    case HARPE_CALL_PIPELINE: harpe_take_frontier_request(job, call); break;
    default: note_request(job, call); break;
    }
}

void harpe_jobs_use_groups(harpe_jobs *jobs, const harpe_group_tree *tree) { jobs->groups = tree; }

void harpe_jobs_regroup(harpe_jobs *jobs) { harpe_changes_regroup(jobs); }

void harpe_jobs_forget(harpe_jobs *jobs, harpe_call *call) {
    (void)jobs;
    if (call->held_by && call->kind == HARPE_CALL_SCHEDULE) {
        harpe_job_changed(call->held_by);
        harpe_job_unhold(call->held_by, call);
    } else if (call->list) {
        harpe_calls_remove(call);
    } else if (call->operation && call->operation->call == call) {
        call->operation->call = NULL;
    }
    call->operation = NULL;
    call->held_by = NULL;
}

void harpe_jobs_delivered(harpe_jobs *jobs, const char *job_id, int rank, int64_t round,
                          bool has_arrived) {
    harpe_job *job = harpe_job_table_find(&jobs->table, job_id);
    if (has_arrived || !job || job->is_evicted || rank < 0 || rank >= job->info.world_size) return;
    harpe_job_schedule_is_lost(job, rank, round);
}

/* ---- Counts ---------------------------------------------------------------------------------- */

harpe_jobs_counts harpe_jobs_count(const harpe_jobs *jobs) {
    harpe_jobs_counts counts = jobs->counts;
    for (const harpe_job *job = jobs->table.newest; job; job = job->older)
        counts.ended += harpe_job_has_ended(job);
    return counts;
}
