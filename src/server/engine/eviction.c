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
#include "base/error.h"
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

/* Keeps the final report that is in a stored change of the kind DELETED or FINISHED. If memory runs
 * out, the report stays in the store, and the next server shows it. */
static void finished_add(harpe_jobs *jobs, const harpe_change *change) {
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
    harpe_reply_text(call, &text, -1);
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
        harpe_text text = {0};
        harpe_text_append(&text, job->text, strlen(job->text));
        harpe_reply_text(call, &text, -1);
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
        finished_add(job->jobs, &operation->change);
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

/* ---- After a restart ------------------------------------------------------------------------- */

/* Makes the jobs from the records of the store after a restart. The records contain neither the
 * scheduler nor schedules that were not handed out. The job's first turn makes both again. */

static const int64_t LONGEST_UPTIME_S = INT64_C(1) << 48;

typedef struct loading {
    harpe_jobs *jobs;
    harpe_job *job; /* the job of the last record */
    int64_t round;  /* the round of the last result */
    int results;    /* the number of results of that round so far */
} loading;

static harpe_status unreadable(const harpe_change *record, const char *what, harpe_error *error) {
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "the store's job %.200s has %s that cannot be "
                      "read; run harpe store check for details, or replace the store by a "
                      "backup with harpe store restore",
                      record->job_id, what);
}

/* ---- One function per kind of record --------------------------------------------------------- */

static harpe_status add_job(loading *self, const harpe_change *record, harpe_job_info *info,
                            harpe_error *error) {
    char *id = strdup(record->job_id);
    harpe_job *job = id ? harpe_job_new(self->jobs, id, info) : NULL;
    if (!job) {
        free(id);
        return harpe_fail_memory(error);
    }
    job->is_stored = true;
    job->registered_s = job->seen_s = record->number;
    job->last_request_s = job->stored_last_request_s = record->round;
    if (!harpe_job_table_add(&self->jobs->table, job)) {
        harpe_job_free(job);
        return harpe_fail_memory(error);
    }
    self->jobs->counts.jobs++;
    self->job = job;
    self->results = 0;
    job->is_restoring = true;
    return HARPE_OK;
}

/* Makes the job fail if another scheduler made its stored state, because the server's scheduler
 * cannot read that state. This failure is not stored, so a server with the right scheduler can
 * continue the job. */
static harpe_status check_scheduler(harpe_job *job, const char *scheduler, harpe_error *error) {
    const harpe_scheduler_kind *kind = job->jobs->options.scheduler;
    const char *here = harpe_scheduler_kind_name(kind);
    if (!scheduler || harpe_scheduler_kind_is_called(kind, scheduler)) return HARPE_OK;
    if (asprintf(&job->failure,
                 "the scheduler of this job is %.100s, but the server was restarted with %.100s",
                 scheduler, here) < 0) {
        job->failure = NULL;
        return harpe_fail_memory(error);
    }
    job->jobs->counts.failed++;
    return HARPE_OK;
}

static harpe_status load_job(loading *self, const harpe_change *record, harpe_error *error) {
    harpe_job_info info = {0};
    if (harpe_job_info_parse(record->text, record->length, &info, NULL))
        return unreadable(record, "a record of itself", error);
    harpe_status status = add_job(self, record, &info, error);
    harpe_job_info_free(&info);
    if (status != HARPE_OK) return status;
    json_t *object = json_loadb(record->text, record->length, 0, NULL);
    status =
        check_scheduler(self->job, json_string_value(json_object_get(object, "scheduler")), error);
    json_decref(object);
    return status;
}

static harpe_status load_rank(harpe_job *job, const harpe_change *record, harpe_error *error) {
    harpe_rank_info info = {0};
    harpe_problems problems = {0};
    harpe_rank *slot = NULL;
    harpe_rank *place = NULL;
    bool fits = harpe_rank_info_parse(record->text, record->length, &info, NULL) == HARPE_OK &&
                harpe_rank_info_fits(&info, &job->info, &problems);
    harpe_problems_free(&problems);
    if (fits) {
        slot = harpe_job_make_rank(job, info.rank);
        place = harpe_job_make_rank(job, (int)harpe_job_coordinate(job, &info));
        if (!slot || !place) {
            harpe_rank_info_free(&info);
            return harpe_fail_memory(error);
        }
        fits = !slot->is_registered;
    }
    if (!fits) {
        harpe_rank_info_free(&info);
        return unreadable(record, "a rank", error);
    }
    slot->info = info;
    slot->is_registered = true;
    place->taken_by = info.rank + 1;
    job->registered++;
    job->jobs->counts.ranks++;
    return HARPE_OK;
}

/* Loads a round. If it has no text, it has the same schedules as the round before it. */
static harpe_status load_round(harpe_job *job, const harpe_change *record, harpe_error *error) {
    if (job->registered < job->info.world_size)
        return unreadable(record, "a round and not all of its ranks", error);
    job->round = record->round;
    if (record->length > 0) {
        harpe_round_text *text = NULL;
        harpe_status status = harpe_round_text_split(record->text, record->length,
                                                     job->info.world_size, &text, error);
        if (status == HARPE_INVALID_INPUT) return unreadable(record, "a round", error);
        if (status != HARPE_OK) return status;
        harpe_round_text_unref(job->current);
        job->current = text;
    }
    if (!job->current) return unreadable(record, "a round", error);
    harpe_dump_schedules(job, job->round, job->current);
    return HARPE_OK;
}

/* Counts a result of `round`. When all results of the round are counted, writes the round's dump if
 * it is missing. */
static void count_result(loading *self, int64_t round) {
    harpe_job *job = self->job;
    if (round != self->round) self->results = 0;
    self->round = round;
    if (++self->results < job->info.world_size) return;
    if (round == job->round) job->results->is_dumped = true;
    harpe_dump_results(job, round, NULL);
}

/* Counts a result. Its text stays in the store until the round is replayed. */
static harpe_status load_result(loading *self, const harpe_change *record, harpe_error *error) {
    harpe_job *job = self->job;
    if (record->rank < 0 || record->rank >= job->info.world_size || record->round > job->round)
        return unreadable(record, "a result", error);
    if (record->round == job->round) {
        if (!job->results) job->results = harpe_round_results_new(job->info.world_size);
        if (!job->results) return harpe_fail_memory(error);
        harpe_rank *slot = harpe_job_rank(job, record->rank);
        if (!slot) return unreadable(record, "a result of a rank that is not registered", error);
        job->reported += !slot->has_reported;
        slot->has_reported = true;
    }
    count_result(self, record->round);
    return HARPE_OK;
}

static harpe_status load_state(harpe_job *job, const harpe_change *record, harpe_error *error) {
    if (record->length < 2 || record->round > job->round)
        return unreadable(record, "a scheduler's state", error);
    job->state_text = harpe_calloc(record->length + 1, 1);
    if (!job->state_text) return harpe_fail_memory(error);
    memcpy(job->state_text, record->text, record->length);
    job->state_length = record->length;
    job->state_round = record->round;
    return HARPE_OK;
}

static harpe_status load_sums(harpe_job *job, const harpe_change *record, harpe_error *error) {
    return harpe_job_load_sums(job, record) ? HARPE_OK : unreadable(record, "sums", error);
}

static harpe_status load_failure(harpe_job *job, const harpe_change *record, harpe_error *error) {
    if (job->failure) return HARPE_OK;
    job->failure = strndup(record->text, record->length);
    if (!job->failure) return harpe_fail_memory(error);
    job->jobs->counts.failed++;
    return HARPE_OK;
}

static harpe_status load_end(harpe_job *job, const harpe_change *record, harpe_error *error) {
    if (record->rank < 0 || record->rank >= job->info.world_size)
        return unreadable(record, "the end of a rank", error);
    harpe_job_set_ended(job, record->rank, true);
    return HARPE_OK;
}

static harpe_status load_uptime(harpe_jobs *jobs, const harpe_change *record, harpe_error *error) {
    if (record->number < 0 || record->number > LONGEST_UPTIME_S) {
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "the store says that servers have run with it for %lld s, which is impossible; "
            "harpe store restore replaces the store by a backup",
            (long long)record->number);
    }
    jobs->earlier_uptime_s = record->number;
    return HARPE_OK;
}

static harpe_status load_record(void *user, const harpe_change *record, harpe_error *error) {
    loading *self = user;
    if (record->kind == HARPE_CHANGE_JOB) return load_job(self, record, error);
    if (record->kind == HARPE_CHANGE_DELETED) {
        self->job = NULL;
        return harpe_job_table_add_evicted(&self->jobs->table, record->job_id)
                   ? HARPE_OK
                   : harpe_fail_memory(error);
    }
    if (record->kind == HARPE_CHANGE_UPTIME) return load_uptime(self->jobs, record, error);
    if (record->kind == HARPE_CHANGE_FINISHED) {
        finished_add(self->jobs, record);
        return HARPE_OK;
    }
    harpe_job *job = self->job;
    if (!job || strcmp(job->id, record->job_id) != 0)
        return unreadable(record, "records without a job", error);
    switch (record->kind) {
    case HARPE_CHANGE_RANK: return load_rank(job, record, error);
    case HARPE_CHANGE_ROUND: return load_round(job, record, error);
    case HARPE_CHANGE_RESULT: return load_result(self, record, error);
    case HARPE_CHANGE_STATE: return load_state(job, record, error);
    case HARPE_CHANGE_SUMS: return load_sums(job, record, error);
    case HARPE_CHANGE_JOB_REQUEST: return harpe_job_read_request(job, record, error);
    case HARPE_CHANGE_END: return load_end(job, record, error);
    case HARPE_CHANGE_FAILED: return load_failure(job, record, error);
    case HARPE_CHANGE_SEEN: job->seen_s = record->number; return HARPE_OK;
    default: return HARPE_OK;
    }
}

/* ---- All records ----------------------------------------------------------------------------- */

/* Continues the uptime of the earlier servers. The last request of a job may be later than the
 * stored uptime; then the uptime continues from that request. An earlier version of Harpe did not
 * store the last request of a job; the idle time of such a job starts now. */
static void continue_uptime(harpe_jobs *jobs) {
    for (harpe_job *job = jobs->table.newest; job; job = job->older) {
        if (job->last_request_s > LONGEST_UPTIME_S) job->last_request_s = -1;
        if (job->last_request_s > jobs->earlier_uptime_s)
            jobs->earlier_uptime_s = job->last_request_s;
    }
    for (harpe_job *job = jobs->table.newest; job; job = job->older)
        if (job->last_request_s < 0) job->last_request_s = jobs->earlier_uptime_s;
}

/* Lets a restored job continue. Answers may have been lost when the last server ended, and it is
 * not known which. Therefore each rank may ask again for its schedule. */
static void go_on(harpe_job *job) {
    if (job->registered == job->info.world_size) harpe_dump_ranks(job);
    job->is_restoring = false;
    harpe_dumps_begin(job);
    harpe_rank *slot;
    for (int r = 0; (slot = harpe_job_next_rank(job, &r)); r++) {
        slot->may_ask_again = job->round >= 0 && !slot->has_reported;
        slot->is_uncounted = slot->has_reported && job->sums_from < job->round;
        job->uncounted += slot->is_uncounted;
    }
    harpe_count_stored_begin(job);
    harpe_job_wake(job);
}

harpe_status harpe_jobs_load(harpe_jobs *jobs, harpe_error *error) {
    loading self = {.jobs = jobs};
    jobs->is_loading = true;
    harpe_status status = harpe_store_load(jobs->options.store, NULL, load_record, &self, error);
    jobs->is_loading = false;
    if (status != HARPE_OK) return status;
    continue_uptime(jobs);
    for (harpe_job *job = jobs->table.newest; job; job = job->older)
        go_on(job);
    return HARPE_OK;
}
