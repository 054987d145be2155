/* SPDX-License-Identifier: Apache-2.0 */
/* How to write a scheduler: the part of the server that decides which rank runs which instruction
 * at which frequency. A scheduler is one table of functions. Those built in are rows of a list;
 * one of your own is a shared object that exports harpe_scheduler_entry, and `harpe serve
 * --scheduler ./mine.so` loads it, in a process of its own for each job. The shared object links
 * to nothing of Harpe: the functions that a scheduler calls are passed to it as pointers.
 *
 * For one job the server calls create once, then next_schedule, then for each round observe and
 * next_schedule in turn, then destroy. The calls of one job never overlap. In the process of a
 * shared object all calls come from one thread. They run beside the event loop, so a call may take
 * up to scheduler_timeout; ranks wait meanwhile. After a restart of the server the scheduler is
 * brought back to its state: through load if it has save and load, otherwise through create,
 * next_schedule and observe with the results of every round so far.
 *
 * A function that fails fills `error` with one readable line, which the waiting ranks get, and
 * returns its status. */
#ifndef HARPE_SCHEDULER_H
#define HARPE_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/pfo.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

#define HARPE_SCHEDULER_ABI 1

/* What a scheduler learns when its job starts. Valid until destroy has returned. */
typedef struct harpe_scheduler_job {
    const harpe_job_info *job;
    const harpe_rank_info *ranks; /* sorted by rank, job->world_size of them */
    const char *settings_json;    /* the server's settings, an object */
    const char *args_json;        /* SCHEDULER_ARGS, an object */
    const char *directory;        /* where the job's files go (exists); NULL: nothing is dumped */
    harpe_log log;                /* callable from the thread of the call */
} harpe_scheduler_job;

/* Takes the schedules that next_schedule decides on. */
typedef struct harpe_schedule_writer harpe_schedule_writer;
struct harpe_schedule_writer {
    /* Appends an instruction to `rank`'s schedule; `instruction` is copied. HARPE_INVALID_ARGUMENT
     * for a rank outside the job or a negative frequency: return it. A rank without any gets an
     * empty schedule. */
    harpe_status (*add)(harpe_schedule_writer *writer, int rank, const char *instruction,
                        int frequency_mhz, harpe_error *error);
    /* Says that this round's schedules, of all ranks, are only tried, as in a sweep: ranks that
     * lose the server leave them for their highest clocks, where they stay with other schedules. */
    void (*mark_trial)(harpe_schedule_writer *writer);
};

/* A wish that reaches a scheduler from outside, for the rounds to come. */
typedef enum harpe_scheduler_wish {
    HARPE_WISH_SLOWDOWN = 0, /* a straggler: iterations take value (>= 1) times T_min anyway */
    HARPE_WISH_ITERATION_TIME = 1, /* the same, said in s */
    HARPE_WISH_POWER_CAP = 2,      /* average power of the whole job at most value W; 0: none */
    HARPE_WISH_PLAN_TIME =
        3, /* run the plan whose iteration time is nearest below value s; 0: none */
} harpe_scheduler_wish;

/* Pipelines that have no number of a plan. */
enum harpe_pipeline_of {
    HARPE_PIPELINE_RUNNING = -1,     /* of the plan that runs */
    HARPE_PIPELINE_ALL_MAXIMUM = -2, /* every instruction at its highest frequency */
};

/* Members marked optional may be NULL. */
typedef struct harpe_scheduler_class {
    int abi;          /* HARPE_SCHEDULER_ABI */
    const char *name; /* shown in job ids and messages: letters, digits, _ */
    /* What the server must know before the first job: called at start, refuses arguments that
     * create would not accept, naming the argument. Optional. */
    harpe_status (*check_args)(const char *args_json, harpe_error *error);
    harpe_status (*create)(const harpe_scheduler_job *job, void **state, harpe_error *error);
    /* Once this returned no instruction at all for any rank, or is_finished says so, the last
     * schedule is served for ever. One that has both observe and is_finished may begin with empty
     * schedules: the ranks then run at their highest clocks, and it learns from what they report.
     */
    harpe_status (*next_schedule)(void *state, harpe_schedule_writer *writer, harpe_error *error);
    /* One result per rank, sorted by rank; valid during the call. Optional. */
    harpe_status (*observe)(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error);
    void (*destroy)(void *state);

    /* True: nothing observed will change a schedule any more. The server then keeps no results and
     * calls neither observe nor next_schedule, but for one next_schedule after the observe or
     * wish that finished it. Optional: false. */
    bool (*is_finished)(const void *state);
    /* The state as text (to be freed with free()), and back after create. Optional, both or none.
     */
    harpe_status (*save)(const void *state, char **text, size_t *length, harpe_error *error);
    harpe_status (*load)(void *state, const char *text, size_t length, harpe_error *error);
    /* Optional: wishes are refused with 409. */
    harpe_status (*wish)(void *state, harpe_scheduler_wish wish, double value, harpe_error *error);
    /* The frontier that the job runs on, as a JSON object (to be freed with free()). Optional. */
    harpe_status (*frontier)(const void *state, char **json, harpe_error *error);
    /* A plan of that frontier in time, as a JSON object (docs/dashboard.md; to be freed with
     * free()): plan `number` of its "plans", or one of harpe_pipeline_of. Optional. */
    harpe_status (*pipeline)(const void *state, int64_t number, char **json, harpe_error *error);
} harpe_scheduler_class;

/* What a shared object exports; the table must stay valid while it is loaded. */
typedef const harpe_scheduler_class *(*harpe_scheduler_entry_function)(void);
#define HARPE_SCHEDULER_ENTRY "harpe_scheduler_entry"

HARPE_END_DECLS

#endif
