/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a scheduler. A scheduler is the part of the server that decides which rank runs
 * which instruction at which frequency. A scheduler is one table of functions. The built-in
 * schedulers are rows of a list. Your own scheduler is a shared object that exports
 * harpe_scheduler_entry. `harpe serve --scheduler ./mine.so` loads the shared object in a separate
 * process for each job. The shared object does not link to Harpe: it receives pointers to the
 * functions that it calls.
 *
 * For each job the server calls create once, then next_schedule, then observe and next_schedule
 * for each round, and finally destroy. The calls of one job never overlap. In the process of a
 * shared object, all calls come from one thread. Calls do not run on the server's event loop, so
 * a call may take up to scheduler_timeout; ranks wait meanwhile. After a restart, the server
 * restores the scheduler's state: with load if the scheduler has save and load, and otherwise
 * with create, next_schedule, and observe with the results of every past round.
 *
 * A function that fails writes one readable line into `error` and returns the status. The waiting
 * ranks receive the line. */
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

/* What a scheduler receives when its job starts. Valid until destroy has returned. */
typedef struct harpe_scheduler_job {
    const harpe_job_info *job;
    const harpe_rank_info *ranks; /* sorted by rank, job->world_size of them */
    const char *settings_json;    /* the server's settings, a JSON object */
    const char *args_json;        /* SCHEDULER_ARGS, a JSON object */
    const char *directory;        /* existing directory for the job's files; NULL: no files are
                                   * dumped */
    harpe_log log;                /* the scheduler may call it during a call, on the same thread */
} harpe_scheduler_job;

/* Receives the schedules that next_schedule decides on. */
typedef struct harpe_schedule_writer harpe_schedule_writer;
struct harpe_schedule_writer {
    /* Appends a copy of `instruction` to the schedule of `rank`. Fails with
     * HARPE_INVALID_ARGUMENT for a rank outside the job or a negative frequency; return that
     * status. A rank without instructions gets an empty schedule. */
    harpe_status (*add)(harpe_schedule_writer *writer, int rank, const char *instruction,
                        int frequency_mhz, harpe_error *error);
    /* Marks the schedules of all ranks in this round as trial schedules, as in a sweep. A rank that
     * loses the server stops using a trial schedule and runs at its highest clocks. It keeps any
     * other schedule. */
    void (*mark_trial)(harpe_schedule_writer *writer);
};

/* The kinds of job requests. A request comes from a person or program and applies to later
 * rounds. */
typedef enum harpe_scheduler_job_request {
    /* A straggler: iterations take at least value (>= 1) times T_min. */
    HARPE_JOB_REQUEST_SLOWDOWN = 0,
    /* A straggler: iterations take at least value s. */
    HARPE_JOB_REQUEST_ITERATION_TIME = 1,
    /* The whole job draws at most value W on average; 0: no cap. */
    HARPE_JOB_REQUEST_POWER_CAP = 2,
    /* Run the slowest plan whose iteration takes at most value s; 0: none. */
    HARPE_JOB_REQUEST_PLAN_TIME = 3,
    /* The old names. */
    HARPE_WISH_SLOWDOWN HARPE_DEPRECATED("use HARPE_JOB_REQUEST_SLOWDOWN") = 0,
    HARPE_WISH_ITERATION_TIME HARPE_DEPRECATED("use HARPE_JOB_REQUEST_ITERATION_TIME") = 1,
    HARPE_WISH_POWER_CAP HARPE_DEPRECATED("use HARPE_JOB_REQUEST_POWER_CAP") = 2,
    HARPE_WISH_PLAN_TIME HARPE_DEPRECATED("use HARPE_JOB_REQUEST_PLAN_TIME") = 3,
} harpe_scheduler_job_request;
typedef harpe_scheduler_job_request
    harpe_scheduler_wish HARPE_DEPRECATED("use harpe_scheduler_job_request");

/* Values of `number` in harpe_scheduler_class.pipeline for plans without an index. */
enum harpe_pipeline_of {
    HARPE_PIPELINE_RUNNING = -1,     /* the plan that runs now */
    HARPE_PIPELINE_ALL_MAXIMUM = -2, /* every instruction at its highest frequency */
};

/* Optional members may be NULL. */
typedef struct harpe_scheduler_class {
    int abi;          /* HARPE_SCHEDULER_ABI */
    const char *name; /* shown in job ids and messages; letters, digits and _ */
    /* Checks the arguments at the server's start, before the first job. Refuses arguments that
     * create would refuse, and names the argument. Optional. */
    harpe_status (*check_args)(const char *args_json, harpe_error *error);
    harpe_status (*create)(const harpe_scheduler_job *job, void **state, harpe_error *error);
    /* Writes the schedules of the next round. If it writes no instruction for any rank, or if
     * is_finished returns true, the server serves the last schedules for ever. A scheduler that
     * has both observe and is_finished may begin with empty schedules: the ranks then run at
     * their highest clocks, and the scheduler learns from their results. */
    harpe_status (*next_schedule)(void *state, harpe_schedule_writer *writer, harpe_error *error);
    /* Receives one result per rank, sorted by rank. The results are valid during the call.
     * Optional. */
    harpe_status (*observe)(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error);
    void (*destroy)(void *state);

    /* Returns true if no observation will change a schedule any more. The server then keeps no
     * results and calls neither observe nor next_schedule, with one exception: it calls
     * next_schedule once after the observe or job_request that finished the scheduler. Optional;
     * without it, the scheduler never finishes. */
    bool (*is_finished)(const void *state);
    /* Write the state as text, which the caller frees with free(), and read it back after
     * create. Optional, but define both or neither. */
    harpe_status (*save)(const void *state, char **text, size_t *length, harpe_error *error);
    harpe_status (*load)(void *state, const char *text, size_t length, harpe_error *error);
    /* Handles a job request. Optional: without it the server answers job requests with 409. */
    union {
        harpe_status (*job_request)(void *state, harpe_scheduler_job_request request, double value,
                                    harpe_error *error);
        harpe_status (*wish)(void *state, harpe_scheduler_job_request request, double value,
                             harpe_error *error) HARPE_DEPRECATED("use job_request");
    };
    /* Returns the frontier of the job as a JSON object, which the caller frees with free().
     * Optional. */
    harpe_status (*frontier)(const void *state, char **json, harpe_error *error);
    /* Returns a plan of that frontier over time as a JSON object (docs/dashboard.md), which the
     * caller frees with free(). `number` is an index into the frontier's "plans", or a value of
     * harpe_pipeline_of. Optional. */
    harpe_status (*pipeline)(const void *state, int64_t number, char **json, harpe_error *error);
} harpe_scheduler_class;

/* The function that a shared object exports. Its table must stay valid while the object is
 * loaded. */
typedef const harpe_scheduler_class *(*harpe_scheduler_entry_function)(void);
#define HARPE_SCHEDULER_ENTRY "harpe_scheduler_entry"

HARPE_END_DECLS

#endif
