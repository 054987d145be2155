/* SPDX-License-Identifier: Apache-2.0 */
/* The worker pool beside the loop: threads that take work from one queue, first in, first out, and
 * post its end back to the loop. Holds no state of the server. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "server/loop.h"

struct harpe_workers {
    harpe_loop *loop;
    pthread_t *threads;
    int thread_count;
    pthread_mutex_t mutex;
    pthread_cond_t something_to_do;
    /* Under the mutex: */
    harpe_work *first, *last;
    int pending; /* begun or waiting */
    bool is_closing;
};

static void finish(void *user) {
    harpe_work *work = user;
    work->done(work->user);
}

static void *work_until_closed(void *user) {
    harpe_workers *workers = user;
    pthread_mutex_lock(&workers->mutex);
    for (;;) {
        while (workers->first == NULL && !workers->is_closing)
            pthread_cond_wait(&workers->something_to_do, &workers->mutex);
        if (workers->is_closing) break;
        harpe_work *work = workers->first;
        workers->first = work->next;
        if (workers->first == NULL) workers->last = NULL;
        pthread_mutex_unlock(&workers->mutex);

        bool has_done = work->done != NULL; /* without it `work` may free itself */
        work->work(work->user);

        pthread_mutex_lock(&workers->mutex);
        workers->pending--;
        if (!has_done) continue;
        work->posted = (harpe_posted){.call = finish, .user = work};
        harpe_loop_post(workers->loop, &work->posted);
    }
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

/* Signals are the loop's: workers take none. */
static int start_thread(harpe_workers *workers) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed =
        pthread_create(&workers->threads[workers->thread_count], NULL, work_until_closed, workers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

harpe_status harpe_workers_new(harpe_loop *loop, int count, harpe_workers **out,
                               harpe_error *error) {
    if (count < 1) count = 1;
    harpe_workers *workers = calloc(1, sizeof *workers);
    if (workers == NULL) return harpe_fail_memory(error);
    workers->loop = loop;
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->something_to_do, NULL);
    workers->threads = harpe_calloc((size_t)count, sizeof *workers->threads);
    if (workers->threads == NULL) {
        harpe_workers_free(workers);
        return harpe_fail_memory(error);
    }
    while (workers->thread_count < count) {
        int failed = start_thread(workers);
        if (failed != 0) {
            harpe_workers_free(workers);
            return harpe_fail_errno(error, failed, "cannot start a worker thread");
        }
        workers->thread_count++;
    }
    *out = workers;
    return HARPE_OK;
}

void harpe_workers_free(harpe_workers *workers) {
    if (workers == NULL) return;
    pthread_mutex_lock(&workers->mutex);
    workers->is_closing = true;
    pthread_cond_broadcast(&workers->something_to_do);
    pthread_mutex_unlock(&workers->mutex);
    for (int i = 0; i < workers->thread_count; i++)
        pthread_join(workers->threads[i], NULL);
    pthread_cond_destroy(&workers->something_to_do);
    pthread_mutex_destroy(&workers->mutex);
    free(workers->threads);
    free(workers);
}

void harpe_workers_submit(harpe_workers *workers, harpe_work *work) {
    work->workers = workers;
    work->next = NULL;
    pthread_mutex_lock(&workers->mutex);
    if (workers->last != NULL)
        workers->last->next = work;
    else
        workers->first = work;
    workers->last = work;
    workers->pending++;
    pthread_cond_signal(&workers->something_to_do);
    pthread_mutex_unlock(&workers->mutex);
}

int harpe_workers_pending(const harpe_workers *workers) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&workers->mutex;
    pthread_mutex_lock(mutex);
    int pending = workers->pending;
    pthread_mutex_unlock(mutex);
    return pending;
}
