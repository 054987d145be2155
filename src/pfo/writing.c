/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the pieces of compact JSON. */
#include "pfo/writing.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "pfo/utf8.h"

void harpe_write_raw(harpe_text *text, const char *literal) {
    harpe_text_append(text, literal, strlen(literal));
}

/* Does not use snprintf, which would be slow: the messages of a large job contain a million
 * integers.
 */
void harpe_write_int_member(harpe_text *text, const char *literal, int value) {
    char digits[16];
    char *first = digits + sizeof digits;
    unsigned rest = value < 0 ? 0U - (unsigned)value : (unsigned)value;
    do {
        *--first = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) *--first = '-';
    harpe_write_raw(text, literal);
    harpe_text_append(text, first, (size_t)(digits + sizeof digits - first));
}

static bool is_plain(char c) { return (unsigned char)c >= 0x20 && c != '"' && c != '\\'; }

/* Writes one character that must be escaped. */
static void write_escaped(harpe_text *text, char c) {
    char escape[8];
    int length;
    if (c == '"' || c == '\\')
        length = snprintf(escape, sizeof escape, "\\%c", c);
    else if ((unsigned char)c < 0x20)
        length = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)c);
    else
        length = snprintf(escape, sizeof escape, "\xEF\xBF\xBD");
    harpe_text_append(text, escape, (size_t)length);
}

void harpe_write_text_member(harpe_text *text, const char *literal, const char *value) {
    harpe_write_raw(text, literal);
    if (!value) {
        harpe_write_raw(text, "null");
        return;
    }
    harpe_write_raw(text, "\"");
    size_t length = strlen(value);
    size_t at = 0;
    while (at < length) {
        size_t valid_end = at + harpe_utf8_span(value + at, length - at);
        while (at < valid_end) {
            size_t start = at;
            while (at < valid_end && is_plain(value[at]))
                at++;
            harpe_text_append(text, value + start, at - start);
            if (at < valid_end) write_escaped(text, value[at++]);
        }
        if (at < length) write_escaped(text, value[at++]);
    }
    harpe_write_raw(text, "\"");
}

harpe_status harpe_write_end(harpe_text *text, char **json, harpe_error *error) {
    if (text->failed) {
        harpe_text_free(text);
        return harpe_fail_memory(error);
    }
    *json = text->data;
    return HARPE_OK;
}
