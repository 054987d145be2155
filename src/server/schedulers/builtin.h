/* SPDX-License-Identifier: Apache-2.0 */
/* The schedulers that come with Harpe, each one file and one row in the list of scheduler_kind.c,
 * and what they share: strict reading of their arguments. */
#ifndef HARPE_SERVER_SCHEDULERS_BUILTIN_H
#define HARPE_SERVER_SCHEDULERS_BUILTIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/scheduler.h>

#include "server/figures.h"

extern const harpe_scheduler_class harpe_point_solution; /* a plan file, one list per rank */
extern const harpe_scheduler_class harpe_all_max_frequency;
extern const harpe_scheduler_class harpe_highest_frequency;    /* the same, without arguments */
extern const harpe_scheduler_class harpe_program_scheduler;    /* another program, JSON lines */
extern const harpe_scheduler_class harpe_instruction_profiler; /* online: measures a profile */
extern const harpe_scheduler_class harpe_perseus_scheduler;    /* online: measures, plans, learns */

/* Figures of either online scheduler's state, for people and /metrics. */
void harpe_perseus_figures(const void *state, harpe_figures *out);

/* What built-in schedulers get behind the harpe_scheduler_job: only the program one uses it. */
typedef struct harpe_host_job {
    harpe_scheduler_job base; /* first */
    const char *command;
    const char *what;   /* that the command runs: "scheduler program", for messages */
    const char *name;   /* its own: the program, the class or the file */
    const char *job_id; /* with the 3D wrapper, too */
    int timeout_s;
    struct harpe_children *children; /* the list that its process is added to */
} harpe_host_job;

/* Its process died or did not answer: it remembers nothing, and is to be made anew. */
bool harpe_program_is_lost(const void *state);
bool harpe_program_is_running(const void *state);

/* ---- Arguments --------------------------------------------------------------------------------
 */

/* One argument: exactly those in a list ended by a NULL name are accepted. */
typedef struct harpe_scheduler_argument {
    const char *name;
    bool is_text; /* else a whole number from 1 to `maximum` */
    bool is_optional;
    int64_t maximum;
} harpe_scheduler_argument;

/* Parses `args_json`; refuses arguments that are unknown, missing or of the wrong type, naming them
 * and `scheduler`. Free `*out` with json_decref. */
harpe_status harpe_scheduler_args_read(const char *scheduler, const char *args_json,
                                       const harpe_scheduler_argument *known, json_t **out,
                                       harpe_error *error);

/* The N of a word "num_microbatches=N" in a job's metadata (words end at blanks, commas, semicolons
 * and plus signs); 0: there is none. Clients of Zeus have no other way to describe their steps. */
enum { HARPE_JOB_MICROBATCHES_MAX = 1000000 };
int harpe_scheduler_job_microbatches(const harpe_job_info *job);

#endif
