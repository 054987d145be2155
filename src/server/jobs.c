/* SPDX-License-Identifier: Apache-2.0 */
/* The engine as its callers see it: calls come in and go to the job and the file that they concern;
 * calls whose client is gone are taken out of wherever they wait; it starts, stops and counts. */
#include "server/jobs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clean.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/job.h"

int64_t harpe_jobs_now_s(const harpe_jobs *jobs) {
    return jobs->options.wall_clock_s ? (int64_t)jobs->options.wall_clock_s() : (int64_t)time(NULL);
}

static double steady_s(const harpe_jobs_options *options) {
    return options->steady_clock_s ? options->steady_clock_s() : harpe_clock_s();
}

int64_t harpe_jobs_uptime_s(const harpe_jobs *jobs) {
    return jobs->earlier_uptime_s + (int64_t)(steady_s(&jobs->options) - jobs->steady_start_s);
}

void harpe_jobs_log(const harpe_jobs *jobs, harpe_log_level level, const char *format, ...) {
    char line[HARPE_ERROR_MESSAGE_SIZE + 600];
    const harpe_log *log = &jobs->options.log;
    if (!log->write) return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof line) line[harpe_cut_length(line, sizeof line - 2)] = '\0';
    if (length >= 0) log->write(log->user, level, line);
}

/* ---- Start and end ------------------------------------------------------------------------ */

harpe_status harpe_jobs_new(const harpe_jobs_options *options, harpe_jobs **out,
                            harpe_error *error) {
    harpe_jobs *jobs = harpe_calloc(1, sizeof *jobs);
    if (!jobs) return harpe_fail_memory(error);
    jobs->options = *options;
    jobs->steady_start_s = steady_s(options);
    harpe_changes_begin(jobs);
    harpe_status status = harpe_jobs_watch_idle(jobs, error);
    if (!status) status = harpe_jobs_load(jobs, error);
    if (status) {
        harpe_jobs_free(jobs);
        return status;
    }
    *out = jobs;
    return HARPE_OK;
}

static void answer_held(harpe_jobs *jobs) {
    harpe_changes_end(jobs);
    for (harpe_job *job = jobs->table.newest; job; job = job->older) {
        harpe_job_refuse_held(job, 503, "the server is stopping: try again");
    }
}

static harpe_call *take_held(harpe_jobs *jobs) {
    harpe_call *taken = NULL;
    for (harpe_job *job = jobs->table.newest; job; job = job->older) {
        const harpe_rank *slot;
        for (int r = 0; job->asking > 0 && (slot = harpe_job_next_rank(job, &r)) != NULL; r++) {
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
}

bool harpe_jobs_are_idle(const harpe_jobs *jobs) { return jobs->under_way == NULL; }

void harpe_jobs_free(harpe_jobs *jobs) {
    if (!jobs) return;
    harpe_jobs_stop(jobs);
    while (jobs->under_way) {
        harpe_under_way *first = jobs->under_way;
        harpe_under_way_remove(jobs, first);
        first->drop(first);
    }
    harpe_job_table_free(&jobs->table);
    free(jobs);
}

/* ---- Calls -------------------------------------------------------------------------------- */

static void hear_of(harpe_job *job, harpe_call *call) {
    job->seen_s = harpe_jobs_now_s(job->jobs);
    job->heard_s = harpe_jobs_uptime_s(job->jobs);
    job->was_heard = true;
    harpe_job_changed(job);
    switch (call->kind) {
    case HARPE_CALL_REGISTER_RANK: harpe_register_rank(job, call); break;
    case HARPE_CALL_SCHEDULE: harpe_ask_for_schedule(job, call); break;
    case HARPE_CALL_RESULT: harpe_take_result(job, call); break;
    case HARPE_CALL_END: harpe_take_end(job, call); break;
    default: harpe_take_wish(job, call); break;
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
        char *list = harpe_jobs_list(jobs, call->job_id, (size_t)call->rank, (size_t)call->round);
        harpe_reply(call, list ? 200 : 503, list, list ? strlen(list) : 0, -1);
        return;
    }
    if (call->kind == HARPE_CALL_CHANGES && !call->job_id) {
        harpe_ask_for_changes(jobs, NULL, call);
        return;
    }
    harpe_job *job = harpe_job_table_find(&jobs->table, call->job_id);
    if (!job || !job->is_stored) {
        harpe_reply_detail(call, 404, "no job %.512s is known here: register it first",
                           call->job_id);
        return;
    }
    if (job->is_evicted) {
        harpe_reply_evicted(call, job->id);
        return;
    }
    if (job->eviction) {
        harpe_call_wait_for(call, job->eviction);
        return;
    }
    switch (call->kind) {
    case HARPE_CALL_EVICT: harpe_evict(job, call); break;
    case HARPE_CALL_SHOW: harpe_show_job(job, call); break;
    case HARPE_CALL_CHANGES: harpe_ask_for_changes(jobs, job, call); break;
    case HARPE_CALL_FRONTIER:
    case HARPE_CALL_PIPELINE: harpe_take_frontier_call(job, call); break;
    default: hear_of(job, call); break;
    }
}

void harpe_jobs_handle_again(harpe_jobs *jobs, harpe_call_list *calls) {
    for (harpe_call *call; (call = harpe_calls_take_first(calls)) != NULL;) {
        call->operation = NULL;
        harpe_calls_append(&jobs->again, call);
    }
    if (jobs->is_handling_again) return;
    jobs->is_handling_again = true;
    for (harpe_call *call; (call = harpe_calls_take_first(&jobs->again)) != NULL;) {
        harpe_jobs_handle(jobs, call);
    }
    jobs->is_handling_again = false;
}

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

/* ---- Counts ------------------------------------------------------------------------------- */

harpe_jobs_counts harpe_jobs_count(const harpe_jobs *jobs) {
    harpe_jobs_counts counts = jobs->counts;
    for (const harpe_job *job = jobs->table.newest; job; job = job->older) {
        counts.ended += harpe_job_has_ended(job);
    }
    return counts;
}
