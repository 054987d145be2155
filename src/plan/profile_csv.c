/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes profiles as CSV: finds the columns, converts every record to a measurement, and
 * prints aggregated profiles. An invalid record gives an error that names file, line and column.
 * profile.c aggregates the rows. */
#include "plan/profiles.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/replicas.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text.h"

#define FILE_LIMIT_BYTES ((size_t)256 << 20)
#define HEADER_TEXT "stage,instruction,frequency,time,energy"
#define REPLICAS_TEXT "replica,gpu,"
#define FOUND_COLUMNS_SHOWN 12
#define FOUND_COLUMN_BYTES 24

/* The columns of a profile, in the order of harpe_profile_field; those from `rank` on are optional.
 * The columns of a profile of replicas follow, each with another name. */
enum {
    COLUMN_REPLICA = HARPE_FIELD_COUNT,
    COLUMN_PEER,
    COLUMN_OTHER_REPLICA,
    COLUMN_OTHER_PEER,
    COLUMN_COUNT,
};
static const char *const column_names[COLUMN_COUNT] = {
    "stage",          "instruction",    "frequency", "time", "energy",  "rank",   "gpus",
    "blocking_power", "switch_latency", "replica",   "gpu",  "dp_rank", "tp_rank"};

/* A file that is read. */
typedef struct reader {
    harpe_csv csv;
    size_t index[COLUMN_COUNT]; /* the place of each column; SIZE_MAX: not in this file */
    harpe_profile_rows *rows;
    harpe_profile_gpus *gpus; /* NULL: the file is not of replicas */
} reader;

/* ---- Header ---------------------------------------------------------------------------------- */

/* Fails with a message such as "missing columns 'time', 'energy' (found 'a', 'b')". The list of
 * found columns is complete unless it is very long. */
static harpe_status fail_missing(const reader *r, harpe_error *error) {
    const harpe_csv *csv = &r->csv;
    harpe_text missing = {0}, found = {0};
    int missing_count = 0;
    for (int f = 0; f < HARPE_FIELD_RANK; f++)
        if (r->index[f] == SIZE_MAX)
            harpe_text_printf(&missing, "%s'%s'", missing_count++ > 0 ? ", " : "", column_names[f]);
    if (missing_count == 0) harpe_text_printf(&missing, "'replica' or 'gpu'");
    for (size_t i = 0; i < csv->field_count && i < FOUND_COLUMNS_SHOWN; i++) {
        const harpe_csv_field *field = &csv->fields[i];
        bool is_cut = field->length > FOUND_COLUMN_BYTES;
        harpe_text_printf(&found, "%s'", i > 0 ? ", " : "");
        harpe_text_append(&found, field->text, is_cut ? FOUND_COLUMN_BYTES : field->length);
        harpe_text_printf(&found, "%s'", is_cut ? "..." : "");
    }
    if (csv->field_count > FOUND_COLUMNS_SHOWN)
        harpe_text_printf(&found, " and %zu more", csv->field_count - FOUND_COLUMNS_SHOWN);
    harpe_status status = HARPE_INVALID_INPUT;
    if (missing.failed || found.failed) {
        status = harpe_fail_memory(error);
    } else {
        harpe_fail(error, status,
                   "%s:%d:1: missing column%s %s (found %s); the first line must name the "
                   "columns %s" HEADER_TEXT,
                   csv->name, csv->line, missing_count > 1 ? "s" : "", missing.data, found.data,
                   r->gpus ? REPLICAS_TEXT : "");
    }
    harpe_text_free(&missing);
    harpe_text_free(&found);
    return status;
}

/* Finds the columns of a GPU's place under either of their names. */
static harpe_status find_places(reader *r, harpe_error *error) {
    size_t *index = r->index;
    for (int c = HARPE_FIELD_RANK; c <= HARPE_FIELD_GPUS; c++)
        if (index[c] != SIZE_MAX)
            return harpe_csv_fail(&r->csv, index[c], error,
                                  "a profile of replicas has the columns replica and gpu in place "
                                  "of rank and gpus; each row is of one GPU");
    index[HARPE_FIELD_SWITCH_LATENCY] = SIZE_MAX;
    for (int c = COLUMN_REPLICA; c <= COLUMN_PEER; c++) {
        int o = c + COLUMN_OTHER_REPLICA - COLUMN_REPLICA;
        if (index[c] != SIZE_MAX && index[o] != SIZE_MAX)
            return harpe_csv_fail(&r->csv, index[c] > index[o] ? index[c] : index[o], error,
                                  "this column is there twice; remove one");
        if (index[c] == SIZE_MAX) index[c] = index[o];
    }
    return HARPE_OK;
}

static harpe_status read_header(reader *r, harpe_error *error) {
    const char *expected = r->gpus ? "a header line " REPLICAS_TEXT HEADER_TEXT " and rows"
                                   : "a header line " HEADER_TEXT " and rows";
    harpe_status status =
        harpe_csv_header(&r->csv, column_names, r->gpus ? COLUMN_COUNT : HARPE_FIELD_COUNT,
                         expected, r->index, error);
    if (status == HARPE_OK && r->gpus) status = find_places(r, error);
    if (status != HARPE_OK) return status;
    bool is_complete =
        !r->gpus || r->index[COLUMN_REPLICA] != SIZE_MAX || r->index[COLUMN_PEER] != SIZE_MAX;
    for (int f = 0; f < HARPE_FIELD_RANK; f++)
        is_complete = is_complete && r->index[f] != SIZE_MAX;
    return is_complete ? HARPE_OK : fail_missing(r, error);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Returns a field of the current record, or NULL without its column. */
static const harpe_csv_field *field_of(const harpe_csv *csv, const size_t *index,
                                       harpe_profile_field field) {
    return index[field] == SIZE_MAX ? NULL : &csv->fields[index[field]];
}

/* Read a field. Return false if it is not a number. Without its column the value stays. */
static bool read_whole(const harpe_csv_field *field, bool may_have_point, int *value) {
    return !field || harpe_csv_field_whole(field, may_have_point, value);
}
static bool read_number(const harpe_csv_field *field, double *value) {
    return !field || harpe_parse_double(field->text, field->length, value);
}

/* Returns the first invalid field, or HARPE_FIELD_COUNT. A rank, GPUs or a blocking power that a
 * file does not know is left out with its column. */
static harpe_profile_field parse_row(const harpe_csv *csv, const size_t *index,
                                     harpe_measurement *row, size_t name_length) {
    const harpe_csv_field *of[HARPE_FIELD_COUNT];
    for (int f = 0; f < HARPE_FIELD_COUNT; f++)
        of[f] = field_of(csv, index, (harpe_profile_field)f);
    if (!read_whole(of[HARPE_FIELD_STAGE], false, &row->stage)) return HARPE_FIELD_STAGE;
    if (!read_whole(of[HARPE_FIELD_FREQUENCY], true, &row->frequency_mhz))
        return HARPE_FIELD_FREQUENCY;
    if (!read_number(of[HARPE_FIELD_TIME], &row->time_s)) return HARPE_FIELD_TIME;
    if (!read_number(of[HARPE_FIELD_ENERGY], &row->energy_j)) return HARPE_FIELD_ENERGY;
    if (!read_whole(of[HARPE_FIELD_RANK], false, &row->rank) ||
        (of[HARPE_FIELD_RANK] && row->rank < 0))
        return HARPE_FIELD_RANK;
    if (!read_whole(of[HARPE_FIELD_GPUS], true, &row->gpu_count) || row->gpu_count < 1)
        return HARPE_FIELD_GPUS;
    if (!read_number(of[HARPE_FIELD_BLOCKING_POWER], &row->blocking_power_w) ||
        (of[HARPE_FIELD_BLOCKING_POWER] && row->blocking_power_w <= 0))
        return HARPE_FIELD_BLOCKING_POWER;
    if (!read_number(of[HARPE_FIELD_SWITCH_LATENCY], &row->switch_latency_s))
        return HARPE_FIELD_SWITCH_LATENCY;
    return harpe_profile_row_fault(row, name_length);
}

/* Reads the number of a replica or of a peer; 0 without the column. */
static harpe_status read_place(const reader *r, int c, int *place, harpe_error *error) {
    *place = 0;
    if (r->index[c] == SIZE_MAX) return HARPE_OK;
    if (harpe_csv_field_whole(&r->csv.fields[r->index[c]], true, place) && *place >= 0 &&
        *place < HARPE_REPLICAS_MAX)
        return HARPE_OK;
    return harpe_csv_fail(&r->csv, r->index[c], error, "%s must be a whole number from 0 to %d",
                          column_names[c], HARPE_REPLICAS_MAX - 1);
}

/* Reads the GPU of the row that is read next. */
static harpe_status read_gpu(const reader *r, harpe_error *error) {
    harpe_profile_gpus *gpus = r->gpus;
    int replica, peer;
    harpe_status status = read_place(r, COLUMN_REPLICA, &replica, error);
    if (status == HARPE_OK) status = read_place(r, COLUMN_PEER, &peer, error);
    if (status != HARPE_OK) return status;
    if (!HARPE_ARRAY_RESERVE(gpus->rows, gpus->capacity, r->rows->count + 1))
        return harpe_fail_memory(error);
    gpus->rows[r->rows->count] = (harpe_profile_gpu_row){replica, peer, r->rows->count};
    if (replica >= gpus->replica_count) gpus->replica_count = replica + 1;
    if (peer >= gpus->peer_count) gpus->peer_count = peer + 1;
    return HARPE_OK;
}

static harpe_status read_row(const reader *r, harpe_error *error) {
    const harpe_csv *csv = &r->csv;
    const harpe_csv_field *name = &csv->fields[r->index[HARPE_FIELD_INSTRUCTION]];
    harpe_measurement row = {.rank = -1, .instruction = name->text, .gpu_count = 1};
    harpe_status status = r->gpus ? read_gpu(r, error) : HARPE_OK;
    if (status != HARPE_OK) return status;
    harpe_profile_field fault = parse_row(csv, r->index, &row, name->length);
    if (fault != HARPE_FIELD_COUNT)
        return harpe_csv_fail(csv, r->index[fault], error, "%s", harpe_profile_field_rule(fault));
    harpe_error detail;
    status = harpe_profile_rows_add(r->rows, &row, name->length, (uint32_t)csv->line, &detail);
    if (status != HARPE_OK)
        return harpe_fail(error, status, "%s:%d:1: %s", csv->name, csv->line, detail.message);
    return HARPE_OK;
}

static harpe_status read_rows(reader *r, harpe_error *error) {
    harpe_status status = read_header(r, error);
    int header_line = r->csv.line;
    for (bool has_record = true; status == HARPE_OK && has_record;) {
        status = harpe_csv_next(&r->csv, &has_record, error);
        if (status == HARPE_OK && has_record) status = read_row(r, error);
    }
    if (status == HARPE_OK && r->rows->count == 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d:1: no rows after the header; expected a row for every %s, "
                          "instruction and frequency",
                          r->csv.name, header_line + 1, r->gpus ? "GPU" : "stage");
    return status;
}

harpe_status harpe_profile_csv_parse(const char *text, size_t length, const char *name,
                                     harpe_profile_gpus *gpus, harpe_profile_rows *rows,
                                     harpe_error *error) {
    if ((!text && length > 0) || !name)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "parsing a profile needs a text and its name");
    if (length > FILE_LIMIT_BYTES)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%s: larger than %zu MiB; average the repeats before planning", name,
                          FILE_LIMIT_BYTES >> 20);
    reader r = {.rows = rows, .gpus = gpus};
    harpe_csv_open(&r.csv, text ? text : "", length, name);
    harpe_status status = read_rows(&r, error);
    harpe_csv_close(&r.csv);
    return status;
}

/* ---- Public ---------------------------------------------------------------------------------- */

harpe_status harpe_profile_parse_csv(const char *text, size_t length, const char *name,
                                     harpe_profile **out, harpe_error *error) {
    if (!out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "parsing a profile needs a place for the result");
    harpe_profile_rows rows = {0};
    harpe_status status = harpe_profile_csv_parse(text, length, name, NULL, &rows, error);
    if (status == HARPE_OK) status = harpe_profile_rows_finish(&rows, name, out, error);
    harpe_profile_rows_clear(&rows);
    return status;
}

harpe_status harpe_profile_csv_load(const char *path, char **text, size_t *length,
                                    harpe_error *error) {
    if (!path) return harpe_fail(error, HARPE_INVALID_ARGUMENT, "reading a profile needs a path");
    return harpe_file_read(path, FILE_LIMIT_BYTES, text, length, error);
}

harpe_status harpe_profile_read_csv(const char *path, harpe_profile **out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_profile_csv_load(path, &text, &length, error);
    if (status == HARPE_OK) status = harpe_profile_parse_csv(text, length, path, out, error);
    free(text);
    return status;
}

static bool has_several_gpus(const harpe_profile *profile) {
    for (int stage = 0; stage < harpe_profile_stage_count(profile); stage++)
        if (harpe_profile_gpu_count(profile, stage) > 1) return true;
    return false;
}

bool harpe_profile_has_blocking_powers(const harpe_profile *profile) {
    for (int stage = 0; stage < harpe_profile_stage_count(profile); stage++)
        if (harpe_profile_blocking_power_w(profile, stage) <= 0) return false;
    return true;
}

/* Prints the optional fields of a point. */
static void print_fields(const harpe_profile *profile, int stage, int frequency_mhz, bool with_gpus,
                         bool with_power, harpe_text *text) {
    if (with_gpus) harpe_text_printf(text, ",%d", harpe_profile_gpu_count(profile, stage));
    if (with_power) {
        harpe_text_append(text, ",", 1);
        harpe_text_number(text, harpe_profile_blocking_power_w(profile, stage));
    }
    if (harpe_profile_has_switch_latency(profile)) {
        harpe_text_append(text, ",", 1);
        harpe_text_number(text, harpe_profile_switch_latency_s(profile, stage, frequency_mhz));
    }
}

void harpe_profile_print_rows(const harpe_profile *profile, const char *place, bool with_gpus,
                              bool with_power, harpe_text *text) {
    for (size_t i = 0; i < harpe_profile_entry_count(profile); i++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, i);
        for (size_t k = 0; k < entry->point_count; k++) {
            const harpe_profile_point *point = &entry->points[k];
            harpe_text_printf(text, "%s%d,%s,%d,", place, entry->stage, entry->instruction,
                              point->frequency_mhz);
            harpe_text_number(text, point->time_s);
            harpe_text_append(text, ",", 1);
            harpe_text_number(text, point->energy_j);
            print_fields(profile, entry->stage, point->frequency_mhz, with_gpus, with_power, text);
            harpe_text_append(text, "\n", 1);
        }
    }
}

void harpe_profile_print_csv(const harpe_profile *profile, harpe_text *text) {
    bool with_gpus = has_several_gpus(profile);
    bool with_power = harpe_profile_has_blocking_powers(profile);
    harpe_text_printf(text, HEADER_TEXT "%s%s%s\n", with_gpus ? ",gpus" : "",
                      with_power ? ",blocking_power" : "",
                      harpe_profile_has_switch_latency(profile) ? ",switch_latency" : "");
    harpe_profile_print_rows(profile, "", with_gpus, with_power, text);
}

harpe_status harpe_profile_write_csv(const harpe_profile *profile, const char *path,
                                     harpe_error *error) {
    if (!profile || !path)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "writing a profile needs a profile and a path");
    harpe_text text = {0};
    harpe_profile_print_csv(profile, &text);
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}
