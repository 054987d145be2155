/* SPDX-License-Identifier: Apache-2.0 */
/* The worker pools beside the loop. Each pool has a queue for each subject, first in, first out,
 * and takes from these queues in turn, so a job with much work does not delay another; its threads
 * post the end of their work back to the loop. Holds no state of the server. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/loop.h"

enum {
    DEADLINE_S = 60,    /* unless harpe_workers_limit sets another */
    PLAN_NICENESS = 10, /* the loop and short answers come before plans */
    SUBJECT_SIZE = 80,
};
static const int64_t second_ns = INT64_C(1000000000);

static const char *const pool_names[HARPE_POOL_COUNT] = {
    [HARPE_POOL_DECODE] = "decoding",    [HARPE_POOL_STORE] = "reading the store",
    [HARPE_POOL_SCHEDULE] = "scheduler", [HARPE_POOL_PLAN] = "planning",
    [HARPE_POOL_DUMP] = "dump",
};

typedef struct worker {
    struct pool *pool;
    pthread_t thread;
    struct worker *next;
    int64_t begun_ns; /* of the work that runs; 0: none does */
    char subject[SUBJECT_SIZE];
} worker;

typedef struct pool {
    struct harpe_workers *workers;
    pthread_cond_t has_work;
    int niceness;
    int64_t deadline_ns;
    worker *threads;
    int thread_count, idle_count, limit;
    harpe_work *first, *last; /* the first work of each queue, in the order of their turns */
    int waiting;              /* in all queues */
} pool;

struct harpe_workers {
    harpe_loop *loop;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t has_ended;
    pool pools[HARPE_POOL_COUNT];
    int pending; /* begun or waiting */
    int alive;   /* threads */
    bool is_closing;
};

/* ---- Queues ------------------------------------------------------------------------------- */

static void append_queue(pool *self, harpe_work *first) {
    first->next = NULL;
    if (self->last)
        self->last->next = first;
    else
        self->first = first;
    self->last = first;
}

/* Subjects are the same if their addresses are. */
static void enqueue(pool *self, harpe_work *work) {
    harpe_work *queue = self->first;
    while (queue && queue->subject != work->subject)
        queue = queue->next;
    work->behind = NULL;
    work->queue_last = work;
    if (queue) {
        queue->queue_last->behind = work;
        queue->queue_last = work;
    } else {
        append_queue(self, work);
    }
    self->waiting++;
}

static harpe_work *take_first(pool *self) {
    harpe_work *work = self->first;
    self->first = work->next;
    if (!self->first) self->last = NULL;
    if (work->behind) {
        work->behind->queue_last = work->queue_last;
        append_queue(self, work->behind);
    }
    self->waiting--;
    return work;
}

/* When the work that has waited longest was submitted; 0: none waits. */
static int64_t oldest_ns(const pool *self) {
    int64_t oldest = 0;
    for (const harpe_work *queue = self->first; queue; queue = queue->next)
        if (oldest == 0 || queue->submitted_ns < oldest) oldest = queue->submitted_ns;
    return oldest;
}

/* ---- Threads ------------------------------------------------------------------------------ */

static void finish(void *user) {
    harpe_work *work = user;
    work->done(work->user);
}

/* Called with the mutex, which is released while the work runs. */
static void run_one(worker *self) {
    harpe_workers *workers = self->pool->workers;
    harpe_work *work = take_first(self->pool);
    bool has_done = work->done != NULL; /* without it `work` may free itself */
    self->begun_ns = harpe_clock_ns();
    (void)snprintf(self->subject, sizeof self->subject, "%s", work->subject ? work->subject : "");
    pthread_mutex_unlock(&workers->mutex);
    work->work(work->user);
    pthread_mutex_lock(&workers->mutex);
    self->begun_ns = 0;
    workers->pending--;
    if (!has_done) return;
    work->posted = (harpe_posted){.call = finish, .user = work};
    harpe_loop_post(workers->loop, &work->posted);
}

static void *work_until_closed(void *user) {
    worker *self = user;
    pool *own = self->pool;
    harpe_workers *workers = own->workers;
    if (own->niceness) (void)setpriority(PRIO_PROCESS, (id_t)gettid(), own->niceness);
    pthread_mutex_lock(&workers->mutex);
    while (!workers->is_closing) {
        if (own->first) {
            run_one(self);
            continue;
        }
        own->idle_count++;
        pthread_cond_wait(&own->has_work, &workers->mutex);
        own->idle_count--;
    }
    workers->alive--;
    pthread_cond_broadcast(&workers->has_ended);
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

/* Under the mutex. Signals are for the loop: the threads block all. Returns 0 or an errno. */
static int start_thread(pool *self) {
    worker *new = harpe_calloc(1, sizeof *new);
    if (!new) return ENOMEM;
    new->pool = self;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&new->thread, NULL, work_until_closed, new);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(new);
        return failed;
    }
    new->next = self->threads;
    self->threads = new;
    self->thread_count++;
    self->workers->alive++;
    return 0;
}

/* ---- Life --------------------------------------------------------------------------------- */

static void init_pool(harpe_workers *workers, harpe_pool which, int limit) {
    pool *self = &workers->pools[which];
    self->workers = workers;
    self->limit = limit < 1 ? 1 : limit;
    self->deadline_ns = DEADLINE_S * second_ns;
    self->niceness = which == HARPE_POOL_PLAN ? PLAN_NICENESS : 0;
    pthread_cond_init(&self->has_work, NULL);
}

static int start_first_threads(harpe_workers *workers) {
    int failed = 0;
    pthread_mutex_lock(&workers->mutex);
    for (int i = 0; i < HARPE_POOL_COUNT && !failed; i++)
        failed = start_thread(&workers->pools[i]);
    pthread_mutex_unlock(&workers->mutex);
    return failed;
}

harpe_status harpe_workers_new(harpe_loop *loop, int count, harpe_workers **out,
                               harpe_error *error) {
    harpe_workers *workers = harpe_calloc(1, sizeof *workers);
    if (!workers) return harpe_fail_memory(error);
    workers->loop = loop;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->has_ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int i = 0; i < HARPE_POOL_COUNT; i++)
        init_pool(workers, (harpe_pool)i, count);
    /* Starts one thread of each pool at once, to notice now if the system allows no threads. */
    int failed = start_first_threads(workers);
    if (failed) {
        harpe_workers_free(workers);
        return harpe_fail_errno(error, failed, "cannot start a worker thread");
    }
    *out = workers;
    return HARPE_OK;
}

void harpe_workers_limit(harpe_workers *workers, harpe_pool which, int count, int64_t deadline_s) {
    pthread_mutex_lock(&workers->mutex);
    workers->pools[which].limit = count < 1 ? 1 : count;
    workers->pools[which].deadline_ns = deadline_s * second_ns;
    pthread_mutex_unlock(&workers->mutex);
}

static void begin_close(harpe_workers *workers) {
    workers->is_closing = true;
    for (int i = 0; i < HARPE_POOL_COUNT; i++) {
        pool *self = &workers->pools[i];
        while (self->first) {
            (void)take_first(self);
            workers->pending--;
        }
        pthread_cond_broadcast(&self->has_work);
    }
}

bool harpe_workers_close(harpe_workers *workers, int64_t wait_ms) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t end_ns = end.tv_nsec + wait_ms % 1000 * 1000000;
    end.tv_sec += wait_ms / 1000 + end_ns / second_ns;
    end.tv_nsec = end_ns % second_ns;
    pthread_mutex_lock(&workers->mutex);
    begin_close(workers);
    int failed = 0;
    while (workers->alive > 0 && !failed)
        failed = pthread_cond_timedwait(&workers->has_ended, &workers->mutex, &end);
    bool has_ended = workers->alive == 0;
    pthread_mutex_unlock(&workers->mutex);
    return has_ended;
}

void harpe_workers_free(harpe_workers *workers) {
    if (!workers) return;
    pthread_mutex_lock(&workers->mutex);
    begin_close(workers);
    pthread_mutex_unlock(&workers->mutex);
    for (int i = 0; i < HARPE_POOL_COUNT; i++) {
        for (worker *next, *self = workers->pools[i].threads; self; self = next) {
            next = self->next;
            pthread_join(self->thread, NULL);
            free(self);
        }
        pthread_cond_destroy(&workers->pools[i].has_work);
    }
    pthread_cond_destroy(&workers->has_ended);
    pthread_mutex_destroy(&workers->mutex);
    free(workers);
}

/* ---- Work --------------------------------------------------------------------------------- */

void harpe_workers_submit(harpe_workers *workers, harpe_work *work) {
    pool *self = &workers->pools[work->pool];
    work->workers = workers;
    work->submitted_ns = harpe_clock_ns();
    pthread_mutex_lock(&workers->mutex);
    enqueue(self, work);
    workers->pending++;
    /* If no thread can be started, the work waits for the existing threads. */
    if (self->waiting > self->idle_count && self->thread_count < self->limit)
        (void)start_thread(self);
    pthread_cond_signal(&self->has_work);
    pthread_mutex_unlock(&workers->mutex);
}

int harpe_workers_pending(const harpe_workers *workers) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&workers->mutex;
    pthread_mutex_lock(mutex);
    int pending = workers->pending;
    pthread_mutex_unlock(mutex);
    return pending;
}

/* ---- What is stuck ------------------------------------------------------------------------ */

/* Under the mutex. The work that has run longest is named. */
static bool pool_fault(const pool *self, const char *name, int64_t deadline_ns, char *line,
                       size_t size) {
    const worker *oldest = NULL;
    int64_t now_ns = harpe_clock_ns();
    int late = 0;
    for (const worker *one = self->threads; one; one = one->next) {
        if (one->begun_ns == 0 || now_ns - one->begun_ns < deadline_ns) continue;
        late++;
        if (!oldest || one->begun_ns < oldest->begun_ns) oldest = one;
    }
    if (oldest) {
        (void)snprintf(line, size,
                       "%s: %d of at most %d threads are stuck, the longest for %lld s%s%s, and %d "
                       "pieces of work wait",
                       name, late, self->limit,
                       (long long)((now_ns - oldest->begun_ns) / second_ns),
                       *oldest->subject ? " with job " : "", oldest->subject, self->waiting);
        return true;
    }
    int64_t waiting_ns = self->first ? now_ns - oldest_ns(self) : 0;
    if (!self->first || waiting_ns < deadline_ns) return false;
    (void)snprintf(line, size, "%s: all %d threads are busy, and %d pieces of work wait for %lld s",
                   name, self->thread_count, self->waiting, (long long)(waiting_ns / second_ns));
    return true;
}

bool harpe_workers_fault(const harpe_workers *workers, int64_t deadline_s, char *line,
                         size_t size) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&workers->mutex;
    bool is_stuck = false;
    pthread_mutex_lock(mutex);
    for (int i = 0; i < HARPE_POOL_COUNT && !is_stuck; i++) {
        const pool *self = &workers->pools[i];
        int64_t deadline_ns = deadline_s < 0 ? self->deadline_ns : deadline_s * second_ns;
        is_stuck = pool_fault(self, pool_names[i], deadline_ns, line, size);
    }
    pthread_mutex_unlock(mutex);
    return is_stuck;
}
