/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON numbers and strings. Jansson quotes the strings. */
#include "base/json_text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void harpe_json_raw(harpe_text *text, const char *bytes) {
    harpe_text_append(text, bytes, strlen(bytes));
}

void harpe_json_number(harpe_text *text, const char *name, double value) {
    harpe_json_raw(text, name);
    if (isfinite(value))
        harpe_text_number(text, value);
    else
        harpe_json_raw(text, "null");
}

/* Makes a JSON string of a text that is not valid UTF-8, for example because it was cut when it was
 * stored. */
static json_t *clean_string(const char *value) {
    char *clean = strdup(value);
    if (!clean) return NULL;
    harpe_clean_in_place(clean);
    json_t *string = json_string(clean);
    free(clean);
    return string;
}

void harpe_json_string(harpe_text *text, const char *name, const char *value) {
    json_t *string = json_string(value);
    if (!string && value) string = clean_string(value);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    harpe_json_raw(text, name);
    harpe_json_raw(text, quoted ? quoted : "null");
    free(quoted);
    json_decref(string);
}
