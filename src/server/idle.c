/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs go: evicted on request, or after nothing was heard of them for max_job_idle_time. The id of
 * an evicted job stays known. Also stores, now and then, when each job was last heard of.
 *
 * Idleness is measured in the time that servers have run with this store (harpe_jobs_uptime_s),
 * never by the wall clock. That time is stored every minute and goes on after a restart, or at the
 * next server that leads. So neither a wrong clock nor a server that was away for weeks evicts a
 * job, and a restart does not reset a job's idle time. */
#include <stdlib.h>

#include "server/job.h"

enum {
    CHECK_EVERY_S = 60,
    CHECKS = 60,    /* at least this many before a job has been idle for too long */
    GRACE_S = 3600, /* a server that starts gives all clients this time to contact it */
    STEP_S = 2,     /* clocks that differ by less were not set: both count whole seconds */
};

/* ---- When, for people ----------------------------------------------------------------------- */

int64_t harpe_job_seen_s(const harpe_job *job) {
    const harpe_jobs *jobs = job->jobs;
    int64_t now_s = harpe_jobs_now_s(jobs);
    if (!job->was_heard) return job->seen_s < now_s ? job->seen_s : now_s;
    int64_t seen_s = now_s - (harpe_jobs_uptime_s(jobs) - job->heard_s);
    bool was_set = job->seen_s > now_s || llabs(seen_s - job->seen_s) > STEP_S;
    return was_set ? seen_s : job->seen_s;
}

int64_t harpe_job_registered_s(const harpe_job *job) {
    int64_t seen_s = harpe_job_seen_s(job);
    return job->registered_s < seen_s ? job->registered_s : seen_s;
}

/* ---- Eviction ----------------------------------------------------------------------------- */

static void remove_job(harpe_job *job) {
    harpe_jobs *jobs = job->jobs;
    harpe_job_table_retire(&jobs->table, job);
    job->is_evicted = true;
    /* A turn that waits for the job's program ends now. */
    if (job->turn) harpe_scheduler_kind_cancel(jobs->options.scheduler, job->id);
    jobs->counts.jobs--;
    jobs->counts.ranks -= (size_t)job->registered;
    jobs->counts.failed -= job->failure != NULL;
    jobs->counts.evicted++;
    harpe_job_changed(job);
    harpe_jobs_log(jobs, HARPE_LOG_INFO, "%s: evicted", job->id);
    char detail[600];
    (void)snprintf(detail, sizeof detail, "job %.512s was evicted: register it anew", job->id);
    harpe_job_refuse_held(job, 410, detail);
}

static void deletion_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_operation *operation = user;
    harpe_job *job = operation->job;
    harpe_call *call = harpe_operation_release(operation);
    job->eviction = NULL;
    if (status) {
        harpe_reply_not_stored(call, error);
    } else {
        remove_job(job);
        harpe_reply_null(call, -1);
        /* A turn that is under way does it at its end. */
        if (!job->turn) harpe_job_bury(job);
    }
    harpe_operation_end(operation);
    harpe_job_advance(job);
}

void harpe_evict(harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (!operation) return;
    job->eviction = operation;
    operation->change.number = harpe_jobs_now_s(job->jobs);
    harpe_operation_store(operation, HARPE_CHANGE_DELETED, deletion_is_stored);
}

/* ---- Now and then ------------------------------------------------------------------------- */

static void seen_is_stored(void *user, harpe_status status, const harpe_error *error) {
    (void)error;
    harpe_operation *operation = user;
    if (status == HARPE_OK) operation->job->stored_heard_s = operation->change.round;
    harpe_operation_end(operation);
}

static void store_seen(harpe_job *job) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, NULL);
    if (!operation) return;
    operation->change.number = harpe_job_seen_s(job);
    operation->change.round = job->heard_s;
    harpe_operation_store(operation, HARPE_CHANGE_SEEN, seen_is_stored);
}

static void uptime_is_stored(void *user, harpe_status status, const harpe_error *error) {
    (void)status; /* without it, a minute is lost at a restart */
    (void)error;
    harpe_operation_end(user);
}

static void store_uptime(harpe_jobs *jobs) {
    harpe_operation *operation = harpe_operation_new(jobs, NULL, NULL);
    if (!operation) return;
    operation->change.number = harpe_jobs_uptime_s(jobs);
    harpe_operation_store(operation, HARPE_CHANGE_UPTIME, uptime_is_stored);
}

static bool is_idle(const harpe_job *job, int64_t uptime_s) {
    int64_t limit_s = job->jobs->options.settings->max_job_idle_time_s;
    int64_t grace_s = limit_s < GRACE_S ? limit_s : GRACE_S;
    return uptime_s - job->jobs->earlier_uptime_s >= grace_s && uptime_s - job->heard_s >= limit_s;
}

void harpe_jobs_check_idle(harpe_jobs *jobs) {
    int64_t uptime_s = harpe_jobs_uptime_s(jobs);
    store_uptime(jobs);
    for (harpe_job *job = jobs->table.newest, *older; job; job = older) {
        older = job->older;
        if (!job->is_stored || job->eviction) continue;
        if (is_idle(job, uptime_s))
            harpe_evict(job, NULL);
        else if (job->heard_s != job->stored_heard_s)
            store_seen(job);
    }
}

static void check_is_due(void *user) {
    harpe_jobs *jobs = user;
    jobs->idle_timer = NULL;
    if (jobs->is_stopping) return;
    harpe_jobs_check_idle(jobs);
    harpe_error error;
    if (harpe_jobs_watch_idle(jobs, &error)) {
        harpe_jobs_log(jobs, HARPE_LOG_ERROR, "idle jobs are not evicted any longer: %s",
                       error.message);
    }
}

/* Checks every minute, or more often if jobs may be idle for less than an hour. */
harpe_status harpe_jobs_watch_idle(harpe_jobs *jobs, harpe_error *error) {
    int64_t part_s = jobs->options.settings->max_job_idle_time_s / CHECKS;
    int64_t delay_s = part_s < 1 ? 1 : part_s < CHECK_EVERY_S ? part_s : CHECK_EVERY_S;
    return harpe_loop_after(jobs->options.loop, delay_s * 1000, check_is_due, jobs,
                            &jobs->idle_timer, error);
}
