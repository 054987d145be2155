/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text. */
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

#endif
