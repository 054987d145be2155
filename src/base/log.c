/* SPDX-License-Identifier: Apache-2.0 */
/* The library prints nothing. Its log lines go to the caller's harpe_log, one line at a time. This
 * file formats such a line. It does not decide which events are logged. The function that prints a
 * line removes unsafe characters. */
#include "base/log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/callback.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/wait.h"

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

/* ---- Lines and forks ------------------------------------------------------------------------- */

/* Makes log lines and forks wait for each other. A log function may call Python. When a thread
 * enters Python, CPython 3.11 creates a state for this thread under a lock. If another thread forks
 * the process at that moment, the child waits for the lock forever. So no thread may enter Python
 * while another thread forks. A handler of pthread_atfork cannot make the fork wait: it runs while
 * the forking thread holds Python's global lock, which the other thread needs to finish its line.
 */

/* The time limit is 5 s. It consists of short waits, because the clock goes on while a process is
 * stopped, but its other threads do not: a stop takes at most one of these waits. */
enum { WAITS = 50, WAIT_NS = 100000000 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned lines, forks; /* that have begun and not ended, in all threads */
    bool has_timed_out;    /* a fork has waited for the lines until its time limit */
} traffic = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The numbers of lines and forks of this thread. A log function may fork, and a fork handler may
 * log, so a thread waits only for the lines and forks of other threads. */
static _Thread_local unsigned own_lines, own_forks;

/* Initialises the lock again. The child contains only the thread that has forked. If another thread
 * held the lock when the process forked, no thread of the child would release it. */
static void start_anew_in_child(void) {
    (void)pthread_mutex_init(&traffic.lock, NULL);
    (void)pthread_cond_init(&traffic.changed, NULL);
    traffic.lines = own_lines;
    traffic.forks = own_forks = 0;
    traffic.has_timed_out = false;
}

static void look_for_forks(void) { (void)pthread_atfork(NULL, NULL, start_anew_in_child); }

static void take_lock(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, look_for_forks);
    harpe_lock(&traffic.lock);
}

/* Waits until `*count` is at most `own`, this thread's part of `*count`. Returns false if `*count`
 * is still greater after the time limit. */
static bool wait_for_others(const unsigned *count, unsigned own) {
    for (int left = WAITS; *count > own && left > 0; left--) {
        int64_t until_ns = harpe_clock_ns() + WAIT_NS;
        while (*count > own && harpe_wait_until(&traffic.changed, &traffic.lock, until_ns))
            continue;
    }
    return *count <= own;
}

static void begin_line(void) {
    take_lock();
    if (own_lines == 0 && own_forks == 0) (void)wait_for_others(&traffic.forks, 0);
    traffic.lines++;
    own_lines++;
    harpe_unlock(&traffic.lock);
}

static void end_line(void) {
    take_lock();
    own_lines--;
    if (--traffic.lines == 0) traffic.has_timed_out = false;
    harpe_broadcast(&traffic.changed);
    harpe_unlock(&traffic.lock);
}

void harpe_log_write_outside_forks(void *user, harpe_log_level level, const char *line) {
    const harpe_log *log = user;
    if (!log || !log->write) return;
    begin_line();
    log->write(log->user, level, line);
    end_line();
}

void harpe_log_before_fork(void) {
    take_lock();
    traffic.forks++;
    own_forks++;
    if (!traffic.has_timed_out) traffic.has_timed_out = !wait_for_others(&traffic.lines, own_lines);
    harpe_unlock(&traffic.lock);
}

void harpe_log_after_fork(void) {
    take_lock();
    if (own_forks > 0) {
        own_forks--;
        traffic.forks--;
        harpe_broadcast(&traffic.changed);
    }
    harpe_unlock(&traffic.lock);
}
