/* SPDX-License-Identifier: Apache-2.0 */
/* Registers jobs and ranks. Each registration is decoded, compared with the known jobs and ranks,
 * and stored. Then it takes effect and is answered. A second registration with the same data is a
 * retry. A second registration with other data is a conflict. If a job has a key, its first rank
 * registers the job, and the other ranks find the job by the key. The end of a rank's training
 * takes the same way. */
#include "server/engine/engine_internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pfo/fields.h"
#include "rights/tokens.h"

/* Handles ranks whose training has ended (POST /end). Each end is stored before it is answered. A
 * job has ended when all its ranks have ended. The end changes nothing else: a held request stays
 * held, and the job is evicted like any other job that sends no requests. A rank that registers
 * again is no longer ended. A training that is restarted with the same job key therefore continues
 * in its job. */

enum { END_BODY_BYTES = 4096 };

static void read_end(harpe_fields *fields, size_t object, const harpe_place *place, void *out) {
    int *rank = out;
    (void)harpe_member_int(fields, object, place, "rank", 0, rank);
}

static bool is_registered(const harpe_job *job, int rank) {
    const harpe_rank *slot = harpe_job_rank(job, rank);
    return slot && slot->is_registered;
}

/* If the body does not name a registered rank, answers the call and returns false. */
static bool decode_end(const harpe_job *job, harpe_call *call, int *rank) {
    harpe_problems problems = {0};
    bool is_valid = call->length <= END_BODY_BYTES;
    *rank = 0;
    if (!is_valid) {
        harpe_problems_add(&problems, json_pack("[s]", "body"), "value_error",
                           "the body is {\"rank\": R} and nothing else");
    } else {
        is_valid = harpe_body_decode(call->body, call->length, read_end, rank, &problems);
    }
    if (is_valid && *rank >= job->info.world_size) {
        harpe_add_unknown_rank(&problems, "body", *rank, job);
        is_valid = false;
    }
    if (!is_valid) harpe_reply_problems(call, &problems);
    harpe_problems_free(&problems);
    if (is_valid && !is_registered(job, *rank)) {
        harpe_reply_detail(call, 409, "rank %d is not registered, so it cannot end", *rank);
        return false;
    }
    return is_valid;
}

/* ---- The end of training --------------------------------------------------------------------- */

void harpe_job_set_ended(harpe_job *job, int rank, bool has_ended) {
    harpe_rank *slot = harpe_job_rank(job, rank);
    if (!slot || slot->has_ended == has_ended) return;
    bool had_ended = harpe_job_has_ended(job);
    slot->has_ended = has_ended;
    job->ended += has_ended ? 1 : -1;
    if (has_ended) harpe_rank_is_heard(job, rank);
    bool is_over = harpe_job_has_ended(job);
    if (is_over == had_ended || job->jobs->is_loading) return;
    harpe_log_line(&job->jobs->options.log, HARPE_LOG_INFO,
                   is_over ? "%s: ended" : "%s: a rank has registered again", job->id);
}

/* ---- Requests to end ------------------------------------------------------------------------- */

static void end_is_stored(harpe_operation *operation) {
    harpe_job *job = operation->job;
    int rank = operation->change.rank;
    bool has_ended = operation->change.kind == HARPE_CHANGE_END;
    harpe_call *call = harpe_operation_take_call(operation);
    harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot) slot->operation = NULL;
    if (operation->status != HARPE_OK) {
        harpe_reply_not_stored(call, operation->error);
    } else if (job->is_evicted) {
        harpe_reply_evicted(call, job->id);
    } else {
        harpe_job_set_ended(job, rank, has_ended);
        harpe_job_changed(job);
        harpe_reply_null(call, -1);
    }
    (void)harpe_operation_end(operation);
}

/* Stores the end or the return of a rank, and then answers the call of `operation`. */
static void store_end(harpe_operation *operation, int rank, harpe_change_kind kind) {
    harpe_job *job = operation->job;
    harpe_job_rank(job, rank)->operation = operation;
    operation->change = (harpe_change){.rank = rank, .number = harpe_jobs_now_s(job->jobs)};
    harpe_operation_store(operation, kind, end_is_stored);
}

void harpe_take_end(harpe_job *job, harpe_call *call) {
    int rank;
    if (!decode_end(job, call, &rank)) return;
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot->operation) {
        harpe_call_wait_for(call, slot->operation);
        return;
    }
    if (slot->has_ended) {
        harpe_reply_null(call, -1);
        return;
    }
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (operation) store_end(operation, rank, HARPE_CHANGE_END);
}

/* The longest metadata that is accepted. Clients normally send one or two lines. */
enum { METADATA_BYTES = 65536 };

/* ---- Registering jobs ------------------------------------------------------------------------ */

static void reply_id(harpe_call *call, const harpe_job *job) {
    json_t *id = json_string(job->id);
    char *body = id ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
    json_decref(id);
    harpe_reply(call, 200, body, body ? strlen(body) : 0, -1);
}

/* Warns if a job has more ranks than the server can have connections. A round begins when all ranks
 * wait for it, and each of them needs a connection. */
static void tell_too_many(const harpe_job *job) {
    const harpe_jobs_options *options = &job->jobs->options;
    if (options->connections == 0 || job->info.world_size <= options->connections) return;
    harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                   "%s: has %d ranks, but this server accepts only %d connections at once: not all "
                   "ranks can wait for their schedules, so no round begins; raise max_connections "
                   "and the limit of open files (ulimit -Hn)",
                   job->id, job->info.world_size, options->connections);
}

static void job_is_stored(harpe_operation *operation) {
    harpe_jobs *jobs = operation->jobs;
    harpe_job *job = operation->job;
    job->registration = NULL;
    if (operation->status != HARPE_OK) {
        const harpe_error *error = operation->error;
        harpe_job_table_remove(&jobs->table, job);
        jobs->counts.jobs--;
        operation->job = NULL;
        harpe_job_free(job);
        harpe_reply_not_stored(harpe_operation_end(operation), error);
        return;
    }
    job->is_stored = true;
    harpe_job_changed(job);
    jobs->counts.registered_jobs++;
    harpe_log_line(&jobs->options.log, HARPE_LOG_INFO, "%s: registered, %d ranks", job->id,
                   job->info.world_size);
    tell_too_many(job);
    reply_id(harpe_operation_end(operation), job);
}

/* Returns true if the registration has the key of an existing job of its group. This is the case
 * for the job's other ranks and for retries. Returns false for a new job. A job is also new if its
 * key belongs to an ended job with other degrees. Keys belong to a group, so that a group cannot
 * take the keys of another. */
static bool job_is_known(harpe_operation *operation) {
    const harpe_job_info *info = &operation->job_info;
    const harpe_job_table *table = &operation->jobs->table;
    const harpe_job *job =
        info->job_key ? harpe_job_table_find_key(table, info->job_key, operation->group) : NULL;
    if (!job) return false;
    if (job->registration || job->eviction) {
        harpe_operation_wait_for(operation, job->registration ? job->registration : job->eviction);
        return true;
    }
    bool has_same_shape = info->pp_degree == job->info.pp_degree &&
                          info->dp_degree == job->info.dp_degree &&
                          info->tp_degree == job->info.tp_degree;
    if (!has_same_shape && harpe_job_has_ended(job)) return false;
    if (has_same_shape) {
        reply_id(harpe_operation_end(operation), job);
    } else {
        harpe_reply_detail(harpe_operation_end(operation), 409,
                           "the job of this job_key, %s, has other degrees: evict it or choose "
                           "another key",
                           job->id);
    }
    return true;
}

/* Returns an id that no job in the table has. The table includes jobs that are being registered and
 * the latest evicted jobs. */
static char *unused_id(const harpe_jobs *jobs, const harpe_job_info *info, int64_t now_s) {
    const char *scheduler = harpe_scheduler_kind_name(jobs->options.scheduler);
    for (int repetition = 1;; repetition++) {
        char *id = harpe_job_id_make(info, scheduler, (time_t)now_s, repetition);
        if (!id || !(harpe_job_table_find(&jobs->table, id) ||
                     harpe_job_table_has_evicted(&jobs->table, id)))
            return id;
        free(id);
    }
}

static harpe_job *add_job(harpe_jobs *jobs, harpe_job_info *info) {
    int64_t now_s = harpe_jobs_now_s(jobs);
    char *id = unused_id(jobs, info, now_s);
    harpe_job *job = id ? harpe_job_new(jobs, id, info) : NULL;
    if (!job) {
        free(id);
        return NULL;
    }
    job->registered_s = job->seen_s = now_s;
    job->last_request_s = job->stored_last_request_s = harpe_jobs_uptime_s(jobs);
    job->has_sent_request = true;
    if (harpe_job_table_add(&jobs->table, job)) return job;
    harpe_job_free(job);
    return NULL;
}

/* Returns the job's record for the store. The record contains the name of the scheduler, because
 * another scheduler cannot read its state. */
static char *record_of_job(const harpe_jobs *jobs, const harpe_job *job) {
    const harpe_job_info *info = &job->info;
    json_t *record =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:s?, s:s?, s:s}", "job_id", "", "pp_degree",
                  info->pp_degree, "dp_degree", info->dp_degree, "tp_degree", info->tp_degree,
                  "world_size", info->world_size, "job_metadata", info->job_metadata, "job_key",
                  info->job_key, "scheduler", harpe_scheduler_kind_name(jobs->options.scheduler));
    char *text = record ? json_dumps(record, JSON_COMPACT) : NULL;
    json_decref(record);
    return text;
}

/* Answers the registration and returns true if it exceeds a limit. */
static bool exceeds_limits(harpe_operation *operation) {
    const harpe_jobs *jobs = operation->jobs;
    const harpe_settings *settings = jobs->options.settings;
    const harpe_job_info *info = &operation->job_info;
    bool is_long = info->job_metadata && strlen(info->job_metadata) > METADATA_BYTES;
    if (is_long)
        harpe_problems_add_limit(&operation->problems, json_pack("[s,s]", "body", "job_metadata"),
                                 "value_error.any_str.max_length",
                                 "ensure this value has at most 65536 bytes", METADATA_BYTES);
    else if (info->world_size > settings->max_ranks_per_job)
        harpe_problems_add_limit(
            &operation->problems, json_pack("[s,s]", "body", "world_size"),
            "value_error.number.not_le",
            "more ranks than this server accepts in one job (max_ranks_per_job)",
            settings->max_ranks_per_job);
    if (is_long || info->world_size > settings->max_ranks_per_job) {
        harpe_operation_refuse(operation);
        return true;
    }
    if (jobs->counts.jobs < (size_t)settings->max_jobs) return false;
    harpe_reply_detail(harpe_operation_end(operation), 429,
                       "this server accepts at most %lld jobs (max_jobs): evict one or wait",
                       (long long)settings->max_jobs);
    return true;
}

static void decode_job(harpe_operation *operation) {
    operation->is_decoded = harpe_job_info_decode(operation->body, operation->length,
                                                  &operation->job_info, &operation->problems);
}

/* Answers the registration and returns true if the client's token is not for the job's group. */
static bool is_out_of_scope(harpe_operation *operation) {
    const char *scope = operation->call->scope;
    if (harpe_scope_covers(operation->jobs->groups, scope, operation->group)) return false;
    harpe_reply_wrong_group(harpe_operation_take_call(operation), operation->group, scope);
    (void)harpe_operation_end(operation);
    return true;
}

static void job_is_decoded(harpe_operation *operation) {
    harpe_jobs *jobs = operation->jobs;
    if (!operation->is_decoded) {
        harpe_operation_refuse(operation);
        return;
    }
    if (!harpe_metadata_group(operation->job_info.job_metadata, &operation->group)) {
        harpe_reply_out_of_memory(harpe_operation_end(operation));
        return;
    }
    if (is_out_of_scope(operation) || job_is_known(operation) || exceeds_limits(operation)) return;
    harpe_job *job = add_job(jobs, &operation->job_info);
    free(operation->body);
    operation->body = job ? record_of_job(jobs, job) : NULL;
    if (!operation->body) {
        if (job) harpe_job_table_remove(&jobs->table, job);
        if (job) harpe_job_free(job);
        harpe_reply_out_of_memory(harpe_operation_end(operation));
        return;
    }
    jobs->counts.jobs++;
    job->registration = operation;
    operation->job = job;
    job->operations++;
    operation->change = (harpe_change){.number = job->registered_s,
                                       .round = job->last_request_s,
                                       .text = operation->body,
                                       .length = strlen(operation->body)};
    harpe_operation_store(operation, HARPE_CHANGE_JOB, job_is_stored);
}

static void free_job(harpe_operation *operation) {
    harpe_job_info_free(&operation->job_info);
    free(operation->group);
}

void harpe_register_job(harpe_jobs *jobs, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(jobs, NULL, call);
    if (!operation) return;
    operation->free_own = free_job;
    harpe_operation_decode(operation, decode_job, job_is_decoded);
}

/* ---- Registering ranks ----------------------------------------------------------------------- */

static void rank_is_stored(harpe_operation *operation) {
    harpe_job *job = operation->job;
    harpe_rank_info *info = &operation->rank_info;
    harpe_rank *slot = harpe_job_rank(job, info->rank);
    slot->operation = NULL;
    if (operation->status != HARPE_OK) {
        const harpe_error *error = operation->error;
        harpe_job_rank(job, (int)harpe_job_coordinate(job, info))->taken_by = 0;
        harpe_reply_not_stored(harpe_operation_end(operation), error);
        return;
    }
    slot->info = *info;
    *info = (harpe_rank_info){0};
    slot->is_registered = true;
    job->registered++;
    harpe_job_keep_held(job, slot->info.rank);
    harpe_job_changed(job);
    job->jobs->counts.ranks++;
    job->jobs->counts.registered_ranks++;
    harpe_reply_null(harpe_operation_end(operation), -1);
    if (job->registered == job->info.world_size) harpe_dump_ranks(job);
}

/* Returns the rank that has the coordinates of `rank`; -1: no rank has them. */
static int rank_at_place(const harpe_job *job, const harpe_rank_info *rank) {
    const harpe_rank *place = harpe_job_rank(job, (int)harpe_job_coordinate(job, rank));
    return place ? place->taken_by - 1 : -1;
}

/* Lets the rank get the current schedule again. A process that registers while the job runs is new
 * or was restarted, so it does not have the schedule. */
static void let_ask_again(harpe_job *job, int rank) {
    harpe_rank *slot = harpe_job_rank(job, rank);
    slot->may_ask_again = job->round >= 0 && !slot->has_reported;
}

/* If nothing must be stored for the registration, answers it and returns true. Returns false for a
 * new rank with free coordinates, and for a rank that registers again after its end. */
static bool rank_is_answered(harpe_operation *operation) {
    harpe_job *job = operation->job;
    const harpe_rank_info *info = &operation->rank_info;
    const harpe_rank *slot = harpe_job_rank(job, info->rank);
    int other = rank_at_place(job, info);
    if (slot && slot->is_registered) {
        bool is_retry = harpe_rank_info_equal(info, &slot->info);
        if (is_retry && slot->has_ended) return false;
        harpe_call *call = harpe_operation_take_call(operation);
        if (is_retry) {
            let_ask_again(job, info->rank);
            harpe_reply_null(call, -1);
        } else {
            harpe_reply_detail(call, 409, "rank %d is registered with other data", info->rank);
        }
        return true;
    }
    if (other < 0) return false;
    harpe_reply_detail(harpe_operation_take_call(operation), 409,
                       "the place dp_rank %d, pp_rank %d, tp_rank %d is taken by rank %d",
                       info->dp_rank, info->pp_rank, info->tp_rank, other);
    return true;
}

/* Returns the operation that is storing this rank, or a rank with the same coordinates. The
 * registration must wait for it. Returns NULL if there is no such operation. */
static harpe_operation *rank_in_the_way(const harpe_operation *operation) {
    const harpe_job *job = operation->job;
    const harpe_rank_info *info = &operation->rank_info;
    const harpe_rank *slot = harpe_job_rank(job, info->rank);
    if (slot && slot->operation) return slot->operation;
    int other = rank_at_place(job, info);
    slot = other >= 0 ? harpe_job_rank(job, other) : NULL;
    return slot && !slot->is_registered ? slot->operation : NULL;
}

static void rank_is_decoded(harpe_operation *operation) {
    harpe_job *job = operation->job;
    const harpe_rank_info *info = &operation->rank_info;
    if (!operation->is_decoded || !harpe_rank_info_fits(info, &job->info, &operation->problems)) {
        harpe_operation_refuse(operation);
        return;
    }
    harpe_operation *other = rank_in_the_way(operation);
    if (other) {
        harpe_operation_wait_for(operation, other);
        return;
    }
    if (rank_is_answered(operation)) {
        (void)harpe_operation_end(operation);
        return;
    }
    harpe_rank *slot = harpe_job_make_rank(job, info->rank);
    harpe_rank *place = harpe_job_make_rank(job, (int)harpe_job_coordinate(job, info));
    if (!slot || !place) {
        harpe_reply_out_of_memory(harpe_operation_end(operation));
        return;
    }
    if (slot->has_ended) {
        let_ask_again(job, info->rank);
        store_end(operation, info->rank, HARPE_CHANGE_BACK);
        return;
    }
    slot->operation = operation;
    place->taken_by = info->rank + 1;
    operation->change =
        (harpe_change){.rank = info->rank, .text = operation->body, .length = operation->length};
    harpe_operation_store(operation, HARPE_CHANGE_RANK, rank_is_stored);
}

static void decode_rank(harpe_operation *operation) {
    operation->is_decoded = harpe_rank_info_decode(operation->body, operation->length,
                                                   &operation->rank_info, &operation->problems);
}

static void free_rank(harpe_operation *operation) { harpe_rank_info_free(&operation->rank_info); }

void harpe_register_rank(harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (!operation) return;
    operation->free_own = free_rank;
    harpe_operation_decode(operation, decode_rank, rank_is_decoded);
}
