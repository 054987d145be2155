/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the files that the server dumps, and the results of a profiler: JSON lists of
 * models, written completely or not at all. The code is the same for all models. A table of
 * functions handles the parts that differ. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "pfo/documents.h"
#include "pfo/fields.h"
#include "pfo/json_look.h"
#include "pfo/model_reads.h"
#include "pfo/models.h"
#include "pfo/writing.h"

#define FILE_LIMIT_BYTES ((size_t)1 << 30)

/* The functions that read, write and free one model. */
typedef struct model {
    size_t size;
    harpe_model_read *read;
    void (*write)(harpe_text *text, const void *item);
    void (*free_item)(void *item);
} model;

static void free_rank(void *item) { harpe_rank_info_free(item); }
static void free_schedule(void *item) { harpe_frequency_schedule_free(item); }
static void free_result(void *item) { harpe_profiling_result_free(item); }
static void free_offline_result(void *item) { harpe_offline_profiling_result_free(item); }

static const model rank_model = {sizeof(harpe_rank_info), harpe_rank_info_read,
                                 harpe_rank_info_write, free_rank};
static const model schedule_model = {sizeof(harpe_frequency_schedule),
                                     harpe_frequency_schedule_read, harpe_frequency_schedule_write,
                                     free_schedule};
static const model result_model = {sizeof(harpe_profiling_result), harpe_profiling_result_read,
                                   harpe_profiling_result_write, free_result};
static const model offline_result_model = {
    sizeof(harpe_offline_profiling_result), harpe_offline_profiling_result_read,
    harpe_offline_profiling_result_write, free_offline_result};

/* ---- Any list -------------------------------------------------------------------------------- */

static void format(const model *kind, const void *items, size_t count, harpe_text *text) {
    harpe_write_raw(text, "[");
    for (size_t i = 0; i < count; i++) {
        harpe_write_raw(text, i > 0 ? ",\n" : "");
        kind->write(text, (const char *)items + i * kind->size);
    }
    harpe_write_raw(text, "]\n");
}

static harpe_status save(const model *kind, const char *path, const void *items, size_t count,
                         harpe_error *error) {
    harpe_text text = {0};
    format(kind, items, count, &text);
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}

static void free_list(const model *kind, void *items, size_t count) {
    for (size_t i = 0; i < count && items; i++)
        kind->free_item((char *)items + i * kind->size);
    free(items);
}

/* Finds the list: the root, or the value of "__root__" in an object. */
static bool find_list(harpe_fields *fields, size_t *list) {
    size_t wrapped = harpe_json_kind_of(fields->json, 0) == HARPE_JSON_OBJECT
                         ? harpe_json_member(fields->json, 0, "__root__")
                         : 0;
    *list = wrapped;
    return harpe_value_is(fields, wrapped, NULL, HARPE_JSON_LIST);
}

static void *read_items(const model *kind, harpe_fields *fields, size_t *count) {
    size_t list;
    if (!find_list(fields, &list)) return NULL;
    size_t length = fields->json->nodes[list].held.count;
    char *items = harpe_calloc(length, kind->size);
    if (!items) {
        fields->problems->out_of_memory = true;
        return NULL;
    }
    size_t node = list + 1;
    for (size_t i = 0; i < length; i++) {
        harpe_place place = harpe_place_item(NULL, i);
        if (harpe_value_is(fields, node, &place, HARPE_JSON_OBJECT))
            kind->read(fields, node, &place, items + i * kind->size);
        node = harpe_json_next(fields->json, node);
    }
    if (fields->has_failed || fields->problems->out_of_memory) {
        free_list(kind, items, length);
        return NULL;
    }
    *count = length;
    return items;
}

/* Parses a list. Errors begin with the file's name. */
static harpe_status parse(const model *kind, const char *path, const char *text, size_t length,
                          void **items, size_t *count, harpe_error *error) {
    harpe_problems problems = {0};
    harpe_json json;
    harpe_json_failure failure;
    void *read = NULL;
    if (harpe_json_read(text, length, &json, &failure)) {
        harpe_fields fields = {.json = &json, .problems = &problems};
        read = read_items(kind, &fields, count);
        harpe_json_free(&json);
    } else {
        harpe_problems_add_failure(&problems, NULL, text, length, &failure);
    }
    harpe_error reason;
    harpe_status status = harpe_problems_status(&problems, &reason);
    harpe_problems_free(&problems);
    if (status != HARPE_OK) return harpe_fail(error, status, "%s: %s", path, reason.message);
    *items = read;
    return HARPE_OK;
}

static harpe_status load(const model *kind, const char *path, void **items, size_t *count,
                         harpe_error *error) {
    char *text;
    size_t length;
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = parse(kind, path, text, length, items, count, error);
    free(text);
    return status;
}

/* ---- Each list ------------------------------------------------------------------------------- */

void harpe_ranks_format(const harpe_rank_info *ranks, size_t count, harpe_text *text) {
    format(&rank_model, ranks, count, text);
}

harpe_status harpe_ranks_save(const char *path, const harpe_rank_info *ranks, size_t count,
                              harpe_error *error) {
    return save(&rank_model, path, ranks, count, error);
}

harpe_status harpe_ranks_load(const char *path, harpe_rank_info **ranks, size_t *count,
                              harpe_error *error) {
    void *items = NULL;
    harpe_status status = load(&rank_model, path, &items, count, error);
    if (status == HARPE_OK) *ranks = items;
    return status;
}

void harpe_ranks_free(harpe_rank_info *ranks, size_t count) {
    free_list(&rank_model, ranks, count);
}

harpe_status harpe_schedules_save(const char *path, const harpe_frequency_schedule *schedules,
                                  size_t count, harpe_error *error) {
    return save(&schedule_model, path, schedules, count, error);
}

harpe_status harpe_schedules_load(const char *path, harpe_frequency_schedule **schedules,
                                  size_t *count, harpe_error *error) {
    void *items = NULL;
    harpe_status status = load(&schedule_model, path, &items, count, error);
    if (status == HARPE_OK) *schedules = items;
    return status;
}

void harpe_schedules_free(harpe_frequency_schedule *schedules, size_t count) {
    free_list(&schedule_model, schedules, count);
}

harpe_status harpe_profiling_results_save(const char *path, const harpe_profiling_result *results,
                                          size_t count, harpe_error *error) {
    return save(&result_model, path, results, count, error);
}

harpe_status harpe_profiling_results_load(const char *path, harpe_profiling_result **results,
                                          size_t *count, harpe_error *error) {
    void *items = NULL;
    harpe_status status = load(&result_model, path, &items, count, error);
    if (status == HARPE_OK) *results = items;
    return status;
}

void harpe_profiling_results_free(harpe_profiling_result *results, size_t count) {
    free_list(&result_model, results, count);
}

harpe_status harpe_offline_profiling_results_save(const char *path,
                                                  const harpe_offline_profiling_result *results,
                                                  size_t count, harpe_error *error) {
    return save(&offline_result_model, path, results, count, error);
}

harpe_status harpe_offline_profiling_results_load(const char *path,
                                                  harpe_offline_profiling_result **results,
                                                  size_t *count, harpe_error *error) {
    void *items = NULL;
    harpe_status status = load(&offline_result_model, path, &items, count, error);
    if (status == HARPE_OK) *results = items;
    return status;
}

void harpe_offline_profiling_results_free(harpe_offline_profiling_result *results, size_t count) {
    free_list(&offline_result_model, results, count);
}
