/* SPDX-License-Identifier: Apache-2.0 */
/* Makes log lines and forks wait for each other. A log function may call Python. When a thread
 * enters Python, CPython 3.11 creates a state for this thread under a lock. If another thread forks
 * the process at that moment, the child waits for the lock forever. So no thread may enter Python
 * while another thread forks. A handler of pthread_atfork cannot make the fork wait: it runs while
 * the forking thread holds Python's global lock, which the other thread needs to finish its line.
 */
#include <pthread.h>
#include <stdbool.h>

#include <harpe/callback.h>

#include "base/clock.h"
#include "base/wait.h"

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
