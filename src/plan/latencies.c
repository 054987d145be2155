/* SPDX-License-Identifier: Apache-2.0 */
/* Switching latencies by new clock; see profiles.h. profile.c finds those of a profile. */
#include "plan/profiles.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text.h"

static int compare_items(const void *left, const void *right) {
    const harpe_latency *a = left, *b = right;
    if (a->owner != b->owner) return a->owner < b->owner ? -1 : 1;
    if (a->frequency_mhz != b->frequency_mhz) return a->frequency_mhz < b->frequency_mhz ? -1 : 1;
    return (a->latency_s > b->latency_s) - (a->latency_s < b->latency_s);
}

void harpe_latencies_sort(harpe_latencies *latencies) {
    size_t kept = 0;
    if (latencies->count == 0) return;
    qsort(latencies->items, latencies->count, sizeof *latencies->items, compare_items);
    for (size_t i = 1; i < latencies->count; i++) {
        const harpe_latency *last = &latencies->items[kept], *next = &latencies->items[i];
        if (last->owner != next->owner || last->frequency_mhz != next->frequency_mhz) kept++;
        latencies->items[kept] = *next;
    }
    latencies->count = kept + 1;
}

double harpe_latencies_find(const harpe_latencies *latencies, int owner, int frequency_mhz) {
    const harpe_latency *items = latencies->items;
    size_t low = 0, high = latencies->count;
    if (high == 0 || frequency_mhz == 0) return 0;
    if (items[0].owner == HARPE_LATENCY_OF_ALL) owner = HARPE_LATENCY_OF_ALL;
    while (low < high) { /* those before `low` are below, those from `high` on are not */
        size_t middle = low + (high - low) / 2;
        bool is_below =
            items[middle].owner < owner ||
            (items[middle].owner == owner && items[middle].frequency_mhz < frequency_mhz);
        low = is_below ? middle + 1 : low;
        high = is_below ? high : middle;
    }
    const harpe_latency *above = &items[low];
    bool has_above = low < latencies->count && above->owner == owner;
    if (has_above && above->frequency_mhz == frequency_mhz) return above->latency_s;
    if (owner != HARPE_LATENCY_OF_ALL) return 0;
    if (low == 0) return above->latency_s;
    const harpe_latency *below = &items[low - 1];
    if (!has_above) return below->latency_s;
    double share = (double)(frequency_mhz - below->frequency_mhz) /
                   (double)(above->frequency_mhz - below->frequency_mhz);
    return (1 - share) * below->latency_s + share * above->latency_s;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

#define FILE_LIMIT_BYTES ((size_t)1 << 20)

enum column { COLUMN_FREQUENCY, COLUMN_LATENCY, COLUMN_GPU, COLUMN_COUNT };
static const char *const column_names[COLUMN_COUNT] = {"frequency", "latency_s", "gpu"};

typedef struct reader {
    harpe_csv csv;
    size_t index[COLUMN_COUNT]; /* SIZE_MAX: the file does not have the column */
    harpe_text gpu;             /* of the first row */
    int gpu_line;
    int *lines; /* of the items */
    harpe_latencies found;
    size_t capacity, line_capacity;
} reader;

/* All rows are of one model of GPU. */
static harpe_status check_gpu(reader *r, harpe_error *error) {
    size_t index = r->index[COLUMN_GPU];
    if (index == SIZE_MAX) return HARPE_OK;
    const harpe_csv_field *field = &r->csv.fields[index];
    if (r->found.count == 0) {
        harpe_text_append(&r->gpu, field->text, field->length);
        r->gpu_line = field->line;
        return r->gpu.failed ? harpe_fail_memory(error) : HARPE_OK;
    }
    if (field->length == r->gpu.length &&
        (field->length == 0 || memcmp(field->text, r->gpu.data, field->length) == 0))
        return HARPE_OK;
    return harpe_csv_fail(&r->csv, index, error,
                          "another GPU than in line %d; a table is for one model of GPU, so remove "
                          "the rows of the others",
                          r->gpu_line);
}

static harpe_status read_row(reader *r, harpe_error *error) {
    harpe_csv *csv = &r->csv;
    size_t count = r->found.count;
    if (count == HARPE_SWITCH_TABLE_ROWS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%s:%d:1: more than %zu rows; keep one for each clock", csv->name,
                          csv->line, HARPE_SWITCH_TABLE_ROWS_MAX);
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
    for (size_t i = 0; i < count; i++)
        if (r->found.items[i].frequency_mhz == mhz)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s:%d:1: the same frequency %d MHz as in line %d; remove one",
                              csv->name, csv->line, (int)mhz, r->lines[i]);
    if (!HARPE_ARRAY_RESERVE(r->found.items, r->capacity, count + 1) ||
        !HARPE_ARRAY_RESERVE(r->lines, r->line_capacity, count + 1))
        return harpe_fail_memory(error);
    r->lines[count] = csv->line;
    r->found.items[r->found.count++] =
        (harpe_latency){HARPE_LATENCY_OF_ALL, (int32_t)mhz, latency_s};
    return HARPE_OK;
}

static harpe_status read_rows(reader *r, harpe_error *error) {
    harpe_csv *csv = &r->csv;
    bool has_record = true;
    harpe_status status =
        harpe_csv_header(csv, column_names, COLUMN_COUNT,
                         "the table that 'harpe profile switch --output' writes", r->index, error);
    for (int c = 0; c < COLUMN_GPU && status == HARPE_OK; c++)
        if (r->index[c] == SIZE_MAX)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s:%d:1: missing column '%s'; the first line must name the columns "
                              "frequency and latency_s, as 'harpe profile switch --output' does",
                              csv->name, csv->line, column_names[c]);
    while (status == HARPE_OK) {
        status = harpe_csv_next(csv, &has_record, error);
        if (status != HARPE_OK || !has_record) break;
        status = read_row(r, error);
    }
    if (status != HARPE_OK || r->found.count > 0) return status;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s:%d:1: no rows after the header; expected a row for each measured clock",
                      csv->name, csv->line + 1);
}

harpe_status harpe_latencies_parse_csv(const char *text, size_t length, const char *name,
                                       harpe_latencies *out, harpe_error *error) {
    if (length > FILE_LIMIT_BYTES)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: larger than %zu MiB", name,
                          FILE_LIMIT_BYTES >> 20);
    reader r = {0};
    harpe_csv_open(&r.csv, text, length, name);
    harpe_status status = read_rows(&r, error);
    harpe_csv_close(&r.csv);
    harpe_text_free(&r.gpu);
    free(r.lines);
    if (status != HARPE_OK) {
        free(r.found.items);
        return status;
    }
    harpe_latencies_sort(&r.found);
    *out = r.found;
    return HARPE_OK;
}

harpe_status harpe_latencies_read_csv(const char *path, harpe_latencies *out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_latencies_parse_csv(text, length, path, out, error);
    free(text);
    return status;
}
