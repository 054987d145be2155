/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share a list of numbers; see parallel.h. Every number below that of a failed step
 * has been taken before, so the failure with the lowest number does not depend on the threads. */
#include "plan/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/wait.h"

#define MOST_THREADS 64

typedef struct state {
    const harpe_parallel_run *run;
    pthread_mutex_t lock; /* protects what follows */
    size_t next;
    bool is_over, is_stopped;
    size_t failed; /* number of the failed step */
    harpe_status status;
    harpe_error error;
} state;

static bool take(state *s, size_t *number) {
    harpe_lock(&s->lock);
    bool found = !s->is_over && s->next < s->run->count;
    if (found) *number = s->next++;
    harpe_unlock(&s->lock);
    return found;
}

static void note_failure(state *s, size_t number, harpe_status status, const harpe_error *error) {
    harpe_lock(&s->lock);
    if (s->status == HARPE_OK || number < s->failed) {
        s->failed = number;
        s->status = status;
        s->error = *error;
    }
    s->is_over = true;
    harpe_unlock(&s->lock);
}

static void stop(state *s) {
    harpe_lock(&s->lock);
    s->is_over = s->is_stopped = true;
    harpe_unlock(&s->lock);
}

static void work(state *s, bool reports) {
    size_t number;
    while (take(s, &number)) {
        harpe_error error = {0};
        harpe_status status = s->run->step(s->run->user, number, &error);
        if (status != HARPE_OK) note_failure(s, number, status, &error);
        if (reports && s->run->report && !s->run->report(s->run->user, number + 1)) stop(s);
    }
}

static void *help(void *user) {
    work(user, false);
    return NULL;
}

static size_t count_threads(const harpe_parallel_run *run) {
    cpu_set_t cores;
    size_t count = 1;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) count = (size_t)CPU_COUNT(&cores);
    if (run->threads > 0 && (size_t)run->threads < count) count = (size_t)run->threads;
    if (count > run->count) count = run->count;
    return count < MOST_THREADS ? count : MOST_THREADS;
}

harpe_status harpe_parallel_do(const harpe_parallel_run *run, bool *stopped, harpe_error *error) {
    state s = {.run = run};
    pthread_t helpers[MOST_THREADS];
    size_t threads = count_threads(run), started = 0;
    (void)pthread_mutex_init(&s.lock, NULL);
    /* If a thread cannot be started, the others do its work. */
    while (started + 1 < threads &&
           harpe_thread_start(&helpers[started], "harpe-plan", help, &s) == 0)
        started++;
    work(&s, true);
    for (size_t k = 0; k < started; k++)
        harpe_thread_join(helpers[k]);
    (void)pthread_mutex_destroy(&s.lock);
    *stopped = s.is_stopped;
    if (s.status != HARPE_OK && error) *error = s.error;
    return s.status;
}
