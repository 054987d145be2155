/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text, used to build reports, plan files and JSON before they are written at once.
 * Numbers look the same in every locale. */
#include "base/text.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/number.h"

/* Makes room for `more` bytes and the NUL after them. */
static bool make_room(harpe_text *text, size_t more) {
    size_t needed;
    if (text->failed) return false;
    if (__builtin_add_overflow(text->length, more, &needed) ||
        __builtin_add_overflow(needed, 1, &needed) ||
        !HARPE_ARRAY_RESERVE(text->data, text->capacity, needed)) {
        text->failed = true;
        return false;
    }
    return true;
}

void harpe_text_append(harpe_text *text, const char *bytes, size_t length) {
    if (!make_room(text, length)) return;
    if (length > 0) memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

static void append_formatted(harpe_text *text, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

static void append_formatted(harpe_text *text, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length < 0) {
        text->failed = true;
    } else if (make_room(text, (size_t)length)) {
        (void)vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void harpe_text_printf(harpe_text *text, const char *format, ...) {
    /* This changes the locale of this thread, not that of the process, so other threads are not
     * affected. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) {
        text->failed = true;
        return;
    }
    locale_t previous = uselocale(c_locale);
    va_list arguments;
    va_start(arguments, format);
    append_formatted(text, format, arguments);
    va_end(arguments);
    (void)uselocale(previous);
    freelocale(c_locale);
}

void harpe_text_number(harpe_text *text, double value) {
    char number[HARPE_NUMBER_SIZE];
    size_t length = harpe_print_number(number, value);
    text->failed |= length == 0;
    harpe_text_append(text, number, length);
}

static const char *html_escape_of(char byte) {
    switch (byte) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void harpe_text_html(harpe_text *text, const char *bytes) {
    const char *plain = bytes;
    for (; *bytes != '\0'; bytes++) {
        const char *escape = html_escape_of(*bytes);
        if (escape) {
            harpe_text_append(text, plain, (size_t)(bytes - plain));
            harpe_text_append(text, escape, strlen(escape));
            plain = bytes + 1;
        }
    }
    harpe_text_append(text, plain, (size_t)(bytes - plain));
}

void harpe_text_free(harpe_text *text) {
    free(text->data);
    *text = (harpe_text){0};
}

char *harpe_text_take(harpe_text *text) {
    if (text->failed) harpe_text_free(text);
    char *taken = text->data;
    *text = (harpe_text){0};
    return taken;
}

/* ---- Safe text ------------------------------------------------------------------------------- */

/* Returns the length in bytes of a UTF-8 sequence that begins with the byte `first`. Returns 0 if
 * no sequence begins with this byte. */
static size_t sequence_length(unsigned char first) {
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
}

int32_t harpe_character(const char *text, size_t *length) {
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    size_t count = sequence_length(bytes[0]);
    *length = 1;
    if (count <= 1) return count == 1 ? bytes[0] : -1;
    uint32_t code = bytes[0] & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return -1;
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (code < smallest[count] || code > 0x10ffff || is_surrogate || (code & 0xfffe) == 0xfffe)
        return -1;
    *length = count;
    return (int32_t)code;
}

bool harpe_character_is_safe(int32_t code) {
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false; /* C0, DEL, C1 */
    if (code < 0x61c) return true;
    bool is_separator = code == 0x2028 || code == 0x2029;
    bool is_direction = code == 0x61c || code == 0x200e || code == 0x200f ||
                        (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    bool is_hidden = code == 0xfeff || (code >= 0xfff9 && code <= 0xfffb) ||
                     (code >= 0xe0000 && code <= 0xe007f);
    return !is_separator && !is_direction && !is_hidden;
}

size_t harpe_cut_length(const char *text, size_t limit) {
    size_t length = strnlen(text, limit + 1);
    if (length <= limit) return length;
    size_t start = limit;
    while (start > 0 && limit - start < 3 && ((unsigned char)text[start] & 0xc0) == 0x80)
        start--;
    size_t whole = sequence_length((unsigned char)text[start]);
    return whole > 1 && start + whole > limit ? start : limit;
}

void harpe_clean_in_place(char *text) {
    while (*text >= 0x20 && *text < 0x7f) /* usually all characters */
        text++;
    char *to = text;
    for (const char *from = text; *from;) {
        size_t length;
        bool is_safe = harpe_character_is_safe(harpe_character(from, &length));
        if (is_safe)
            memmove(to, from, length);
        else
            *to = '?';
        to += is_safe ? length : 1;
        from += length;
    }
    *to = '\0';
}

/* ---- Metrics --------------------------------------------------------------------------------- */

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

void harpe_metrics_text_sample(harpe_text *text, const char *name, const char *const *labels,
                               double value) {
    harpe_text_append(text, name, strlen(name));
    for (size_t i = 0; labels[i]; i += 2) {
        harpe_text_append(text, i == 0 ? "{" : ",", 1);
        harpe_metrics_text_label(text, labels[i], labels[i + 1]);
    }
    if (*labels) harpe_text_append(text, "}", 1);
    harpe_metrics_text_value(text, value);
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
