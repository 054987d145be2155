/* SPDX-License-Identifier: Apache-2.0 */
/* Reads CSV strictly and reports line and column. Accepts a byte-order mark, CRLF, blank lines,
 * a missing final newline and RFC 4180 quoting. Does not interpret columns. */
#ifndef HARPE_BASE_CSV_H
#define HARPE_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

typedef struct harpe_csv_field {
    const char *text; /* not NUL-terminated; without the white space and the quotes around it */
    size_t length;
    int line;   /* line on which the field starts, from 1; a quoted field may span several lines */
    int column; /* byte column in that line, from 1 */
} harpe_csv_field;

typedef struct harpe_csv {
    const char *name; /* file name in errors */
    int line;         /* line of the current record, from 1 */
    harpe_csv_field *fields;
    size_t field_count;
    size_t header_count; /* fields of the header; 0: records may have any number of fields */
    /* private */
    const char *cursor, *end;
    int next_line; /* number of lines before the cursor */
    size_t field_capacity;
    char *scratch; /* unescaped quoted fields of the current record */
    size_t scratch_capacity;
} harpe_csv;

/* Starts a reader. `text` must outlive the reader. harpe_csv_close frees the reader's memory. */
void harpe_csv_open(harpe_csv *csv, const char *text, size_t length, const char *name);
void harpe_csv_close(harpe_csv *csv);

/* Moves to the next record that is not blank. `*has_record` is false at the end of the text. A
 * record has at most 1,048,576 fields, and after a header as many as the header. */
harpe_status harpe_csv_next(harpe_csv *csv, bool *has_record, harpe_error *error);
/* Does the same, but returns a blank line as a record with one empty field. Use it for files in
 * which the position of a row matters. */
harpe_status harpe_csv_next_line(harpe_csv *csv, bool *has_record, harpe_error *error);

/* Returns whether a field is equal to a text; NULL is equal to none. */
bool harpe_csv_field_is(const harpe_csv_field *field, const char *text);

/* Reads a field such as "1410", with `may_have_point` also "1410.0". Returns false if it is not a
 * whole number that fits into an int. */
bool harpe_csv_field_whole(const harpe_csv_field *field, bool may_have_point, int *value);

/* Reads the header, and finds the columns with these names. `index[c]` receives the index of the
 * field with the name `names[c]`, or SIZE_MAX if there is none. Other columns are ignored. Fails if
 * a column is there twice, or if the file is empty; the message then names what was `expected`. */
harpe_status harpe_csv_header(harpe_csv *csv, const char *const *names, size_t count,
                              const char *expected, size_t *index, harpe_error *error);

/* Reads field `index` of the current record as a number. Errors read like "prof.csv:12:34: time:
 * expected a number, found 'abc'". `what` is the column's name. */
harpe_status harpe_csv_double(const harpe_csv *csv, size_t index, const char *what, double *value,
                              harpe_error *error);
harpe_status harpe_csv_int(const harpe_csv *csv, size_t index, const char *what, int64_t *value,
                           harpe_error *error);

/* Fails with an error about a field of the current record: "name:line:column: <message> (found
 * '<field>')". */
harpe_status harpe_csv_fail(const harpe_csv *csv, size_t index, harpe_error *error,
                            const char *format, ...) HARPE_PRINTF(4, 5);

#endif
