/* SPDX-License-Identifier: Apache-2.0 */
/* Growing texts, safe text, and the text of metrics. */
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
/* Returns the appended bytes, which the caller frees with free(). If an allocation has failed,
 * frees them and returns NULL. */
char *harpe_text_take(harpe_text *text);

/* ---- Safe text ------------------------------------------------------------------------------- */

/* Makes texts from outside safe for terminals, logs and pictures. */

/* Returns the first character of `text`, which must not be empty. `*length` receives its length in
 * bytes. Returns -1 and the length 1 if the text does not begin with valid UTF-8. */
int32_t harpe_character(const char *text, size_t *length);
/* Returns true if the character may be shown. Returns false for -1, for control characters (C0,
 * DEL, C1), which terminals obey, and for characters that change the direction of text, separate
 * lines or are invisible. */
bool harpe_character_is_safe(int32_t code);
/* Returns how many bytes of `text` fit into `limit` bytes without cutting a character in two. */
size_t harpe_cut_length(const char *text, size_t limit);
/* Replaces every character that is not safe, and every byte that is not valid UTF-8, by '?'. */
void harpe_clean_in_place(char *text);

/* ---- Metrics --------------------------------------------------------------------------------- */

/* Prometheus' text format: the parts of /metrics. A metric is a head followed by its samples. A
 * sample is "NAME{LABEL="VALUE",...} NUMBER". */

#define HARPE_METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Appends the lines HELP and TYPE. `type` is "counter", "gauge" or "histogram". */
void harpe_metrics_text_head(harpe_text *text, const char *name, const char *type,
                             const char *help);
/* Appends a sample. `labels` is a list of names, each followed by its value; NULL ends it. */
void harpe_metrics_text_sample(harpe_text *text, const char *name, const char *const *labels,
                               double value);
/* Appends NAME="VALUE". Escapes quotes, backslashes and line ends, and replaces bytes that are not
 * UTF-8, because Prometheus refuses a whole page with such a byte. */
void harpe_metrics_text_label(harpe_text *text, const char *name, const char *value);
/* Appends a space, the number and a line end. The number may be infinite. */
void harpe_metrics_text_value(harpe_text *text, double value);

#endif
