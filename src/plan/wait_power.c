/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the rows, checks them, and looks up each wait. Reads the file, which has one row for each
 * kind of wait. */
#include "plan/problem_internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text.h"
#include "plan/schedule.h"

#define POWER_MAX_W 1e5
#define SHOWN_NAMES 12

/* A row in the sorted list, and whether its ranks have such a wait. */
typedef struct sorted_row {
    const harpe_wait_power *row;
    bool is_used;
} sorted_row;

typedef struct row_list {
    sorted_row *rows; /* by rank, then by wait */
    size_t count;
} row_list;

static const char *wait_of(const harpe_wait_power *row) { return row->wait ? row->wait : ""; }

static int compare_rows(const void *left, const void *right) {
    const harpe_wait_power *a = ((const sorted_row *)left)->row;
    const harpe_wait_power *b = ((const sorted_row *)right)->row;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return strcmp(wait_of(a), wait_of(b));
}

static sorted_row *find_row(const row_list *list, int rank, const char *wait) {
    harpe_wait_power wanted = {.rank = rank, .wait = wait};
    sorted_row key = {.row = &wanted};
    if (list->count == 0) return NULL;
    return bsearch(&key, list->rows, list->count, sizeof *list->rows, compare_rows);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static harpe_status check_row(const harpe_wait_power *row, int rank_count, harpe_error *error) {
    if (row->rank < -1 || row->rank >= rank_count)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a wait power is for rank %d, but the ranks are 0 to %d", row->rank,
                          rank_count - 1);
    if (*wait_of(row) && !harpe_is_instruction_name(wait_of(row), strlen(wait_of(row))))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a wait power is for '%.100s', which is not an instruction name",
                          wait_of(row));
    if (row->power_w >= 0 && row->power_w <= POWER_MAX_W) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "the wait power %g W is not between 0 and %.0f W", row->power_w, POWER_MAX_W);
}

/* Returns " of rank 3", or "" for all ranks. The caller's buffer has room for it. */
static const char *of_rank(const harpe_wait_power *row, char *buffer, size_t size) {
    *buffer = '\0';
    if (row->rank >= 0) (void)snprintf(buffer, size, " of rank %d", row->rank);
    return buffer;
}

/* Sorts rows. Free list->rows, also after a failure. */
static harpe_status sort_list(const harpe_wait_power *rows, size_t row_count, row_list *list,
                              harpe_error *error) {
    list->rows = harpe_calloc(row_count, sizeof *list->rows);
    if (!list->rows) return harpe_fail_memory(error);
    list->count = row_count;
    for (size_t i = 0; i < list->count; i++)
        list->rows[i].row = &rows[i];
    qsort(list->rows, list->count, sizeof *list->rows, compare_rows);
    return HARPE_OK;
}

/* Returns the place of the second of two rows for the same wait; 0: there are none. */
static size_t find_twice(const row_list *list) {
    for (size_t i = 1; i < list->count; i++)
        if (compare_rows(&list->rows[i - 1], &list->rows[i]) == 0) return i;
    return 0;
}

static harpe_status sort_rows(const harpe_wait_power *rows, size_t row_count, int rank_count,
                              row_list *list, harpe_error *error) {
    for (size_t i = 0; i < row_count; i++) {
        harpe_status status = check_row(&rows[i], rank_count, error);
        if (status != HARPE_OK) return status;
    }
    harpe_status status = sort_list(rows, row_count, list, error);
    size_t twice = status == HARPE_OK ? find_twice(list) : 0;
    if (twice == 0) return status;
    char rank[32];
    const harpe_wait_power *row = list->rows[twice].row;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "two wait powers are for the wait '%s'%s: give one", wait_of(row),
                      of_rank(row, rank, sizeof rank));
}

/* Appends the names of the instructions of a rank (-1: of all ranks), each once. */
static void list_names(const harpe_waits *waits, int rank, harpe_text *text) {
    size_t from = rank < 0 ? 0 : waits->rank_offset[rank];
    size_t end = rank < 0 ? waits->rank_offset[waits->rank_count] : waits->rank_offset[rank + 1];
    const char *shown[SHOWN_NAMES];
    size_t count = 0;
    for (size_t i = from; i < end && count < SHOWN_NAMES; i++) {
        size_t k = 0;
        while (k < count && strcmp(shown[k], waits->instructions[i].name) != 0)
            k++;
        if (k < count) continue;
        shown[count++] = waits->instructions[i].name;
        harpe_text_printf(text, "%s, ", waits->instructions[i].name);
    }
    harpe_text_printf(text, HARPE_WAIT_END);
}

/* Checks that every row is for a wait that exists. */
static harpe_status check_used(const harpe_waits *waits, const row_list *list, harpe_error *error) {
    for (size_t i = 0; i < list->count; i++) {
        const harpe_wait_power *row = list->rows[i].row;
        if (list->rows[i].is_used || !*wait_of(row) || strcmp(wait_of(row), HARPE_WAIT_END) == 0)
            continue;
        char rank[32];
        harpe_text names = {0};
        list_names(waits, row->rank, &names);
        harpe_status status = harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "a wait power is for the wait '%s'%s, but no instruction%s has this name (waits: %s)",
            wait_of(row), of_rank(row, rank, sizeof rank), row->rank < 0 ? "" : " of this rank",
            names.failed ? "" : names.data);
        harpe_text_free(&names);
        return status;
    }
    return HARPE_OK;
}

/* ---- Powers ---------------------------------------------------------------------------------- */

/* Returns the power of one GPU of a rank during a kind of wait. `usual_w` is the power if no row is
 * for the wait. */
static double power_of(const row_list *list, int rank, const char *wait, double usual_w) {
    sorted_row *own = find_row(list, rank, wait), *shared = find_row(list, -1, wait);
    if (own) own->is_used = true;
    if (shared) shared->is_used = true;
    if (own) return own->row->power_w;
    if (shared) return shared->row->power_w;
    const sorted_row *other = find_row(list, rank, "");
    if (!other) other = find_row(list, -1, "");
    return other ? other->row->power_w : usual_w;
}

/* Fills in the powers of a rank. `seen` has room for its instructions. A schedule has few names, so
 * each one is looked up once. */
static void find_powers(const harpe_waits *waits, const row_list *list, int rank, size_t *seen) {
    double usual_w = waits->usual_w[rank];
    size_t seen_count = 0;
    waits->end_w[rank] = power_of(list, rank, HARPE_WAIT_END, usual_w);
    for (size_t i = waits->rank_offset[rank]; i < waits->rank_offset[rank + 1]; i++) {
        const char *name = waits->instructions[i].name;
        size_t k = 0;
        while (k < seen_count && strcmp(waits->instructions[seen[k]].name, name) != 0)
            k++;
        if (k < seen_count) {
            waits->power_w[i] = waits->power_w[seen[k]];
            continue;
        }
        seen[seen_count++] = i;
        waits->power_w[i] = power_of(list, rank, name, usual_w);
    }
}

harpe_status harpe_wait_powers_find(const harpe_wait_power *rows, size_t row_count,
                                    const harpe_waits *waits, harpe_error *error) {
    row_list list = {0};
    size_t *seen = harpe_calloc(waits->rank_offset[waits->rank_count] + 1, sizeof *seen);
    harpe_status status = seen ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = sort_rows(rows, row_count, waits->rank_count, &list, error);
    if (status == HARPE_OK) {
        for (int rank = 0; rank < waits->rank_count; rank++)
            find_powers(waits, &list, rank, seen);
        status = check_used(waits, &list, error);
    }
    free(list.rows);
    free(seen);
    return status;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Reads a file of wait powers: a CSV file with the columns wait, blocking_power and optionally
 * rank. An invalid field gives an error that names file, line and column. wait_power.c checks the
 * rows against a schedule. */

#define FILE_LIMIT_BYTES ((size_t)16 << 20)
#define ROWS_MAX ((size_t)65536)

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
    if (wait->length > 0 && !harpe_is_instruction_name(wait->text, wait->length))
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

static harpe_status check_repeats(harpe_wait_powers *powers, const char *name, harpe_error *error) {
    row_list list = {0};
    harpe_status status = sort_list(powers->rows, powers->count, &list, error);
    size_t twice = status == HARPE_OK ? find_twice(&list) : 0;
    if (twice > 0) {
        int one = powers->lines[list.rows[twice - 1].row - powers->rows];
        int other = powers->lines[list.rows[twice].row - powers->rows];
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s:%d:1: the same rank and wait as in line %d; remove one", name,
                            one > other ? one : other, one > other ? other : one);
    }
    free(list.rows);
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
