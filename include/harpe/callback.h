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

/* For languages whose runtime another thread must not enter while the process forks, such as
 * Python. A harpe_log with this `write` and a `user` that points to another harpe_log, which the
 * caller keeps, writes to that one. While a fork is under way such a line waits, 5 s at most; lines
 * of the forking thread do not wait. The waiting thread must not hold what the fork needs, such as
 * Python's lock. Any thread. */
HARPE_API void harpe_log_write_outside_forks(void *user, harpe_log_level level, const char *line);

/* Call this before a fork, without a lock that a log line needs: it waits until no other thread is
 * within such a line, 5 s at most. A line that takes longer is not waited for again. */
HARPE_API void harpe_log_before_fork(void);

/* Call this in the parent after the fork, once for each call before it, on the same thread. A
 * child needs no call: no fork is under way there, and it has no other thread. */
HARPE_API void harpe_log_after_fork(void);

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
