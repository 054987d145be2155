/* SPDX-License-Identifier: Apache-2.0 */
/* A program with pipes for its standard input and output, run by a keeper (keeper.h), which ends it
 * and all that it starts. Private to program.c and scheduler_kind.c. */
#ifndef HARPE_SERVER_SCHEDULERS_CHILD_H
#define HARPE_SERVER_SCHEDULERS_CHILD_H

#include <pthread.h>
#include <stdbool.h>

#include <harpe/status.h>

struct harpe_child;
struct harpe_cancelled;

/* The children of one server, so that they can be killed from another thread. */
typedef struct harpe_children {
    pthread_mutex_t mutex;
    struct harpe_child *first;
    struct harpe_cancelled *cancelled; /* jobs for which no more are started */
    bool is_over;                      /* no more are started */
} harpe_children;

void harpe_children_init(harpe_children *children);
void harpe_children_destroy(harpe_children *children); /* once all children are stopped */
/* Kills all children and the processes that they started, and starts no more. A thread that waits
 * for the answer of a child sees that it has ended. Any thread. */
void harpe_children_kill(harpe_children *children);
/* The same for the children of one job, until harpe_children_forget. Any thread. */
void harpe_children_cancel(harpe_children *children, const char *job_id);
void harpe_children_forget(harpe_children *children, const char *job_id);

typedef struct harpe_child {
    harpe_children *all;
    const char *job_id;                  /* the owner's; "" if it is not a job's */
    struct harpe_child *previous, *next; /* in `all` while it runs */
    int leash;                           /* to its keeper; -1: not running */
    int input, output;                   /* its standard input and output; -1: not running */
} harpe_child;

void harpe_child_init(harpe_child *self, harpe_children *all, const char *job_id);
bool harpe_child_is_running(const harpe_child *self);
/* Runs `command` with sh -c. */
harpe_status harpe_child_start(harpe_child *self, const char *command, harpe_error *error);
/* Closes the program's input; the keeper kills what still runs after a moment. Does not wait. Does
 * nothing if the child does not run. */
void harpe_child_stop(harpe_child *self);
/* True: its server, or its job, starts no more programs. */
bool harpe_child_is_refused(const harpe_child *self);
/* Waits for `patience_ms` for the program to end, then kills it and waits until it has ended.
 * Writes how it ended into `how`: "exit status 3" or "signal 11 (Segmentation fault)", then a
 * colon and the last line of its standard error; "" if it was killed here or that is not known. */
void harpe_child_end(harpe_child *self, int patience_ms, char *how, size_t size);

#endif
