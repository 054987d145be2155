/* SPDX-License-Identifier: Apache-2.0 */
/* How the library speaks while it works: log lines and progress, both through the caller. */
#ifndef HARPE_CALLBACK_H
#define HARPE_CALLBACK_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/api.h>

HARPE_BEGIN_DECLS

typedef enum harpe_log_level {
    HARPE_LOG_DEBUG = 0,
    HARPE_LOG_INFO = 1,
    HARPE_LOG_WARNING = 2,
    HARPE_LOG_ERROR = 3,
} harpe_log_level;

/* Receives log lines (no newline at the end) on the thread that does the work. */
typedef struct harpe_log {
    void (*write)(void *user, harpe_log_level level, const char *line);
    void *user;
} harpe_log;

/* Receives progress on the thread that does the work, at most some hundred times a second.
 * `phase` is a short static text such as "solving"; phases run one after the other. `fraction` is
 * the part of the whole work that is done: it never falls and ends at 1. A value below 0 means that
 * the part is not known.
 * Returning false stops the work, which then returns HARPE_INTERRUPTED. */
typedef struct harpe_progress {
    bool (*report)(void *user, const char *phase, double fraction);
    void *user;
} harpe_progress;

HARPE_END_DECLS

#endif
