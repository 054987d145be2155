/* SPDX-License-Identifier: Apache-2.0 */
/* A program with pipes for its standard input and output. A supervisor (supervisor.h) runs the
 * program, and ends it together with all processes that the program has started. Private to
 * program.c and scheduler_host.c. */
#ifndef HARPE_SERVER_SCHEDULER_CHILD_H
#define HARPE_SERVER_SCHEDULER_CHILD_H

#include <pthread.h>
#include <stdbool.h>

#include <harpe/status.h>

struct harpe_child;
struct harpe_cancelled;

/* The children of one server, so that they can be killed from another thread. */
typedef struct harpe_children {
    pthread_mutex_t mutex;
    struct harpe_child *first;
    struct harpe_cancelled *cancelled; /* the jobs for which no more programs are started */
    bool is_over;                      /* no more programs are started */
} harpe_children;

void harpe_children_init(harpe_children *children);
void harpe_children_destroy(harpe_children *children); /* once all children are stopped */
/* Kills all children and the processes that they have started. After this call no more children are
 * started. A thread that waits for the answer of a child notices that the child has ended. Can be
 * called on any thread. */
void harpe_children_kill(harpe_children *children);
/* Kills the children of one job in the same way. No more children are started for this job until
 * harpe_children_forget. Can be called on any thread. */
void harpe_children_cancel(harpe_children *children, const char *job_id);
void harpe_children_forget(harpe_children *children, const char *job_id);

typedef struct harpe_child {
    harpe_children *all;
    const char *job_id;                  /* belongs to the owner; "" if the child has no job */
    struct harpe_child *previous, *next; /* in `all` while it runs */
    int leash;                           /* socket to its supervisor; -1: not running */
    int input, output;                   /* its standard input and output; -1: not running */
} harpe_child;

void harpe_child_init(harpe_child *self, harpe_children *all, const char *job_id);
bool harpe_child_is_running(const harpe_child *self);
/* Runs `command` with sh -c. */
harpe_status harpe_child_start(harpe_child *self, const char *command, harpe_error *error);
/* Closes the program's input. A short time later the supervisor kills the processes that still run.
 * This function does not wait. It does nothing if the child does not run. */
void harpe_child_stop(harpe_child *self);
/* Returns true if the server starts no more programs, or none for the child's job. */
bool harpe_child_is_refused(const harpe_child *self);
/* Waits until the program has ended, for at most `timeout_ms`. Then kills it and waits until it has
 * ended. Describes the end in `how`: "exit status 3" or "signal 11 (Segmentation fault)", and then
 * a colon and the last line of the program's standard error. `how` is "" if this function killed
 * the program, or if the cause of the end is not known. */
void harpe_child_end(harpe_child *self, int timeout_ms, char *how, size_t size);

#endif
