/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps log lines and forks apart, for callers whose log function enters a runtime (Python) that
 * another thread must not enter while the process forks. CPython 3.11 creates a thread state for
 * such a thread under a lock of its own; a child that is forked meanwhile waits for that lock
 * forever. pthread_atfork cannot do this: its handlers run while the forking thread holds Python's
 * lock, which the log line needs. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include <harpe/callback.h>

#define PATIENCE_S 5

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned lines, forks;  /* under way, of all threads */
    bool has_lost_patience; /* with the lines under way */
} traffic = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* What this thread has under way itself is not waited for: a log function may fork, and what runs
 * at a fork may log. */
static _Thread_local unsigned own_lines, own_forks;

/* The child has one thread. The lock may be held by one that is not there. */
static void start_anew_in_child(void) {
    (void)pthread_mutex_init(&traffic.lock, NULL);
    (void)pthread_cond_init(&traffic.changed, NULL);
    traffic.lines = own_lines;
    traffic.forks = own_forks = 0;
    traffic.has_lost_patience = false;
}

static void look_for_forks(void) { (void)pthread_atfork(NULL, NULL, start_anew_in_child); }

static void take_lock(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, look_for_forks);
    pthread_mutex_lock(&traffic.lock);
}

/* Waits until no other thread has one of `count` under way. False: the time is over. */
static bool wait_for_others(const unsigned *count, unsigned own) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_S;
    while (*count > own) {
        if (pthread_cond_clockwait(&traffic.changed, &traffic.lock, CLOCK_MONOTONIC, &until) ==
            ETIMEDOUT)
            return *count <= own;
    }
    return true;
}

static void begin_line(void) {
    take_lock();
    if (own_lines == 0 && own_forks == 0) (void)wait_for_others(&traffic.forks, 0);
    traffic.lines++;
    own_lines++;
    pthread_mutex_unlock(&traffic.lock);
}

static void end_line(void) {
    take_lock();
    own_lines--;
    if (--traffic.lines == 0) traffic.has_lost_patience = false;
    pthread_cond_broadcast(&traffic.changed);
    pthread_mutex_unlock(&traffic.lock);
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
    if (!traffic.has_lost_patience && !wait_for_others(&traffic.lines, own_lines)) {
        traffic.has_lost_patience = true;
    }
    pthread_mutex_unlock(&traffic.lock);
}

void harpe_log_after_fork(void) {
    take_lock();
    if (own_forks > 0) {
        own_forks--;
        traffic.forks--;
        pthread_cond_broadcast(&traffic.changed);
    }
    pthread_mutex_unlock(&traffic.lock);
}
