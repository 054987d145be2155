/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks measured: each result is checked, stored and counted once per round; one that comes
 * again is compared with what is stored. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"

/* At more than 1 GB/s: for less than a worker's two hand-overs would pay. */
enum { SCANNED_ON_THE_LOOP = 128 << 10 };

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

static bool texts_are_equal(const char *a, size_t a_length, const char *b, size_t b_length) {
    harpe_profiling_result first = {0};
    harpe_profiling_result second = {0};
    if (a_length == b_length && memcmp(a, b, a_length) == 0) return true;
    bool is_equal = !harpe_profiling_result_parse(a, a_length, &first, NULL) &&
                    !harpe_profiling_result_parse(b, b_length, &second, NULL) &&
                    results_are_equal(&first, &second);
    harpe_profiling_result_free(&first);
    harpe_profiling_result_free(&second);
    return is_equal;
}

static void compare(void *user) {
    harpe_operation *operation = user;
    char *text = NULL;
    size_t length = 0;
    harpe_status status =
        harpe_store_read_result(operation->jobs->options.store, operation->job->id,
                                operation->round, operation->rank, &text, &length, NULL);
    operation->comparison =
        status == HARPE_NOT_FOUND ? HARPE_RESULT_NOT_STORED : HARPE_RESULT_UNREADABLE;
    if (status) return;
    operation->comparison = texts_are_equal(text, length, operation->body, operation->length)
                                ? HARPE_RESULT_EQUAL
                                : HARPE_RESULT_DIFFERENT;
    free(text);
}

static void is_compared(void *user) {
    harpe_operation *operation = user;
    if (harpe_operation_is_void(operation)) return;
    harpe_call *call = harpe_operation_release(operation);
    long long round = (long long)operation->round;
    int rank = operation->rank;
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
    int rank = operation->rank;
    harpe_rank *slot = harpe_job_rank(job, rank);
    slot->operation = NULL;
    harpe_call *call = harpe_operation_release(operation);
    if (status) {
        harpe_operation_end(operation);
        harpe_reply_not_stored(call, error);
        return;
    }
    job->results->texts[rank] =
        (harpe_result_text){operation->body, operation->length, operation->is_plain};
    operation->body = NULL;
    slot->has_reported = true;
    job->reported++;
    harpe_job_count_result(job, &operation->totals);
    harpe_job_changed(job);
    job->jobs->counts.results++;
    harpe_reply_null(call, job->round);
    harpe_operation_end(operation);
    harpe_job_advance(job);
}

static void store_result(harpe_operation *operation) {
    harpe_job *job = operation->job;
    if (!job->results) job->results = harpe_round_results_new(job->info.world_size);
    if (!job->results) {
        harpe_reply_out_of_memory(harpe_operation_release(operation));
        harpe_operation_end(operation);
        return;
    }
    harpe_job_rank(job, operation->rank)->operation = operation;
    operation->change.round = job->round;
    operation->change.rank = operation->rank;
    operation->change.text = operation->body;
    operation->change.length = operation->length;
    harpe_operation_store(operation, HARPE_CHANGE_RESULT, result_is_stored);
}

/* What can be said without looking at rounds. */
static bool is_refused(harpe_operation *operation) {
    const harpe_job *job = operation->job;
    int rank = operation->rank;
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
    const harpe_rank *slot = harpe_job_rank(job, operation->rank);
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

/* What the scan leaves open. */
static void decode_result(void *user) {
    harpe_operation *operation = user;
    harpe_profiling_result result = {0};
    operation->is_decoded = harpe_profiling_result_decode(operation->body, operation->length,
                                                          &result, &operation->problems);
    operation->rank = result.rank;
    operation->totals = harpe_profiling_result_totals(&result);
    harpe_profiling_result_free(&result);
}

static void check_result(void *user) {
    harpe_operation *operation = user;
    operation->is_plain = operation->is_decoded = harpe_profiling_result_scan_totals(
        operation->body, operation->length, &operation->rank, &operation->totals);
    if (!operation->is_plain) decode_result(operation);
}

void harpe_take_result(harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (!operation) return;
    if (operation->length > SCANNED_ON_THE_LOOP) {
        harpe_operation_decode(operation, check_result, result_is_decoded);
    } else if (harpe_profiling_result_scan_totals(operation->body, operation->length,
                                                  &operation->rank, &operation->totals)) {
        operation->is_plain = operation->is_decoded = true;
        result_is_decoded(operation);
    } else {
        harpe_operation_decode(operation, decode_result, result_is_decoded);
    }
}
