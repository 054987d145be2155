/* SPDX-License-Identifier: Apache-2.0 */
/* The one event loop of the server (epoll, eventfd, signalfd) and the worker pool beside it. All
 * state of the server belongs to the loop's thread; what may take long goes to a worker and comes
 * back as a call on the loop. Knows nothing of HTTP, jobs or stores. */
#ifndef HARPE_SERVER_LOOP_H
#define HARPE_SERVER_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

typedef struct harpe_loop harpe_loop;
typedef struct harpe_watch harpe_watch;
typedef struct harpe_timer harpe_timer;

harpe_status harpe_loop_new(harpe_loop **out, harpe_error *error);
/* After run has returned. Timers and watches that are left are freed. Calls that were posted and
 * not yet made are dropped. */
void harpe_loop_free(harpe_loop *loop);

/* Runs until harpe_loop_stop was called. */
harpe_status harpe_loop_run(harpe_loop *loop, harpe_error *error);
/* Any thread; also async-signal-safe. */
void harpe_loop_stop(harpe_loop *loop);

/* Calls `ready` with the epoll events whenever `fd` has some of `events` (EPOLLIN, EPOLLOUT,
 * EPOLLRDHUP, EPOLLET ...). The fd stays the caller's. A watch may be removed inside any callback,
 * its own included. Loop thread. */
harpe_status harpe_loop_watch(harpe_loop *loop, int fd, uint32_t events,
                              void (*ready)(void *user, uint32_t events), void *user,
                              harpe_watch **out, harpe_error *error);
harpe_status harpe_watch_change(harpe_watch *watch, uint32_t events, harpe_error *error);
void harpe_watch_remove(harpe_watch *watch); /* NULL is fine */

/* Calls `due` once, `delay_ms` from now or later (0: after what is ready now). Cancelled by
 * harpe_timer_cancel; a timer that has fired is gone. O(log n). Loop thread. */
harpe_status harpe_loop_after(harpe_loop *loop, int64_t delay_ms, void (*due)(void *user),
                              void *user, harpe_timer **out, harpe_error *error);
void harpe_timer_cancel(harpe_timer *timer);

/* Something that runs before every wait and has its own idea of when it must run again: returns ms
 * until then, -1 for 'when something happens'. At most one (the HTTP server). Loop thread. */
void harpe_loop_before_wait(harpe_loop *loop, int64_t (*run)(void *user), void *user);

/* Has `call(user)` called on the loop. Any thread; in order. Never fails: the memory is the
 * caller's, embedded in something of its own that lives until the call. */
typedef struct harpe_posted {
    struct harpe_posted *next;
    void (*call)(void *user);
    void *user;
} harpe_posted;
void harpe_loop_post(harpe_loop *loop, harpe_posted *posted);

/* Signals in `signals` (ended by 0) come as calls on the loop instead.
 * Blocks them in the calling thread: call it before any thread is made. */
harpe_status harpe_loop_on_signals(harpe_loop *loop, const int *signals,
                                   void (*received)(void *user, int signal_number), void *user,
                                   harpe_error *error);

/* ---- Workers ------------------------------------------------------------------------------ */

/* Threads in pools, one pool for each use, so that work of one use never waits for work of another.
 * A pool starts threads when work waits and all of its threads are busy, up to its bound. */
typedef struct harpe_workers harpe_workers;

typedef enum harpe_pool {
    HARPE_POOL_DECODE,   /* bodies of requests */
    HARPE_POOL_STORE,    /* reads from the store */
    HARPE_POOL_SCHEDULE, /* schedulers that only answer, or that wait for another program */
    HARPE_POOL_PLAN,     /* schedulers that compute plans; their threads have a lower priority */
    HARPE_POOL_DUMP,     /* files for people */
    HARPE_POOL_COUNT,
} harpe_pool;

/* A piece of work; embedded in something of the caller's that lives until `done` (or, where `done`
 * is NULL, until the end of `work`). */
typedef struct harpe_work {
    void (*work)(void *user); /* on a worker */
    void (*done)(void *user); /* on the loop, after it */
    void *user;
    harpe_pool pool;
    const char *subject; /* the job's id, or NULL; always the same pointer for one job */
    harpe_posted posted;
    struct harpe_work *next;                /* the first of the next queue */
    struct harpe_work *behind, *queue_last; /* in this queue */
    harpe_workers *workers;
    int64_t submitted_ns;
} harpe_work;

/* Each pool has at most `count` threads, and at least 1, and a deadline of 60 s. */
harpe_status harpe_workers_new(harpe_loop *loop, int count, harpe_workers **out,
                               harpe_error *error);
/* Sets how many threads a pool has at most (at least 1; threads that run stay) and after how many
 * seconds harpe_workers_fault calls its work stuck. Loop thread. */
void harpe_workers_limit(harpe_workers *workers, harpe_pool which, int count, int64_t deadline_s);
/* Drops work that has not begun, without calling its `done`, and waits at most `wait_ms` for work
 * that runs. False: some work still runs; then nothing that it uses may be freed, including
 * `workers`. */
bool harpe_workers_close(harpe_workers *workers, int64_t wait_ms);
/* As harpe_workers_close, without a limit; and frees them. NULL is fine. */
void harpe_workers_free(harpe_workers *workers);

/* Queues work. In each pool, work of one subject is done in the order of submission, and the
 * subjects take turns. Loop thread. */
void harpe_workers_submit(harpe_workers *workers, harpe_work *work);
/* Pieces begun or waiting. */
int harpe_workers_pending(const harpe_workers *workers);
/* True: work has run or waited for longer than `deadline_s` of its pool; `line` names it.
 * `deadline_s` -1: the deadline of the pool; 0: any work that runs. Any thread. */
bool harpe_workers_fault(const harpe_workers *workers, int64_t deadline_s, char *line, size_t size);

#endif
