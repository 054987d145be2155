/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that operations of all kinds share. They run on a worker, or wait for the store. Those
 * with a call decode the body of the call (on a worker if
 * the body is long), store the change, and send the answer. Other calls about the same rank or job
 * can wait until the operation ends. The operation also ends normally if the client disconnects
 * meanwhile. This file decides nothing about jobs. */
#include "server/engine/engine_internal.h"

#include <stdlib.h>

#include "base/array.h"
#include "server/store/change.h"

/* The longest body, in bytes, that is decoded on the loop. This takes about 10 microseconds, which
 * is less than the exchange with a worker. */
enum { DECODED_ON_THE_LOOP = 4096 };

/* ---- Operations ------------------------------------------------------------------------------ */

static void free_operation(harpe_operation *operation) {
    if (operation->job) operation->job->operations--;
    harpe_problems_free(&operation->problems);
    if (operation->free_own) operation->free_own(operation);
    free(operation->body);
    free(operation);
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
                               void (*free_own)(harpe_operation *operation)) {
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

void harpe_operation_run(harpe_operation *operation, harpe_pool pool, void (*work)(void *user),
                         void (*done)(void *user)) {
    operation->work = (harpe_work){.work = work,
                                   .done = done,
                                   .user = operation,
                                   .pool = (int)pool,
                                   .subject = operation->job ? operation->job->id : NULL};
    harpe_workers_submit(operation->jobs->options.workers, &operation->work);
}

void harpe_operation_decode(harpe_operation *operation, void (*work)(void *user),
                            void (*done)(void *user)) {
    if (operation->length > DECODED_ON_THE_LOOP) {
        harpe_operation_run(operation, HARPE_POOL_DECODE, work, done);
        return;
    }
    work(operation);
    done(operation);
}

void harpe_operation_store(harpe_operation *operation, harpe_change_kind kind,
                           void (*done)(void *user, harpe_status status,
                                        const harpe_error *error)) {
    harpe_change *change = &operation->change;
    change->kind = kind;
    change->job_id = operation->job ? operation->job->id : "";
    change->done = done;
    change->user = operation;
    if (operation->earlier)
        harpe_store_submit_both(operation->jobs->options.store, operation->earlier, change);
    else
        harpe_store_submit(operation->jobs->options.store, change);
}

harpe_call *harpe_operation_take_call(harpe_operation *operation) {
    harpe_call *call = operation->call;
    operation->call = NULL;
    if (call) call->operation = NULL;
    return call;
}

void harpe_operation_end(harpe_operation *operation) {
    harpe_jobs *jobs = operation->jobs;
    harpe_call_list waiters = {0};
    leave_list(operation);
    for (harpe_call *waiter; (waiter = harpe_calls_take_first(&operation->waiters));)
        harpe_calls_append(&waiters, waiter);
    free_operation(operation);
    if (waiters.first) harpe_jobs_handle_again(jobs, &waiters);
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
    harpe_operation_end(operation);
}

bool harpe_operation_is_void(harpe_operation *operation) {
    harpe_job *job = operation->job;
    if (operation->call && !operation->jobs->is_stopping && job && job->eviction) {
        harpe_operation_wait_for(operation, job->eviction);
        return true;
    }
    if (operation->call && !operation->jobs->is_stopping && !(job && job->is_evicted)) return false;
    harpe_call *call = harpe_operation_take_call(operation);
    bool is_stopping = operation->jobs->is_stopping;
    if (is_stopping)
        harpe_reply_stopping(call);
    else if (job)
        harpe_reply_evicted(call, job->id);
    harpe_operation_end(operation);
    return true;
}
