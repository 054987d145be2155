/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as hexadecimal digits, two lower-case digits for each byte. */
#ifndef HARPE_BASE_HEX_H
#define HARPE_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* Writes 2 * `length` digits and a zero byte. */
void harpe_hex_put(char *text, const void *bytes, size_t length);
/* Reads `length` bytes from the 2 * `length` digits of `text`. Returns false if a character is not
 * a digit; the bytes are then undefined. Upper-case digits are refused. */
bool harpe_hex_take(const char *text, void *bytes, size_t length);

#endif
