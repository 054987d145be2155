/* SPDX-License-Identifier: Apache-2.0 */
/* Receives step signals: makes the objects that `harpe power-limit run` passes to its command, and
 * reads the signals. There are two kinds of signals: counts in shared memory
 * (harpe_power_limit_mark_step), and lines in a pipe (for any other language). */
#ifndef HARPE_CLI_POWER_LIMIT_STEP_SIGNALS_H
#define HARPE_CLI_POWER_LIMIT_STEP_SIGNALS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>

#include "powerlimit/step_signal.h"

typedef struct harpe_step_signals {
    harpe_step_memory *shared;
    int memory;    /* descriptor of `shared` */
    int lines;     /* read end of the pipe; does not block */
    int lines_end; /* the command's end of the pipe; -1 after it was passed on */
    int bell;      /* descriptor that becomes readable after a signal in the memory */
    uint64_t taken_steps, taken_epochs; /* steps and epochs already taken out of `shared` */
    pthread_t listener;
    atomic_bool is_over;
    bool has_listener;
} harpe_step_signals;

/* Makes the pipe and the memory, and sets the environment variables that name them. */
harpe_status harpe_step_signals_open(harpe_step_signals *signals, harpe_error *error);
/* Closes the command's end of the pipe in this process. Call it after the command has started.
 * Otherwise this process could not detect the end of the pipe. */
void harpe_step_signals_passed_on(harpe_step_signals *signals);
void harpe_step_signals_close(harpe_step_signals *signals);

/* Returns the next signal in the memory: 's' for a step, 'e' for an epoch, '\0' for none. */
char harpe_step_signals_next(harpe_step_signals *signals);
/* Takes all signals in the memory at once. */
void harpe_step_signals_take_all(harpe_step_signals *signals, uint64_t *steps, uint64_t *epochs);

#endif
