/* SPDX-License-Identifier: Apache-2.0 */
/* Writes Prometheus' text format, version 0.0.4. */
#include "base/metrics_text.h"

#include <math.h>

void harpe_metrics_text_head(harpe_text *text, const char *name, const char *type,
                             const char *help) {
    harpe_text_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Returns the length of the UTF-8 character at the beginning of a text that ends with NUL; 0: the
 * bytes are no such character. */
static size_t character_length(const unsigned char *bytes) {
    unsigned char first = bytes[0];
    if (first < 0x80) return 1;
    size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first < 0xC2 || first > 0xF4) return 0;
    for (size_t i = 1; i < length; i++)
        if ((bytes[i] & 0xC0) != 0x80) return 0;
    bool is_overlong = (first == 0xE0 && bytes[1] < 0xA0) || (first == 0xF0 && bytes[1] < 0x90);
    bool is_surrogate = first == 0xED && bytes[1] >= 0xA0;
    bool is_too_large = first == 0xF4 && bytes[1] >= 0x90;
    return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

void harpe_metrics_text_label(harpe_text *text, const char *name, const char *value) {
    harpe_text_printf(text, "%s=\"", name);
    while (*value) {
        size_t length = character_length((const unsigned char *)value);
        if (length == 0)
            harpe_text_append(text, "?", 1);
        else if (*value == '\n')
            harpe_text_append(text, "\\n", 2);
        else if (*value == '"' || *value == '\\')
            harpe_text_printf(text, "\\%c", *value);
        else
            harpe_text_append(text, value, length);
        value += length > 0 ? length : 1;
    }
    harpe_text_append(text, "\"", 1);
}

void harpe_metrics_text_value(harpe_text *text, double value) {
    harpe_text_append(text, " ", 1);
    if (isnan(value))
        harpe_text_printf(text, "NaN");
    else if (isinf(value))
        harpe_text_printf(text, value > 0 ? "+Inf" : "-Inf");
    else
        harpe_text_number(text, value);
    harpe_text_append(text, "\n", 1);
}
