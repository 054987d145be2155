/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that callers of the engine use. They pass each call to its job and remove calls
 * whose client is gone. They also start and stop the engine, count its jobs, and describe them. The
 * loop visits the jobs that have changed here. */
#include "server/engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/status.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "http/loop.h"
#include "rights/tokens.h"
#include "server/engine/engine_internal.h"
#include "server/scheduler/figures.h"

/* ---- Lists of calls -------------------------------------------------------------------------- */

/* Lists of waiting calls: first in, first out. Any call can be removed in constant time. */

void harpe_calls_append(harpe_call_list *list, harpe_call *call) {
    call->list = list;
    call->previous = list->last;
    call->next = NULL;
    if (list->last)
        list->last->next = call;
    else
        list->first = call;
    list->last = call;
    list->count++;
}

void harpe_calls_remove(harpe_call *call) {
    harpe_call_list *list = call->list;
    if (call->previous)
        call->previous->next = call->next;
    else
        list->first = call->next;
    if (call->next)
        call->next->previous = call->previous;
    else
        list->last = call->previous;
    list->count--;
    call->list = NULL;
    call->previous = call->next = NULL;
}

harpe_call *harpe_calls_take_first(harpe_call_list *list) {
    harpe_call *first = list->first;
    if (first) harpe_calls_remove(first);
    return first;
}

/* ---- Pools ----------------------------------------------------------------------------------- */

enum { PLAN_NICENESS = 10 /* the loop and short answers have priority over plans */ };

const harpe_pool_kind harpe_pools[HARPE_POOL_COUNT + 1] = {
    [HARPE_POOL_DECODE] = {"decoding", "job", 0},
    [HARPE_POOL_STORE] = {"reading the store", "job", 0},
    [HARPE_POOL_SCHEDULE] = {"scheduler", "job", 0},
    [HARPE_POOL_PLAN] = {"planning", "job", PLAN_NICENESS},
    [HARPE_POOL_DUMP] = {"dump", "job", 0},
    [HARPE_POOL_FLEET] = {"splitting power budgets", "job", 0},
    [HARPE_POOL_TOKENS] = {"reading the tokens", "file", 0},
    [HARPE_POOL_AUDIT] = {"audit log", "file", 0},
};

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* The clocks of the engine. Times that people see come from the wall clock. The wall clock may
 * jump, so idle time is measured with the time for which servers have run with this store. */

double harpe_jobs_wall_s(const harpe_jobs *jobs) {
    return jobs->options.wall_clock_s ? jobs->options.wall_clock_s() : harpe_clock_wall_s();
}

int64_t harpe_jobs_now_s(const harpe_jobs *jobs) { return (int64_t)harpe_jobs_wall_s(jobs); }

double harpe_jobs_steady_s(const harpe_jobs *jobs) {
    return jobs->options.steady_clock_s ? jobs->options.steady_clock_s() : harpe_clock_s();
}

/* Starts to count the uptime of this server. */
static void jobs_start_uptime(harpe_jobs *jobs) {
    jobs->steady_start_s = harpe_jobs_steady_s(jobs);
}

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

/* ---- Marks ----------------------------------------------------------------------------------- */

/* Collects jobs that have changed, and calls that must be handled again, until the loop has time
 * for them. Because of this, no function of the engine calls the engine again, and the stack stays
 * small with any number of jobs and waiting calls. */

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

/* Removes the mark of the job that was marked first, and returns the job. Returns NULL if no job is
 * marked. */
static harpe_job *jobs_take_marked(harpe_jobs *jobs) {
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

/* ---- The next step --------------------------------------------------------------------------- */

/* Handles the waiting calls, advances the marked jobs, and then answers the watchers. Handling a
 * call or advancing a job may add calls and marks; these are handled too. */
static void drain(harpe_jobs *jobs) {
    if (jobs->is_draining) return;
    jobs->is_draining = true;
    for (bool is_done = false; !is_done;) {
        harpe_call *call = harpe_calls_take_first(&jobs->again);
        harpe_job *job = call ? NULL : jobs_take_marked(jobs);
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
    jobs_start_uptime(jobs);
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

harpe_call *harpe_jobs_retire(harpe_jobs *jobs) {
    jobs->is_stopping = true;
    for (harpe_job *job = jobs->table.newest; job; job = job->older)
        harpe_dumps_give_up(job);
    harpe_timer_cancel(jobs->idle_timer);
    jobs->idle_timer = NULL;
    harpe_call *held = take_held(jobs);
    answer_held(jobs);
    return held;
}

void harpe_jobs_stop(harpe_jobs *jobs) {
    jobs->is_ending = true;
    for (harpe_call *held = harpe_jobs_retire(jobs), *next; held; held = next) {
        next = held->next;
        harpe_reply_stopping(held);
    }
    drain(jobs); /* the loop may not run any more */
}

bool harpe_jobs_are_idle(const harpe_jobs *jobs) { return !jobs->in_flight && !jobs->is_posted; }

void harpe_jobs_free(harpe_jobs *jobs) {
    if (!jobs) return;
    harpe_jobs_stop(jobs);
    harpe_operations_drop(jobs);
    harpe_job_table_free(&jobs->table);
    harpe_finished_free(&jobs->finished);
    harpe_text_free(&jobs->dumps_seen.forgotten);
    free(jobs);
}

/* ---- Handling calls -------------------------------------------------------------------------- */

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
        (call->body ? harpe_show_sorted : harpe_show_list)(jobs, call);
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

/* ---- Glances --------------------------------------------------------------------------------- */

static harpe_job_glance glance_at(harpe_job *job) {
    bool is_over = harpe_job_round_is_over(job);
    return (harpe_job_glance){.id = job->id,
                              .metadata = job->info.job_metadata,
                              .group = job->group,
                              .world_size = job->info.world_size,
                              .has_begun = job->registered == job->info.world_size,
                              .has_ended = harpe_job_has_ended(job),
                              .has_failed = job->failure != NULL,
                              .is_ready = job->is_ready,
                              .round = job->round,
                              .reported_round = is_over ? job->round : job->round - 1,
                              .figures = &job->figures,
                              .member = &job->member,
                              .account = &job->account};
}

void harpe_jobs_glance(harpe_jobs *jobs, void (*visit)(void *user, const harpe_job_glance *glance),
                       void *user) {
    for (harpe_job *job = jobs->table.newest, *older; job; job = older) {
        older = job->older;
        if (!job->is_stored || job->is_evicted) continue;
        harpe_job_glance glance = glance_at(job);
        visit(user, &glance);
    }
}

void harpe_jobs_on_eviction(harpe_jobs *jobs,
                            void (*begins)(void *user, const harpe_job_glance *glance),
                            void *user) {
    jobs->eviction_begins = begins;
    jobs->eviction_user = user;
}

void harpe_job_tell_eviction(harpe_job *job) {
    harpe_job_glance glance = glance_at(job);
    if (job->jobs->eviction_begins) job->jobs->eviction_begins(job->jobs->eviction_user, &glance);
}

int64_t harpe_jobs_round_of(const harpe_jobs *jobs, const char *job_id) {
    const harpe_job *job = harpe_job_table_find(&jobs->table, job_id);
    return job ? job->round : -1;
}

bool harpe_jobs_have(const harpe_jobs *jobs, const char *job_id) {
    const harpe_job *job = harpe_job_table_find(&jobs->table, job_id);
    return job && !job->is_evicted;
}
