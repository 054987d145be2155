/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text, and strict reading of numbers in any locale. */
#ifndef HARPE_BASE_TEXT_H
#define HARPE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>

/* Initialise with zeros, then append. `failed` stays set after the first failed allocation, so
 * one check at the end suffices. `data` ends in NUL, or is NULL if nothing was appended. */
typedef struct harpe_text {
    char *data;
    size_t length;
    size_t capacity;
    bool failed;
} harpe_text;

void harpe_text_append(harpe_text *text, const char *bytes, size_t length);
void harpe_text_printf(harpe_text *text, const char *format, ...) HARPE_PRINTF(2, 3);
/* Appends a finite number with the fewest digits that read back as the same double. The
 * separator is '.'. */
void harpe_text_number(harpe_text *text, double value);
/* Appends `bytes` with &, <, > and quotes escaped for HTML and SVG. */
void harpe_text_html(harpe_text *text, const char *bytes);
void harpe_text_free(harpe_text *text);

/* Read exactly one number, with nothing before or after it and '.' as decimal separator in every
 * locale. harpe_parse_double refuses NaN, infinities, hexadecimal and values out of range.
 * harpe_parse_int accepts only [+-]digits. harpe_parse_int_like also accepts a number without a
 * fractional part, such as 1410.0. They return false on failure and then leave `*value`
 * unchanged. */
bool harpe_parse_double(const char *text, size_t length, double *value);
bool harpe_parse_int(const char *text, size_t length, int64_t *value);
bool harpe_parse_int_like(const char *text, size_t length, int64_t *value);

/* Writes a finite number like harpe_text_number, NUL-terminated. Returns its length, or 0 if the
 * C library has no memory for its C locale. */
#define HARPE_NUMBER_SIZE 40
size_t harpe_print_number(char into[HARPE_NUMBER_SIZE], double value);

/* Reads the longest number in JSON's notation at the beginning of `text`. Returns its length, or 0
 * if there is none. `*value` is the closest double. It is infinite beyond the range of double, and
 * NaN for a number of more than 400 bytes. `*is_integer` is true if the number has neither a
 * fraction nor an exponent. */
size_t harpe_scan_number(const char *text, size_t length, double *value, bool *is_integer);

#endif
