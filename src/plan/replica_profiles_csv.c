/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the profiles of all GPUs of a job from one CSV file. An invalid field gives an error that
 * names file, line and column. profile.c aggregates the rows of each GPU. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "plan/profile.h"
#include "plan/profile_csv.h"
#include "plan/replica_profiles.h"

#define FILE_LIMIT_BYTES ((size_t)256 << 20)
#define HEADER_TEXT "replica,gpu,stage,instruction,frequency,time,energy"

/* One row, and the GPU that it belongs to. */
typedef struct gpu_row {
    int replica, peer;
    uint32_t line;
    size_t name_length;
    harpe_measurement row; /* its name points into `names` */
} gpu_row;

typedef struct reader {
    harpe_csv csv;
    size_t index[HARPE_COLUMN_COUNT]; /* SIZE_MAX: not in this file */
    gpu_row *rows;
    size_t count, capacity;
    harpe_arena names;
    const char *last_name; /* rows of one instruction follow each other in most files */
    int replica_count, peer_count;
} reader;

/* ---- Header ---------------------------------------------------------------------------------- */

static harpe_status check_columns(const reader *r, harpe_error *error) {
    for (int c = 0; c < HARPE_FIELD_RANK; c++)
        if (r->index[c] == SIZE_MAX)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s:%d:1: missing column '%s'; the first line must name the "
                              "columns " HEADER_TEXT,
                              r->csv.name, r->csv.line, harpe_profile_column_names[c]);
    if (r->index[HARPE_COLUMN_REPLICA] == SIZE_MAX && r->index[HARPE_COLUMN_PEER] == SIZE_MAX)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d:1: missing column 'replica' or 'gpu'; the first line must name "
                          "the columns " HEADER_TEXT,
                          r->csv.name, r->csv.line);
    return HARPE_OK;
}

static harpe_status read_header(reader *r, harpe_error *error) {
    size_t *index = r->index;
    harpe_status status = harpe_csv_header(&r->csv, harpe_profile_column_names, HARPE_COLUMN_COUNT,
                                           "a header line " HEADER_TEXT " and rows", index, error);
    if (status != HARPE_OK) return status;
    for (int c = HARPE_FIELD_RANK; c <= HARPE_FIELD_GPUS; c++)
        if (index[c] != SIZE_MAX)
            return harpe_csv_fail(&r->csv, index[c], error,
                                  "a profile of replicas has the columns replica and gpu in place "
                                  "of rank and gpus; each row is of one GPU");
    index[HARPE_FIELD_SWITCH_LATENCY] = SIZE_MAX;
    for (int c = HARPE_COLUMN_REPLICA; c <= HARPE_COLUMN_PEER; c++) {
        int o = c + HARPE_COLUMN_OTHER_REPLICA - HARPE_COLUMN_REPLICA;
        if (index[c] != SIZE_MAX && index[o] != SIZE_MAX)
            return harpe_csv_fail(&r->csv, index[c] > index[o] ? index[c] : index[o], error,
                                  "this column is there twice; remove one");
        if (index[c] == SIZE_MAX) index[c] = index[o];
    }
    return check_columns(r, error);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Reads the number of a replica or of a peer; 0 without the column. */
static harpe_status read_place(const reader *r, int c, int *place, harpe_error *error) {
    *place = 0;
    if (r->index[c] == SIZE_MAX) return HARPE_OK;
    if (harpe_csv_field_whole(&r->csv.fields[r->index[c]], true, place) && *place >= 0 &&
        *place < HARPE_REPLICAS_MAX)
        return HARPE_OK;
    return harpe_csv_fail(&r->csv, r->index[c], error, "%s must be a whole number from 0 to %d",
                          harpe_profile_column_names[c], HARPE_REPLICAS_MAX - 1);
}

static harpe_status keep_name(reader *r, gpu_row *row, harpe_error *error) {
    const char *last = r->last_name;
    bool is_last = last && strncmp(last, row->row.instruction, row->name_length) == 0 &&
                   last[row->name_length] == '\0';
    if (!is_last)
        r->last_name = harpe_arena_strdup(&r->names, row->row.instruction, row->name_length);
    row->row.instruction = r->last_name;
    return r->last_name ? HARPE_OK : harpe_fail_memory(error);
}

static harpe_status read_row(reader *r, harpe_error *error) {
    const harpe_csv *csv = &r->csv;
    if (r->count == HARPE_PROFILE_ROW_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s:%d:1: more than %d rows", csv->name,
                          csv->line, HARPE_PROFILE_ROW_MAX);
    gpu_row row = {.line = (uint32_t)csv->line};
    harpe_status status = read_place(r, HARPE_COLUMN_REPLICA, &row.replica, error);
    if (status == HARPE_OK) status = read_place(r, HARPE_COLUMN_PEER, &row.peer, error);
    if (status != HARPE_OK) return status;
    status = harpe_profile_csv_row(csv, r->index, &row.row, &row.name_length, error);
    if (status == HARPE_OK) status = keep_name(r, &row, error);
    if (status != HARPE_OK) return status;
    if (!HARPE_ARRAY_RESERVE(r->rows, r->capacity, r->count + 1)) return harpe_fail_memory(error);
    r->rows[r->count++] = row;
    if (row.replica >= r->replica_count) r->replica_count = row.replica + 1;
    if (row.peer >= r->peer_count) r->peer_count = row.peer + 1;
    return HARPE_OK;
}

static harpe_status read_rows(reader *r, harpe_error *error) {
    harpe_status status = read_header(r, error);
    if (status != HARPE_OK) return status;
    int header_line = r->csv.line;
    for (;;) {
        bool has_record = false;
        status = harpe_csv_next(&r->csv, &has_record, error);
        if (status != HARPE_OK) return status;
        if (!has_record) break;
        status = read_row(r, error);
        if (status != HARPE_OK) return status;
    }
    if (r->count > 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s:%d:1: no rows after the header; expected a row for every GPU, "
                      "instruction and frequency",
                      r->csv.name, header_line + 1);
}

/* ---- Profiles -------------------------------------------------------------------------------- */

static int compare_rows(const void *left, const void *right) {
    const gpu_row *a = left, *b = right;
    if (a->replica != b->replica) return a->replica < b->replica ? -1 : 1;
    if (a->peer != b->peer) return a->peer < b->peer ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

/* Checks that every GPU has rows. They are sorted by GPU. */
static harpe_status check_gpus(const reader *r, harpe_error *error) {
    int replica = 0, peer = 0;
    for (size_t i = 0; i <= r->count && replica < r->replica_count; i++) {
        const gpu_row *row = i < r->count ? &r->rows[i] : NULL;
        bool is_same = i > 0 && row && row->replica == r->rows[i - 1].replica &&
                       row->peer == r->rows[i - 1].peer;
        if (is_same) continue;
        if (!row || row->replica != replica || row->peer != peer)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: gpu %d of replica %d has no rows; each of the %d replicas needs "
                              "rows for %d GPU%s",
                              r->csv.name, peer, replica, r->replica_count, r->peer_count,
                              r->peer_count == 1 ? "" : "s");
        if (++peer == r->peer_count) {
            peer = 0;
            replica++;
        }
    }
    return HARPE_OK;
}

/* Makes the profile of one GPU from rows[first .. end). */
static harpe_status make_gpu(const reader *r, size_t first, size_t end, harpe_profile **out,
                             harpe_error *error) {
    harpe_profile_rows rows = {0};
    harpe_status status = HARPE_OK;
    for (size_t i = first; i < end && status == HARPE_OK; i++) {
        const gpu_row *row = &r->rows[i];
        harpe_error detail;
        status = harpe_profile_rows_add(&rows, &row->row, row->name_length, row->line, &detail);
        if (status != HARPE_OK)
            (void)harpe_fail(error, status, "%s:%u:1: %s", r->csv.name, row->line, detail.message);
    }
    if (status == HARPE_OK) status = harpe_profile_rows_finish(&rows, r->csv.name, out, error);
    harpe_profile_rows_clear(&rows);
    return status;
}

static harpe_status make_profiles(reader *r, harpe_replica_profiles **out, harpe_error *error) {
    qsort(r->rows, r->count, sizeof *r->rows, compare_rows);
    harpe_status status = check_gpus(r, error);
    if (status != HARPE_OK) return status;
    harpe_replica_profiles *made = NULL;
    status = harpe_replica_profiles_begin(r->replica_count, r->peer_count, &made, error);
    if (status != HARPE_OK) return status;
    size_t gpu = 0;
    for (size_t first = 0, end = 0; first < r->count && status == HARPE_OK; first = end) {
        while (end < r->count && r->rows[end].replica == r->rows[first].replica &&
               r->rows[end].peer == r->rows[first].peer)
            end++;
        status = make_gpu(r, first, end, &made->gpus[gpu++], error);
    }
    if (status == HARPE_OK) status = harpe_replica_profiles_check(made, r->csv.name, error);
    if (status != HARPE_OK) {
        harpe_replica_profiles_free(made);
        return status;
    }
    *out = made;
    return HARPE_OK;
}

/* ---- Public ---------------------------------------------------------------------------------- */

harpe_status harpe_replica_profiles_parse_csv(const char *text, size_t length, const char *name,
                                              harpe_replica_profiles **out, harpe_error *error) {
    if ((!text && length > 0) || !name || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "parsing the profiles of replicas needs a text, its name and a place for "
                          "the result");
    if (length > FILE_LIMIT_BYTES)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: larger than %zu MiB", name,
                          FILE_LIMIT_BYTES >> 20);
    reader r = {0};
    harpe_csv_open(&r.csv, text ? text : "", length, name);
    harpe_status status = read_rows(&r, error);
    if (status == HARPE_OK) status = make_profiles(&r, out, error);
    harpe_csv_close(&r.csv);
    harpe_arena_free(&r.names);
    free(r.rows);
    return status;
}

harpe_status harpe_replica_profiles_read_csv(const char *path, harpe_replica_profiles **out,
                                             harpe_error *error) {
    if (!path || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "reading the profiles of replicas needs a path and a place for the "
                          "result");
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_replica_profiles_parse_csv(text, length, path, out, error);
    free(text);
    return status;
}
