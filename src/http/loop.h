/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop of a server (epoll, eventfd, signalfd). All state of the server belongs to the
 * loop's thread. Work that may take long goes to a worker, and its result returns as a
 * call on the loop. This file knows nothing of HTTP. */
#ifndef HARPE_HTTP_LOOP_H
#define HARPE_HTTP_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

typedef struct harpe_loop harpe_loop;
typedef struct harpe_watch harpe_watch;
typedef struct harpe_timer harpe_timer;

harpe_status harpe_loop_new(harpe_loop **out, harpe_error *error);
/* Frees a loop after run has returned. Remaining timers and watches are freed. Posted calls that
 * were not made are dropped. */
void harpe_loop_free(harpe_loop *loop);

/* Runs until harpe_loop_stop is called. */
harpe_status harpe_loop_run(harpe_loop *loop, harpe_error *error);
/* Stops the loop. May be called on any thread and in a signal handler. */
void harpe_loop_stop(harpe_loop *loop);

/* Calls `ready` with the epoll events whenever `fd` has some of `events` (EPOLLIN, EPOLLOUT,
 * EPOLLRDHUP, EPOLLET ...). The fd stays the caller's. Any callback may remove any watch. Call it
 * on the loop's thread. */
harpe_status harpe_loop_watch(harpe_loop *loop, int fd, uint32_t events,
                              void (*ready)(void *user, uint32_t events), void *user,
                              harpe_watch **out, harpe_error *error);
harpe_status harpe_watch_change(harpe_watch *watch, uint32_t events, harpe_error *error);
void harpe_watch_remove(harpe_watch *watch); /* NULL is allowed */

/* Calls `due` once, `delay_ms` from now or later (0: after everything that is ready now).
 * harpe_timer_cancel cancels the timer. A timer that has fired no longer exists. O(log n). Call it
 * on the loop's thread. */
harpe_status harpe_loop_after(harpe_loop *loop, int64_t delay_ms, void (*due)(void *user),
                              void *user, harpe_timer **out, harpe_error *error);
void harpe_timer_cancel(harpe_timer *timer);

/* Describes work that is done before each wait, such as the queues of an HTTP server. It never
 * fails, because the caller provides the memory, which lives until harpe_loop_before_wait_remove.
 * The loop first calls the `run` of each entry and then the `wait_ns` of each entry, because a
 * `run` may give work to another entry. */
typedef struct harpe_before_wait {
    void (*run)(void *user);
    /* Returns the number of ns after which the loop must call `run` again at the latest, or -1 if
     * the loop may wait for an event. */
    int64_t (*wait_ns)(void *user);
    void *user;
    struct harpe_before_wait *next;
} harpe_before_wait;

/* Adds an entry. Call both functions on the loop's thread, also within a `run`. */
void harpe_loop_before_wait_add(harpe_loop *loop, harpe_before_wait *entry);
/* Removes an entry. Does nothing if the entry was not added. */
void harpe_loop_before_wait_remove(harpe_loop *loop, harpe_before_wait *entry);

/* Describes a call of `call(user)` on the loop. harpe_loop_post may be called on any thread, and
 * the calls are made in the order of posting. It never fails, because the caller provides the
 * memory: harpe_posted is a member of a structure that lives until the call. */
typedef struct harpe_posted {
    struct harpe_posted *next;
    void (*call)(void *user);
    void *user;
} harpe_posted;
void harpe_loop_post(harpe_loop *loop, harpe_posted *posted);

/* Calls `received` on the loop for each signal of `signals`, a list that ends with 0. The signals
 * then have no other effect. Blocks these signals in the calling thread, so call it before any
 * other thread is started. */
harpe_status harpe_loop_on_signals(harpe_loop *loop, const int *signals,
                                   void (*received)(void *user, int signal_number), void *user,
                                   harpe_error *error);

/* ---- Workers --------------------------------------------------------------------------------- */

/* Threads that run long work for the loop. This file does not know what the work is. */

/* Threads in pools, one pool for each use, so that work of one use never waits for work of another.
 * A pool starts a thread when work waits and all of its threads are busy, up to its limit. A thread
 * that gets no work for a minute ends, except the last one. */
typedef struct harpe_workers harpe_workers;

/* The use of a pool. Pools have numbers from 0, in the order of the array. */
typedef struct harpe_pool_kind {
    const char *name;    /* for messages */
    const char *subject; /* the kind of its subjects, for messages, such as "job" */
    int niceness;        /* niceness of its threads; 0: that of the process */
} harpe_pool_kind;

/* A piece of work. It is a member of a structure of the caller's that lives until `done` or, if
 * `done` is NULL, until the end of `work`. */
typedef struct harpe_work {
    void (*work)(void *user); /* on a worker */
    void (*done)(void *user); /* on the loop, after `work` */
    void *user;
    int pool;            /* number of its pool */
    const char *subject; /* a name, or NULL; always the same pointer for one subject */
    harpe_posted posted;
    struct harpe_work *next;                /* the first work of the next queue */
    struct harpe_work *same_bucket;         /* the first work of another queue in the same bucket */
    struct harpe_work *behind, *queue_last; /* the next and the last work of this queue */
    harpe_workers *workers;
    int64_t submitted_ns;
} harpe_work;

/* Makes a pool for each element of `pools`. This array ends with a NULL name and must stay valid
 * until harpe_workers_free. Each pool has at most `count` threads (at least 1) and a deadline of 60
 * s. */
harpe_status harpe_workers_new(harpe_loop *loop, const harpe_pool_kind *pools, int count,
                               harpe_workers **out, harpe_error *error);
/* Sets the greatest number of threads of a pool (at least 1; running threads stay) and the number
 * of seconds after which harpe_workers_fault reports its work as stuck. Call it on the loop's
 * thread. */
void harpe_workers_limit(harpe_workers *workers, int which, int count, int64_t deadline_s);
/* Sets the time after which a thread without work ends, for threads that become idle from now on.
 */
void harpe_workers_keep_idle(harpe_workers *workers, int64_t idle_ms);
/* Drops work that has not begun, without calling its `done`, and waits at most `wait_ms` for work
 * that runs. Returns false if some work still runs. Then nothing that the work uses may be freed,
 * including `workers`. */
bool harpe_workers_close(harpe_workers *workers, int64_t wait_ms);
/* Does the same as harpe_workers_close, without a time limit, and frees the workers. NULL is
 * allowed. */
void harpe_workers_free(harpe_workers *workers);

/* Queues work. In each pool, work of one subject is done in the order of submission, and the
 * subjects take turns. Call it on the loop's thread. */
void harpe_workers_submit(harpe_workers *workers, harpe_work *work);
/* Returns the number of pieces of work that run or wait. */
int harpe_workers_pending(const harpe_workers *workers);
/* Returns true and writes a line if the work of a pool has run or waited for at least `deadline_s`.
 * -1 means the deadline of each pool, and 0 means any work that runs or waits. May be called on any
 * thread. */
bool harpe_workers_fault(const harpe_workers *workers, int64_t deadline_s, char *line, size_t size);

#endif
