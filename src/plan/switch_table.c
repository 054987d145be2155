/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a table of switching latencies and applies it to a problem; see switch_table.h. */
#include "plan/switch_table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "plan/problem.h"

#define FILE_LIMIT_BYTES ((size_t)1 << 20)

enum column { COLUMN_FREQUENCY, COLUMN_LATENCY, COLUMN_GPU, COLUMN_COUNT };
static const char *const column_names[COLUMN_COUNT] = {"frequency", "latency_s", "gpu"};

typedef struct reader {
    harpe_csv csv;
    size_t index[COLUMN_COUNT]; /* SIZE_MAX: the file does not have the column */
    size_t field_count;         /* of the header */
    char *gpu;                  /* that of the first row; NULL: none yet */
    size_t gpu_length;
    int gpu_line;
    harpe_switch_table *table;
} reader;

/* ---- Rows ------------------------------------------------------------------------------------ */

static bool field_is(const harpe_csv_field *field, const char *text, size_t length) {
    return field->length == length && memcmp(field->text, text, length) == 0;
}

static harpe_status read_header(reader *r, harpe_error *error) {
    harpe_csv *csv = &r->csv;
    bool has_record = false;
    harpe_status status = harpe_csv_next(csv, &has_record, error);
    if (status != HARPE_OK) return status;
    if (!has_record)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:1:1: the file is empty; expected the table that 'harpe profile "
                          "switch --output' writes",
                          csv->name);
    for (int c = 0; c < COLUMN_COUNT; c++) {
        r->index[c] = SIZE_MAX;
        for (size_t i = 0; i < csv->field_count; i++) {
            if (!field_is(&csv->fields[i], column_names[c], strlen(column_names[c]))) continue;
            if (r->index[c] != SIZE_MAX)
                return harpe_csv_fail(csv, i, error, "this column is there twice; remove one");
            r->index[c] = i;
        }
        if (r->index[c] == SIZE_MAX && c != COLUMN_GPU)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s:%d:1: missing column '%s'; the first line must name the columns "
                              "frequency and latency_s, as 'harpe profile switch --output' does",
                              csv->name, csv->line, column_names[c]);
    }
    r->field_count = csv->field_count;
    return HARPE_OK;
}

/* All rows are of one model of GPU. */
static harpe_status check_gpu(reader *r, harpe_error *error) {
    size_t index = r->index[COLUMN_GPU];
    if (index == SIZE_MAX) return HARPE_OK;
    const harpe_csv_field *field = &r->csv.fields[index];
    if (r->gpu && !field_is(field, r->gpu, r->gpu_length))
        return harpe_csv_fail(&r->csv, index, error,
                              "another GPU than in line %d; a table is for one model of GPU, so "
                              "remove the rows of the others",
                              r->gpu_line);
    if (r->gpu) return HARPE_OK;
    r->gpu = harpe_calloc(field->length + 1, 1);
    if (!r->gpu) return harpe_fail_memory(error);
    memcpy(r->gpu, field->text, field->length);
    r->gpu_length = field->length;
    r->gpu_line = field->line;
    return HARPE_OK;
}

static harpe_status read_row(reader *r, harpe_error *error) {
    harpe_csv *csv = &r->csv;
    harpe_switch_table *table = r->table;
    if (csv->field_count != r->field_count) {
        size_t at = csv->field_count > r->field_count ? r->field_count : csv->field_count - 1;
        return harpe_csv_fail(csv, at, error, "expected %zu fields as in the header, not %zu",
                              r->field_count, csv->field_count);
    }
    if (table->count == HARPE_SWITCH_TABLE_ROWS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%s:%d:1: more than %zu rows; keep one for each clock", csv->name,
                          csv->line, HARPE_SWITCH_TABLE_ROWS_MAX);
    if (!HARPE_ARRAY_RESERVE(table->rows, table->capacity, table->count + 1))
        return harpe_fail_memory(error);
    harpe_status status = check_gpu(r, error);
    if (status != HARPE_OK) return status;
    const harpe_csv_field *frequency = &csv->fields[r->index[COLUMN_FREQUENCY]];
    const harpe_csv_field *latency = &csv->fields[r->index[COLUMN_LATENCY]];
    int64_t mhz = 0;
    double latency_s = 0;
    if (!harpe_parse_int(frequency->text, frequency->length, &mhz) || mhz < 1 ||
        mhz > HARPE_FREQUENCY_MAX_MHZ)
        return harpe_csv_fail(csv, r->index[COLUMN_FREQUENCY], error,
                              "frequency must be a whole number of MHz from 1 to %d",
                              HARPE_FREQUENCY_MAX_MHZ);
    if (!harpe_parse_double(latency->text, latency->length, &latency_s) ||
        !(latency_s >= 0 && latency_s <= HARPE_SWITCH_LATENCY_MAX_S))
        return harpe_csv_fail(csv, r->index[COLUMN_LATENCY], error,
                              "latency_s must be a number of seconds from 0 to %d",
                              HARPE_SWITCH_LATENCY_MAX_S);
    table->rows[table->count++] =
        (harpe_switch_row){.frequency_mhz = (int)mhz, .line = csv->line, .latency_s = latency_s};
    return HARPE_OK;
}

static int compare_rows(const void *left, const void *right) {
    const harpe_switch_row *a = left, *b = right;
    if (a->frequency_mhz != b->frequency_mhz) return a->frequency_mhz < b->frequency_mhz ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

static harpe_status sort_rows(harpe_switch_table *table, const char *name, harpe_error *error) {
    qsort(table->rows, table->count, sizeof *table->rows, compare_rows);
    for (size_t i = 1; i < table->count; i++) {
        const harpe_switch_row *before = &table->rows[i - 1], *row = &table->rows[i];
        if (row->frequency_mhz == before->frequency_mhz)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s:%d:1: the same frequency %d MHz as in line %d; remove one", name,
                              row->line, row->frequency_mhz, before->line);
    }
    return HARPE_OK;
}

static harpe_status read_rows(reader *r, harpe_error *error) {
    harpe_status status = read_header(r, error);
    for (;;) {
        bool has_record = false;
        if (status == HARPE_OK) status = harpe_csv_next(&r->csv, &has_record, error);
        if (status != HARPE_OK) return status;
        if (!has_record) break;
        status = read_row(r, error);
    }
    if (r->table->count > 0) return sort_rows(r->table, r->csv.name, error);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s:%d:1: no rows after the header; expected a row for each measured clock",
                      r->csv.name, r->csv.line + 1);
}

/* ---- Files ----------------------------------------------------------------------------------- */

harpe_status harpe_switch_table_parse_csv(const char *text, size_t length, const char *name,
                                          harpe_switch_table *out, harpe_error *error) {
    *out = (harpe_switch_table){0};
    if (length > FILE_LIMIT_BYTES)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: larger than %zu MiB", name,
                          FILE_LIMIT_BYTES >> 20);
    reader r = {.table = out};
    harpe_csv_open(&r.csv, text, length, name);
    harpe_status status = read_rows(&r, error);
    harpe_csv_close(&r.csv);
    free(r.gpu);
    if (status != HARPE_OK) harpe_switch_table_clear(out);
    return status;
}

harpe_status harpe_switch_table_read_csv(const char *path, harpe_switch_table *out,
                                         harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    *out = (harpe_switch_table){0};
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_switch_table_parse_csv(text, length, path, out, error);
    free(text);
    return status;
}

void harpe_switch_table_clear(harpe_switch_table *table) {
    free(table->rows);
    *table = (harpe_switch_table){0};
}

/* ---- Latencies ------------------------------------------------------------------------------- */

double harpe_switch_table_latency_s(const harpe_switch_table *table, int frequency_mhz) {
    size_t above = 0;
    if (frequency_mhz == 0 || table->count == 0) return 0;
    while (above < table->count && table->rows[above].frequency_mhz < frequency_mhz)
        above++;
    if (above == table->count) return table->rows[above - 1].latency_s;
    const harpe_switch_row *high = &table->rows[above];
    if (above == 0 || high->frequency_mhz == frequency_mhz) return high->latency_s;
    const harpe_switch_row *low = high - 1;
    double share = (double)(frequency_mhz - low->frequency_mhz) /
                   (double)(high->frequency_mhz - low->frequency_mhz);
    return (1 - share) * low->latency_s + share * high->latency_s;
}

harpe_status harpe_switch_table_apply(const harpe_switch_table *table, harpe_problem *problem,
                                      harpe_error *error) {
    size_t most = 0, count = harpe_problem_option_list_count(problem);
    for (size_t k = 0; k < count; k++)
        most += problem->choices[k].point_count;
    harpe_latencies latencies = {.items = harpe_calloc(most + 1, sizeof *latencies.items)};
    if (!latencies.items) return harpe_fail_memory(error);
    for (size_t k = 0; k < count; k++) {
        const harpe_choice *choice = &problem->choices[k];
        for (size_t p = 0; p < choice->point_count; p++) {
            int mhz = choice->points[p].frequency_mhz;
            latencies.items[latencies.count++] =
                (harpe_latency){.owner = choice->list.rank,
                                .frequency_mhz = mhz,
                                .latency_s = harpe_switch_table_latency_s(table, mhz)};
        }
    }
    harpe_latencies_sort(&latencies);
    free(problem->latencies.items);
    problem->latencies = latencies;
    return HARPE_OK;
}
