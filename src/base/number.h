/* SPDX-License-Identifier: Apache-2.0 */
/* Reads numbers strictly, and writes them, in any locale. */
#ifndef HARPE_BASE_NUMBER_H
#define HARPE_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Read exactly one number, with nothing before or after it and '.' as decimal separator in every
 * locale. harpe_parse_double refuses NaN, infinities, hexadecimal and values out of range.
 * harpe_parse_int accepts only [+-]digits. harpe_parse_int_like also accepts a number without a
 * fractional part, such as 1410.0. They return false on failure and then leave `*value`
 * unchanged. */
bool harpe_parse_double(const char *text, size_t length, double *value);
bool harpe_parse_int(const char *text, size_t length, int64_t *value);
bool harpe_parse_int_like(const char *text, size_t length, int64_t *value);

/* Reads the longest number in JSON's notation at the beginning of `text`. Returns its length, or 0
 * if there is none. `*value` is the closest double. It is infinite beyond the range of double, and
 * NaN for a number of more than 400 bytes. `*is_integer` is true if the number has neither a
 * fraction nor an exponent. */
size_t harpe_scan_number(const char *text, size_t length, double *value, bool *is_integer);

/* ---- Writing --------------------------------------------------------------------------------- */

/* Writes a finite number like harpe_text_number, NUL-terminated. Returns its length, or 0 if the
 * C library has no memory for its C locale. */
#define HARPE_NUMBER_SIZE 40 /* room for any number, also with its unit */
size_t harpe_print_number(char into[HARPE_NUMBER_SIZE], double value);

/* ---- Hexadecimal digits ---------------------------------------------------------------------- */

/* Writes 2 * `length` lower-case digits and a zero byte. */
void harpe_hex_put(char *text, const void *bytes, size_t length);
/* Reads `length` bytes from the 2 * `length` digits of `text`. Returns false if a character is not
 * a digit; the bytes are then undefined. Upper-case digits are refused. */
bool harpe_hex_take(const char *text, void *bytes, size_t length);

#endif
