/* SPDX-License-Identifier: Apache-2.0 */
/* Splits CSV text into records and fields, in place, and reads fields as numbers. Every profile
 * and schedule file is read with this code. It refuses malformed CSV and does not interpret
 * columns. */
#include "base/csv.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/number.h"

enum {
    SHOWN_FIELD_BYTES = 40, /* most bytes of an invalid field that a message shows */
    FIELDS_MAX = 1 << 20,   /* in one record; a schedule has one cell for each step of a rank */
};

/* The position of the scan. Lines and columns count from 1. A column is one byte. */
typedef struct scan {
    harpe_csv *csv;
    const char *at;
    const char *line_start;
    int line;
    bool record_ended;
} scan;

void harpe_csv_open(harpe_csv *csv, const char *text, size_t length, const char *name) {
    text = length > 0 ? text : "";
    *csv = (harpe_csv){.name = name, .cursor = text, .end = text + length};
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) csv->cursor += 3;
}

void harpe_csv_close(harpe_csv *csv) {
    free(csv->fields);
    free(csv->scratch);
    *csv = (harpe_csv){0};
}

static bool is_space(char c) { return c == ' ' || c == '\t'; }

static int column_of(const scan *s, const char *position) {
    return (int)(position - s->line_start) + 1;
}

static harpe_status malformed(const scan *s, const char *position, harpe_error *error,
                              const char *message) {
    return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d:%d: %s", s->csv->name, s->line,
                      column_of(s, position), message);
}

/* Returns the length of the line end at `at` (LF or CRLF), or 0. */
static size_t line_end_length(const char *at, const char *end) {
    if (at < end && *at == '\n') return 1;
    if (end - at >= 2 && at[0] == '\r' && at[1] == '\n') return 2;
    return 0;
}

static void pass_line_end(scan *s, size_t length) {
    s->at += length;
    s->line_start = s->at;
    s->line++;
}

static harpe_status add_field(scan *s, harpe_csv_field field, harpe_error *error) {
    harpe_csv *csv = s->csv;
    if (csv->field_count == FIELDS_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s:%d:%d: more than %d fields in one row",
                          csv->name, field.line, field.column, FIELDS_MAX);
    }
    if (!HARPE_ARRAY_RESERVE(csv->fields, csv->field_capacity, csv->field_count + 1))
        return harpe_fail_memory(error);
    csv->fields[csv->field_count++] = field;
    return HARPE_OK;
}

/* Makes room for unescaped text. The buffer is allocated once and is large enough for all remaining
 * text. So it never moves, and the fields of a record can point into it. */
static harpe_status reserve_scratch(harpe_csv *csv, harpe_error *error) {
    if (csv->scratch) return HARPE_OK;
    size_t size = (size_t)(csv->end - csv->cursor);
    csv->scratch = harpe_calloc(size, 1);
    if (!csv->scratch) return harpe_fail_memory(error);
    csv->scratch_capacity = size;
    return HARPE_OK;
}

/* Moves past the closing quote. `*escape_count` receives the number of doubled quotes. */
static harpe_status find_closing_quote(scan *s, size_t *escape_count, harpe_error *error) {
    const scan opening = *s;
    const char *end = s->csv->end;
    *escape_count = 0;
    for (s->at++; s->at < end;) {
        size_t line_end = line_end_length(s->at, end);
        if (line_end > 0) {
            pass_line_end(s, line_end);
        } else if (*s->at == '\0') {
            return malformed(s, s->at, error, "a zero byte; this is not a text file");
        } else if (*s->at != '"') {
            s->at++;
        } else if (end - s->at >= 2 && s->at[1] == '"') {
            s->at += 2;
            (*escape_count)++;
        } else {
            s->at++;
            return HARPE_OK;
        }
    }
    return malformed(&opening, opening.at, error, "this quote is never closed");
}

static const char *unescape(char *into, const char *from, size_t length) {
    char *to = into;
    for (size_t i = 0; i < length; i++) {
        *to++ = from[i];
        if (from[i] == '"') i++; /* the second quote of a pair */
    }
    return into;
}

/* Reads a quoted field. `*scratch_used` counts the bytes that this record's fields occupy in the
 * scratch text. */
static harpe_status scan_quoted(scan *s, size_t *scratch_used, harpe_error *error) {
    harpe_csv_field field = {.line = s->line, .column = column_of(s, s->at)};
    const char *content = s->at + 1;
    size_t escape_count;
    harpe_status status = find_closing_quote(s, &escape_count, error);
    if (status != HARPE_OK) return status;
    size_t raw_length = (size_t)(s->at - 1 - content);
    field.text = content;
    field.length = raw_length - escape_count;
    if (escape_count > 0) {
        status = reserve_scratch(s->csv, error);
        if (status != HARPE_OK) return status;
        field.text = unescape(s->csv->scratch + *scratch_used, content, raw_length);
        *scratch_used += field.length;
    }
    while (s->at < s->csv->end && is_space(*s->at))
        s->at++;
    if (s->at < s->csv->end && *s->at != ',' && line_end_length(s->at, s->csv->end) == 0)
        return malformed(s, s->at, error, "text after a closing quote; expected a comma");
    return add_field(s, field, error);
}

static harpe_status scan_unquoted(scan *s, harpe_error *error) {
    const char *start = s->at;
    const char *end = s->csv->end;
    for (; s->at < end && *s->at != ','; s->at++) {
        if (line_end_length(s->at, end) > 0) break;
        if (*s->at == '\0')
            return malformed(s, s->at, error, "a zero byte; this is not a text file");
        if (*s->at == '"') return malformed(s, s->at, error, "a quote inside an unquoted field");
        if (*s->at == '\r')
            return malformed(s, s->at, error, "a carriage return without a line feed");
    }
    const char *stop = s->at;
    while (stop > start && is_space(stop[-1]))
        stop--;
    harpe_csv_field field = {
        .text = start,
        .length = (size_t)(stop - start),
        .line = s->line,
        .column = column_of(s, start),
    };
    return add_field(s, field, error);
}

/* Reads one field and the comma or line end after it. */
static harpe_status scan_field(scan *s, size_t *scratch_used, harpe_error *error) {
    const char *end = s->csv->end;
    while (s->at < end && is_space(*s->at))
        s->at++;
    bool is_quoted = s->at < end && *s->at == '"';
    harpe_status status = is_quoted ? scan_quoted(s, scratch_used, error) : scan_unquoted(s, error);
    if (status != HARPE_OK) return status;
    if (s->at < end && *s->at == ',') {
        s->at++;
        return HARPE_OK;
    }
    s->record_ended = true;
    size_t line_end = line_end_length(s->at, end);
    if (line_end > 0) pass_line_end(s, line_end);
    return HARPE_OK;
}

/* Returns true for a blank line: one unquoted field with nothing but white space. */
static bool record_is_blank(const harpe_csv *csv) {
    return csv->field_count == 1 && csv->fields[0].length == 0 &&
           (csv->fields[0].text == csv->end || csv->fields[0].text[0] != '"');
}

harpe_status harpe_csv_next_line(harpe_csv *csv, bool *has_record, harpe_error *error) {
    if (csv->end - csv->cursor > INT_MAX - 1)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: larger than 2 GiB", csv->name);
    csv->field_count = 0;
    if (csv->cursor == csv->end) {
        *has_record = false;
        return HARPE_OK;
    }
    scan s = {.csv = csv, .at = csv->cursor, .line_start = csv->cursor, .line = csv->next_line + 1};
    csv->line = s.line;
    size_t scratch_used = 0;
    while (!s.record_ended) {
        harpe_status status = scan_field(&s, &scratch_used, error);
        if (status != HARPE_OK) return status;
    }
    csv->cursor = s.at;
    csv->next_line = s.line - 1;
    *has_record = true;
    return HARPE_OK;
}

harpe_status harpe_csv_next(harpe_csv *csv, bool *has_record, harpe_error *error) {
    harpe_status status;
    do {
        status = harpe_csv_next_line(csv, has_record, error);
    } while (status == HARPE_OK && *has_record && record_is_blank(csv));
    size_t count = csv->field_count, expected = csv->header_count;
    if (status != HARPE_OK || !*has_record || expected == 0 || count == expected) return status;
    return harpe_csv_fail(csv, count > expected ? expected : count - 1, error,
                          "expected %zu fields as in the header, not %zu", expected, count);
}

harpe_status harpe_csv_header(harpe_csv *csv, const char *const *names, size_t count,
                              const char *expected, size_t *index, harpe_error *error) {
    bool has_record = false;
    harpe_status status = harpe_csv_next(csv, &has_record, error);
    if (status != HARPE_OK) return status;
    if (!has_record)
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s:1:1: the file is empty; expected %s",
                          csv->name, expected);
    csv->header_count = csv->field_count;
    for (size_t c = 0; c < count; c++) {
        index[c] = SIZE_MAX;
        for (size_t i = 0; i < csv->field_count; i++) {
            if (!harpe_csv_field_is(&csv->fields[i], names[c])) continue;
            if (index[c] != SIZE_MAX)
                return harpe_csv_fail(csv, i, error, "this column is there twice; remove one");
            index[c] = i;
        }
    }
    return HARPE_OK;
}

/* Writes "name:line:column", or "name:line" for a field that the record does not have. */
static void describe_position(const harpe_csv *csv, size_t index, char *into, size_t size) {
    if (index < csv->field_count) {
        (void)snprintf(into, size, "%s:%d:%d", csv->name, csv->fields[index].line,
                       csv->fields[index].column);
    } else {
        (void)snprintf(into, size, "%s:%d", csv->name, csv->line);
    }
}

/* Writes "found 'abc'", with the field cut to a readable length. */
static void describe_field(const harpe_csv *csv, size_t index, char *into, size_t size) {
    if (index >= csv->field_count) {
        (void)snprintf(into, size, "the row ends after %zu field%s", csv->field_count,
                       csv->field_count == 1 ? "" : "s");
        return;
    }
    const harpe_csv_field *field = &csv->fields[index];
    bool is_long = field->length > SHOWN_FIELD_BYTES;
    if (field->length == 0) {
        (void)snprintf(into, size, "found nothing");
    } else {
        (void)snprintf(into, size, "found '%.*s%s'",
                       is_long ? SHOWN_FIELD_BYTES : (int)field->length, field->text,
                       is_long ? "..." : "");
    }
}

static harpe_status fail_expected(const harpe_csv *csv, size_t index, const char *what,
                                  const char *expected, harpe_error *error) {
    char position[HARPE_ERROR_MESSAGE_SIZE];
    char found[SHOWN_FIELD_BYTES + 64];
    describe_position(csv, index, position, sizeof position);
    describe_field(csv, index, found, sizeof found);
    return harpe_fail(error, HARPE_INVALID_INPUT, "%s: %s: expected %s, %s", position, what,
                      expected, found);
}

bool harpe_csv_field_is(const harpe_csv_field *field, const char *text) {
    return text && field->length == strlen(text) && memcmp(field->text, text, field->length) == 0;
}

bool harpe_csv_field_whole(const harpe_csv_field *field, bool may_have_point, int *value) {
    int64_t number = 0;
    bool is_number = may_have_point ? harpe_parse_int_like(field->text, field->length, &number)
                                    : harpe_parse_int(field->text, field->length, &number);
    if (!is_number || number < INT32_MIN || number > INT32_MAX) return false;
    *value = (int)number;
    return true;
}

harpe_status harpe_csv_double(const harpe_csv *csv, size_t index, const char *what, double *value,
                              harpe_error *error) {
    if (index < csv->field_count &&
        harpe_parse_double(csv->fields[index].text, csv->fields[index].length, value))
        return HARPE_OK;
    return fail_expected(csv, index, what, "a number", error);
}

harpe_status harpe_csv_int(const harpe_csv *csv, size_t index, const char *what, int64_t *value,
                           harpe_error *error) {
    if (index < csv->field_count &&
        harpe_parse_int_like(csv->fields[index].text, csv->fields[index].length, value))
        return HARPE_OK;
    return fail_expected(csv, index, what, "a whole number", error);
}

harpe_status harpe_csv_fail(const harpe_csv *csv, size_t index, harpe_error *error,
                            const char *format, ...) {
    char position[HARPE_ERROR_MESSAGE_SIZE];
    char found[SHOWN_FIELD_BYTES + 64];
    char message[HARPE_ERROR_MESSAGE_SIZE];
    describe_position(csv, index, position, sizeof position);
    describe_field(csv, index, found, sizeof found);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return harpe_fail(error, HARPE_INVALID_INPUT, "%s: %s (%s)", position, message, found);
}
