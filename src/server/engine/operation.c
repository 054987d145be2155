/* SPDX-License-Identifier: Apache-2.0 */
/* Answers calls, and has the steps that all operations share: to a worker and back, and through the
 * store. Other calls about the same rank or job can wait until the operation ends. The operation
 * also ends normally if the client disconnects meanwhile. This file decides nothing about jobs. */
#include "server/engine/engine_internal.h"

#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "pfo/models.h"
#include "rights/tokens.h"
#include "server/store/change.h"

/* ---- Replies --------------------------------------------------------------------------------- */

/* Answers calls: JSON bodies for success and for errors, and the words of a job's metadata that
 * say which clients may see and change it. */

void harpe_reply(harpe_call *call, int http_status, char *body, size_t length, int64_t round) {
    if (!call) {
        free(body);
        return;
    }
    call->held_by = NULL;
    call->operation = NULL;
    call->next = NULL;
    harpe_call_answer answer = {http_status, body, body ? length : 0, round};
    call->answer(call, &answer);
}

void harpe_call_clear(harpe_call *call) {
    free(call->job_id);
    free(call->scope);
    free(call->body);
}

void harpe_reply_text(harpe_call *call, harpe_text *text, int64_t round) {
    size_t length = text->length;
    char *body = harpe_text_take(text);
    if (body)
        harpe_reply(call, 200, body, length, round);
    else
        harpe_reply_out_of_memory(call);
}

void harpe_reply_null(harpe_call *call, int64_t round) {
    if (!call) return;
    harpe_reply(call, 200, strdup("null"), strlen("null"), round);
}

/* Makes a JSON string of `message`. The message may contain names from requests, so bytes that are
 * not UTF-8 become '?'. */
static json_t *json_text(char *message) {
    json_t *text = json_string(message);
    if (text) return text;
    harpe_clean_in_place(message);
    return json_string(message);
}

void harpe_reply_detail(harpe_call *call, int http_status, const char *format, ...) {
    if (!call) return;
    char message[HARPE_ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0) message[0] = '\0';
    if (length >= (int)sizeof message)
        message[harpe_cut_length(message, sizeof message - 2)] = '\0';
    json_t *object = json_pack("{s:o}", "detail", json_text(message));
    char *body = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    harpe_reply(call, http_status, body, body ? strlen(body) : 0, -1);
}

void harpe_reply_problems(harpe_call *call, const harpe_problems *problems) {
    if (!call) return;
    char *body = problems->out_of_memory ? NULL : harpe_problems_format(problems);
    if (!body) {
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_reply(call, 422, body, strlen(body), -1);
}

void harpe_add_unknown_rank(harpe_problems *problems, const char *place, int64_t rank,
                            const harpe_job *job) {
    char message[96];
    (void)snprintf(message, sizeof message, "rank %lld is not in a job of %d ranks",
                   (long long)rank, job->info.world_size);
    harpe_problems_add(problems, json_pack("[s,s]", place, "rank"), "assertion_error", message);
}

void harpe_reply_out_of_memory(harpe_call *call) {
    harpe_reply_detail(call, 503, "the server is out of memory: try again later");
}

void harpe_reply_stopping(harpe_call *call) {
    harpe_reply_detail(call, 503, "the server is stopping: try again");
}

void harpe_reply_evicted(harpe_call *call, const char *job_id) {
    harpe_reply_detail(call, 410, "job %.512s was evicted: register it again", job_id);
}

void harpe_reply_not_stored(harpe_call *call, const harpe_error *error) {
    harpe_reply_detail(call, 503, "this could not be stored, try again: %s", error->message);
}

int harpe_http_status_of(harpe_status status) {
    switch (status) {
    case HARPE_INVALID_ARGUMENT:
    case HARPE_INVALID_INPUT: return 422;
    case HARPE_NOT_SUPPORTED:
    case HARPE_INFEASIBLE:
    case HARPE_NOT_FOUND: return 409;
    case HARPE_OUT_OF_MEMORY: return 503;
    default: return 500;
    }
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* The group of a job is compared with the groups of a client's token. The engine does not know
 * tokens: a call has the groups of its client. */

bool harpe_metadata_group(const char *metadata, char **group) {
    size_t length;
    const char *value, *place = metadata ? metadata : "";
    *group = NULL;
    while ((value = harpe_metadata_next(&place, "fleet_group", &length))) {
        if (!harpe_group_name_is_sound(value, length)) continue;
        *group = strndup(value, length);
        return *group != NULL;
    }
    return true;
}

bool harpe_job_read_words(harpe_job *job) {
    for (int w = 0; w < HARPE_WORDS; w++) {
        const char *place = job->info.job_metadata ? job->info.job_metadata : "";
        size_t length = 0;
        const char *value = harpe_metadata_next(&place, harpe_word_names[w], &length);
        if (length == 0) continue;
        job->words[w] = strndup(value, harpe_cut_length(value, length < 64 ? length : 64));
        if (!job->words[w]) return false;
    }
    return true;
}

bool harpe_job_is_in_scope(const harpe_job *job, const char *scope) {
    return harpe_scope_covers(job->jobs->groups, scope, job->group);
}

void harpe_reply_out_of_scope(harpe_call *call, const harpe_job *job, const char *scope) {
    char words[256];
    harpe_reply_detail(call, 403,
                       "job %.200s is in %s%s, and the token is only for %s: use a token for the "
                       "job's group",
                       job->id, job->group ? "the group " : "no group",
                       job->group ? job->group : "", harpe_scope_words(scope, words, sizeof words));
}

void harpe_reply_wrong_group(harpe_call *call, const char *group, const char *scope) {
    char words[256];
    harpe_reply_detail(call, 403,
                       "the job is for %s%s, and the token is only for %s: name one of its groups "
                       "with fleet_group=NAME in the job's metadata",
                       group ? "the group " : "no group", group ? group : "",
                       harpe_scope_words(scope, words, sizeof words));
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* The longest body, in bytes, that is decoded on the loop. This takes about 10 microseconds, which
 * is less than the exchange with a worker. */
enum { DECODED_ON_THE_LOOP = 4096 };

static void free_operation(harpe_operation *operation) {
    harpe_job *job = operation->job;
    if (operation->free_own) operation->free_own(operation);
    harpe_problems_free(&operation->problems);
    free(operation->body);
    free(operation);
    if (job && --job->operations == 0 && job->is_evicted) harpe_job_release(job);
}

static void leave_list(harpe_operation *operation) {
    if (operation->previous)
        operation->previous->following = operation->following;
    else
        operation->jobs->in_flight = operation->following;
    if (operation->following) operation->following->previous = operation->previous;
}

void harpe_operations_drop(harpe_jobs *jobs) {
    for (harpe_operation *operation = jobs->in_flight, *next; operation; operation = next) {
        next = operation->following;
        leave_list(operation);
        harpe_call *call = harpe_operation_take_call(operation);
        for (harpe_call *waiter; (waiter = harpe_calls_take_first(&operation->waiters));)
            harpe_reply_stopping(waiter);
        free_operation(operation);
        harpe_reply_stopping(call);
    }
}

void *harpe_operation_new_kind(harpe_jobs *jobs, harpe_job *job, harpe_call *call, size_t size,
                               harpe_step *free_own) {
    harpe_operation *operation = harpe_calloc(1, size);
    if (!operation) {
        harpe_reply_out_of_memory(call);
        return NULL;
    }
    operation->free_own = free_own;
    operation->jobs = jobs;
    operation->job = job;
    if (job) job->operations++;
    operation->call = call;
    if (call) {
        operation->is_request = true;
        operation->round = call->round;
        operation->body = call->body;
        operation->length = call->length;
        call->body = NULL;
        call->length = 0;
        call->operation = operation;
    }
    operation->following = jobs->in_flight;
    if (operation->following) operation->following->previous = operation;
    jobs->in_flight = operation;
    return operation;
}

harpe_operation *harpe_operation_new(harpe_jobs *jobs, harpe_job *job, harpe_call *call) {
    return harpe_operation_new_kind(jobs, job, call, sizeof(harpe_operation), NULL);
}

harpe_call *harpe_operation_take_call(harpe_operation *operation) {
    harpe_call *call = operation->call;
    operation->call = NULL;
    if (call) call->operation = NULL;
    return call;
}

harpe_call *harpe_operation_end(harpe_operation *operation) {
    harpe_jobs *jobs = operation->jobs;
    harpe_call *call = harpe_operation_take_call(operation);
    harpe_call_list waiters = {0};
    leave_list(operation);
    for (harpe_call *waiter; (waiter = harpe_calls_take_first(&operation->waiters));)
        harpe_calls_append(&waiters, waiter);
    free_operation(operation);
    if (waiters.first) harpe_jobs_handle_again(jobs, &waiters);
    return call;
}

void harpe_operation_refuse(harpe_operation *operation) {
    harpe_reply_problems(harpe_operation_take_call(operation), &operation->problems);
    (void)harpe_operation_end(operation);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

void harpe_call_wait_for(harpe_call *call, harpe_operation *other) {
    harpe_calls_append(&other->waiters, call);
    call->operation = other;
}

void harpe_operation_wait_for(harpe_operation *operation, harpe_operation *other) {
    harpe_call *call = harpe_operation_take_call(operation);
    if (call) {
        call->body = operation->body;
        call->length = operation->length;
        operation->body = NULL;
        harpe_call_wait_for(call, other);
    }
    (void)harpe_operation_end(operation);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Answers the call of an operation that must not continue, ends the operation, and returns true. */
static bool is_void(harpe_operation *operation) {
    harpe_job *job = operation->job;
    bool is_stopping = operation->jobs->is_stopping, is_evicted = job && job->is_evicted;
    if (job && job->turn && operation == &job->turn->operation) {
        if (!is_evicted) return false;
        harpe_reply_evicted(harpe_operation_take_call(operation), job->id);
        harpe_turn_end(job->turn);
        return true;
    }
    bool waits = operation->call && !is_stopping && job && job->eviction;
    if (waits) harpe_operation_wait_for(operation, job->eviction);
    if (waits) return true;
    if (!operation->is_request || (operation->call && !is_stopping && !is_evicted)) return false;
    harpe_call *call = harpe_operation_end(operation);
    if (is_stopping)
        harpe_reply_stopping(call);
    else if (job)
        harpe_reply_evicted(call, job->id);
    return true;
}

static void run_work(void *user) {
    harpe_operation *operation = user;
    operation->work(operation);
}

static void has_worked(void *user) {
    harpe_operation *operation = user;
    if (!is_void(operation)) operation->done(operation);
}

void harpe_operation_run(harpe_operation *operation, harpe_pool pool, harpe_step *work,
                         harpe_step *done) {
    operation->work = work;
    operation->done = done;
    operation->worker = (harpe_work){.work = run_work,
                                     .done = has_worked,
                                     .user = operation,
                                     .pool = (int)pool,
                                     .subject = operation->job ? operation->job->id : NULL};
    harpe_workers_submit(operation->jobs->options.workers, &operation->worker);
}

void harpe_operation_decode(harpe_operation *operation, harpe_step *work, harpe_step *done) {
    if (operation->length > DECODED_ON_THE_LOOP) {
        harpe_operation_run(operation, HARPE_POOL_DECODE, work, done);
        return;
    }
    work(operation);
    operation->done = done;
    has_worked(operation);
}

static void has_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_operation *operation = user;
    operation->status = status;
    operation->error = error;
    operation->done(operation);
}

void harpe_operation_store(harpe_operation *operation, harpe_change_kind kind, harpe_step *done) {
    harpe_change *change = &operation->change;
    operation->done = done;
    change->kind = kind;
    change->job_id = operation->job ? operation->job->id : "";
    change->done = has_stored;
    change->user = operation;
    if (operation->earlier)
        harpe_store_submit_both(operation->jobs->options.store, operation->earlier, change);
    else
        harpe_store_submit(operation->jobs->options.store, change);
}
