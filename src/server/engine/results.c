/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the results of ranks, stores them, and counts one result per rank and round. A result that
 * is sent again is compared with the stored one. */
#include "server/engine/results.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/engine/contact.h"
#include "server/engine/job_figures.h"
#include "server/engine/job_ranks.h"
#include "server/engine/marked_jobs.h"
#include "server/engine/operation.h"
#include "server/engine/replies.h"
#include "server/engine/round_results.h"

/* The longest result, in bytes, that is scanned on the loop. The scan reads more than 1 GB/s, so
 * this takes less time than the exchange with a worker. */
enum { SCANNED_ON_THE_LOOP = 128 << 10 };

typedef enum comparison {
    RESULT_EQUAL,
    RESULT_DIFFERENT,
    RESULT_NOT_STORED,
    RESULT_UNREADABLE,
} comparison;

/* The worker writes all members except the round. */
typedef struct result_report {
    harpe_operation operation;
    int rank;
    int64_t round;              /* -1: the current one */
    bool is_plain;              /* see harpe_result_text */
    harpe_result_totals totals; /* sums over the iterations of the result */
    comparison comparison;      /* with the stored result, if the rank has reported before */
} result_report;

/* ---- Comparing ------------------------------------------------------------------------------- */

static bool values_are_equal(const double *a, const double *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (a[i] != b[i]) return false;
    return true;
}

static bool breakdown_is_equal(const harpe_breakdown *a, const harpe_breakdown *b) {
    if (a->iteration_count != b->iteration_count) return false;
    for (size_t i = 0; i < a->iteration_count; i++)
        if (a->counts[i] != b->counts[i] ||
            !values_are_equal(a->values + a->offsets[i], b->values + b->offsets[i], a->counts[i]))
            return false;
    return true;
}

/* The breakdowns are members of an object, so their order does not matter. */
static bool breakdowns_are_equal(const harpe_breakdown *a, size_t a_count, const harpe_breakdown *b,
                                 size_t b_count) {
    if (a_count != b_count) return false;
    for (size_t i = 0; i < a_count; i++) {
        size_t j = 0;
        while (j < b_count && strcmp(a[i].instruction, b[j].instruction) != 0)
            j++;
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
    result_report *self = user;
    const harpe_operation *operation = &self->operation;
    char *text = NULL;
    size_t length = 0;
    harpe_status status =
        harpe_store_read_result(operation->jobs->options.store, operation->job->id, self->round,
                                self->rank, &text, &length, NULL);
    self->comparison = status == HARPE_NOT_FOUND ? RESULT_NOT_STORED : RESULT_UNREADABLE;
    if (status != HARPE_OK) return;
    self->comparison = texts_are_equal(text, length, operation->body, operation->length)
                           ? RESULT_EQUAL
                           : RESULT_DIFFERENT;
    free(text);
}

static void is_compared(void *user) {
    result_report *self = user;
    harpe_operation *operation = &self->operation;
    if (harpe_operation_is_void(operation)) return;
    harpe_call *call = harpe_operation_take_call(operation);
    long long round = (long long)self->round;
    int rank = self->rank;
    comparison found = self->comparison;
    harpe_operation_end(operation);
    switch (found) {
    case RESULT_EQUAL: harpe_reply_null(call, round); break;
    case RESULT_DIFFERENT:
        harpe_reply_detail(call, 409, "rank %d has reported another result in round %lld", rank,
                           round);
        break;
    case RESULT_NOT_STORED:
        harpe_reply_detail(call, 409, "rank %d's result of round %lld is no longer kept", rank,
                           round);
        break;
    case RESULT_UNREADABLE:
        harpe_reply_detail(call, 503, "the stored result could not be read, try again");
        break;
    }
}

/* ---- Storing --------------------------------------------------------------------------------- */

static void result_is_stored(void *user, harpe_status status, const harpe_error *error) {
    result_report *self = user;
    harpe_operation *operation = &self->operation;
    harpe_job *job = operation->job;
    int rank = self->rank;
    harpe_rank *slot = harpe_job_rank(job, rank);
    slot->operation = NULL;
    harpe_call *call = harpe_operation_take_call(operation);
    if (status != HARPE_OK) {
        harpe_operation_end(operation);
        harpe_reply_not_stored(call, error);
        return;
    }
    job->results->texts[rank] =
        (harpe_result_text){operation->body, operation->length, self->is_plain};
    operation->body = NULL;
    slot->has_reported = true;
    job->reported++;
    harpe_job_count_result(job, rank, &self->totals);
    harpe_job_changed(job);
    job->jobs->counts.results++;
    harpe_reply_null(call, job->round);
    harpe_operation_end(operation);
}

static void store_result(result_report *self) {
    harpe_operation *operation = &self->operation;
    harpe_job *job = operation->job;
    if (!job->results) job->results = harpe_round_results_new(job->info.world_size);
    if (!job->results) {
        harpe_reply_out_of_memory(harpe_operation_take_call(operation));
        harpe_operation_end(operation);
        return;
    }
    harpe_job_rank(job, self->rank)->operation = operation;
    operation->change.round = job->round;
    operation->change.rank = self->rank;
    operation->change.text = operation->body;
    operation->change.length = operation->length;
    harpe_operation_store(operation, HARPE_CHANGE_RESULT, result_is_stored);
}

/* Refuses a result that is invalid or too early, and returns true. */
static bool is_refused(result_report *self) {
    harpe_operation *operation = &self->operation;
    const harpe_job *job = operation->job;
    int rank = self->rank;
    if (operation->is_decoded && rank >= job->info.world_size) {
        char message[96];
        (void)snprintf(message, sizeof message, "rank %d is not in a job of %d ranks", rank,
                       job->info.world_size);
        harpe_problems_add(&operation->problems, json_pack("[s,s]", "body", "rank"),
                           "assertion_error", message);
        operation->is_decoded = false;
    }
    if (!operation->is_decoded) {
        harpe_reply_problems(harpe_operation_take_call(operation), &operation->problems);
    } else if (job->failure) {
        harpe_reply_detail(harpe_operation_take_call(operation), 500, "%s", job->failure);
    } else if (job->round < 0 || self->round > job->round) {
        harpe_reply_detail(harpe_operation_take_call(operation), 409,
                           "no schedule of this round was handed out yet: request one before "
                           "you send a result");
    } else {
        return false;
    }
    harpe_operation_end(operation);
    return true;
}

static void result_is_decoded(void *user) {
    result_report *self = user;
    harpe_operation *operation = &self->operation;
    harpe_job *job = operation->job;
    if (harpe_operation_is_void(operation) || is_refused(self)) return;
    const harpe_rank *slot = harpe_job_rank(job, self->rank);
    harpe_rank_is_heard(job, self->rank);
    if (slot->operation) {
        harpe_operation_wait_for(operation, slot->operation);
        return;
    }
    if (self->round < 0) self->round = job->round;
    if (self->round < job->round || slot->has_reported) {
        harpe_operation_read(operation, compare, is_compared);
        return;
    }
    store_result(self);
}

/* Decodes a result that the scan does not accept. */
static void decode_result(void *user) {
    result_report *self = user;
    harpe_operation *operation = &self->operation;
    operation->is_decoded = harpe_profiling_result_decode_totals(
        operation->body, operation->length, &self->rank, &self->totals, &operation->problems);
}

/* Returns false if the result must be decoded in full. */
static bool scan_result(result_report *self) {
    harpe_operation *operation = &self->operation;
    self->is_plain = operation->is_decoded = harpe_profiling_result_scan_totals(
        operation->body, operation->length, &self->rank, &self->totals);
    return self->is_plain;
}

static void check_result(void *user) {
    if (!scan_result(user)) decode_result(user);
}

void harpe_take_result(harpe_job *job, harpe_call *call) {
    int64_t round = call->round;
    result_report *self = harpe_operation_new_kind(job->jobs, job, call, sizeof *self, NULL);
    if (!self) return;
    self->round = round;
    if (self->operation.length > SCANNED_ON_THE_LOOP)
        harpe_operation_decode(&self->operation, check_result, result_is_decoded);
    else if (scan_result(self))
        result_is_decoded(self);
    else
        harpe_operation_decode(&self->operation, decode_result, result_is_decoded);
}
