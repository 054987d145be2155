/* SPDX-License-Identifier: Apache-2.0 */
/* Evicts jobs on request, or after they have sent no request for max_job_idle_time. The server
 * keeps the ids of evicted jobs. It also keeps their final reports until there are too many of them
 * or they are too old. This file also stores the time of each job's last
 * request regularly.
 *
 * Idle time is measured with harpe_jobs_uptime_s, the time for which servers have run with this
 * store, and never with the wall clock. The uptime is stored every minute. It continues after a
 * restart, and when another server becomes the leader. Therefore no job is evicted because a clock
 * is wrong or because no server ran for weeks. A restart does not reset the idle time of a job. */
#include "server/engine/engine_internal.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/status.h>

#include "base/array.h"
#include "base/log.h"
#include "base/text.h"
#include "rights/tokens.h"
#include "server/store/change.h"

/* ---- Final reports --------------------------------------------------------------------------- */

/* Keeps the final reports of evicted jobs in a ring, and answers requests for them. The age of a
 * report is measured in running time of the server, as idle time is, so that a wrong wall clock
 * deletes no report. */

enum {
    REPORT_BYTES = 16384, /* a longer report is not kept; a usual one has 2000 */
    LISTED = 100,         /* reports in a list, if the client names no number */
};

static harpe_finished_job *at(const harpe_finished *finished, size_t index) {
    return &finished->jobs[(finished->first + index) % finished->capacity];
}

static void free_job(harpe_finished_job *job) {
    free(job->id);
    free(job->text);
    free(job->group);
}

static void drop_oldest(harpe_jobs *jobs) {
    harpe_finished *finished = &jobs->finished;
    harpe_dump_sweep_forget(jobs, at(finished, 0)->id);
    free_job(at(finished, 0));
    finished->first = (finished->first + 1) % finished->capacity;
    finished->count--;
}

void harpe_finished_free(harpe_finished *finished) {
    for (size_t i = 0; i < finished->count; i++)
        free_job(at(finished, i));
    free(finished->jobs);
    *finished = (harpe_finished){0};
}

/* ---- Keeping reports ------------------------------------------------------------------------- */

/* Puts the job's final report into `operation`, whose change deletes the job. Puts none if no
 * reports are kept, or if the job had no round and no failure. If memory runs out, puts none: the
 * eviction is more important. */
static void finished_prepare(const harpe_job *job, harpe_operation *operation) {
    const harpe_jobs *jobs = job->jobs;
    int64_t kept = jobs->options.settings->max_finished_jobs;
    if (kept == 0 || (job->round < 0 && !job->failure)) return;
    char *text = harpe_job_final_report(job, operation->change.number);
    size_t length = text ? strlen(text) : 0;
    if (length == 0 || length > REPORT_BYTES) {
        free(text);
        return;
    }
    free(operation->body);
    operation->body = text;
    operation->change.text = text;
    operation->change.length = length;
    operation->change.round = harpe_jobs_uptime_s(jobs);
    operation->change.rank = (int)kept;
}

/* Returns true if the ring has a free place. */
static bool make_room(harpe_jobs *jobs) {
    harpe_finished *finished = &jobs->finished;
    size_t capacity = (size_t)jobs->options.settings->max_finished_jobs;
    if (!finished->jobs) {
        finished->jobs = harpe_calloc(capacity, sizeof *finished->jobs);
        if (!finished->jobs) return false;
        finished->capacity = capacity;
    }
    if (finished->count == finished->capacity) drop_oldest(jobs);
    return true;
}

static double number_of(const json_t *object, const char *name, double missing) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : missing;
}

static void read_sums(const json_t *figures, harpe_figure_sums *sums) {
    const json_t *saved = json_object_get(figures, "saved");
    harpe_figure_sums_add(sums, number_of(figures, "energy", 0), 0, number_of(saved, "energy", 0),
                          number_of(saved, "energy_uncertainty", INFINITY),
                          number_of(saved, "energy_baseline", 0));
}

/* Reads the figures and the group in a report. Returns false if memory runs out. */
static bool read_report(const harpe_change *change, harpe_finished_job *job) {
    json_t *report = json_loadb(change->text, change->length, 0, NULL);
    const char *group = json_string_value(json_object_get(report, "group"));
    read_sums(json_object_get(report, "figures"), &job->sums);
    if (group) job->group = strdup(group);
    bool is_read = !group || job->group;
    json_decref(report);
    return is_read;
}

/* If memory runs out, the report stays in the store, and the next server shows it. */
void harpe_finished_add(harpe_jobs *jobs, const harpe_change *change) {
    harpe_finished *finished = &jobs->finished;
    if (change->length == 0 || jobs->options.settings->max_finished_jobs == 0) {
        harpe_dump_sweep_forget(jobs, change->job_id);
        return;
    }
    harpe_finished_job job = {.id = strdup(change->job_id),
                              .text = strndup(change->text, change->length),
                              .uptime_s = change->round};
    if (!job.id || !job.text || !read_report(change, &job) || !make_room(jobs)) {
        free_job(&job);
        return;
    }
    *at(finished, finished->count) = job;
    finished->count++;
}

/* Removes the reports that are older than `max_finished_job_time`. Returns the uptime, in s, before
 * which all removed reports were made. Returns 0 if the server has not run for so long. */
static int64_t finished_forget_old(harpe_jobs *jobs) {
    harpe_finished *finished = &jobs->finished;
    int64_t first_s = harpe_jobs_uptime_s(jobs) - jobs->options.settings->max_finished_job_time_s;
    while (finished->count > 0 && at(finished, 0)->uptime_s < first_s)
        drop_oldest(jobs);
    return first_s > 0 ? first_s : 0;
}

/* ---- Showing reports ------------------------------------------------------------------------- */

/* To a client with this scope, a report of another group does not exist. */
static bool is_shown(const harpe_jobs *jobs, const harpe_finished_job *job, const char *scope) {
    return harpe_scope_covers(jobs->groups, scope, job->group);
}

static void answer_list(const harpe_jobs *jobs, harpe_call *call) {
    const harpe_finished *finished = &jobs->finished;
    size_t skipped = call->rank > 0 ? (size_t)call->rank : 0;
    size_t limit = call->round < 0 ? LISTED : (size_t)call->round;
    size_t shown = 0;
    harpe_figure_sums sums = {0};
    harpe_text text = {0};
    harpe_text_printf(&text, "{\"jobs\":[");
    for (size_t i = finished->count; i-- > 0;) {
        const harpe_finished_job *job = at(finished, i);
        if (!is_shown(jobs, job, call->scope)) continue;
        shown++;
        harpe_figure_sums_add(&sums, job->sums.used_j, 0, job->sums.saved_j,
                              job->sums.compared ? sqrt(job->sums.variance) : INFINITY,
                              job->sums.baseline_j);
        if (shown <= skipped || shown - skipped > limit) continue;
        if (shown > skipped + 1) harpe_text_append(&text, ",", 1);
        harpe_text_append(&text, job->text, strlen(job->text));
    }
    harpe_text_printf(&text, "],\"count\":%zu", shown);
    harpe_figure_sums_append(&text, ",\"sums\":", &sums);
    harpe_text_append(&text, "}", 1);
    if (text.failed) {
        harpe_text_free(&text);
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_reply(call, 200, text.data, text.length, -1);
}

void harpe_finished_answer(const harpe_jobs *jobs, harpe_call *call) {
    const harpe_finished *finished = &jobs->finished;
    if (!call->job_id) {
        answer_list(jobs, call);
        return;
    }
    for (size_t i = finished->count; i-- > 0;) {
        const harpe_finished_job *job = at(finished, i);
        if (strcmp(job->id, call->job_id) != 0 || !is_shown(jobs, job, call->scope)) continue;
        char *text = strdup(job->text);
        harpe_reply(call, text ? 200 : 503, text, text ? strlen(text) : 0, -1);
        return;
    }
    harpe_reply_detail(call, 404,
                       "there is no final report of job %.512s: the server keeps %lld reports, and "
                       "each for %lld s (max_finished_jobs, max_finished_job_time)",
                       call->job_id, (long long)jobs->options.settings->max_finished_jobs,
                       (long long)jobs->options.settings->max_finished_job_time_s);
}

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

static void deletion_is_stored(harpe_operation *operation) {
    harpe_job *job = operation->job;
    harpe_call *call = harpe_operation_take_call(operation);
    job->eviction = NULL;
    if (operation->status != HARPE_OK) {
        harpe_reply_not_stored(call, operation->error);
    } else {
        harpe_finished_add(job->jobs, &operation->change);
        remove_job(job);
        harpe_reply_null(call, -1);
    }
    (void)harpe_operation_end(operation);
    harpe_job_wake(job);
}

void harpe_evict(harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (!operation) return;
    harpe_job_tell_eviction(job);
    job->eviction = operation;
    operation->change.number = harpe_jobs_now_s(job->jobs);
    finished_prepare(job, operation);
    harpe_operation_store(operation, HARPE_CHANGE_DELETED, deletion_is_stored);
}

/* ---- Idle jobs ------------------------------------------------------------------------------- */

static void seen_is_stored(harpe_operation *operation) {
    if (operation->status == HARPE_OK)
        operation->job->stored_last_request_s = operation->change.round;
    (void)harpe_operation_end(operation);
}

static void store_seen(harpe_job *job) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, NULL);
    if (!operation) return;
    operation->change.number = harpe_job_seen_s(job);
    operation->change.round = job->last_request_s;
    harpe_operation_store(operation, HARPE_CHANGE_SEEN, seen_is_stored);
}

/* If this fails, a restart loses a minute of uptime. */
static void uptime_is_stored(harpe_operation *operation) { (void)harpe_operation_end(operation); }

static void store_uptime(harpe_jobs *jobs) {
    harpe_operation *operation = harpe_operation_new(jobs, NULL, NULL);
    if (!operation) return;
    operation->change.number = harpe_jobs_uptime_s(jobs);
    operation->change.round = finished_forget_old(jobs);
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
