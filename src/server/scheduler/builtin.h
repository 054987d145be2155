/* SPDX-License-Identifier: Apache-2.0 */
/* The schedulers that come with Harpe. Each scheduler has one file and one row in the list of
 * scheduler_host.c. All of them read their arguments with the functions declared here. */
#ifndef HARPE_SERVER_SCHEDULER_BUILTIN_H
#define HARPE_SERVER_SCHEDULER_BUILTIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/pfo.h>
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

/* Makes an online scheduler's state store these sums, and read them again. They must outlive it. */
void harpe_perseus_keep_conduct(void *state, harpe_conduct_sums *sums);
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

/* ---- Stages ---------------------------------------------------------------------------------- */

/* The 3D wrapper. It lets schedulers that support only pipelines schedule data and tensor parallel
 * jobs. Such a scheduler sees one rank per stage, and one result per stage: the maximum of the
 * times and the sum of the energies of the stage's ranks. */

typedef struct harpe_stages harpe_stages;

/* `ranks` (sorted by rank, job->world_size of them) must outlive the stages. Refuses a stage whose
 * ranks have no frequency in common. */
harpe_status harpe_stages_new(const harpe_job_info *job, const harpe_rank_info *ranks,
                              harpe_stages **out, harpe_error *error);
void harpe_stages_free(harpe_stages *stages);

/* Returns the job that a scheduler sees: dp = tp = 1, world_size = pp_degree, rank = pp_rank, and
 * the stage's common frequencies in the order of its first rank. */
const harpe_job_info *harpe_stages_job(const harpe_stages *stages);
const harpe_rank_info *harpe_stages_ranks(const harpe_stages *stages);

/* Combines one result per rank (in rank order) into one per stage, valid until the next call. If
 * lengths differ within a stage, returns HARPE_INVALID_INPUT and names both ranks. */
harpe_status harpe_stages_combine(harpe_stages *stages, const harpe_profiling_result *results,
                                  const harpe_profiling_result **combined, harpe_error *error);

/* Returns the breakdown of an instruction, or NULL. */
const harpe_breakdown *harpe_find_breakdown(const harpe_breakdown *list, size_t count,
                                            const char *instruction);

/* Returns whether a rank's GPU offers a frequency. */
bool harpe_rank_has_frequency(const harpe_rank_info *rank, int frequency_mhz);

/* ---- Stored structures ----------------------------------------------------------------------- */

/* Structures in the stored state of a scheduler. A table names the members of a structure that are
 * stored, and the least and the most value that each of them may have. The same table writes the
 * structure as JSON, checks JSON, and reads it. */

typedef enum harpe_stored_kind {
    HARPE_STORED_BOOL,
    HARPE_STORED_INT,
    HARPE_STORED_INT64,
    HARPE_STORED_SIZE,
    HARPE_STORED_DOUBLE,
} harpe_stored_kind;

typedef struct harpe_stored_member {
    const char *name;
    harpe_stored_kind kind;
    size_t offset, count; /* count: more than 1 for an array */
    double bounds[2];     /* the least and the most value */
} harpe_stored_member;

typedef struct harpe_stored {
    size_t size; /* of the structure */
    const harpe_stored_member *members;
    size_t count;
} harpe_stored;

/* Any finite number, and any number that counts something or is a time of a clock. */
#define HARPE_STORED_ANY -1e300, 1e300
#define HARPE_STORED_COUNT 0, 1e15

#define HARPE_STORED_PART(type, member) (((type *)0)->member)
#define HARPE_STORED_KIND(value) \
    _Generic((value), \
        bool: HARPE_STORED_BOOL, \
        int: HARPE_STORED_INT, \
        unsigned: HARPE_STORED_INT, \
        int64_t: HARPE_STORED_INT64, \
        int64_t *: HARPE_STORED_INT64, \
        size_t: HARPE_STORED_SIZE, \
        double: HARPE_STORED_DOUBLE, \
        double *: HARPE_STORED_DOUBLE)
#define HARPE_STORED_UNIT(value) \
    _Generic((value), int64_t *: sizeof(int64_t), double *: sizeof(double), default: sizeof(value))
/* A member of a table: a number, a truth value, or an array of numbers. */
#define HARPE_STORED(type, member, ...) \
    { \
        .name = #member, .kind = HARPE_STORED_KIND(HARPE_STORED_PART(type, member)), \
        .offset = offsetof(type, member), \
        .count = sizeof HARPE_STORED_PART(type, member) / \
                 (HARPE_STORED_UNIT(HARPE_STORED_PART(type, member))), \
        .bounds = { \
            __VA_ARGS__ \
        } \
    }
/* A member of a table: a structure that has only members of type double, or an array of these. */
#define HARPE_STORED_DOUBLES(type, member, ...) \
    { \
        .name = #member, .kind = HARPE_STORED_DOUBLE, .offset = offsetof(type, member), \
        .count = sizeof HARPE_STORED_PART(type, member) / (sizeof(double)), .bounds = { \
            __VA_ARGS__ \
        } \
    }
#define HARPE_STORED_TABLE(type, members) \
    { sizeof(type), members, sizeof(members) / sizeof(members)[0] }

/* Returns an object with the stored members of a structure. Returns NULL if memory runs out. */
json_t *harpe_stored_save(const harpe_stored *table, const void *from);
/* Reads such an object. Returns false, and changes nothing, if a member is missing or not within
 * its bounds. */
bool harpe_stored_load(const harpe_stored *table, void *to, const json_t *saved);

/* The same for structures of which there can be many: a row is a list without names. If a row does
 * not match the table, its first members may have been read already. */
json_t *harpe_stored_save_row(const harpe_stored *table, const void *from);
bool harpe_stored_load_row(const harpe_stored *table, void *to, const json_t *saved);
json_t *harpe_stored_save_rows(const harpe_stored *table, const void *first, size_t count);
bool harpe_stored_load_rows(const harpe_stored *table, void *first, size_t count,
                            const json_t *saved);

/* The same for a list of clocks, in MHz. */
json_t *harpe_stored_save_clocks(const int *mhz, size_t count);
bool harpe_stored_load_clocks(int *mhz, size_t count, const json_t *saved);

/* Add a value to a list or to an object, which becomes NULL if memory runs out or is NULL. */
void harpe_stored_append(json_t **list, json_t *value);
void harpe_stored_add(json_t **object, const char *name, json_t *value);

#endif
