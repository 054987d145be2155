/* SPDX-License-Identifier: Apache-2.0 */
/* The schedulers that come with Harpe. Each scheduler has one file and one row in the list of
 * scheduler_host.c. All of them read their arguments with the functions declared here. */
#ifndef HARPE_SERVER_SCHEDULER_BUILTIN_H
#define HARPE_SERVER_SCHEDULER_BUILTIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/scheduler.h>

#include "pfo/rank_clocks.h"
#include "server/scheduler/figures.h"

extern const harpe_scheduler_class harpe_point_solution;    /* a plan file, one list per rank */
extern const harpe_scheduler_class harpe_point_solution_3d; /* one list per stage, or per GPU */
extern const harpe_scheduler_class harpe_all_max_frequency;
extern const harpe_scheduler_class harpe_program_scheduler;    /* another program, JSON lines */
extern const harpe_scheduler_class harpe_instruction_profiler; /* online: measures a profile */
extern const harpe_scheduler_class harpe_perseus_scheduler;    /* online: measures, plans, learns */

/* Writes the figures of an online scheduler's state (InstructionProfiler or Perseus), for people
 * and for /metrics. */
void harpe_perseus_figures(const void *state, harpe_figures *out);
/* Implements harpe_scheduler_take_file for an online scheduler's state. */
void harpe_perseus_take_file(void *state, harpe_scheduler_file *out);

/* Tells an online scheduler's state what the ranks report of their clocks, for the next call of
 * observe. `clocks` has one element per rank of that call, and must live until it returns. */
void harpe_perseus_tell_clocks(void *state, const harpe_rank_clocks *clocks);
/* Returns the number of instructions in a rank's schedule; 0: not known yet. */
size_t harpe_perseus_schedule_length(const void *state, size_t rank);

/* The harpe_scheduler_job that built-in schedulers get, with further members. Only the program
 * scheduler uses these members. */
typedef struct harpe_host_job {
    harpe_scheduler_job base; /* the first member */
    const char *command;
    const char *what;   /* what the command runs, such as "scheduler program", for messages */
    const char *name;   /* name of the program, the class or the file */
    const char *job_id; /* also set with the 3D wrapper */
    int timeout_s;
    struct harpe_children *children; /* the list that its process is added to */
} harpe_host_job;

/* Returns true if the process has died or has not answered. Its state is then lost, and the
 * scheduler must be made again. */
bool harpe_program_is_lost(const void *state);
bool harpe_program_is_running(const void *state);

/* ---- Arguments ------------------------------------------------------------------------------- */

typedef enum harpe_scheduler_argument_kind {
    HARPE_ARGUMENT_WHOLE,   /* a whole number from `minimum` to `maximum` */
    HARPE_ARGUMENT_NUMBER,  /* a number from `minimum` to `maximum` */
    HARPE_ARGUMENT_NUMBERS, /* such a number, or a list of at least one */
    HARPE_ARGUMENT_TEXT,    /* a text that is not empty */
    HARPE_ARGUMENT_NAMES,   /* a list of at most `maximum` names of instructions */
    HARPE_ARGUMENT_OTHER,   /* checked by the scheduler */
} harpe_scheduler_argument_kind;

typedef struct harpe_scheduler_argument {
    const char *name;
    harpe_scheduler_argument_kind kind;
    double minimum, maximum;
    bool is_required;
} harpe_scheduler_argument;

/* Parses `args_json`, which has the `count` arguments of `known`. Refuses arguments that are
 * unknown, missing or of the wrong type; the message names them and `scheduler`. Free `*out` with
 * json_decref. */
harpe_status harpe_scheduler_args_read(const char *scheduler, const char *args_json,
                                       const harpe_scheduler_argument *known, size_t count,
                                       json_t **out, harpe_error *error);

/* Returns the N of a word "num_microbatches=N" in a job's metadata, or 0 if there is no such word.
 * Blanks, commas, semicolons and plus signs end a word. Clients of Zeus have no other way to give
 * the number of microbatches. */
enum { HARPE_JOB_MICROBATCHES_MAX = 1000000 };
int harpe_scheduler_job_microbatches(const harpe_job_info *job);
/* Returns the N of a word "tokens_per_step=N", the tokens of all ranks in one step, or 0. */
int64_t harpe_scheduler_job_tokens(const harpe_job_info *job);
/* Returns the first of these two words whose number cannot be used, such as
 * "num_microbatches=abc", in a buffer of HARPE_JOB_WORD_MAX + 1 bytes. `*maximum` receives the
 * largest number that this word may have. Returns false if there is none. */
enum { HARPE_JOB_WORD_MAX = 100 };
bool harpe_scheduler_job_wrong_word(const harpe_job_info *job, char *word, int64_t *maximum);

#endif
