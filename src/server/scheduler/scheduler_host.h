/* SPDX-License-Identifier: Apache-2.0 */
/* The schedulers that the server runs. A scheduler is found by its name, path or command. Each job
 * has one object (harpe_scheduler), which keeps the last schedules and hides the kind of the
 * scheduler. The functions are called on workers, and for one job never at the same time. */
#ifndef HARPE_SERVER_SCHEDULER_SCHEDULER_HOST_H
#define HARPE_SERVER_SCHEDULER_SCHEDULER_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/scheduler.h>

#include "pfo/rank_clocks.h"
#include "server/scheduler/figures.h"
#include "server/scheduler/hosts.h"

/* ---- Kinds of schedulers: one per server ----------------------------------------------------- */

/* Its members are private to scheduler_host.c, and to tests. */
typedef struct harpe_scheduler_kind {
    const harpe_scheduler_class *class;
    bool is_3d;                          /* it uses the 3D wrapper */
    harpe_scheduler_class library_class; /* for a shared object: asks the process */
    char *library_name;
    char *command;    /* the program, or NULL */
    const char *what; /* "scheduler program", and so on, for messages */
    char *shown;      /* the program, the class or the file, for messages */
    bool is_library;  /* a shared object, which the process loads */
    char *name, *args_json, *settings_json;
    int timeout_s;
    harpe_log log;
    harpe_children children; /* the programs that run */
} harpe_scheduler_kind;

/* `name` is a built-in scheduler ("PointSolution", "Perseus" ...: see harpe_scheduler_name_at), a
 * path that ends in .so, "python:module.Class" (a process of the package harpe), or
 * "program:COMMAND LINE" (run with sh -c; JSON lines). Each of them may have "3D:" before it (the
 * 3D wrapper). Checks `args_json`. Refuses an unknown name and suggests the closest known one. */
harpe_status harpe_scheduler_kind_open(const char *name, const char *args_json,
                                       const char *settings_json, int timeout_s, harpe_log log,
                                       harpe_scheduler_kind **out, harpe_error *error);
void harpe_scheduler_kind_close(harpe_scheduler_kind *kind);
const char *harpe_scheduler_kind_name(const harpe_scheduler_kind *kind); /* for job ids */
/* Returns true if the scheduler has this name, or is a built-in one that also has this name. */
bool harpe_scheduler_kind_is_called(const harpe_scheduler_kind *kind, const char *name);
/* Returns true if the scheduler computes plans. This can use the processor for a long time. */
bool harpe_scheduler_kind_plans(const harpe_scheduler_kind *kind);
/* Returns true if the scheduler is a shared object. */
bool harpe_scheduler_kind_is_foreign(const harpe_scheduler_kind *kind);
/* Returns true if a new scheduler can replace the job's scheduler in the middle of the job. */
bool harpe_scheduler_kind_can_return(const harpe_scheduler_kind *kind);
/* Kills the programs of one job. No more programs are started for this job until it is forgotten.
 * Can be called on any thread. */
void harpe_scheduler_kind_cancel(const harpe_scheduler_kind *kind, const char *job_id);
void harpe_scheduler_kind_forget(const harpe_scheduler_kind *kind, const char *job_id);
/* Kills the programs of all jobs. Calls that wait for a program fail. No more programs are started.
 * Can be called on any thread. */
void harpe_scheduler_kind_kill(harpe_scheduler_kind *kind);
/* Returns the name of a built-in scheduler, for help texts. `index` counts from 0. Returns NULL
 * after the last scheduler. */
const char *harpe_scheduler_name_at(int index);

/* ---- One job's scheduler --------------------------------------------------------------------- */

typedef struct harpe_scheduler harpe_scheduler;

/* `job` and `ranks` (sorted by rank) are copied. `directory` may be NULL. */
harpe_status harpe_scheduler_new(const harpe_scheduler_kind *kind, const harpe_job_info *job,
                                 const harpe_rank_info *ranks, const char *directory,
                                 harpe_scheduler **out, harpe_error *error);
void harpe_scheduler_free(harpe_scheduler *scheduler);

/* Returns the schedules of the next round: one for each rank, in the order of ranks. They belong to
 * the scheduler and are valid until the next call. If the scheduler has finished, they are the last
 * schedules. */
harpe_status harpe_scheduler_next(harpe_scheduler *scheduler,
                                  const harpe_frequency_schedule **schedules, harpe_error *error);
/* Passes the results of a round to the scheduler: one for each rank, in the order of ranks. */
harpe_status harpe_scheduler_observe(harpe_scheduler *scheduler,
                                     const harpe_profiling_result *results, size_t count,
                                     harpe_error *error);
/* Passes what the ranks report of their clocks, one per rank, before harpe_scheduler_observe gets
 * the results of the same round. `clocks` must live until then. Only online schedulers use it. */
void harpe_scheduler_tell_clocks(harpe_scheduler *scheduler, const harpe_rank_clocks *clocks);
/* Returns the number of instructions whose clocks a rank may report; 0: not known yet, or the
 * scheduler does not use clocks. `rank` is less than the number of ranks. */
size_t harpe_scheduler_clocks_max(const harpe_scheduler *scheduler, size_t rank);
/* Adds what the ranks of a round say of their conduct, in the order of ranks, to the sums of
 * harpe_scheduler_conduct. Call it after harpe_scheduler_observe, with the same results. */
void harpe_scheduler_count_conduct(harpe_scheduler *scheduler,
                                   const harpe_profiling_result *results,
                                   const harpe_conduct *conducts, size_t count);
/* Returns the sums over all rounds that the scheduler has observed, also before a restart. */
harpe_conduct_sums harpe_scheduler_conduct(const harpe_scheduler *scheduler);
/* Returns the tokens of a step, as a rank or the job's metadata has them; 0: not known. */
int64_t harpe_scheduler_tokens_per_step(const harpe_scheduler *scheduler);
/* Returns true if the scheduler is a program or a library of the user. */
bool harpe_scheduler_is_custom(const harpe_scheduler *scheduler);
/* Returns true if the scheduler still reads results. */
bool harpe_scheduler_observes(const harpe_scheduler *scheduler);
/* Returns true if the scheduler's state was lost in a failed call. A new scheduler can get the
 * state back from the stored results. */
bool harpe_scheduler_is_lost(const harpe_scheduler *scheduler);
/* Returns true if a process runs for it now. */
bool harpe_scheduler_has_process(const harpe_scheduler *scheduler);
bool harpe_scheduler_is_finished(const harpe_scheduler *scheduler);
/* Returns true if a new scheduler needs the results of all rounds. Returns false if
 * harpe_scheduler_save can save the state. */
bool harpe_scheduler_needs_history(const harpe_scheduler *scheduler);
harpe_status harpe_scheduler_save(const harpe_scheduler *scheduler, char **text, size_t *length,
                                  harpe_error *error);
harpe_status harpe_scheduler_load(harpe_scheduler *scheduler, const char *text, size_t length,
                                  harpe_error *error);
/* Return HARPE_NOT_SUPPORTED if the scheduler accepts no job requests, has no frontier, or has no
 * pipeline. */
harpe_status harpe_scheduler_handle_request(harpe_scheduler *scheduler,
                                            harpe_scheduler_job_request request, double value,
                                            harpe_error *error);
harpe_status harpe_scheduler_frontier(const harpe_scheduler *scheduler, char **json,
                                      harpe_error *error);
/* Returns false if the scheduler has no figures. */
bool harpe_scheduler_figures(const harpe_scheduler *scheduler, harpe_figures *out);
/* Frees the old file of `out`. Then moves the scheduler's file, if there is one to write, into
 * `out`. */
void harpe_scheduler_take_file(harpe_scheduler *scheduler, harpe_scheduler_file *out);
harpe_status harpe_scheduler_pipeline(const harpe_scheduler *scheduler, int64_t number, char **json,
                                      harpe_error *error);

#endif
