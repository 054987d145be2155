/* SPDX-License-Identifier: Apache-2.0 */
/* A child process with pipes for its standard input and output. Private to program.c. */
#ifndef HARPE_SERVER_SCHEDULERS_CHILD_H
#define HARPE_SERVER_SCHEDULERS_CHILD_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include <harpe/status.h>

struct harpe_child;

/* The children of one server, so that all can be killed from another thread. */
typedef struct harpe_children {
    pthread_mutex_t mutex;
    struct harpe_child *first;
    bool is_over; /* no more are started */
} harpe_children;

void harpe_children_init(harpe_children *children);
void harpe_children_destroy(harpe_children *children); /* once all children are stopped */
/* Kills all children and the processes that they started, and starts no more. A thread that waits
 * for the answer of a child sees that it has ended. Any thread. */
void harpe_children_kill(harpe_children *children);

typedef struct harpe_child {
    harpe_children *all;
    struct harpe_child *previous, *next; /* in `all` while it runs */
    pid_t process;                       /* 0: not running; also its process group */
    int input, output;                   /* its standard input and output; -1 when not running */
} harpe_child;

void harpe_child_init(harpe_child *self, harpe_children *all);
/* Runs `command` with sh -c. */
harpe_status harpe_child_start(harpe_child *self, const char *command, harpe_error *error);
/* Its input ends; then it has a moment; then it and what it started are killed. Does nothing where
 * nothing runs. */
void harpe_child_stop(harpe_child *self);

#endif
