/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file of wait powers: a CSV file with the columns wait, blocking_power and optionally
 * rank. An invalid field gives an error that names file, line and column. wait_power.c checks the
 * rows against a schedule. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "plan/schedule.h"

#define FILE_LIMIT_BYTES ((size_t)16 << 20)
#define ROWS_MAX ((size_t)65536)
#define POWER_MAX_W 1e5

enum column { COLUMN_WAIT, COLUMN_POWER, COLUMN_RANK, COLUMN_COUNT };
static const char *const column_names[COLUMN_COUNT] = {"wait", "blocking_power", "rank"};

struct harpe_wait_powers {
    harpe_arena names;
    harpe_wait_power *rows;
    int *lines; /* of the rows */
    size_t count, row_capacity, line_capacity;
};

static harpe_status read_header(harpe_csv *csv, size_t *index, harpe_error *error) {
    harpe_status status =
        harpe_csv_header(csv, column_names, COLUMN_COUNT,
                         "a header line rank,wait,blocking_power and rows", index, error);
    for (size_t i = 0; i < csv->field_count && status == HARPE_OK; i++)
        if (i != index[COLUMN_WAIT] && i != index[COLUMN_POWER] && i != index[COLUMN_RANK])
            return harpe_csv_fail(csv, i, error,
                                  "the columns of wait powers are rank, wait and blocking_power");
    for (int c = 0; c < COLUMN_RANK && status == HARPE_OK; c++)
        if (index[c] == SIZE_MAX)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s:%d:1: missing column '%s'; the first line must name the columns "
                              "wait and blocking_power, and may name rank",
                              csv->name, csv->line, column_names[c]);
    return status;
}

static harpe_status read_rank(const harpe_csv *csv, size_t index, int *rank, harpe_error *error) {
    *rank = -1;
    if (index == SIZE_MAX || csv->fields[index].length == 0) return HARPE_OK;
    const harpe_csv_field *field = &csv->fields[index];
    int64_t number = 0;
    if (harpe_parse_int(field->text, field->length, &number) && number >= 0 &&
        number < HARPE_RANKS_MAX) {
        *rank = (int)number;
        return HARPE_OK;
    }
    return harpe_csv_fail(csv, index, error,
                          "expected a rank from 0 to %d, or nothing for all ranks",
                          HARPE_RANKS_MAX - 1);
}

static harpe_status read_row(const harpe_csv *csv, const size_t *index, harpe_wait_powers *out,
                             harpe_error *error) {
    if (out->count == ROWS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s:%d:1: more than %zu rows", csv->name,
                          csv->line, ROWS_MAX);
    if (!HARPE_ARRAY_RESERVE(out->rows, out->row_capacity, out->count + 1) ||
        !HARPE_ARRAY_RESERVE(out->lines, out->line_capacity, out->count + 1))
        return harpe_fail_memory(error);
    harpe_wait_power row = {0};
    harpe_status status = read_rank(csv, index[COLUMN_RANK], &row.rank, error);
    if (status != HARPE_OK) return status;
    const harpe_csv_field *wait = &csv->fields[index[COLUMN_WAIT]];
    const harpe_csv_field *power = &csv->fields[index[COLUMN_POWER]];
    char *name = harpe_arena_strdup(&out->names, wait->text, wait->length);
    if (!name) return harpe_fail_memory(error);
    if (wait->length > 0 && (strlen(name) != wait->length || !harpe_is_instruction_name(name)))
        return harpe_csv_fail(csv, index[COLUMN_WAIT], error,
                              "expected an instruction name, 'end', or nothing for all other "
                              "waits");
    if (!harpe_parse_double(power->text, power->length, &row.power_w) ||
        !(row.power_w >= 0 && row.power_w <= POWER_MAX_W))
        return harpe_csv_fail(csv, index[COLUMN_POWER], error, "expected 0 to %.0f W", POWER_MAX_W);
    row.wait = name;
    out->lines[out->count] = csv->line;
    out->rows[out->count++] = row;
    return HARPE_OK;
}

/* ---- Rows that are there twice --------------------------------------------------------------- */

static int compare_places(const void *left, const void *right, void *powers) {
    const harpe_wait_powers *all = powers;
    const harpe_wait_power *a = &all->rows[*(const size_t *)left];
    const harpe_wait_power *b = &all->rows[*(const size_t *)right];
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    int order = strcmp(a->wait, b->wait);
    if (order != 0) return order;
    return *(const size_t *)left < *(const size_t *)right ? -1 : 1;
}

static harpe_status check_repeats(harpe_wait_powers *powers, const char *name, harpe_error *error) {
    size_t *order = harpe_calloc(powers->count + 1, sizeof *order);
    if (!order) return harpe_fail_memory(error);
    for (size_t i = 0; i < powers->count; i++)
        order[i] = i;
    qsort_r(order, powers->count, sizeof *order, compare_places, powers);
    harpe_status status = HARPE_OK;
    for (size_t i = 1; i < powers->count && status == HARPE_OK; i++) {
        const harpe_wait_power *one = &powers->rows[order[i - 1]], *other = &powers->rows[order[i]];
        if (one->rank != other->rank || strcmp(one->wait, other->wait) != 0) continue;
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s:%d:1: the same rank and wait as in line %d; remove one", name,
                            powers->lines[order[i]], powers->lines[order[i - 1]]);
    }
    free(order);
    return status;
}

/* ---- Public ---------------------------------------------------------------------------------- */

static harpe_status read_rows(harpe_csv *csv, harpe_wait_powers *out, harpe_error *error) {
    size_t index[COLUMN_COUNT];
    harpe_status status = read_header(csv, index, error);
    if (status != HARPE_OK) return status;
    for (;;) {
        bool has_record = false;
        status = harpe_csv_next(csv, &has_record, error);
        if (status != HARPE_OK) return status;
        if (!has_record) break;
        status = read_row(csv, index, out, error);
        if (status != HARPE_OK) return status;
    }
    if (out->count > 0) return check_repeats(out, csv->name, error);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s:%d:1: no rows after the header; expected a row for each kind of wait",
                      csv->name, csv->line + 1);
}

harpe_status harpe_wait_powers_parse_csv(const char *text, size_t length, const char *name,
                                         harpe_wait_powers **out, harpe_error *error) {
    if ((!text && length > 0) || !name || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "parsing wait powers needs a text, its name and a place for the result");
    if (length > FILE_LIMIT_BYTES)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: larger than %zu MiB", name,
                          FILE_LIMIT_BYTES >> 20);
    harpe_wait_powers *powers = harpe_calloc(1, sizeof *powers);
    if (!powers) return harpe_fail_memory(error);
    harpe_csv csv;
    harpe_csv_open(&csv, text ? text : "", length, name);
    harpe_status status = read_rows(&csv, powers, error);
    harpe_csv_close(&csv);
    if (status != HARPE_OK) {
        harpe_wait_powers_free(powers);
        return status;
    }
    *out = powers;
    return HARPE_OK;
}

harpe_status harpe_wait_powers_read_csv(const char *path, harpe_wait_powers **out,
                                        harpe_error *error) {
    if (!path || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "reading wait powers needs a path and a place for the result");
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_wait_powers_parse_csv(text, length, path, out, error);
    free(text);
    return status;
}

void harpe_wait_powers_free(harpe_wait_powers *powers) {
    if (!powers) return;
    harpe_arena_free(&powers->names);
    free(powers->rows);
    free(powers->lines);
    free(powers);
}

const harpe_wait_power *harpe_wait_powers_rows(const harpe_wait_powers *powers, size_t *count) {
    *count = powers->count;
    return powers->rows;
}
