/* SPDX-License-Identifier: Apache-2.0 */
/* A call on its way: its body decoded (beside the loop when it is large), its change stored, its
 * answer given; and the calls that must wait for it because they are about the same rank or job.
 * The client may go away meanwhile; what was begun ends nevertheless. Decides nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/job.h"

/* Parsing this much takes some 10 microseconds, less than a worker's two hand-overs. */
enum { DECODED_ON_THE_LOOP = 4096 };

/* ---- What is under way -------------------------------------------------------------------- */

void harpe_under_way_add(harpe_jobs *jobs, harpe_under_way *entry,
                         void (*drop)(harpe_under_way *self)) {
    entry->drop = drop;
    entry->previous = NULL;
    entry->following = jobs->under_way;
    if (entry->following) entry->following->previous = entry;
    jobs->under_way = entry;
}

void harpe_under_way_remove(harpe_jobs *jobs, harpe_under_way *entry) {
    if (entry->previous)
        entry->previous->following = entry->following;
    else
        jobs->under_way = entry->following;
    if (entry->following) entry->following->previous = entry->previous;
}

/* ---- Operations --------------------------------------------------------------------------- */

static void free_operation(harpe_operation *operation) {
    if (operation->job) operation->job->operations--;
    harpe_problems_free(&operation->problems);
    harpe_rank_info_free(&operation->rank_info);
    free(operation->body);
    free(operation);
}

static void drop_operation(harpe_under_way *self) {
    harpe_operation *operation = (harpe_operation *)self;
    harpe_call *call = harpe_operation_release(operation);
    for (harpe_call *waiter; (waiter = harpe_calls_take_first(&operation->waiters)) != NULL;) {
        harpe_reply_stopping(waiter);
    }
    free_operation(operation);
    harpe_reply_stopping(call);
}

harpe_operation *harpe_operation_new(harpe_jobs *jobs, harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_calloc(1, sizeof *operation);
    if (!operation) {
        harpe_reply_out_of_memory(call);
        return NULL;
    }
    operation->jobs = jobs;
    operation->job = job;
    if (job) job->operations++;
    operation->call = call;
    operation->work.user = operation;
    if (call) {
        operation->body = call->body;
        operation->length = call->length;
        operation->round = call->round;
        call->body = NULL;
        call->length = 0;
        call->operation = operation;
    }
    harpe_under_way_add(jobs, &operation->under_way, drop_operation);
    return operation;
}

static void run(harpe_operation *operation, harpe_pool pool, void (*work)(void *user),
                void (*done)(void *user)) {
    operation->work.work = work;
    operation->work.done = done;
    operation->work.pool = pool;
    operation->work.subject = operation->job ? operation->job->id : NULL;
    harpe_workers_submit(operation->jobs->options.workers, &operation->work);
}

void harpe_operation_read(harpe_operation *operation, void (*work)(void *user),
                          void (*done)(void *user)) {
    run(operation, HARPE_POOL_STORE, work, done);
}

void harpe_operation_decode(harpe_operation *operation, void (*work)(void *user),
                            void (*done)(void *user)) {
    if (operation->length > DECODED_ON_THE_LOOP) {
        run(operation, HARPE_POOL_DECODE, work, done);
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
    harpe_store_submit(operation->jobs->options.store, change);
}

harpe_call *harpe_operation_release(harpe_operation *operation) {
    harpe_call *call = operation->call;
    operation->call = NULL;
    if (call) call->operation = NULL;
    return call;
}

void harpe_operation_end(harpe_operation *operation) {
    harpe_jobs *jobs = operation->jobs;
    harpe_call_list waiters = {0};
    harpe_under_way_remove(jobs, &operation->under_way);
    for (harpe_call *waiter; (waiter = harpe_calls_take_first(&operation->waiters)) != NULL;) {
        harpe_calls_append(&waiters, waiter);
    }
    free_operation(operation);
    harpe_jobs_handle_again(jobs, &waiters);
}

/* ---- Waiting for one another -------------------------------------------------------------- */

void harpe_call_wait_for(harpe_call *call, harpe_operation *other) {
    harpe_calls_append(&other->waiters, call);
    call->operation = other;
}

void harpe_operation_wait_for(harpe_operation *operation, harpe_operation *other) {
    harpe_call *call = harpe_operation_release(operation);
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
    harpe_call *call = harpe_operation_release(operation);
    bool is_stopping = operation->jobs->is_stopping;
    if (is_stopping)
        harpe_reply_stopping(call);
    else if (job)
        harpe_reply_evicted(call, job->id);
    harpe_operation_end(operation);
    return true;
}
