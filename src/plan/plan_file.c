/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes frontier.csv and plan files. A plan file is the literal list of ("forward",
 * 1410) tuples that other servers of this kind read. The planner writes plan files. Plans of other
 * tools are also read from such files. The reader scans the text and accepts only that literal,
 * three levels deep, so nothing in a file is ever executed. */
#include "plan/plan_file.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>
#include <harpe/replicas.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "plan/plans.h"

/* ---- The frontier ---------------------------------------------------------------------------- */

/* Reads and writes frontier.csv and bound.csv. One table of columns describes both. It computes
 * nothing except percentages. */

#define FRONTIER_LIMIT_BYTES ((size_t)256 << 20)
#define ROWS_MAX 1000000

typedef struct frontier_column {
    const char *name;
    size_t offset; /* of the value in harpe_frontier_row */
    bool is_optional;
    double missing; /* the value if the file lacks an optional column */
} frontier_column;

/* All columns except the first, `plan`, are doubles. */
static const frontier_column columns[] = {
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

static double get(const harpe_frontier_row *row, const frontier_column *c) {
    double value;
    memcpy(&value, (const char *)row + c->offset, sizeof value);
    return value;
}

static void set(harpe_frontier_row *row, const frontier_column *c, double value) {
    memcpy((char *)row + c->offset, &value, sizeof value);
}

/* ---- Writing a frontier ---------------------------------------------------------------------- */

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

/* ---- Reading a frontier ---------------------------------------------------------------------- */

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

/* ---- Plans ----------------------------------------------------------------------------------- */

#define PLAN_FILE_LIMIT_BYTES ((size_t)64 << 20)
#define RANK_LIMIT (HARPE_STAGE_MAX + 1)
#define RECENT_NAME_COUNT 8

struct harpe_plan_file {
    char *name; /* name of the file, for messages */
    size_t entry_count;
    size_t entry_capacity;
    harpe_plan_file_entry *entries; /* rank 0's, then rank 1's ... */
    size_t rank_count;
    size_t rank_capacity;
    size_t *rank_end; /* of each rank: the index after its last entry */
    harpe_arena names;
};

/* ---- Reading plans --------------------------------------------------------------------------- */

typedef struct reader {
    const char *name;
    const char *cursor;
    const char *end;
    const char *line_start;
    int line;
    harpe_plan_file *file;
    harpe_error *error;
    /* The instruction names seen last. A file has only a few names, so each is stored once. */
    const char *recent_names[RECENT_NAME_COUNT];
    size_t next_recent;
} reader;

typedef harpe_status (*element_parser)(reader *r);

/* Fails at the cursor, with the text found there. */
static harpe_status fail_here(const reader *r, const char *expected) {
    int column = (int)(r->cursor - r->line_start) + 1;
    if (r->cursor == r->end) {
        return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s:%d:%d: expected %s, found the end",
                          r->name, r->line, column, expected);
    }
    unsigned char found = (unsigned char)*r->cursor;
    if (found < 0x20 || found > 0x7e) {
        return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s:%d:%d: expected %s, found byte 0x%02x",
                          r->name, r->line, column, expected, found);
    }
    return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s:%d:%d: expected %s, found '%c'", r->name,
                      r->line, column, expected, found);
}

static harpe_status fail_at(const reader *r, const char *position, const char *what) {
    return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s:%d:%d: %s", r->name, r->line,
                      (int)(position - r->line_start) + 1, what);
}

static void skip_blanks(reader *r) {
    bool in_comment = false;
    for (; r->cursor < r->end; r->cursor++) {
        char c = *r->cursor;
        if (c == '\n') {
            in_comment = false;
            r->line++;
            r->line_start = r->cursor + 1;
        } else if (c == '#') {
            in_comment = true;
        } else if (!in_comment && c != ' ' && c != '\t' && c != '\r' && c != '\f') {
            return;
        }
    }
}

static bool next_is(reader *r, char c) {
    skip_blanks(r);
    return r->cursor < r->end && *r->cursor == c;
}

static bool next_is_digit(reader *r) {
    skip_blanks(r);
    return r->cursor < r->end && *r->cursor >= '0' && *r->cursor <= '9';
}

/* Reads a list or tuple, and calls `element` for each element. `what` names the expected value in
 * the error if the text is neither a list nor a tuple. */
static harpe_status read_sequence(reader *r, const char *what, const char *element_or_end,
                                  element_parser element) {
    bool is_list = next_is(r, '[');
    if (!is_list && !next_is(r, '(')) return fail_here(r, what);
    r->cursor++;
    char closing = is_list ? ']' : ')';
    size_t count = 0;
    bool after_comma = true;
    while (!next_is(r, closing)) {
        if (!after_comma) return fail_here(r, is_list ? "',' or ']'" : "',' or ')'");
        if (r->cursor == r->end) return fail_here(r, element_or_end);
        harpe_status status = element(r);
        if (status != HARPE_OK) return status;
        count++;
        after_comma = next_is(r, ',');
        if (after_comma) r->cursor++;
    }
    if (!is_list && count == 1 && !after_comma)
        return fail_at(r, r->cursor, "a tuple of one element needs a comma before ')'");
    r->cursor++;
    return HARPE_OK;
}

static bool may_stand_in_name(char c) {
    return (unsigned char)c > 0x20 && (unsigned char)c != 0x7f && c != ',' && c != '"' &&
           c != '\'' && c != '\\';
}

/* Returns a copy of a name of `length` bytes, or NULL when out of memory. Equal names that were
 * read recently share one copy. */
static const char *keep_name(reader *r, const char *text, size_t length) {
    for (size_t i = 0; i < RECENT_NAME_COUNT; i++) {
        const char *known = r->recent_names[i];
        if (known && strncmp(known, text, length) == 0 && known[length] == '\0') return known;
    }
    const char *kept = harpe_arena_strdup(&r->file->names, text, length);
    r->recent_names[r->next_recent] = kept;
    r->next_recent = (r->next_recent + 1) % RECENT_NAME_COUNT;
    return kept;
}

static harpe_status read_name(reader *r, const char **name) {
    if (!next_is(r, '"') && !next_is(r, '\'')) return fail_here(r, "an instruction name in quotes");
    const char *quote = r->cursor++;
    const char *start = r->cursor;
    while (r->cursor < r->end && *r->cursor != *quote) {
        if (!may_stand_in_name(*r->cursor))
            return fail_here(r, "an instruction name without spaces, commas or escapes");
        r->cursor++;
    }
    if (r->cursor == r->end) return fail_at(r, quote, "the quote is never closed");
    size_t length = (size_t)(r->cursor - start);
    if (length == 0 || length > HARPE_INSTRUCTION_NAME_MAX)
        return fail_at(r, quote, "an instruction name has 1 to 63 bytes");
    r->cursor++;
    *name = keep_name(r, start, length);
    return *name ? HARPE_OK : harpe_fail_memory(r->error);
}

static harpe_status read_frequency(reader *r, int *frequency_mhz) {
    if (!next_is_digit(r)) return fail_here(r, "a frequency in MHz (a whole number)");
    const char *start = r->cursor;
    int value = 0;
    for (; r->cursor < r->end && *r->cursor >= '0' && *r->cursor <= '9'; r->cursor++) {
        value = value * 10 + (*r->cursor - '0');
        if (value > HARPE_FREQUENCY_MAX_MHZ)
            return fail_at(r, start, "the frequency is above 100000 MHz");
    }
    if (*start == '0' && r->cursor - start > 1)
        return fail_at(r, start, "a frequency does not start with 0");
    if (r->cursor < r->end && strchr("._eExX", *r->cursor) && *r->cursor)
        return fail_at(r, start, "a frequency is a whole number of MHz");
    *frequency_mhz = value;
    return HARPE_OK;
}

static harpe_status expect(reader *r, char c, const char *expected) {
    if (!next_is(r, c)) return fail_here(r, expected);
    r->cursor++;
    return HARPE_OK;
}

/* Reads ("forward", 1410), or the same in brackets, with or without a trailing comma. */
static harpe_status read_entry(reader *r) {
    if (next_is_digit(r)) {
        return fail_at(r, r->cursor,
                       "a bare frequency is the older plan form; each entry must be an "
                       "(\"instruction\", MHz) tuple");
    }
    bool is_list = next_is(r, '[');
    if (!is_list && !next_is(r, '(')) return fail_here(r, "an (\"instruction\", MHz) tuple");
    r->cursor++;
    harpe_plan_file_entry entry = {0};
    harpe_status status = read_name(r, &entry.instruction);
    if (status == HARPE_OK) status = expect(r, ',', "',' and a frequency in MHz");
    if (status == HARPE_OK) status = read_frequency(r, &entry.frequency_mhz);
    if (status == HARPE_OK && next_is(r, ',')) r->cursor++;
    if (status == HARPE_OK) status = expect(r, is_list ? ']' : ')', is_list ? "']'" : "')'");
    if (status != HARPE_OK) return status;
    harpe_plan_file *file = r->file;
    if (!HARPE_ARRAY_RESERVE(file->entries, file->entry_capacity, file->entry_count + 1))
        return harpe_fail_memory(r->error);
    file->entries[file->entry_count++] = entry;
    return HARPE_OK;
}

static harpe_status read_rank(reader *r) {
    harpe_plan_file *file = r->file;
    if (file->rank_count == RANK_LIMIT) {
        return harpe_fail(r->error, HARPE_LIMIT_EXCEEDED, "%s:%d: more than %d ranks", r->name,
                          r->line, RANK_LIMIT);
    }
    if (next_is_digit(r))
        return fail_at(r, r->cursor, "expected one list of (\"instruction\", MHz) tuples per rank");
    harpe_status status = read_sequence(r, "one list of (\"instruction\", MHz) tuples per rank",
                                        "an (\"instruction\", MHz) tuple", read_entry);
    if (status != HARPE_OK) return status;
    if (!HARPE_ARRAY_RESERVE(file->rank_end, file->rank_capacity, file->rank_count + 1))
        return harpe_fail_memory(r->error);
    file->rank_end[file->rank_count++] = file->entry_count;
    return HARPE_OK;
}

static harpe_status read_plan(reader *r) {
    harpe_status status = read_sequence(r, "a plan: a list with one list of tuples per rank",
                                        "one list per rank", read_rank);
    if (status != HARPE_OK) return status;
    skip_blanks(r);
    if (r->cursor < r->end) return fail_here(r, "nothing after the plan but comments");
    if (r->file->rank_count == 0)
        return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s: the plan has no ranks", r->name);
    return HARPE_OK;
}

harpe_status harpe_plan_file_parse(const char *text, size_t length, const char *name,
                                   harpe_plan_file **out, harpe_error *error) {
    if (length > PLAN_FILE_LIMIT_BYTES) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: larger than %zu MiB", name,
                          PLAN_FILE_LIMIT_BYTES >> 20);
    }
    harpe_plan_file *file = harpe_calloc(1, sizeof *file);
    if (!file) return harpe_fail_memory(error);
    file->name = strdup(name);
    if (!file->name) {
        harpe_plan_file_free(file);
        return harpe_fail_memory(error);
    }
    reader r = {.name = name, .line = 1, .file = file, .error = error};
    r.cursor = text;
    r.end = text + length;
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) r.cursor += 3;
    r.line_start = r.cursor;
    harpe_status status = read_plan(&r);
    if (status != HARPE_OK) {
        harpe_plan_file_free(file);
        return status;
    }
    *out = file;
    return HARPE_OK;
}

harpe_status harpe_plan_file_read(const char *path, harpe_plan_file **out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, PLAN_FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_plan_file_parse(text, length, path, out, error);
    free(text);
    return status;
}

void harpe_plan_file_free(harpe_plan_file *file) {
    if (!file) return;
    harpe_arena_free(&file->names);
    free(file->rank_end);
    free(file->entries);
    free(file->name);
    free(file);
}

int harpe_plan_file_rank_count(const harpe_plan_file *file) { return (int)file->rank_count; }

const harpe_plan_file_entry *harpe_plan_file_rank(const harpe_plan_file *file, int rank,
                                                  size_t *count) {
    if (rank < 0 || (size_t)rank >= file->rank_count) {
        *count = 0;
        return NULL;
    }
    size_t start = rank > 0 ? file->rank_end[rank - 1] : 0;
    *count = file->rank_end[rank] - start;
    return *count > 0 ? file->entries + start : NULL; /* without entries there is no array */
}

/* ---- Matching -------------------------------------------------------------------------------- */

/* 0 MHz leaves the clock as it is. */
static bool is_allowed(const harpe_choice *choice, int frequency_mhz) {
    return frequency_mhz == 0 ||
           (harpe_choice_has_clocks(choice) && harpe_choice_point(choice, frequency_mhz));
}

static harpe_status match_entry(const harpe_plan_file *file, const harpe_problem *problem, int rank,
                                size_t index, const harpe_plan_file_entry *entry,
                                harpe_error *error) {
    int32_t instruction = (int32_t)(problem->rank_offset[rank] + index);
    const harpe_choice *choice = harpe_problem_choice(problem, instruction);
    if (strcmp(entry->instruction, choice->list.instruction) != 0) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: entry %zu of rank %d is '%s', but the schedule runs '%s' there",
                          file->name, index, rank, entry->instruction, choice->list.instruction);
    }
    if (!is_allowed(choice, entry->frequency_mhz)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: entry %zu of rank %d runs '%s' at %d MHz, which the profile does "
                          "not have for stage %d",
                          file->name, index, rank, entry->instruction, entry->frequency_mhz,
                          choice->list.stage);
    }
    return HARPE_OK;
}

static harpe_status match_rank(const harpe_plan_file *file, const harpe_problem *problem, int rank,
                               int *frequency_mhz, harpe_error *error) {
    size_t count = 0;
    const harpe_plan_file_entry *entries = harpe_plan_file_rank(file, rank, &count);
    size_t needed = harpe_problem_rank_length(problem, rank);
    if (count != needed) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: rank %d has %zu instructions, but the schedule runs %zu there "
                          "(is the number of microbatches right?)",
                          file->name, rank, count, needed);
    }
    for (size_t i = 0; i < count; i++) {
        harpe_status status = match_entry(file, problem, rank, i, &entries[i], error);
        if (status != HARPE_OK) return status;
        frequency_mhz[i] = entries[i].frequency_mhz;
    }
    return HARPE_OK;
}

harpe_status harpe_plan_file_match(const harpe_plan_file *file, const harpe_problem *problem,
                                   int *frequency_mhz, harpe_error *error) {
    int rank_count = harpe_problem_rank_count(problem);
    if (harpe_plan_file_rank_count(file) != rank_count) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: the plan has %d ranks, the schedule %d",
                          file->name, harpe_plan_file_rank_count(file), rank_count);
    }
    size_t total = harpe_problem_instruction_count(problem);
    int *matched = harpe_calloc(total, sizeof *matched);
    if (!matched) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    size_t offset = 0;
    for (int rank = 0; rank < rank_count && status == HARPE_OK; rank++) {
        status = match_rank(file, problem, rank, matched + offset, error);
        offset += harpe_problem_rank_length(problem, rank);
    }
    if (status == HARPE_OK) memcpy(frequency_mhz, matched, total * sizeof *matched);
    free(matched);
    return status;
}

/* ---- Writing plans --------------------------------------------------------------------------- */

/* Writes a number as Python prints a float: with a point or an exponent. */
static void append_float(harpe_text *text, double value) {
    size_t start = text->length;
    harpe_text_number(text, value);
    if (!text->failed && !strpbrk(text->data + start, ".eE")) harpe_text_printf(text, ".0");
}

static void append_cost_line(harpe_text *text, int number, const char *what, double value) {
    harpe_text_printf(text, "# Iteration %d %s: ", number, what);
    append_float(text, value);
    harpe_text_printf(text, "\n");
}

void harpe_plan_file_format(harpe_text *text, const harpe_problem *problem, const harpe_plan *plan,
                            int number, double cost_change_j) {
    harpe_text_printf(text, "[\n");
    const int *frequency_mhz = plan->frequency_mhz;
    for (int rank = 0; rank < harpe_problem_rank_count(problem); rank++) {
        size_t length = harpe_problem_rank_length(problem, rank);
        harpe_text_printf(text, "[");
        for (size_t i = 0; i < length; i++) {
            harpe_text_printf(text, "%s('%s', %d)", i > 0 ? ", " : "",
                              harpe_problem_instruction_name(problem, rank, i), *frequency_mhz++);
        }
        harpe_text_printf(text, "],\n");
    }
    harpe_text_printf(text, "]\n");
    /* Other servers of this kind write the first three numbers, which are those of the GPUs. */
    double gpu_energy_j = plan->energy_j - plan->overhead_energy_j;
    double waiting_all_along_j = problem->total_blocking_power_w * plan->time_s;
    append_cost_line(text, number, "cost change", cost_change_j);
    append_cost_line(text, number, "total cost", gpu_energy_j - waiting_all_along_j);
    append_cost_line(text, number, "total cost with P2P", gpu_energy_j);
    if (plan->overhead_energy_j > 0)
        append_cost_line(text, number, "total cost with P2P and overhead", plan->energy_j);
}

harpe_status harpe_plan_file_write(const char *path, const harpe_problem *problem,
                                   const harpe_plan *plan, int number, double cost_change_j,
                                   harpe_error *error) {
    harpe_text text = {0};
    harpe_plan_file_format(&text, problem, plan, number, cost_change_j);
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}

/* ---- Plans of replicas ----------------------------------------------------------------------- */

/* Writes plans of replicas as plan files, with one list for each GPU. */

static void append_gpu(harpe_text *text, const harpe_replica_plans *plans, int replica, int rank,
                       int peer) {
    size_t count = 0;
    const int *mhz = harpe_replica_plans_frequencies(plans, replica, rank, peer, &count);
    harpe_text_printf(text, "[");
    for (size_t i = 0; i < count; i++)
        harpe_text_printf(text, "%s('%s', %d)", i > 0 ? ", " : "",
                          harpe_replica_plans_instruction_name(plans, rank, i), mhz[i]);
    harpe_text_printf(text, "],\n");
}

static void append_replica(harpe_text *text, const harpe_replica_plans *plans, int replica) {
    harpe_replica_job job = harpe_replica_plans_job(plans);
    for (int rank = 0; rank < job.rank_count; rank++)
        for (int peer = 0; peer < job.peer_count; peer++)
            append_gpu(text, plans, replica, rank, peer);
}

static harpe_status write_replicas(const harpe_replica_plans *plans, int first, int end,
                                   const char *path, harpe_error *error) {
    harpe_text text = {0};
    harpe_text_printf(&text, "[\n");
    for (int replica = first; replica < end; replica++)
        append_replica(&text, plans, replica);
    harpe_text_printf(&text, "]\n");
    harpe_status status = text.failed
                              ? harpe_fail_memory(error)
                              : harpe_file_write_one_of_many(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}

harpe_status harpe_replica_plans_write(const harpe_replica_plans *plans, const char *path,
                                       harpe_error *error) {
    return write_replicas(plans, 0, harpe_replica_plans_job(plans).replica_count, path, error);
}

harpe_status harpe_replica_plans_write_one(const harpe_replica_plans *plans, int replica,
                                           const char *path, harpe_error *error) {
    if (!harpe_replica_plans_at(plans, replica))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "there is no replica %d", replica);
    return write_replicas(plans, replica, replica + 1, path, error);
}
