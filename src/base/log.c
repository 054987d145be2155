/* SPDX-License-Identifier: Apache-2.0 */
/* The library prints nothing. Its log lines go to the caller's harpe_log, one line at a time.
 * This file formats such a line. It does not decide which events are logged. The function that
 * prints a line removes unsafe characters. */
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clean.h"

enum { SHORT_LINE_SIZE = 1024 };

/* Formats as much as fits into `line`. Returns the length of the whole line, or -1. */
static int format_line(char *line, size_t size, const char *prefix, const char *format,
                       va_list arguments) HARPE_PRINTF(4, 0);
static int format_line(char *line, size_t size, const char *prefix, const char *format,
                       va_list arguments) {
    int start = snprintf(line, size, "%s", prefix);
    if (start < 0) return -1;
    size_t used = (size_t)start < size ? (size_t)start : size - 1;
    int length = vsnprintf(line + used, size - used, format, arguments);
    return length < 0 ? -1 : start + length;
}

static void end_with_dots(char *line, size_t size) {
    memcpy(line + harpe_cut_length(line, size - sizeof "..."), "...", sizeof "...");
}

void harpe_log_prefixed_line(const harpe_log *log, harpe_log_level level, const char *prefix,
                             const char *format, va_list arguments) {
    if (!log->write) return;
    char line[SHORT_LINE_SIZE];
    char *longer = NULL;
    va_list again;
    va_copy(again, arguments);
    int length = format_line(line, sizeof line, prefix, format, arguments);
    if (length >= (int)sizeof line) {
        longer = malloc((size_t)length + 1);
        if (longer)
            (void)format_line(longer, (size_t)length + 1, prefix, format, again);
        else
            end_with_dots(line, sizeof line);
    }
    va_end(again);
    if (length >= 0) log->write(log->user, level, longer ? longer : line);
    free(longer);
}

void harpe_log_line(const harpe_log *log, harpe_log_level level, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    harpe_log_prefixed_line(log, level, "", format, arguments);
    va_end(arguments);
}
