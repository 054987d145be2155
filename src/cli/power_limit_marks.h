/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's side of step marks: what `harpe power-limit run` passes to its command, and how it
 * learns of the marks. Two ways lead to it: counts in shared memory (harpe_power_limit_mark_step)
 * and lines in a pipe (any other language). */
#ifndef HARPE_CLI_POWER_LIMIT_MARKS_H
#define HARPE_CLI_POWER_LIMIT_MARKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>

#include "powerlimit/mark.h"

typedef struct harpe_step_marks {
    harpe_mark_board *board;
    int memory;                         /* of the board */
    int lines;                          /* read end of the pipe; does not block */
    int lines_end;                      /* the command's end; -1 once it is passed on */
    int bell;                           /* readable after a mark in the memory */
    uint64_t taken_steps, taken_epochs; /* of the board */
    pthread_t listener;
    atomic_bool is_over;
    bool has_listener;
} harpe_step_marks;

/* Sets the variables of the environment that name the pipe and the memory. */
harpe_status harpe_step_marks_open(harpe_step_marks *marks, harpe_error *error);
/* Called once the command has been started, so that the end of the pipe can be detected. */
void harpe_step_marks_passed_on(harpe_step_marks *marks);
void harpe_step_marks_close(harpe_step_marks *marks);

/* The next mark in the memory: 's' a step, 'e' an epoch, '\0' none is waiting. */
char harpe_step_marks_next(harpe_step_marks *marks);
/* Takes everything that waits in the memory at once. */
void harpe_step_marks_take_all(harpe_step_marks *marks, uint64_t *steps, uint64_t *epochs);

#endif
