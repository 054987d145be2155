/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: one epoll instance, a heap of timers, and a stack of posted calls to which any
 * thread pushes without a lock. One turn waits, calls the watches, makes the posted calls and fires
 * the timers. A watch or timer that a callback removes is freed at the end of the turn, so events
 * that were already fetched never use freed memory. */
#include "http/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/wait.h"

enum { EVENTS_PER_TURN = 256 };

struct harpe_watch {
    harpe_loop *loop;
    int fd;
    void (*ready)(void *user, uint32_t events); /* NULL: removed, to be freed after this turn */
    void *user;
    harpe_watch *previous,
        *next; /* in the list of the loop's watches, or (next) of its removed watches */
};

struct harpe_timer {
    harpe_loop *loop;
    int64_t due_ns;
    uint64_t sequence; /* of two timers that are due at once, the older fires first */
    size_t place;      /* index in the heap */
    void (*due)(void *user);
    void *user;
};

struct harpe_loop {
    int epoll_fd;
    int wake_fd;   /* an eventfd, edge-triggered: written to wake the loop, never read */
    int signal_fd; /* -1: none */
    atomic_bool is_stopping;
    atomic_bool is_asleep; /* a post must wake it */
    _Atomic(harpe_posted *) posted;

    harpe_watch *watches, *removed;
    harpe_timer **timers; /* a binary heap */
    size_t timer_count, timer_capacity;
    uint64_t timer_sequence;

    harpe_before_wait *before_wait;
    harpe_before_wait *next_before_wait; /* the entry after the one that runs */
    void (*signal_received)(void *user, int signal_number);
    void *signal_user;
};

static void wake(harpe_loop *loop) {
    uint64_t one = 1;
    ssize_t written = write(loop->wake_fd, &one, sizeof one);
    (void)written; /* it can only fail if 2^64 wake-ups are pending */
}

/* ---- Timers ---------------------------------------------------------------------------------- */

static bool is_earlier(const harpe_timer *a, const harpe_timer *b) {
    if (a->due_ns != b->due_ns) return a->due_ns < b->due_ns;
    return a->sequence < b->sequence;
}

static void put_timer(harpe_loop *loop, harpe_timer *timer, size_t place) {
    loop->timers[place] = timer;
    timer->place = place;
}

/* Moves `timer` to its place in the heap. The place `hole` is free, and the rest of the heap is in
 * order. */
static void settle_timer(harpe_loop *loop, harpe_timer *timer, size_t hole) {
    harpe_timer **timers = loop->timers;
    while (hole > 0 && is_earlier(timer, timers[(hole - 1) / 2])) {
        put_timer(loop, timers[(hole - 1) / 2], hole);
        hole = (hole - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * hole + 1;
        if (child >= loop->timer_count) break;
        if (child + 1 < loop->timer_count && is_earlier(timers[child + 1], timers[child])) child++;
        if (!is_earlier(timers[child], timer)) break;
        put_timer(loop, timers[child], hole);
        hole = child;
    }
    put_timer(loop, timer, hole);
}

harpe_status harpe_loop_after(harpe_loop *loop, int64_t delay_ms, void (*due)(void *user),
                              void *user, harpe_timer **out, harpe_error *error) {
    if (!HARPE_ARRAY_RESERVE(loop->timers, loop->timer_capacity, loop->timer_count + 1))
        return harpe_fail_memory(error);
    harpe_timer *timer = malloc(sizeof *timer);
    if (!timer) return harpe_fail_memory(error);

    if (delay_ms < 0) delay_ms = 0;
    int64_t now_ns = harpe_clock_ns();
    int64_t most_ms = (INT64_MAX - now_ns) / 1000000;
    *timer = (harpe_timer){
        .loop = loop,
        .due_ns = now_ns + (delay_ms < most_ms ? delay_ms : most_ms) * 1000000,
        .sequence = loop->timer_sequence++,
        .due = due,
        .user = user,
    };
    settle_timer(loop, timer, loop->timer_count++);
    if (out) *out = timer;
    return HARPE_OK;
}

/* Removes a timer from the heap and returns it. */
static harpe_timer *take_timer(harpe_loop *loop, size_t place) {
    harpe_timer *taken = loop->timers[place];
    harpe_timer *last = loop->timers[--loop->timer_count];
    loop->timers[loop->timer_count] = NULL;
    if (place < loop->timer_count) settle_timer(loop, last, place);
    return taken;
}

void harpe_timer_cancel(harpe_timer *timer) {
    if (timer) free(take_timer(timer->loop, timer->place));
}

static void fire_timers(harpe_loop *loop) {
    if (loop->timer_count == 0) return;
    int64_t now_ns = harpe_clock_ns();
    uint64_t first_new = loop->timer_sequence; /* timers made meanwhile wait for the next turn */
    while (loop->timer_count > 0 && loop->timers[0]->due_ns <= now_ns &&
           loop->timers[0]->sequence < first_new) {
        harpe_timer *timer = take_timer(loop, 0);
        timer->due(timer->user);
        free(timer);
    }
}

/* ---- Watches --------------------------------------------------------------------------------- */

static harpe_status control(harpe_watch *watch, int operation, uint32_t events,
                            harpe_error *error) {
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(watch->loop->epoll_fd, operation, watch->fd, &event) != 0)
        return harpe_fail_errno(error, errno, "cannot watch file descriptor %d", watch->fd);
    return HARPE_OK;
}

harpe_status harpe_loop_watch(harpe_loop *loop, int fd, uint32_t events,
                              void (*ready)(void *user, uint32_t events), void *user,
                              harpe_watch **out, harpe_error *error) {
    harpe_watch *watch = malloc(sizeof *watch);
    if (!watch) return harpe_fail_memory(error);
    *watch = (harpe_watch){.loop = loop, .fd = fd, .ready = ready, .user = user};
    harpe_status status = control(watch, EPOLL_CTL_ADD, events, error);
    if (status != HARPE_OK) {
        free(watch);
        return status;
    }
    watch->next = loop->watches;
    if (loop->watches) loop->watches->previous = watch;
    loop->watches = watch;
    if (out) *out = watch;
    return HARPE_OK;
}

harpe_status harpe_watch_change(harpe_watch *watch, uint32_t events, harpe_error *error) {
    return control(watch, EPOLL_CTL_MOD, events, error);
}

void harpe_watch_remove(harpe_watch *watch) {
    if (!watch) return;
    harpe_loop *loop = watch->loop;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL); /* the fd may be closed already */
    if (watch->next) watch->next->previous = watch->previous;
    if (watch->previous)
        watch->previous->next = watch->next;
    else
        loop->watches = watch->next;
    watch->ready = NULL;
    watch->next = loop->removed;
    loop->removed = watch;
}

static void free_watches(harpe_watch **watches) {
    while (*watches) {
        harpe_watch *watch = *watches;
        *watches = watch->next;
        free(watch);
    }
}

/* ---- Posted calls ---------------------------------------------------------------------------- */

/* Pushes the call, so the newest call is on top. All these operations are sequentially consistent.
 * So either this thread sees that the loop sleeps, or the loop sees the call before it sleeps. */
void harpe_loop_post(harpe_loop *loop, harpe_posted *posted) {
    harpe_posted *top = atomic_load(&loop->posted);
    do {
        posted->next = top;
    } while (!atomic_compare_exchange_weak(&loop->posted, &top, posted));
    if (atomic_load(&loop->is_asleep)) wake(loop);
}

static void make_posted_calls(harpe_loop *loop) {
    if (!atomic_load(&loop->posted)) return;
    harpe_posted *newest = atomic_exchange(&loop->posted, NULL);
    harpe_posted *oldest = NULL;
    while (newest) {
        harpe_posted *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        harpe_posted *next = oldest->next; /* the call may free or post it again */
        oldest->call(oldest->user);
        oldest = next;
    }
}

/* ---- Signals --------------------------------------------------------------------------------- */

static void read_signals(void *user, uint32_t events) {
    (void)events;
    harpe_loop *loop = user;
    struct signalfd_siginfo info;
    while (read(loop->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        loop->signal_received(loop->signal_user, (int)info.ssi_signo);
}

harpe_status harpe_loop_on_signals(harpe_loop *loop, const int *signals,
                                   void (*received)(void *user, int signal_number), void *user,
                                   harpe_error *error) {
    if (loop->signal_fd >= 0)
        return harpe_fail(error, HARPE_ALREADY_EXISTS, "the loop takes signals already");
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; signals[i] != 0; i++)
        sigaddset(&set, signals[i]);

    int fd = harpe_process_signals(&set);
    if (fd < 0) return harpe_fail_errno(error, errno, "cannot receive signals");
    harpe_status status = harpe_loop_watch(loop, fd, EPOLLIN, read_signals, loop, NULL, error);
    if (status != HARPE_OK) {
        close(fd);
        return status;
    }
    loop->signal_fd = fd;
    loop->signal_received = received;
    loop->signal_user = user;
    return HARPE_OK;
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void woken(void *user, uint32_t events) {
    (void)user;
    (void)events;
}

harpe_status harpe_loop_new(harpe_loop **out, harpe_error *error) {
    harpe_loop *loop = calloc(1, sizeof *loop);
    if (!loop) return harpe_fail_memory(error);
    loop->signal_fd = -1;
    harpe_status status = HARPE_OK;
    loop->epoll_fd = harpe_process_holds(epoll_create1(EPOLL_CLOEXEC));
    loop->wake_fd = harpe_process_holds(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (loop->epoll_fd < 0 || loop->wake_fd < 0)
        status = harpe_fail_errno(error, errno, "cannot make an event loop");
    else
        status = harpe_loop_watch(loop, loop->wake_fd, EPOLLIN | EPOLLET, woken, loop, NULL, error);
    if (status != HARPE_OK) {
        harpe_loop_free(loop);
        return status;
    }
    *out = loop;
    return HARPE_OK;
}

void harpe_loop_free(harpe_loop *loop) {
    if (!loop) return;
    for (size_t i = 0; i < loop->timer_count; i++)
        free(loop->timers[i]);
    free(loop->timers);
    free_watches(&loop->watches);
    free_watches(&loop->removed);
    if (loop->signal_fd >= 0) close(loop->signal_fd);
    if (loop->wake_fd >= 0) harpe_process_close(loop->wake_fd);
    if (loop->epoll_fd >= 0) harpe_process_close(loop->epoll_fd);
    free(loop);
}

void harpe_loop_before_wait_add(harpe_loop *loop, harpe_before_wait *entry) {
    harpe_before_wait **end = &loop->before_wait;
    while (*end)
        end = &(*end)->next;
    entry->next = NULL;
    *end = entry;
}

void harpe_loop_before_wait_remove(harpe_loop *loop, harpe_before_wait *entry) {
    harpe_before_wait **place = &loop->before_wait;
    while (*place && *place != entry)
        place = &(*place)->next;
    if (!*place) return;
    *place = entry->next;
    if (loop->next_before_wait == entry) loop->next_before_wait = entry->next;
}

/* Does the work that comes before a wait. An entry may be removed meanwhile. */
static void run_before_wait(harpe_loop *loop) {
    for (harpe_before_wait *entry = loop->before_wait; entry; entry = loop->next_before_wait) {
        loop->next_before_wait = entry->next;
        entry->run(entry->user);
    }
}

/* Returns the longest time to wait, in ns; -1: no limit. */
static int64_t wait_ns(harpe_loop *loop) {
    int64_t most_ns = -1;
    run_before_wait(loop);
    for (const harpe_before_wait *entry = loop->before_wait; entry; entry = entry->next) {
        int64_t entry_ns = entry->wait_ns(entry->user);
        if (entry_ns >= 0 && (most_ns < 0 || entry_ns < most_ns)) most_ns = entry_ns;
    }
    if (loop->timer_count > 0) {
        int64_t left_ns = loop->timers[0]->due_ns - harpe_clock_ns();
        if (left_ns < 0) left_ns = 0;
        if (most_ns < 0 || left_ns < most_ns) most_ns = left_ns;
    }
    return most_ns;
}

static int wait_for_events(harpe_loop *loop, struct epoll_event *events) {
    int64_t most_ns = wait_ns(loop);
    atomic_store(&loop->is_asleep, true);
    if (atomic_load(&loop->posted) || atomic_load(&loop->is_stopping)) most_ns = 0;
    int count = harpe_epoll(loop->epoll_fd, events, EVENTS_PER_TURN, most_ns);
    atomic_store(&loop->is_asleep, false);
    return count;
}

harpe_status harpe_loop_run(harpe_loop *loop, harpe_error *error) {
    struct epoll_event events[EVENTS_PER_TURN];
    while (!atomic_load(&loop->is_stopping)) {
        int count = wait_for_events(loop, events);
        if (count < 0 && errno != EINTR)
            return harpe_fail_errno(error, errno, "cannot wait for events");
        for (int i = 0; i < count; i++) {
            harpe_watch *watch = events[i].data.ptr;
            if (watch->ready) watch->ready(watch->user, events[i].events);
        }
        make_posted_calls(loop);
        fire_timers(loop);
        free_watches(&loop->removed);
    }
    atomic_store(&loop->is_stopping, false); /* the loop may be run again */
    return HARPE_OK;
}

void harpe_loop_stop(harpe_loop *loop) {
    atomic_store(&loop->is_stopping, true);
    wake(loop);
}

/* ---- Workers --------------------------------------------------------------------------------- */

/* Pools of threads that do work for the loop. Each pool has a queue for each subject. A queue is
 * first in, first out, and the queues take turns, so a subject with much work does not delay
 * another. When a thread has finished a piece of work, it posts the call of `done` to the loop.
 *
 * The thread that became idle last gets the next work. The others stay idle, and end after some
 * time, so a pool shrinks to the number of threads that it needs. */

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
