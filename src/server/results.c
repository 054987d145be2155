/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks measured: each result is decoded, stored and counted once per round; one that comes
 * again is compared with what is stored. Also reads results back from the store for those that need
 * a whole round of them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/job.h"

/* ---- A round's results -------------------------------------------------------------------- */

harpe_profiling_result *harpe_results_new(int count) {
    harpe_profiling_result *results = harpe_calloc((size_t)count, sizeof *results);
    for (int r = 0; r < count && results; r++) {
        results[r].rank = -1;
    }
    return results;
}

void harpe_results_free(harpe_profiling_result *results, int count) {
    for (int r = 0; r < count && results; r++) {
        harpe_profiling_result_free(&results[r]);
    }
    free(results);
}

harpe_status harpe_results_fill(harpe_store *store, const char *job_id, int64_t round,
                                harpe_profiling_result *results, int count, harpe_error *error) {
    for (int r = 0; r < count; r++) {
        if (results[r].rank >= 0) continue;
        char *text = NULL;
        size_t length = 0;
        harpe_status status =
            harpe_store_read_result(store, job_id, round, r, &text, &length, error);
        if (status) return status;
        status = harpe_profiling_result_parse(text, length, &results[r], error);
        free(text);
        if (status) return status;
    }
    return HARPE_OK;
}

/* ---- The same again? ---------------------------------------------------------------------- */

static bool values_are_equal(const double *a, const double *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (a[i] != b[i]) return false;
    }
    return true;
}

static bool breakdown_is_equal(const harpe_breakdown *a, const harpe_breakdown *b) {
    if (a->iteration_count != b->iteration_count) return false;
    for (size_t i = 0; i < a->iteration_count; i++) {
        if (a->counts[i] != b->counts[i] ||
            !values_are_equal(a->values + a->offsets[i], b->values + b->offsets[i], a->counts[i])) {
            return false;
        }
    }
    return true;
}

/* Members of an object: their order means nothing. */
static bool breakdowns_are_equal(const harpe_breakdown *a, size_t a_count, const harpe_breakdown *b,
                                 size_t b_count) {
    if (a_count != b_count) return false;
    for (size_t i = 0; i < a_count; i++) {
        size_t j = 0;
        while (j < b_count && strcmp(a[i].instruction, b[j].instruction) != 0) {
            j++;
        }
        if (j == b_count || !breakdown_is_equal(&a[i], &b[j])) return false;
    }
    return true;
}

static bool results_are_equal(const harpe_profiling_result *a, const harpe_profiling_result *b) {
    return a->rank == b->rank && a->iteration_time_count == b->iteration_time_count &&
           a->iteration_energy_count == b->iteration_energy_count &&
           values_are_equal(a->iteration_time_s, b->iteration_time_s, a->iteration_time_count) &&
           values_are_equal(a->iteration_energy_j, b->iteration_energy_j,
                            a->iteration_energy_count) &&
           breakdowns_are_equal(a->time_breakdown, a->time_breakdown_count, b->time_breakdown,
                                b->time_breakdown_count) &&
           breakdowns_are_equal(a->energy_breakdown, a->energy_breakdown_count, b->energy_breakdown,
                                b->energy_breakdown_count);
}

static void compare(void *user) {
    harpe_operation *operation = user;
    harpe_profiling_result stored = {0};
    char *text = NULL;
    size_t length = 0;
    harpe_status status =
        harpe_store_read_result(operation->jobs->options.store, operation->job->id,
                                operation->round, operation->result.rank, &text, &length, NULL);
    operation->comparison =
        status == HARPE_NOT_FOUND ? HARPE_RESULT_NOT_STORED : HARPE_RESULT_UNREADABLE;
    if (status) return;
    bool is_equal = length == operation->length && memcmp(text, operation->body, length) == 0;
    if (!is_equal && !harpe_profiling_result_parse(text, length, &stored, NULL)) {
        is_equal = results_are_equal(&stored, &operation->result);
        harpe_profiling_result_free(&stored);
    }
    free(text);
    operation->comparison = is_equal ? HARPE_RESULT_EQUAL : HARPE_RESULT_DIFFERENT;
}

static void is_compared(void *user) {
    harpe_operation *operation = user;
    if (harpe_operation_is_void(operation)) return;
    harpe_call *call = harpe_operation_release(operation);
    long long round = (long long)operation->round;
    int rank = operation->result.rank;
    harpe_result_comparison comparison = operation->comparison;
    harpe_operation_end(operation);
    switch (comparison) {
    case HARPE_RESULT_EQUAL: harpe_reply_null(call, round); break;
    case HARPE_RESULT_DIFFERENT:
        harpe_reply_detail(call, 409, "rank %d has reported another result in round %lld", rank,
                           round);
        break;
    case HARPE_RESULT_NOT_STORED:
        harpe_reply_detail(call, 409, "rank %d's result of round %lld is kept no longer", rank,
                           round);
        break;
    case HARPE_RESULT_UNREADABLE:
        harpe_reply_detail(call, 503, "the stored result could not be read, try again");
        break;
    }
}

/* ---- Taking one --------------------------------------------------------------------------- */

static void result_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_operation *operation = user;
    harpe_job *job = operation->job;
    int rank = operation->result.rank;
    job->ranks[rank].operation = NULL;
    harpe_call *call = harpe_operation_release(operation);
    if (status) {
        harpe_operation_end(operation);
        harpe_reply_not_stored(call, error);
        return;
    }
    job->results[rank] = operation->result;
    operation->result = (harpe_profiling_result){0};
    job->ranks[rank].has_reported = true;
    job->reported++;
    job->jobs->counts.results++;
    harpe_reply_null(call, job->round);
    harpe_operation_end(operation);
    harpe_job_advance(job);
}

static void store_result(harpe_operation *operation) {
    harpe_job *job = operation->job;
    if (!job->results) job->results = harpe_results_new(job->info.world_size);
    if (!job->results) {
        harpe_reply_out_of_memory(harpe_operation_release(operation));
        harpe_operation_end(operation);
        return;
    }
    job->ranks[operation->result.rank].operation = operation;
    operation->change.round = job->round;
    operation->change.rank = operation->result.rank;
    operation->change.text = operation->body;
    operation->change.length = operation->length;
    harpe_operation_store(operation, HARPE_CHANGE_RESULT, result_is_stored);
}

/* What can be said without looking at rounds. */
static bool is_refused(harpe_operation *operation) {
    const harpe_job *job = operation->job;
    int rank = operation->result.rank;
    if (operation->is_decoded && rank >= job->info.world_size) {
        char message[96];
        (void)snprintf(message, sizeof message, "rank %d is not in a job of %d ranks", rank,
                       job->info.world_size);
        harpe_problems_add(&operation->problems, json_pack("[s,s]", "body", "rank"),
                           "assertion_error", message);
        operation->is_decoded = false;
    }
    if (!operation->is_decoded) {
        harpe_reply_problems(harpe_operation_release(operation), &operation->problems);
    } else if (job->failure) {
        harpe_reply_detail(harpe_operation_release(operation), 500, "%s", job->failure);
    } else if (job->round < 0 || operation->round > job->round) {
        harpe_reply_detail(harpe_operation_release(operation), 409,
                           "no schedule of this round was handed out yet: ask for one before "
                           "sending a result");
    } else {
        return false;
    }
    harpe_operation_end(operation);
    return true;
}

static void result_is_decoded(void *user) {
    harpe_operation *operation = user;
    const harpe_job *job = operation->job;
    if (harpe_operation_is_void(operation) || is_refused(operation)) return;
    const harpe_rank *slot = &job->ranks[operation->result.rank];
    if (slot->operation) {
        harpe_operation_wait_for(operation, slot->operation);
        return;
    }
    if (operation->round < 0) operation->round = job->round;
    if (operation->round < job->round || slot->has_reported) {
        harpe_operation_read(operation, compare, is_compared);
        return;
    }
    store_result(operation);
}

static void decode_result(void *user) {
    harpe_operation *operation = user;
    operation->is_decoded = harpe_profiling_result_decode(operation->body, operation->length,
                                                          &operation->result, &operation->problems);
}

void harpe_take_result(harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (operation) harpe_operation_decode(operation, decode_result, result_is_decoded);
}

void harpe_job_dump_results(harpe_job *job) {
    harpe_dump_results(job, job->round, job->results);
    job->results = NULL;
}
