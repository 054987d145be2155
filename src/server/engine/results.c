/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the results of ranks, stores them, and counts one result per rank and round. A result that
 * is sent again is compared with the stored one. */
#include "server/engine/engine_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "pfo/models.h"
#include "pfo/rank_clocks.h"
#include "server/store/store.h"

/* ---- The results of a round ------------------------------------------------------------------ */

/* The results of one round in the form in which they were received. Their texts are kept in memory
 * until the scheduler has seen the results and their dump is written. If a text is not in memory
 * (after a restart, or if many dumps wait), it is read from the store when it is needed. */

harpe_round_results *harpe_round_results_new(int count) {
    harpe_round_results *results =
        calloc(1, sizeof *results + (size_t)count * sizeof results->texts[0]);
    if (!results) return NULL;
    results->references = 1;
    results->count = count;
    return results;
}

harpe_round_results *harpe_round_results_ref(harpe_round_results *results) {
    results->references++;
    return results;
}

void harpe_round_results_unref(harpe_round_results *results) {
    if (!results || --results->references > 0) return;
    for (int r = 0; r < results->count; r++)
        free(results->texts[r].text);
    free(results);
}

/* ---- The results of a round, on a worker ----------------------------------------------------- */

/* Finds the text of one result. If the text is read from the store, `*read` becomes that text,
 * which the caller frees; otherwise NULL. */
static harpe_status find_text(const harpe_stored_round *from, const harpe_round_results *results,
                              int rank, harpe_result_text *out, char **read, harpe_error *error) {
    *read = NULL;
    *out = results->texts[rank];
    if (out->text) return HARPE_OK;
    harpe_status status = harpe_store_read_result(from->store, from->job_id, from->round, rank,
                                                  read, &out->length, error);
    if (status != HARPE_OK) return status;
    int ignored;
    out->text = *read;
    out->is_plain = harpe_profiling_result_scan(out->text, out->length, &ignored);
    return HARPE_OK;
}

/* A result with an energy that cannot be becomes a result without steps, except for schedulers of
 * the user, which get what the ranks have sent. */
static void leave_out_impossible(const harpe_scheduler *scheduler, int gpus,
                                 harpe_profiling_result *result, harpe_conduct *conduct) {
    if (harpe_profiling_result_can_be(result, gpus)) return;
    conduct->impossible++;
    if (harpe_scheduler_is_custom(scheduler)) return;
    int rank = result->rank;
    harpe_profiling_result_free(result);
    *result = (harpe_profiling_result){.rank = rank};
}

harpe_status harpe_round_results_decode(const harpe_stored_round *from,
                                        const harpe_round_results *results,
                                        const harpe_scheduler *scheduler, int gpus,
                                        harpe_round_reports *out, harpe_error *error) {
    size_t count = (size_t)results->count;
    harpe_round_reports made = {.count = count,
                                .results = harpe_calloc(count, sizeof *made.results),
                                .conducts = harpe_calloc(count, sizeof *made.conducts),
                                .clocks = harpe_calloc(count, sizeof *made.clocks)};
    bool has_memory = made.results && made.conducts && made.clocks;
    harpe_status status = has_memory ? HARPE_OK : harpe_fail_memory(error);
    for (int r = 0; r < results->count && status == HARPE_OK; r++) {
        harpe_result_text text;
        char *read;
        status = find_text(from, results, r, &text, &read, error);
        if (status == HARPE_OK)
            status = harpe_profiling_result_parse(text.text, text.length, &made.results[r], error);
        if (status == HARPE_OK) {
            made.conducts[r] = harpe_conduct_read(text.text, text.length);
            leave_out_impossible(scheduler, gpus, &made.results[r], &made.conducts[r]);
            size_t runs_max = harpe_scheduler_clocks_max(scheduler, (size_t)r);
            if (!harpe_rank_clocks_read(text.text, text.length, runs_max, &made.clocks[r]))
                status = harpe_fail_memory(error);
        }
        free(read);
    }
    if (status != HARPE_OK) {
        harpe_round_reports_free(&made);
        return status;
    }
    *out = made;
    return HARPE_OK;
}

void harpe_round_reports_free(harpe_round_reports *reports) {
    if (reports->results) harpe_profiling_results_free(reports->results, reports->count);
    free(reports->conducts);
    harpe_rank_clocks_free_list(reports->clocks, reports->count);
    *reports = (harpe_round_reports){0};
}

/* Appends a result that is not plain: it may have unknown members, or values that strict JSON does
 * not allow. */
static harpe_status append_cleaned(harpe_text *to, const harpe_result_text *text,
                                   harpe_error *error) {
    harpe_profiling_result result;
    char *json = NULL;
    harpe_status status = harpe_profiling_result_parse(text->text, text->length, &result, error);
    if (status != HARPE_OK) return status;
    status = harpe_profiling_result_format(&result, &json, error);
    harpe_profiling_result_free(&result);
    if (status == HARPE_OK) harpe_text_append(to, json, strlen(json));
    free(json);
    return status;
}

static size_t known_length(const harpe_round_results *results) {
    size_t length = 16;
    for (int r = 0; r < results->count; r++)
        length += results->texts[r].length + 2;
    return length;
}

harpe_status harpe_round_results_format(const harpe_stored_round *from,
                                        const harpe_round_results *results, harpe_text *to,
                                        harpe_error *error) {
    if (!HARPE_ARRAY_RESERVE(to->data, to->capacity, known_length(results)))
        return harpe_fail_memory(error);
    for (int r = 0; r < results->count; r++) {
        harpe_result_text text;
        char *read;
        harpe_status status = find_text(from, results, r, &text, &read, error);
        if (status != HARPE_OK) return status;
        harpe_text_append(to, r == 0 ? "[" : ",\n", r == 0 ? 1 : 2);
        if (text.is_plain)
            harpe_text_append(to, text.text, text.length);
        else
            status = append_cleaned(to, &text, error);
        free(read);
        if (status != HARPE_OK) return status;
    }
    harpe_text_append(to, "]\n", 2);
    return to->failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* ---- Results before a restart ---------------------------------------------------------------- */

/* Counts results that were stored before a restart. The stored sums of a job contain all rounds
 * before the one that runs. A turn reads the results of the running round from the store and adds
 * them. It is the job's first turn and needs no scheduler, which may plan for minutes. Results that
 * come meanwhile are counted as usual. */

/* A store of an older version has no sums. Then the scheduler's sums are needed, which come later.
 */
static bool has_sums(const harpe_job *job) { return job->sums_from >= job->round - 1; }

void harpe_count_stored_begin(harpe_job *job) {
    job->figures.is_known = has_sums(job) && job->uncounted == 0;
}

static bool read_totals(const char *text, size_t length, harpe_result_totals *totals) {
    int rank;
    harpe_problems problems = {0};
    if (harpe_profiling_result_scan_totals(text, length, &rank, totals)) return true;
    bool is_read = harpe_profiling_result_decode_totals(text, length, &rank, totals, &problems);
    harpe_problems_free(&problems);
    return is_read;
}

/* Reads the results. Runs on a worker. */
static void count_stored(harpe_operation *operation) {
    const harpe_job *job = operation->job;
    harpe_turn *turn = job->turn;
    for (size_t i = 0; i < turn->counted_count; i++) {
        harpe_counted_result *result = &turn->counted[i];
        char *text = NULL;
        size_t length = 0;
        operation->status = harpe_store_read_result(job->jobs->options.store, job->id, job->round,
                                                    result->rank, &text, &length, &turn->error);
        if (operation->status != HARPE_OK) return;
        result->is_read = read_totals(text, length, &result->totals);
        free(text);
    }
}

static void is_counted(harpe_operation *operation) {
    harpe_job *job = operation->job;
    const harpe_turn *turn = job->turn;
    if (operation->status != HARPE_OK)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: its energy lacks results of round %lld: %s", job->id,
                       (long long)job->round, operation->error->message);
    for (size_t i = 0; i < turn->counted_count; i++) {
        const harpe_counted_result *result = &turn->counted[i];
        harpe_job_rank(job, result->rank)->is_uncounted = false;
        if (result->is_read) harpe_job_count_result(job, result->rank, &result->totals);
    }
    job->uncounted = 0;
    if (has_sums(job)) job->figures.is_known = true;
    harpe_turn_end(job->turn);
}

void harpe_begin_count_stored(harpe_job *job) {
    harpe_counted_result *counted = harpe_calloc((size_t)job->uncounted, sizeof *counted);
    harpe_turn *turn = counted ? harpe_turn_new(job, NULL) : NULL;
    if (!turn) {
        free(counted);
        return;
    }
    turn->counted = counted;
    const harpe_rank *slot;
    for (int r = 0; (slot = harpe_job_next_rank(job, &r)); r++)
        if (slot->is_uncounted) counted[turn->counted_count++].rank = r;
    harpe_operation_run(&turn->operation, HARPE_POOL_STORE, count_stored, is_counted);
}

/* The longest result, in bytes, that is scanned on the loop. The scan reads more than 1 GB/s, so
 * this takes less time than the exchange with a worker. */
enum { SCANNED_ON_THE_LOOP = 128 << 10 };

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

static void compare(harpe_operation *operation) {
    char *text = NULL;
    size_t length = 0;
    operation->status =
        harpe_store_read_result(operation->jobs->options.store, operation->job->id,
                                operation->round, operation->rank, &text, &length, NULL);
    if (operation->status != HARPE_OK) return;
    operation->is_same = texts_are_equal(text, length, operation->body, operation->length);
    free(text);
}

static void is_compared(harpe_operation *operation) {
    long long round = (long long)operation->round;
    int rank = operation->rank;
    bool is_same = operation->is_same;
    harpe_status status = operation->status;
    harpe_call *call = harpe_operation_end(operation);
    if (status == HARPE_NOT_FOUND)
        harpe_reply_detail(call, 409, "rank %d's result of round %lld is no longer kept", rank,
                           round);
    else if (status != HARPE_OK)
        harpe_reply_detail(call, 503, "the stored result could not be read, try again");
    else if (!is_same)
        harpe_reply_detail(call, 409, "rank %d has reported another result in round %lld", rank,
                           round);
    else
        harpe_reply_null(call, round);
}

/* ---- Storing --------------------------------------------------------------------------------- */

static void result_is_stored(harpe_operation *operation) {
    harpe_job *job = operation->job;
    int rank = operation->rank;
    harpe_rank *slot = harpe_job_rank(job, rank);
    slot->operation = NULL;
    if (operation->status != HARPE_OK) {
        const harpe_error *error = operation->error;
        harpe_reply_not_stored(harpe_operation_end(operation), error);
        return;
    }
    job->results->texts[rank] =
        (harpe_result_text){operation->body, operation->length, operation->is_plain};
    operation->body = NULL;
    slot->has_reported = true;
    job->reported++;
    harpe_job_count_result(job, rank, &operation->totals);
    harpe_job_changed(job);
    job->jobs->counts.results++;
    harpe_reply_null(harpe_operation_end(operation), job->round);
}

static void store_result(harpe_operation *operation) {
    harpe_job *job = operation->job;
    if (!job->results) job->results = harpe_round_results_new(job->info.world_size);
    if (!job->results) {
        harpe_reply_out_of_memory(harpe_operation_end(operation));
        return;
    }
    harpe_job_rank(job, operation->rank)->operation = operation;
    operation->change = (harpe_change){.round = job->round,
                                       .rank = operation->rank,
                                       .text = operation->body,
                                       .length = operation->length};
    harpe_operation_store(operation, HARPE_CHANGE_RESULT, result_is_stored);
}

/* Refuses a result that is invalid or too early, and returns true. */
static bool is_refused(harpe_operation *operation) {
    const harpe_job *job = operation->job;
    int rank = operation->rank;
    if (operation->is_decoded && rank >= job->info.world_size) {
        harpe_add_unknown_rank(&operation->problems, "body", rank, job);
        operation->is_decoded = false;
    }
    if (!operation->is_decoded)
        harpe_operation_refuse(operation);
    else if (job->failure)
        harpe_reply_detail(harpe_operation_end(operation), 500, "%s", job->failure);
    else if (job->round < 0 || operation->round > job->round)
        harpe_reply_detail(harpe_operation_end(operation), 409,
                           "no schedule of this round was handed out yet: request one before "
                           "you send a result");
    else
        return false;
    return true;
}

static void result_is_decoded(harpe_operation *operation) {
    harpe_job *job = operation->job;
    if (is_refused(operation)) return;
    const harpe_rank *slot = harpe_job_rank(job, operation->rank);
    harpe_rank_is_heard(job, operation->rank);
    if (slot->operation) {
        harpe_operation_wait_for(operation, slot->operation);
        return;
    }
    if (operation->round < 0) operation->round = job->round;
    if (operation->round < job->round || slot->has_reported) {
        harpe_operation_run(operation, HARPE_POOL_STORE, compare, is_compared);
        return;
    }
    store_result(operation);
}

/* Decodes a result that the scan does not accept. */
static void decode_result(harpe_operation *operation) {
    operation->is_decoded =
        harpe_profiling_result_decode_totals(operation->body, operation->length, &operation->rank,
                                             &operation->totals, &operation->problems);
}

/* Returns false if the result must be decoded in full. */
static bool scan_result(harpe_operation *operation) {
    operation->is_plain = operation->is_decoded = harpe_profiling_result_scan_totals(
        operation->body, operation->length, &operation->rank, &operation->totals);
    return operation->is_plain;
}

static void check_result(harpe_operation *operation) {
    if (!scan_result(operation)) decode_result(operation);
}

void harpe_take_result(harpe_job *job, harpe_call *call) {
    harpe_operation *operation = harpe_operation_new(job->jobs, job, call);
    if (!operation) return;
    if (operation->length > SCANNED_ON_THE_LOOP)
        harpe_operation_decode(operation, check_result, result_is_decoded);
    else if (scan_result(operation))
        result_is_decoded(operation);
    else
        harpe_operation_decode(operation, decode_result, result_is_decoded);
}
