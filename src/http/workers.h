/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that run long work for the loop. This file does not know what the work is. */
#ifndef HARPE_HTTP_WORKERS_H
#define HARPE_HTTP_WORKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/loop.h"

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
