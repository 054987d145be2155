/* SPDX-License-Identifier: Apache-2.0 */
/* Writes lines to the caller's log (harpe_log). */
#ifndef HARPE_BASE_LOG_H
#define HARPE_BASE_LOG_H

#include <stdarg.h>

#include <harpe/callback.h>

/* Writes one line, formatted like printf. Does nothing if `log` has no function. Writes a line of
 * any length whole. When out of memory, it cuts a long line, which then ends with "...". May be
 * called on any thread that `log` allows. */
void harpe_log_line(const harpe_log *log, harpe_log_level level, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* Writes `prefix` unchanged and then the formatted text, as one line. */
void harpe_log_prefixed_line(const harpe_log *log, harpe_log_level level, const char *prefix,
                             const char *format, va_list arguments) HARPE_PRINTF(4, 0);

#endif
