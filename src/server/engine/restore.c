/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the jobs from the records of the store after a restart. The records contain neither the
 * scheduler nor schedules that were not handed out. The job's first turn makes both again. */
#include "server/engine/engine_internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

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
        harpe_finished_add(self->jobs, record);
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
