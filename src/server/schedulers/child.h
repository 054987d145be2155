/* SPDX-License-Identifier: Apache-2.0 */
/* A child process with pipes for its standard input and output. Private to program.c. */
#ifndef HARPE_SERVER_SCHEDULERS_CHILD_H
#define HARPE_SERVER_SCHEDULERS_CHILD_H

#include <sys/types.h>

#include <harpe/status.h>

typedef struct harpe_child {
    pid_t process;     /* 0: not running; also its process group */
    int input, output; /* its standard input and output; -1 when not running */
} harpe_child;

void harpe_child_init(harpe_child *self);
/* Runs `command` with sh -c. */
harpe_status harpe_child_start(harpe_child *self, const char *command, harpe_error *error);
/* Its input ends; then it has a moment; then it and what it started are killed. Does nothing where
 * nothing runs. */
void harpe_child_stop(harpe_child *self);

#endif
