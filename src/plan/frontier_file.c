/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes frontier.csv and bound.csv. One table of columns describes both. It computes
 * nothing except percentages. */
#include "plan/frontier_file.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"

#define FRONTIER_LIMIT_BYTES ((size_t)256 << 20)
#define ROWS_MAX 1000000

typedef struct column {
    const char *name;
    size_t offset; /* of the value in harpe_frontier_row */
    bool is_optional;
    double missing; /* the value if the file lacks an optional column */
} column;

/* All columns except the first, `plan`, are doubles. */
static const column columns[] = {
    {"time_s", offsetof(harpe_frontier_row, time_s), false, 0},
    {"energy_j", offsetof(harpe_frontier_row, energy_j), false, 0},
    {"lower_bound_j", offsetof(harpe_frontier_row, lower_bound_j), false, 0},
    {"gap_percent", offsetof(harpe_frontier_row, gap_percent), false, 0},
    {"compute_energy_j", offsetof(harpe_frontier_row, compute_energy_j), false, 0},
    {"blocking_energy_j", offsetof(harpe_frontier_row, blocking_energy_j), false, 0},
    {"average_power_w", offsetof(harpe_frontier_row, average_power_w), false, 0},
    {"slowdown_percent", offsetof(harpe_frontier_row, slowdown_percent), false, 0},
    {"savings_percent", offsetof(harpe_frontier_row, savings_percent), false, 0},
    {"overhead_energy_j", offsetof(harpe_frontier_row, overhead_energy_j), true, 0},
    {"peak_power_w", offsetof(harpe_frontier_row, peak_power_w), true, NAN},
    {"swing_w", offsetof(harpe_frontier_row, swing_w), true, NAN},
    {"swing_hz", offsetof(harpe_frontier_row, swing_hz), true, NAN},
    {"change_energy_j", offsetof(harpe_frontier_row, change_energy_j), true, 0},
};
enum { COLUMN_COUNT = sizeof columns / sizeof columns[0] };

static double get(const harpe_frontier_row *row, const column *c) {
    double value;
    memcpy(&value, (const char *)row + c->offset, sizeof value);
    return value;
}

static void set(harpe_frontier_row *row, const column *c, double value) {
    memcpy((char *)row + c->offset, &value, sizeof value);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Returns 100 * (value / reference - 1), rounded to a millionth of a percent, because smaller
 * digits are rounding errors. */
static double percent_above(double value, double reference) {
    if (!(reference > 0) || !isfinite(value)) return 0;
    return round(1e8 * (value - reference) / reference) / 1e6 + 0.0;
}

harpe_frontier_row harpe_frontier_row_of(const harpe_plan *plan, int number,
                                         const harpe_plan *all_maximum) {
    return (harpe_frontier_row){
        .plan = number,
        .time_s = plan->time_s,
        .energy_j = plan->energy_j,
        .lower_bound_j = plan->lower_bound_j,
        .gap_percent = percent_above(plan->energy_j, plan->lower_bound_j),
        .compute_energy_j = plan->compute_energy_j,
        .blocking_energy_j = plan->blocking_energy_j,
        .average_power_w = plan->average_power_w,
        .slowdown_percent = percent_above(plan->time_s, all_maximum->time_s),
        .savings_percent = 0.0 - percent_above(plan->energy_j, all_maximum->energy_j),
        .overhead_energy_j = plan->overhead_energy_j,
    };
}

void harpe_frontier_row_set_overhead(harpe_frontier_row *row, double overhead_w,
                                     const harpe_frontier_row *all_maximum) {
    double added_w = overhead_w - row->overhead_energy_j / row->time_s;
    row->energy_j += added_w * row->time_s;
    row->lower_bound_j += added_w * row->time_s;
    row->peak_power_w += added_w;
    row->overhead_energy_j = overhead_w * row->time_s;
    row->gap_percent = percent_above(row->energy_j, row->lower_bound_j);
    row->savings_percent = 0.0 - percent_above(row->energy_j, all_maximum->energy_j);
}

const harpe_frontier_row *harpe_frontier_rows_within(const harpe_frontier_row *rows,
                                                     size_t row_count, double most_s) {
    const harpe_frontier_row *best = NULL;
    for (size_t i = 0; i < row_count; i++)
        if (rows[i].time_s <= most_s * (1 + 1e-9) && (!best || rows[i].energy_j < best->energy_j))
            best = &rows[i];
    return best;
}

void harpe_frontier_csv_format(harpe_text *text, const harpe_frontier_row *rows, size_t row_count) {
    harpe_text_printf(text, "plan");
    for (size_t c = 0; c < COLUMN_COUNT; c++)
        harpe_text_printf(text, ",%s", columns[c].name);
    harpe_text_printf(text, "\n");
    for (size_t i = 0; i < row_count; i++) {
        harpe_text_printf(text, "%d", rows[i].plan);
        for (size_t c = 0; c < COLUMN_COUNT; c++) {
            harpe_text_printf(text, ",");
            harpe_text_number(text, get(&rows[i], &columns[c]));
        }
        harpe_text_printf(text, "\n");
    }
}

void harpe_bound_csv_format(harpe_text *text, const harpe_frontier_vertex *vertices, size_t count) {
    harpe_text_printf(text, "time_s,lower_bound_j,marginal_w\n");
    for (size_t i = 0; i < count; i++) {
        harpe_text_number(text, vertices[i].time_s);
        harpe_text_printf(text, ",");
        harpe_text_number(text, vertices[i].lower_bound_j);
        harpe_text_printf(text, ",");
        harpe_text_number(text, vertices[i].marginal_w);
        harpe_text_printf(text, "\n");
    }
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Writes the place of the column `plan`, and then those of the others. */
static harpe_status read_header(harpe_csv *csv, size_t *index, harpe_error *error) {
    const char *names[1 + COLUMN_COUNT] = {"plan"};
    for (size_t c = 0; c < COLUMN_COUNT; c++)
        names[1 + c] = columns[c].name;
    harpe_status status =
        harpe_csv_header(csv, names, 1 + COLUMN_COUNT, "the frontier.csv of a plan", index, error);
    for (size_t c = 0; c <= COLUMN_COUNT && status == HARPE_OK; c++)
        if (index[c] == SIZE_MAX && (c == 0 || !columns[c - 1].is_optional))
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s:%d: the column '%s' is missing: not a frontier.csv", csv->name,
                              csv->line, names[c]);
    return status;
}

static harpe_status read_row(const harpe_csv *csv, const size_t *index, harpe_frontier_row *row,
                             harpe_error *error) {
    int64_t number = 0;
    harpe_status status = harpe_csv_int(csv, index[0], "plan", &number, error);
    if (status != HARPE_OK) return status;
    if (number < 0 || number > INT32_MAX)
        return harpe_csv_fail(csv, index[0], error, "plan: expected a plan's number");
    *row = (harpe_frontier_row){.plan = (int)number};
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        double value = columns[c].missing;
        if (index[1 + c] != SIZE_MAX)
            status = harpe_csv_double(csv, index[1 + c], columns[c].name, &value, error);
        if (status != HARPE_OK) return status;
        set(row, &columns[c], value);
    }
    if (row->time_s <= 0)
        return harpe_csv_fail(csv, index[1], error, "time_s: expected a positive time");
    return HARPE_OK;
}

static harpe_status read_rows(harpe_csv *csv, harpe_frontier_row **rows, size_t *row_count,
                              harpe_error *error) {
    size_t index[1 + COLUMN_COUNT];
    harpe_frontier_row *items = NULL;
    size_t count = 0;
    size_t capacity = 0;
    bool has_record = false;
    harpe_status status = read_header(csv, index, error);
    while (status == HARPE_OK) {
        status = harpe_csv_next(csv, &has_record, error);
        if (status != HARPE_OK || !has_record) break;
        if (count == ROWS_MAX) {
            status = harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s:%d: more than %d plans", csv->name,
                                csv->line, ROWS_MAX);
            break;
        }
        if (!HARPE_ARRAY_RESERVE(items, capacity, count + 1)) {
            status = harpe_fail_memory(error);
            break;
        }
        status = read_row(csv, index, &items[count], error);
        count += status == HARPE_OK;
    }
    if (status == HARPE_OK && count == 0)
        status = harpe_fail(error, HARPE_NOT_FOUND, "%s: there are no plans in it", csv->name);
    if (status != HARPE_OK) {
        free(items);
        return status;
    }
    *rows = items;
    *row_count = count;
    return HARPE_OK;
}

harpe_status harpe_frontier_csv_read(const char *path, harpe_frontier_row **rows, size_t *row_count,
                                     harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, FRONTIER_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    harpe_csv csv;
    harpe_csv_open(&csv, text, length, path);
    status = read_rows(&csv, rows, row_count, error);
    harpe_csv_close(&csv);
    free(text);
    return status;
}
