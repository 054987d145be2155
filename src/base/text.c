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
#include "base/number_print.h"

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
