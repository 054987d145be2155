/* SPDX-License-Identifier: Apache-2.0 */
/* The one event loop of the server (epoll, eventfd, signalfd) and the worker pool beside it. All
 * state of the server belongs to the loop's thread; what may take long goes to a worker and comes
 * back as a call on the loop. Knows nothing of HTTP, jobs or stores. */
#ifndef HARPE_SERVER_LOOP_H
#define HARPE_SERVER_LOOP_H

#include <stdbool.h>
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

typedef struct harpe_workers harpe_workers;

/* `count` threads, at least 1. */
harpe_status harpe_workers_new(harpe_loop *loop, int count, harpe_workers **out,
                               harpe_error *error);
/* Lets running work end; work that was not begun is dropped without its `done`. */
void harpe_workers_free(harpe_workers *workers);

/* A piece of work; embedded in something of the caller's that lives until `done` (or, where `done`
 * is NULL, until the end of `work`). */
typedef struct harpe_work {
    void (*work)(void *user); /* on a worker */
    void (*done)(void *user); /* on the loop, after it */
    void *user;
    harpe_posted posted;
    struct harpe_work *next;
    harpe_workers *workers;
} harpe_work;
/* First in, first out. Loop thread. */
void harpe_workers_submit(harpe_workers *workers, harpe_work *work);
/* Pieces begun or waiting. */
int harpe_workers_pending(const harpe_workers *workers);

#endif
