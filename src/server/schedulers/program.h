/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler in a process, which is asked in JSON lines. This is what a program (program.c) and a
 * shared object (library.c) have in common. Private to these two. */
#ifndef HARPE_SERVER_SCHEDULERS_PROGRAM_H
#define HARPE_SERVER_SCHEDULERS_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>

#include "server/schedulers/builtin.h"
#include "server/schedulers/child.h"

typedef struct harpe_program {
    const harpe_scheduler_job *job; /* NULL: it is only looked at */
    const char *command;
    const char *what; /* "scheduler program", for messages */
    const char *name; /* the same */
    int timeout_s;
    harpe_child child;
    json_t *schedules; /* the last answer's list; NULL: nothing new */
    bool is_finished;
} harpe_program;

/* Starts a process with the constants of `from`; harpe_program_free ends it. `job_id` lives as long
 * as the process. */
harpe_status harpe_program_new(const harpe_program *from, harpe_children *children,
                               const char *job_id, harpe_program **out, harpe_error *error);
/* Starts the process of the job that a host has made. */
harpe_status harpe_program_new_for_job(const harpe_scheduler_job *job, harpe_program **out,
                                       harpe_error *error);
/* Asks one question (taken over). The answer is an object, to be freed with json_decref. Ends the
 * process if there is no such answer. An answer with "error" is that error; its status is the
 * number "status", or HARPE_INFEASIBLE. */
harpe_status harpe_program_ask(harpe_program *self, json_t *question, json_t **answer,
                               harpe_error *error);
void harpe_program_free(harpe_program *self);

/* The values of questions; NULL: out of memory. */
json_t *harpe_program_init_value(const harpe_scheduler_job *job);
json_t *harpe_program_observe_value(const harpe_profiling_result *results, size_t count);
/* Gives the schedules of an answer to the server. */
harpe_status harpe_program_write_schedules(const json_t *schedules, harpe_schedule_writer *writer,
                                           harpe_error *error);

#endif
