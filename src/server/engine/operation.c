/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that all operations share: to a worker and back, and through the store. Other calls
 * about the same rank or job can wait until the operation ends. The operation also ends normally if
 * the client disconnects meanwhile. This file decides nothing about jobs. */
#include "server/engine/engine_internal.h"

#include <stdlib.h>

#include "base/array.h"
#include "server/store/change.h"

/* The longest body, in bytes, that is decoded on the loop. This takes about 10 microseconds, which
 * is less than the exchange with a worker. */
enum { DECODED_ON_THE_LOOP = 4096 };

/* ---- Operations ------------------------------------------------------------------------------ */

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
