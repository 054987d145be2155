/* SPDX-License-Identifier: Apache-2.0 */
/* The results of one round in the form in which they were received. Their texts are kept in memory
 * until the scheduler has seen the results and their dump is written. If a text is not in memory
 * (after a restart, or if many dumps wait), it is read from the store when it is needed. */
#include "server/engine/round_results.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

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

/* ---- On a worker ----------------------------------------------------------------------------- */

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
