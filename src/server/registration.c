/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and ranks come: each registration is decoded, checked against what is there, stored, and
 * only then part of the job and answered. The same data again is a retry, other data a conflict. A
 * job with a key is registered once, by whichever rank comes first. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"

/* Clients send a line or two. */
enum { METADATA_BYTES = 65536 };

/* ---- Jobs --------------------------------------------------------------------------------- */

static harpe_call *end_operation(harpe_operation *operation) {
    harpe_call *call = harpe_operation_release(operation);
    harpe_operation_end(operation);
    return call;
}

static void reply_id(harpe_call *call, const harpe_job *job) {
    json_t *id = json_string(job->id);
    char *body = id ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
    json_decref(id);
    harpe_reply(call, 200, body, body ? strlen(body) : 0, -1);
}

/* A round begins when all ranks wait for it, each with a connection of its own. If there are
 * several servers, each has a part of these connections. */
static void tell_too_many(const harpe_job *job) {
    const harpe_jobs_options *options = &job->jobs->options;
    if (options->connections == 0 || job->info.world_size <= options->connections) return;
    if (harpe_store_is_shared(options->store)) return;
    harpe_jobs_log(job->jobs, HARPE_LOG_WARNING,
                   "%s: has %d ranks, but this server takes only %d connections at once: not all "
                   "ranks can wait for their schedules, so no round begins; raise max_connections "
                   "and the limit of open files (ulimit -Hn), or start several servers on one "
                   "PostgreSQL",
                   job->id, job->info.world_size, options->connections);
}

static void job_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_operation *operation = user;
    harpe_jobs *jobs = operation->jobs;
    harpe_job *job = operation->job;
    job->registration = NULL;
    if (status) {
        harpe_job_table_remove(&jobs->table, job);
        jobs->counts.jobs--;
        operation->job = NULL;
        harpe_job_free(job);
        harpe_reply_not_stored(end_operation(operation), error);
        return;
    }
    job->is_stored = true;
    harpe_job_changed(job);
    jobs->counts.registered_jobs++;
    harpe_jobs_log(jobs, HARPE_LOG_INFO, "%s: registered, %d ranks", job->id, job->info.world_size);
    tell_too_many(job);
    reply_id(end_operation(operation), job);
}

/* True for a rank or a retry that names the key of an existing job. False: it is a new job, also if
 * the job of this key has ended and had another shape. */
static bool job_is_known(harpe_operation *operation, const harpe_job_info *info) {
    const harpe_job *job =
        info->job_key ? harpe_job_table_find_key(&operation->jobs->table, info->job_key) : NULL;
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
        reply_id(end_operation(operation), job);
    } else {
        harpe_reply_detail(end_operation(operation), 409,
                           "the job of this job_key, %s, has other degrees: evict it or choose "
                           "another key",
                           job->id);
    }
    return true;
}

/* An id that no job has or had, also of those that are only being registered. */
static char *unused_id(const harpe_jobs *jobs, const harpe_job_info *info, int64_t now_s) {
    const char *scheduler = harpe_scheduler_kind_name(jobs->options.scheduler);
    for (int repetition = 1;; repetition++) {
        char *id = harpe_job_id_make(info, scheduler, (time_t)now_s, repetition);
        if (!id || !harpe_job_table_find(&jobs->table, id)) return id;
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
    job->heard_s = job->stored_heard_s = harpe_jobs_uptime_s(jobs);
    job->was_heard = true;
    if (harpe_job_table_add(&jobs->table, job)) return job;
    harpe_job_free(job);
    return NULL;
}

/* What is stored also says which scheduler it was: another one must not go on with its state. */
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

static bool job_is_within_limits(harpe_jobs *jobs, harpe_operation *operation,
                                 const harpe_job_info *info) {
    const harpe_settings *settings = jobs->options.settings;
    if (info->job_metadata && strlen(info->job_metadata) > METADATA_BYTES) {
        harpe_problems_add_limit(&operation->problems, json_pack("[s,s]", "body", "job_metadata"),
                                 "value_error.any_str.max_length",
                                 "ensure this value has at most 65536 bytes", METADATA_BYTES);
        harpe_reply_problems(harpe_operation_release(operation), &operation->problems);
        return false;
    }
    if (info->world_size > settings->max_ranks_per_job) {
        harpe_problems_add_limit(&operation->problems, json_pack("[s,s]", "body", "world_size"),
                                 "value_error.number.not_le",
                                 "more ranks than this server takes in one job (max_ranks_per_job)",
                                 settings->max_ranks_per_job);
        harpe_reply_problems(harpe_operation_release(operation), &operation->problems);
        return false;
    }
    if (jobs->counts.jobs >= (size_t)settings->max_jobs) {
        harpe_reply_detail(harpe_operation_release(operation), 429,
                           "this server takes at most %lld jobs (max_jobs): evict one or wait",
                           (long long)settings->max_jobs);
        return false;
    }
    return true;
}

void harpe_register_job(harpe_jobs *jobs, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(jobs, NULL, call);
    if (!operation) return;
    harpe_job_info info = {0};
    if (!harpe_job_info_decode(operation->body, operation->length, &info, &operation->problems)) {
        harpe_reply_problems(harpe_operation_release(operation), &operation->problems);
        harpe_operation_end(operation);
        return;
    }
    if (job_is_known(operation, &info)) {
        harpe_job_info_free(&info);
        return;
    }
    if (!job_is_within_limits(jobs, operation, &info)) {
        harpe_job_info_free(&info);
        harpe_operation_end(operation);
        return;
    }
    harpe_job *job = add_job(jobs, &info);
    free(operation->body);
    operation->body = job ? record_of_job(jobs, job) : NULL;
    if (!operation->body) {
        harpe_job_info_free(&info);
        if (job) harpe_job_table_remove(&jobs->table, job);
        if (job) harpe_job_free(job);
        harpe_reply_out_of_memory(end_operation(operation));
        return;
    }
    jobs->counts.jobs++;
    job->registration = operation;
    operation->job = job;
    job->operations++;
    operation->change.number = job->registered_s;
    operation->change.round = job->heard_s;
    operation->change.text = operation->body;
    operation->change.length = strlen(operation->body);
    harpe_operation_store(operation, HARPE_CHANGE_JOB, job_is_stored);
}

/* ---- Ranks -------------------------------------------------------------------------------- */

size_t harpe_job_coordinate(const harpe_job *job, const harpe_rank_info *rank) {
    const harpe_job_info *info = &job->info;
    return ((size_t)rank->dp_rank * (size_t)info->pp_degree + (size_t)rank->pp_rank) *
               (size_t)info->tp_degree +
           (size_t)rank->tp_rank;
}

static void rank_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_operation *operation = user;
    harpe_job *job = operation->job;
    const harpe_rank_info *info = &operation->rank_info;
    harpe_rank *slot = harpe_job_rank(job, info->rank);
    slot->operation = NULL;
    harpe_call *call = harpe_operation_release(operation);
    if (status) {
        harpe_job_rank(job, (int)harpe_job_coordinate(job, info))->taken_by = 0;
        harpe_operation_end(operation);
        harpe_reply_not_stored(call, error);
        return;
    }
    slot->info = operation->rank_info;
    operation->rank_info = (harpe_rank_info){0};
    slot->is_registered = true;
    job->registered++;
    harpe_job_meet(job, slot->info.rank);
    harpe_job_changed(job);
    job->jobs->counts.ranks++;
    job->jobs->counts.registered_ranks++;
    harpe_reply_null(call, -1);
    harpe_operation_end(operation);
    if (job->registered == job->info.world_size) harpe_dump_ranks(job);
    harpe_job_advance(job);
}

/* Who has the place of `rank`; -1: nobody. */
static int rank_at_place(const harpe_job *job, const harpe_rank_info *rank) {
    const harpe_rank *place = harpe_job_rank(job, (int)harpe_job_coordinate(job, rank));
    return place ? place->taken_by - 1 : -1;
}

/* A process that registers in mid-job is new, or was restarted: it does not have the schedule. */
static void let_ask_again(harpe_job *job, int rank) {
    harpe_rank *slot = harpe_job_rank(job, rank);
    slot->may_ask_again = job->round >= 0 && !slot->has_reported;
}

/* Answers requests that need no storing. False: a new rank at a free place, or one that registers
 * again. */
static bool rank_is_answered(harpe_operation *operation) {
    harpe_job *job = operation->job;
    const harpe_rank_info *info = &operation->rank_info;
    const harpe_rank *slot = harpe_job_rank(job, info->rank);
    int other = rank_at_place(job, info);
    if (slot && slot->is_registered) {
        bool is_retry = harpe_rank_info_equal(info, &slot->info);
        if (is_retry && slot->has_ended) return false;
        harpe_call *call = harpe_operation_release(operation);
        if (is_retry) {
            let_ask_again(job, info->rank);
            harpe_reply_null(call, -1);
        } else {
            harpe_reply_detail(call, 409, "rank %d is registered with other data", info->rank);
        }
        return true;
    }
    if (other < 0) return false;
    harpe_reply_detail(harpe_operation_release(operation), 409,
                       "the place dp_rank %d, pp_rank %d, tp_rank %d is taken by rank %d",
                       info->dp_rank, info->pp_rank, info->tp_rank, other);
    return true;
}

/* Who is being stored at this rank or at its place, and decides what becomes of `operation`. */
static harpe_operation *rank_in_the_way(const harpe_operation *operation) {
    const harpe_job *job = operation->job;
    const harpe_rank_info *info = &operation->rank_info;
    const harpe_rank *slot = harpe_job_rank(job, info->rank);
    if (slot && slot->operation) return slot->operation;
    int other = rank_at_place(job, info);
    slot = other >= 0 ? harpe_job_rank(job, other) : NULL;
    return slot && !slot->is_registered ? slot->operation : NULL;
}

static void rank_is_decoded(void *user) {
    harpe_operation *operation = user;
    harpe_job *job = operation->job;
    if (harpe_operation_is_void(operation)) return;
    harpe_rank_info *info = &operation->rank_info;
    if (!operation->is_decoded || !harpe_rank_info_fits(info, &job->info, &operation->problems)) {
        harpe_reply_problems(harpe_operation_release(operation), &operation->problems);
        harpe_operation_end(operation);
        return;
    }
    harpe_operation *other = rank_in_the_way(operation);
    if (other) {
        harpe_operation_wait_for(operation, other);
        return;
    }
    if (rank_is_answered(operation)) {
        harpe_operation_end(operation);
        return;
    }
    harpe_rank *slot = harpe_job_make_rank(job, info->rank);
    harpe_rank *place = harpe_job_make_rank(job, (int)harpe_job_coordinate(job, info));
    if (!slot || !place) {
        harpe_reply_out_of_memory(end_operation(operation));
        return;
    }
    if (slot->has_ended) {
        let_ask_again(job, info->rank);
        harpe_rank_comes_back(operation, info->rank);
        return;
    }
    slot->operation = operation;
    place->taken_by = info->rank + 1;
    operation->change.rank = info->rank;
    operation->change.text = operation->body;
    operation->change.length = operation->length;
    harpe_operation_store(operation, HARPE_CHANGE_RANK, rank_is_stored);
}

static void decode_rank(void *user) {
    harpe_operation *operation = user;
    operation->is_decoded = harpe_rank_info_decode(operation->body, operation->length,
                                                   &operation->rank_info, &operation->problems);
}

void harpe_register_rank(harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (operation) harpe_operation_decode(operation, decode_rank, rank_is_decoded);
}
