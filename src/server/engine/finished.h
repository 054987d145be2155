/* SPDX-License-Identifier: Apache-2.0 */
/* The final reports of evicted jobs. The engine keeps at most `max_finished_jobs` of them, and no
 * report longer than `max_finished_job_time` of running time. The store has the same reports, so
 * they survive a restart. Only the loop uses this. */
#ifndef HARPE_SERVER_ENGINE_FINISHED_H
#define HARPE_SERVER_ENGINE_FINISHED_H

#include <harpe/status.h>

#include "server/engine/call.h"
#include "server/engine/finished_state.h"
#include "server/engine/job_state.h"
#include "server/store/change.h"

/* Puts the job's final report into `operation`, whose change deletes the job. Puts none if no
 * reports are kept, or if the job had no round and no failure. If memory runs out, puts none: the
 * eviction is more important. */
void harpe_finished_prepare(const harpe_job *job, harpe_operation *operation);
/* Keeps the report of a stored change: DELETED or FINISHED. */
void harpe_finished_add(harpe_jobs *jobs, const harpe_change *change);
/* Removes the reports that are older than `max_finished_job_time`. Returns the uptime, in s, before
 * which all removed reports were made. Returns 0 if the server has not run for so long. */
int64_t harpe_finished_forget_old(harpe_jobs *jobs);
/* Answers a call of the kind HARPE_CALL_FINISHED: {"jobs": [...], "count": N}, the newest first, or
 * one report. Only reports of jobs whose groups the scope of the call covers. */
void harpe_finished_answer(const harpe_jobs *jobs, harpe_call *call);
void harpe_finished_free(harpe_finished *finished);

#endif
