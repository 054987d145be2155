/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text, and numbers read strictly, independent of the locale. */
#ifndef HARPE_BASE_TEXT_H
#define HARPE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>

/* Zero-initialise, then append; `failed` stays set after the first allocation that failed, so one
 * check at the end is enough. `data` is NUL-terminated (or NULL when nothing was appended). */
typedef struct harpe_text {
    char *data;
    size_t length;
    size_t capacity;
    bool failed;
} harpe_text;

void harpe_text_append(harpe_text *text, const char *bytes, size_t length);
void harpe_text_printf(harpe_text *text, const char *format, ...) HARPE_PRINTF(2, 3);
/* A finite number with the fewest digits that read back as the same double, '.' as separator. */
void harpe_text_number(harpe_text *text, double value);
/* `bytes` with &, <, > and quotes escaped for HTML and SVG. */
void harpe_text_html(harpe_text *text, const char *bytes);
void harpe_text_free(harpe_text *text);

/* Exactly one number, nothing before or after, '.' as decimal separator whatever the locale.
 * harpe_parse_double refuses NaN, infinities, hexadecimal and out-of-range values;
 * harpe_parse_int refuses anything but [+-]digits (a value such as 1410.0 is accepted by
 * harpe_parse_int_like, which takes a number without fractional part). False: `*value` untouched.
 */
bool harpe_parse_double(const char *text, size_t length, double *value);
bool harpe_parse_int(const char *text, size_t length, int64_t *value);
bool harpe_parse_int_like(const char *text, size_t length, int64_t *value);

/* A finite number as harpe_text_number appends it, NUL-terminated; returns its length, 0 when the C
 * library has no memory for its C locale. */
#define HARPE_NUMBER_SIZE 40
size_t harpe_print_number(char into[HARPE_NUMBER_SIZE], double value);

/* The number in JSON's notation that `text` begins with, as long as it gets: returns its length, 0
 * when there is none. `*value` is the closest double (infinite beyond the range of double, NaN for
 * numbers of more than 400 bytes); `*is_integer`: neither fraction nor exponent. */
size_t harpe_scan_number(const char *text, size_t length, double *value, bool *is_integer);

#endif
