/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of threads that do work for the loop. Each pool has a queue for each subject. A queue is
 * first in, first out, and the queues take turns, so a subject with much work does not delay
 * another. When a thread has finished a piece of work, it posts the call of `done` to the loop.
 *
 * The thread that became idle last gets the next work. The others stay idle, and end after some
 * time, so a pool shrinks to the number of threads that it needs. */
#include "http/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

enum {
    DEADLINE_S = 60,   /* unless harpe_workers_limit sets another */
    IDLE_MS = 60000,   /* unless harpe_workers_keep_idle sets another */
    LEAST_THREADS = 1, /* of a pool; these never end */
    SUBJECT_SIZE = 80,
    QUEUE_BUCKETS_BITS = 12, /* thousands of subjects may have a queue at the same time */
};
static const int64_t second_ns = INT64_C(1000000000);

typedef struct worker {
    struct pool *pool;
    pthread_t thread;
    struct worker *next;
    pthread_cond_t has_work; /* or the workers are closing */
    bool is_idle;
    struct worker *next_idle;
    int64_t begun_ns; /* when the current work began; 0: the thread has none */
    char subject[SUBJECT_SIZE];
} worker;

typedef struct pool {
    struct harpe_workers *workers;
    const harpe_pool_kind *kind;
    int64_t deadline_ns;
    worker *threads;
    worker *idle; /* the threads without work; the first one became idle last */
    int thread_count, limit;
    harpe_work *first, *last; /* the first work of each queue, in the order of their turns */
    harpe_work *buckets[1 << QUEUE_BUCKETS_BITS]; /* a hash table of the same works, by subject */
    int waiting;                                  /* pieces of work in all queues */
} pool;

struct harpe_workers {
    harpe_loop *loop;
    pthread_mutex_t mutex; /* protects all members below */
    pthread_cond_t has_ended;
    worker *ended;   /* the last thread that has ended for want of work; the next one joins it */
    int pending;     /* pieces of work that wait or run */
    int alive;       /* threads that have not ended */
    int64_t idle_ms; /* the time after which a thread without work ends */
    bool is_closing;
    int pool_count;
    pool pools[];
};

/* ---- Queues ---------------------------------------------------------------------------------- */

static void append_queue(pool *self, harpe_work *first) {
    first->next = NULL;
    if (self->last)
        self->last->next = first;
    else
        self->first = first;
    self->last = first;
}

/* Returns the link of the hash table that points to the first work of the subject's queue. If the
 * subject has no queue, the link is NULL, and a new queue belongs there. Two subjects are the same
 * if their addresses are the same. */
static harpe_work **find_queue(pool *self, const char *subject) {
    uint64_t hash = (uint64_t)(uintptr_t)subject * UINT64_C(0x9E3779B97F4A7C15);
    harpe_work **place = &self->buckets[hash >> (64 - QUEUE_BUCKETS_BITS)];
    while (*place && (*place)->subject != subject)
        place = &(*place)->same_bucket;
    return place;
}

static void enqueue(pool *self, harpe_work *work) {
    harpe_work **place = find_queue(self, work->subject);
    harpe_work *queue = *place;
    work->same_bucket = work->behind = NULL;
    work->queue_last = work;
    if (queue) {
        queue->queue_last->behind = work;
        queue->queue_last = work;
    } else {
        *place = work;
        append_queue(self, work);
    }
    self->waiting++;
}

static harpe_work *take_first(pool *self) {
    harpe_work *work = self->first;
    self->first = work->next;
    if (!self->first) self->last = NULL;
    harpe_work **place = find_queue(self, work->subject);
    *place = work->same_bucket;
    if (work->behind) {
        work->behind->queue_last = work->queue_last;
        work->behind->same_bucket = *place;
        *place = work->behind;
        append_queue(self, work->behind);
    }
    self->waiting--;
    return work;
}

/* Returns the time at which the oldest waiting work was submitted; 0: no work waits. */
static int64_t oldest_ns(const pool *self) {
    int64_t oldest = 0;
    for (const harpe_work *queue = self->first; queue; queue = queue->next)
        if (oldest == 0 || queue->submitted_ns < oldest) oldest = queue->submitted_ns;
    return oldest;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void finish(void *user) {
    harpe_work *work = user;
    work->done(work->user);
}

/* Takes a piece of work and does it. The caller holds the mutex; the function releases it while the
 * work runs. */
static void run_one(worker *self) {
    harpe_workers *workers = self->pool->workers;
    harpe_work *work = take_first(self->pool);
    bool has_done = work->done != NULL; /* read now: work without `done` may free itself */
    self->begun_ns = harpe_clock_ns();
    (void)snprintf(self->subject, sizeof self->subject, "%s", work->subject ? work->subject : "");
    harpe_unlock(&workers->mutex);
    work->work(work->user);
    harpe_lock(&workers->mutex);
    self->begun_ns = 0;
    workers->pending--;
    if (!has_done) return;
    work->posted = (harpe_posted){.call = finish, .user = work};
    harpe_loop_post(workers->loop, &work->posted);
}

/* Wakes the thread that became idle last, if one is idle. The caller holds the mutex. */
static bool wake_one(pool *self) {
    worker *woken = self->idle;
    if (!woken) return false;
    self->idle = woken->next_idle;
    woken->is_idle = false;
    harpe_signal(&woken->has_work);
    return true;
}

/* Waits until the thread is woken. Returns false if nothing has woken it for the idle time.
 * The thread is then not in the list of idle threads any more. The caller holds the mutex. */
static bool wait_for_work(worker *self) {
    pool *own = self->pool;
    int64_t end_ns = harpe_clock_ns() + own->workers->idle_ms * 1000000;
    self->is_idle = true;
    self->next_idle = own->idle;
    own->idle = self;
    while (self->is_idle && harpe_wait_until(&self->has_work, &own->workers->mutex, end_ns))
        continue;
    if (!self->is_idle) return true;
    worker **place = &own->idle;
    while (*place != self)
        place = &(*place)->next_idle;
    *place = self->next_idle;
    self->is_idle = false;
    return false;
}

static void join(worker *ended) {
    if (!ended) return;
    harpe_thread_join(ended->thread);
    pthread_cond_destroy(&ended->has_work);
    free(ended);
}

/* Takes the thread out of its pool. Returns the thread that had left before it, which the caller
 * joins: so only one thread that has ended still has its stack. The caller holds the mutex. */
static worker *leave_pool(worker *self) {
    pool *own = self->pool;
    worker **place = &own->threads;
    while (*place != self)
        place = &(*place)->next;
    *place = self->next;
    own->thread_count--;
    worker *before = own->workers->ended;
    own->workers->ended = self;
    return before;
}

static void *work_until_closed(void *user) {
    worker *self = user;
    pool *own = self->pool;
    harpe_workers *workers = own->workers;
    worker *left_before = NULL;
    bool is_needed = true;
    if (own->kind->niceness) harpe_thread_nice(own->kind->niceness);
    harpe_lock(&workers->mutex);
    while (!workers->is_closing && is_needed)
        if (own->first)
            run_one(self);
        else
            is_needed = wait_for_work(self) || own->thread_count <= LEAST_THREADS;
    if (!is_needed) left_before = leave_pool(self);
    workers->alive--;
    harpe_broadcast(&workers->has_ended);
    harpe_unlock(&workers->mutex);
    join(left_before);
    return NULL;
}

/* Starts a thread for the pool. The caller holds the mutex. Returns 0 or an errno. */
static int start_thread(pool *self) {
    worker *new = harpe_calloc(1, sizeof *new);
    if (!new) return ENOMEM;
    new->pool = self;
    pthread_cond_init(&new->has_work, NULL);
    int failed = harpe_thread_start(&new->thread, "harpe-worker", work_until_closed, new);
    if (failed) {
        pthread_cond_destroy(&new->has_work);
        free(new);
        return failed;
    }
    new->next = self->threads;
    self->threads = new;
    self->thread_count++;
    self->workers->alive++;
    return 0;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void init_pool(harpe_workers *workers, const harpe_pool_kind *kind, int limit) {
    pool *self = &workers->pools[workers->pool_count++];
    self->workers = workers;
    self->kind = kind;
    self->limit = limit < 1 ? 1 : limit;
    self->deadline_ns = DEADLINE_S * second_ns;
}

static int start_first_threads(harpe_workers *workers) {
    int failed = 0;
    harpe_lock(&workers->mutex);
    for (int i = 0; i < workers->pool_count && !failed; i++)
        failed = start_thread(&workers->pools[i]);
    harpe_unlock(&workers->mutex);
    return failed;
}

harpe_status harpe_workers_new(harpe_loop *loop, const harpe_pool_kind *pools, int count,
                               harpe_workers **out, harpe_error *error) {
    size_t pool_count = 0;
    while (pools[pool_count].name)
        pool_count++;
    harpe_workers *workers =
        harpe_calloc(1, sizeof *workers + pool_count * sizeof workers->pools[0]);
    if (!workers) return harpe_fail_memory(error);
    workers->loop = loop;
    workers->idle_ms = IDLE_MS;
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->has_ended, NULL);
    for (size_t i = 0; i < pool_count; i++)
        init_pool(workers, &pools[i], count);
    /* Starts threads now, so that the caller learns at once if the system allows none. */
    int failed = start_first_threads(workers);
    if (failed) {
        harpe_workers_free(workers);
        return harpe_fail_errno(error, failed, "cannot start a worker thread");
    }
    *out = workers;
    return HARPE_OK;
}

void harpe_workers_limit(harpe_workers *workers, int which, int count, int64_t deadline_s) {
    harpe_lock(&workers->mutex);
    workers->pools[which].limit = count < 1 ? 1 : count;
    workers->pools[which].deadline_ns = deadline_s * second_ns;
    harpe_unlock(&workers->mutex);
}

void harpe_workers_keep_idle(harpe_workers *workers, int64_t idle_ms) {
    harpe_lock(&workers->mutex);
    workers->idle_ms = idle_ms;
    harpe_unlock(&workers->mutex);
}

static void begin_close(harpe_workers *workers) {
    workers->is_closing = true;
    for (int i = 0; i < workers->pool_count; i++) {
        pool *self = &workers->pools[i];
        while (self->first) {
            (void)take_first(self);
            workers->pending--;
        }
        while (wake_one(self))
            ;
    }
}

bool harpe_workers_close(harpe_workers *workers, int64_t wait_ms) {
    int64_t end_ns = harpe_clock_ns() + wait_ms * 1000000;
    harpe_lock(&workers->mutex);
    begin_close(workers);
    while (workers->alive > 0 && harpe_wait_until(&workers->has_ended, &workers->mutex, end_ns))
        continue;
    bool has_ended = workers->alive == 0;
    harpe_unlock(&workers->mutex);
    return has_ended;
}

void harpe_workers_free(harpe_workers *workers) {
    if (!workers) return;
    harpe_lock(&workers->mutex);
    begin_close(workers);
    harpe_unlock(&workers->mutex);
    for (int i = 0; i < workers->pool_count; i++) {
        for (worker *next, *self = workers->pools[i].threads; self; self = next) {
            next = self->next;
            join(self);
        }
    }
    join(workers->ended);
    pthread_cond_destroy(&workers->has_ended);
    pthread_mutex_destroy(&workers->mutex);
    free(workers);
}

/* ---- Work ------------------------------------------------------------------------------------ */

void harpe_workers_submit(harpe_workers *workers, harpe_work *work) {
    pool *self = &workers->pools[work->pool];
    work->workers = workers;
    work->submitted_ns = harpe_clock_ns();
    harpe_lock(&workers->mutex);
    enqueue(self, work);
    workers->pending++;
    /* If no thread starts, one of the existing threads does the work later. */
    if (!wake_one(self) && self->thread_count < self->limit) (void)start_thread(self);
    harpe_unlock(&workers->mutex);
}

int harpe_workers_pending(const harpe_workers *workers) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&workers->mutex;
    harpe_lock(mutex);
    int pending = workers->pending;
    harpe_unlock(mutex);
    return pending;
}

/* ---- Work that is stuck ---------------------------------------------------------------------- */

/* Returns true and writes a line if work of the pool has run or waited longer than the deadline.
 * The line names the subject of the work that has run longest. The caller holds the mutex. */
static bool pool_fault(const pool *self, int64_t deadline_ns, char *line, size_t size) {
    const harpe_pool_kind *kind = self->kind;
    const worker *oldest = NULL;
    int64_t now_ns = harpe_clock_ns();
    int late = 0;
    for (const worker *one = self->threads; one; one = one->next) {
        if (one->begun_ns == 0 || now_ns - one->begun_ns < deadline_ns) continue;
        late++;
        if (!oldest || one->begun_ns < oldest->begun_ns) oldest = one;
    }
    if (oldest) {
        (void)snprintf(
            line, size,
            "%s: %d of at most %d threads are stuck, the longest for %lld s%s%s%s%s, and %d "
            "pieces of work wait",
            kind->name, late, self->limit, (long long)((now_ns - oldest->begun_ns) / second_ns),
            *oldest->subject ? " with " : "", *oldest->subject ? kind->subject : "",
            *oldest->subject ? " " : "", oldest->subject, self->waiting);
        return true;
    }
    int64_t waiting_ns = self->first ? now_ns - oldest_ns(self) : 0;
    if (!self->first || waiting_ns < deadline_ns) return false;
    (void)snprintf(line, size, "%s: all %d threads are busy, and %d pieces of work wait for %lld s",
                   kind->name, self->thread_count, self->waiting,
                   (long long)(waiting_ns / second_ns));
    return true;
}

bool harpe_workers_fault(const harpe_workers *workers, int64_t deadline_s, char *line,
                         size_t size) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&workers->mutex;
    bool is_stuck = false;
    harpe_lock(mutex);
    for (int i = 0; i < workers->pool_count && !is_stuck; i++) {
        const pool *self = &workers->pools[i];
        int64_t deadline_ns = deadline_s < 0 ? self->deadline_ns : deadline_s * second_ns;
        is_stuck = pool_fault(self, deadline_ns, line, size);
    }
    harpe_unlock(mutex);
    return is_stuck;
}
