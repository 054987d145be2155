/* SPDX-License-Identifier: Apache-2.0 */
/* Evicts jobs on request, or after they have sent no request for max_job_idle_time. The server
 * keeps the ids of evicted jobs. It also keeps their final reports until there are too many of them
 * or they are too old; finished.c does that. This file also stores the time of each job's last
 * request regularly.
 *
 * Idle time is measured with harpe_jobs_uptime_s, the time for which servers have run with this
 * store, and never with the wall clock. The uptime is stored every minute. It continues after a
 * restart, and when another server becomes the leader. Therefore no job is evicted because a clock
 * is wrong or because no server ran for weeks. A restart does not reset the idle time of a job. */
#include "server/engine/eviction.h"

#include "base/log.h"
#include "server/engine/dump_sweep.h"
#include "server/engine/finished.h"
#include "server/engine/held_requests.h"
#include "server/engine/job.h"
#include "server/engine/job_glance.h"
#include "server/engine/job_table.h"
#include "server/engine/job_times.h"
#include "server/engine/marked_jobs.h"
#include "server/engine/operation.h"
#include "server/engine/replies.h"

enum {
    CHECK_EVERY_S = 60,
    CHECKS = 60,    /* the smallest number of checks within max_job_idle_time */
    GRACE_S = 3600, /* the time that all clients have to contact a server that has started */
};

/* ---- Eviction -------------------------------------------------------------------------------- */

static void remove_job(harpe_job *job) {
    harpe_jobs *jobs = job->jobs;
    harpe_job_table_retire(&jobs->table, job);
    job->is_evicted = true;
    /* If a turn waits for the job's scheduler program, this ends the wait. */
    if (job->turn) harpe_scheduler_kind_cancel(jobs->options.scheduler, job->id);
    jobs->counts.jobs--;
    jobs->counts.ranks -= (size_t)job->registered;
    jobs->counts.failed -= job->failure != NULL;
    jobs->counts.evicted++;
    harpe_job_changed(job);
    harpe_log_line(&jobs->options.log, HARPE_LOG_INFO, "%s: evicted", job->id);
    char detail[600];
    (void)snprintf(detail, sizeof detail, "job %.512s was evicted: register it again", job->id);
    harpe_job_refuse_held(job, 410, detail);
}

static void deletion_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_operation *operation = user;
    harpe_job *job = operation->job;
    harpe_call *call = harpe_operation_take_call(operation);
    job->eviction = NULL;
    if (status != HARPE_OK) {
        harpe_reply_not_stored(call, error);
    } else {
        harpe_finished_add(job->jobs, &operation->change);
        remove_job(job);
        harpe_reply_null(call, -1);
        /* If a turn is in flight, the job is released when the turn ends. */
        if (!job->turn) harpe_job_release(job);
    }
    harpe_operation_end(operation);
    harpe_job_wake(job);
}

void harpe_evict(harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (!operation) return;
    harpe_job_tell_eviction(job);
    job->eviction = operation;
    operation->change.number = harpe_jobs_now_s(job->jobs);
    harpe_finished_prepare(job, operation);
    harpe_operation_store(operation, HARPE_CHANGE_DELETED, deletion_is_stored);
}

/* ---- Regular checks -------------------------------------------------------------------------- */

static void seen_is_stored(void *user, harpe_status status, const harpe_error *error) {
    (void)error;
    harpe_operation *operation = user;
    if (status == HARPE_OK) operation->job->stored_last_request_s = operation->change.round;
    harpe_operation_end(operation);
}

static void store_seen(harpe_job *job) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, NULL);
    if (!operation) return;
    operation->change.number = harpe_job_seen_s(job);
    operation->change.round = job->last_request_s;
    harpe_operation_store(operation, HARPE_CHANGE_SEEN, seen_is_stored);
}

static void uptime_is_stored(void *user, harpe_status status, const harpe_error *error) {
    (void)status; /* if this fails, a restart loses a minute of uptime */
    (void)error;
    harpe_operation_end(user);
}

static void store_uptime(harpe_jobs *jobs) {
    harpe_operation *operation = harpe_operation_new(jobs, NULL, NULL);
    if (!operation) return;
    operation->change.number = harpe_jobs_uptime_s(jobs);
    operation->change.round = harpe_finished_forget_old(jobs);
    harpe_operation_store(operation, HARPE_CHANGE_UPTIME, uptime_is_stored);
}

static bool is_idle(const harpe_job *job, int64_t uptime_s) {
    int64_t limit_s = job->jobs->options.settings->max_job_idle_time_s;
    int64_t grace_s = limit_s < GRACE_S ? limit_s : GRACE_S;
    return uptime_s - job->jobs->earlier_uptime_s >= grace_s &&
           uptime_s - job->last_request_s >= limit_s;
}

void harpe_jobs_check_idle(harpe_jobs *jobs) {
    int64_t uptime_s = harpe_jobs_uptime_s(jobs);
    store_uptime(jobs);
    for (harpe_job *job = jobs->table.newest, *older; job; job = older) {
        older = job->older;
        if (!job->is_stored || job->eviction) continue;
        if (is_idle(job, uptime_s))
            harpe_evict(job, NULL);
        else if (job->last_request_s != job->stored_last_request_s)
            store_seen(job);
    }
    harpe_dump_sweep_check(jobs);
}

static void check_is_due(void *user) {
    harpe_jobs *jobs = user;
    jobs->idle_timer = NULL;
    if (jobs->is_stopping) return;
    harpe_jobs_check_idle(jobs);
    harpe_error error;
    if (harpe_jobs_watch_idle(jobs, &error) != HARPE_OK) {
        harpe_log_line(&jobs->options.log, HARPE_LOG_ERROR,
                       "idle jobs are not evicted any longer: %s", error.message);
    }
}

/* Checks every minute, or more often if jobs may be idle for less than an hour. */
harpe_status harpe_jobs_watch_idle(harpe_jobs *jobs, harpe_error *error) {
    int64_t part_s = jobs->options.settings->max_job_idle_time_s / CHECKS;
    int64_t delay_s = part_s < 1 ? 1 : part_s < CHECK_EVERY_S ? part_s : CHECK_EVERY_S;
    return harpe_loop_after(jobs->options.loop, delay_s * 1000, check_is_due, jobs,
                            &jobs->idle_timer, error);
}
