/* SPDX-License-Identifier: Apache-2.0 */
/* A command of the user that marks its steps. There are two kinds of marks: counts in shared memory
 * (harpe_power_limit_mark_step), and lines in a pipe (for any other language). Lines are counted in
 * the same memory. */
#ifndef HARPE_CLI_MARKED_COMMAND_H
#define HARPE_CLI_MARKED_COMMAND_H

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/status.h>

#include "power_limit/step_signal.h"

/* The functions that are called for marks, on the thread that follows the command. */
typedef struct harpe_marks {
    const char *program; /* the beginning of messages, such as "harpe power-limit run" */
    /* NULL: the caller reads the marks in the memory itself. Otherwise none is NULL. */
    void (*step)(void *user);
    void (*epoch)(void *user);
    /* Called when this process was stopped and continues, with the numbers of marks that were made
     * in the meantime. */
    void (*pass_over)(void *user, uint64_t steps, uint64_t epochs);
    void (*caught_up)(void *user); /* called when no mark is left */
    void (*tick)(void *user);      /* called about every `tick_ns`; may be NULL */
    int64_t tick_ns;
    void *user;
} harpe_marks;

/* The memory and the pipe that the command gets, and the marks that are read from both. */
typedef struct harpe_step_channel {
    harpe_step_memory *shared;
    int memory;    /* descriptor of `shared` */
    int lines;     /* read end of the pipe; does not block */
    int lines_end; /* the command's end of the pipe; -1 after it was passed on */
    int bell;      /* descriptor that becomes readable after a signal in the memory; -1: none */
    uint64_t taken_steps, taken_epochs; /* steps and epochs already taken out of `shared` */
    pthread_t listener;
    atomic_bool is_over;
    bool has_listener;
} harpe_step_channel;

/* Initialise with zeros. */
typedef struct harpe_marked_command {
    const harpe_marks *marks;
    pid_t id;
    harpe_step_channel step_signals;
    sigset_t mask; /* of the command */
    int signals;   /* signalfd */
    int wait_code; /* valid after the command has ended */
    bool has_ended;
    char line[32]; /* the incomplete last line from the pipe */
    size_t line_length;
    int64_t unknown_count; /* lines that are no marks */
} harpe_marked_command;

/* Returns true if the user made a mistake, such as naming a file that cannot be used. Such a
 * mistake ends the program before a long job starts. */
bool harpe_marked_command_is_users_mistake(harpe_status status);

/* Makes the channel of marks, and sets the environment variables that name it. Blocks the signals
 * that are passed on. */
harpe_status harpe_marked_command_prepare(harpe_marked_command *child, const harpe_marks *marks,
                                          harpe_error *error);
/* Starts the command. `actions` has the caller's actions for the command's descriptors; NULL: none.
 * This function adds actions of its own. */
harpe_status harpe_marked_command_start(harpe_marked_command *child, char *const *command,
                                        posix_spawn_file_actions_t *actions, harpe_error *error);
/* Calls the functions of the marks until the command has ended. */
void harpe_marked_command_follow(harpe_marked_command *child);
/* Ends the channel of marks, and frees the memory and the pipe. */
void harpe_marked_command_close(harpe_marked_command *child);

#endif
