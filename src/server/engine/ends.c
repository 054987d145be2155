/* SPDX-License-Identifier: Apache-2.0 */
/* Handles ranks whose training has ended (POST /end). Each end is stored before it is answered. A
 * job has ended when all its ranks have ended. The end changes nothing else: a held request stays
 * held, and the job is evicted like any other job that sends no requests. A rank that registers
 * again is no longer ended. A training that is restarted with the same job key therefore continues
 * in its job. */
#include "server/engine/ends.h"

#include <jansson.h>

#include "base/log.h"
#include "pfo/fields.h"
#include "server/engine/contact.h"
#include "server/engine/job.h"
#include "server/engine/job_ranks.h"
#include "server/engine/job_times.h"
#include "server/engine/marked_jobs.h"
#include "server/engine/operation.h"
#include "server/engine/replies.h"

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
        char message[96];
        (void)snprintf(message, sizeof message, "rank %d is not in a job of %d ranks", *rank,
                       job->info.world_size);
        harpe_problems_add(&problems, json_pack("[s,s]", "body", "rank"), "assertion_error",
                           message);
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

/* ---- States ---------------------------------------------------------------------------------- */

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

/* ---- Requests -------------------------------------------------------------------------------- */

static void end_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_operation *operation = user;
    harpe_job *job = operation->job;
    int rank = operation->change.rank;
    bool has_ended = operation->change.kind == HARPE_CHANGE_END;
    harpe_call *call = harpe_operation_take_call(operation);
    harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot) slot->operation = NULL;
    if (status != HARPE_OK) {
        harpe_reply_not_stored(call, error);
    } else if (job->is_evicted) {
        harpe_reply_evicted(call, job->id);
    } else {
        harpe_job_set_ended(job, rank, has_ended);
        harpe_job_changed(job);
        harpe_reply_null(call, -1);
    }
    harpe_operation_end(operation);
}

/* Stores the end or the return of a rank, and then answers the call of `operation`. */
static void store_end(harpe_operation *operation, int rank, harpe_change_kind kind) {
    harpe_job *job = operation->job;
    harpe_job_rank(job, rank)->operation = operation;
    operation->change.rank = rank;
    operation->change.number = harpe_jobs_now_s(job->jobs);
    harpe_operation_store(operation, kind, end_is_stored);
}

void harpe_rank_register_again(harpe_operation *operation, int rank) {
    store_end(operation, rank, HARPE_CHANGE_BACK);
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
