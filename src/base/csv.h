/* SPDX-License-Identifier: Apache-2.0 */
/* Strict CSV reading with line and column. Understands a BOM, CRLF, blank lines, a missing final
 * newline and RFC 4180 quoting; knows nothing of what the columns mean. */
#ifndef HARPE_BASE_CSV_H
#define HARPE_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

typedef struct harpe_csv_field {
    const char *text; /* not NUL-terminated; outer white space and quotes removed */
    size_t length;
    int line;   /* 1-based line it starts on: a quoted field may span several */
    int column; /* 1-based byte column in that line */
} harpe_csv_field;

typedef struct harpe_csv {
    const char *name; /* file name for errors */
    int line;         /* 1-based line of the current record */
    harpe_csv_field *fields;
    size_t field_count;
    /* private */
    const char *cursor, *end;
    int next_line; /* lines before the cursor */
    size_t field_capacity;
    char *scratch; /* unescaped quoted fields of the current record */
    size_t scratch_capacity;
} harpe_csv;

/* `text` must outlive the reader; harpe_csv_close frees what the reader holds. */
void harpe_csv_open(harpe_csv *csv, const char *text, size_t length, const char *name);
void harpe_csv_close(harpe_csv *csv);

/* Moves to the next record that is not blank. `*has_record` is false at the end of the text. At
 * most 1,048,576 fields in a record. */
harpe_status harpe_csv_next(harpe_csv *csv, bool *has_record, harpe_error *error);
/* The same, but a blank line is a record with one empty field (where rows have positions). */
harpe_status harpe_csv_next_line(harpe_csv *csv, bool *has_record, harpe_error *error);

/* Field `index` of the current record as a number. Errors read like
 * "prof.csv:12:34: time: expected a number, found 'abc'". `what` is the column's name. */
harpe_status harpe_csv_double(const harpe_csv *csv, size_t index, const char *what, double *value,
                              harpe_error *error);
harpe_status harpe_csv_int(const harpe_csv *csv, size_t index, const char *what, int64_t *value,
                           harpe_error *error);

/* An error at a field of the current record: "name:line:column: <message> (found '<field>')". */
harpe_status harpe_csv_fail(const harpe_csv *csv, size_t index, harpe_error *error,
                            const char *format, ...) HARPE_PRINTF(4, 5);

#endif
