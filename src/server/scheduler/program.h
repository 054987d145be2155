/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler in a process that answers questions in JSON lines. A program (program.c) and a shared
 * object (library.c) share this code. Private to these two. */
#ifndef HARPE_SERVER_SCHEDULER_PROGRAM_H
#define HARPE_SERVER_SCHEDULER_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>

#include "server/scheduler/builtin.h"
#include "server/scheduler/child.h"

typedef struct harpe_program {
    const harpe_scheduler_job *job; /* NULL: the process only examines a shared object */
    const char *command;
    const char *what; /* "scheduler program", for messages */
    const char *name; /* the program, the class or the file, for messages */
    int timeout_s;
    harpe_child child;
    json_t *schedules; /* the list in the last answer; NULL: it had none */
    bool is_finished;
} harpe_program;

/* Starts a process with the constants of `from`. End it with harpe_program_free. `job_id` must stay
 * valid as long as the process runs. */
harpe_status harpe_program_new(const harpe_program *from, harpe_children *children,
                               const char *job_id, harpe_program **out, harpe_error *error);
/* Starts the process for a job. `job` must be the first member of a harpe_host_job. */
harpe_status harpe_program_new_for_job(const harpe_scheduler_job *job, harpe_program **out,
                                       harpe_error *error);
/* Asks one question, and takes over `question`. The answer is a JSON object; free it with
 * json_decref. If the answer is missing or is no object, ends the process. If the answer has the
 * member "error", fails with this text. The status is then the answer's member "status", or
 * HARPE_INFEASIBLE if there is none. */
harpe_status harpe_program_ask(harpe_program *self, json_t *question, json_t **answer,
                               harpe_error *error);
void harpe_program_free(harpe_program *self);

/* These functions return values for questions. NULL: out of memory. */
json_t *harpe_program_init_value(const harpe_scheduler_job *job);
json_t *harpe_program_observe_value(const harpe_profiling_result *results, size_t count);
/* Passes the schedules of an answer to `writer`. */
harpe_status harpe_program_write_schedules(const json_t *schedules, harpe_schedule_writer *writer,
                                           harpe_error *error);

#endif
