/* SPDX-License-Identifier: Apache-2.0 */
/* Schedulers as the server runs them: found by name, path or command, and called through one small
 * object per job that keeps the last schedules and turns every kind of scheduler into the same
 * thing. Called on workers; never two calls for one job at a time. */
#ifndef HARPE_SERVER_SCHEDULER_HOST_H
#define HARPE_SERVER_SCHEDULER_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/scheduler.h>

#include "server/figures.h"

/* ---- Kinds of schedulers: one per server ------------------------------------------------------
 */

typedef struct harpe_scheduler_kind harpe_scheduler_kind;

/* `name`: one built in ("PointSolution", "Perseus" ...: see harpe_scheduler_name_at), any of them
 * or of the following with "3D:" before it (the 3D wrapper), a path that ends in .so,
 * "python:module.Class" (a process of the package harpe), or "program:COMMAND LINE" (run with
 * sh -c; JSON lines). Checks `args_json`. Unknown names are
 * refused with the closest known one. */
harpe_status harpe_scheduler_kind_open(const char *name, const char *args_json,
                                       const char *settings_json, int timeout_s, harpe_log log,
                                       harpe_scheduler_kind **out, harpe_error *error);
void harpe_scheduler_kind_close(harpe_scheduler_kind *kind);
const char *harpe_scheduler_kind_name(const harpe_scheduler_kind *kind); /* for job ids */
/* Does it compute plans, which takes the processor for long? */
bool harpe_scheduler_kind_plans(const harpe_scheduler_kind *kind);
/* Is it a shared object? */
bool harpe_scheduler_kind_is_foreign(const harpe_scheduler_kind *kind);
/* Does a process run for each job? */
bool harpe_scheduler_kind_has_programs(const harpe_scheduler_kind *kind);
/* If so: can another process take its place in the middle of a job? */
bool harpe_scheduler_kind_can_return(const harpe_scheduler_kind *kind);
/* Kills the programs of one job, and starts no more until it is forgotten. Any thread. */
void harpe_scheduler_kind_cancel(const harpe_scheduler_kind *kind, const char *job_id);
void harpe_scheduler_kind_forget(const harpe_scheduler_kind *kind, const char *job_id);
/* Kills the programs of all jobs; calls that wait for them fail, and no more are started. Any
 * thread. */
void harpe_scheduler_kind_kill(harpe_scheduler_kind *kind);
/* Built-in schedulers, for help texts; index from 0, NULL past the last. */
const char *harpe_scheduler_name_at(int index);
const char *harpe_scheduler_description_at(int index);

/* ---- One job's scheduler ----------------------------------------------------------------------
 */

typedef struct harpe_scheduler harpe_scheduler;

/* `job` and `ranks` (sorted by rank) are copied. `directory` may be NULL. */
harpe_status harpe_scheduler_new(const harpe_scheduler_kind *kind, const harpe_job_info *job,
                                 const harpe_rank_info *ranks, const char *directory,
                                 harpe_scheduler **out, harpe_error *error);
void harpe_scheduler_free(harpe_scheduler *scheduler);

/* Schedules of the next round: world_size of them in rank order, the scheduler's, valid until the
 * next call. When the scheduler has no more to say they are the last ones. */
harpe_status harpe_scheduler_next(harpe_scheduler *scheduler,
                                  const harpe_frequency_schedule **schedules, harpe_error *error);
/* One result per rank, in rank order. */
harpe_status harpe_scheduler_observe(harpe_scheduler *scheduler,
                                     const harpe_profiling_result *results, size_t count,
                                     harpe_error *error);
/* Does it look at results (still)? */
bool harpe_scheduler_observes(const harpe_scheduler *scheduler);
/* After a failed call: what it learnt is gone, but a new one may learn it again. */
bool harpe_scheduler_is_lost(const harpe_scheduler *scheduler);
/* Does a process run for it now? */
bool harpe_scheduler_has_process(const harpe_scheduler *scheduler);
bool harpe_scheduler_is_finished(const harpe_scheduler *scheduler);
/* Are results of all rounds needed to bring it back (true), or does save do it? */
bool harpe_scheduler_needs_history(const harpe_scheduler *scheduler);
harpe_status harpe_scheduler_save(const harpe_scheduler *scheduler, char **text, size_t *length,
                                  harpe_error *error);
harpe_status harpe_scheduler_load(harpe_scheduler *scheduler, const char *text, size_t length,
                                  harpe_error *error);
/* HARPE_NOT_SUPPORTED where the scheduler knows no wishes / has no frontier / no pipeline. */
harpe_status harpe_scheduler_wish_for(harpe_scheduler *scheduler, harpe_scheduler_wish wish,
                                      double value, harpe_error *error);
harpe_status harpe_scheduler_frontier(const harpe_scheduler *scheduler, char **json,
                                      harpe_error *error);
/* False: it has none. */
bool harpe_scheduler_figures(const harpe_scheduler *scheduler, harpe_figures *out);
harpe_status harpe_scheduler_pipeline(const harpe_scheduler *scheduler, int64_t number, char **json,
                                      harpe_error *error);

#endif
