/* SPDX-License-Identifier: Apache-2.0 */
/* Defines how the caller receives the library's log lines and progress. */
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

/* Receives log lines, without a newline at the end, on the thread that does the work. */
typedef struct harpe_log {
    void (*write)(void *user, harpe_log_level level, const char *line);
    void *user;
} harpe_log;

/* Writes a log line, but not while another thread forks the process. Languages such as Python need
 * this, because no thread may enter their runtime during a fork. Put this function into the `write`
 * member of a harpe_log, and let `user` point to a second harpe_log. The second harpe_log receives
 * the lines, and the caller keeps it alive. While a fork is under way, a line from another thread
 * waits for at most 5 s; a line from the forking thread does not wait. A waiting thread must not
 * hold a lock that the fork needs, such as Python's. Any thread may call it. */
HARPE_API void harpe_log_write_outside_forks(void *user, harpe_log_level level, const char *line);

/* Waits, for at most 5 s, until no other thread is writing such a log line. Call it before a fork,
 * without holding a lock that a log line needs. If a line takes longer than 5 s, later calls return
 * at once. After all log lines have ended, calls wait again. */
HARPE_API void harpe_log_before_fork(void);

/* Lets the waiting log lines continue. Call it in the parent after the fork, once for each call of
 * harpe_log_before_fork, on the same thread. A child needs no call: no fork is under way there, and
 * it has no other thread. */
HARPE_API void harpe_log_after_fork(void);

/* Receives progress on the thread that does the work, at most a few hundred times per second.
 * `phase` is a short text such as "solving", valid during the call; the phases run one after the
 * other. `fraction` is the part of the whole work that is done. It never falls and ends at 1. A
 * value below 0 means that the part is not known.
 *
 * Return false to stop the work. The function that does the work then returns HARPE_INTERRUPTED. */
typedef struct harpe_progress {
    bool (*report)(void *user, const char *phase, double fraction);
    void *user;
} harpe_progress;

HARPE_END_DECLS

#endif
