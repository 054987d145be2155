/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as JSON. */
#ifndef HARPE_SERVER_ENGINE_JOB_VIEW_H
#define HARPE_SERVER_ENGINE_JOB_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "server/engine/call.h"

typedef struct harpe_jobs harpe_jobs;
typedef struct harpe_job harpe_job;

/* Answers a call of the kind HARPE_CALL_SHOW. */
void harpe_show_job(const harpe_job *job, harpe_call *call);
/* Returns one job as JSON, with its report and with its ranks grouped by state. Returns NULL if
 * memory runs out. */
char *harpe_job_row(const harpe_job *job);
/* Appends the job's row of a list. */
void harpe_job_append_row(harpe_text *text, const harpe_job *job);
/* Returns the job's final report as JSON: a row with the report and the time of the eviction,
 * without ranks. Returns NULL if memory runs out. */
char *harpe_job_final_report(const harpe_job *job, int64_t evicted_s);

/* The functions below show only jobs of the groups of `scope` (NULL: all jobs). */

/* Returns the rows of all jobs that changed after version `since`, newest job first, and the ids of
 * the jobs that were evicted since. Returns NULL if memory runs out. */
char *harpe_jobs_rows(const harpe_jobs *jobs, const char *scope, int64_t since);
/* Returns a piece of the rows of all jobs, newest first. The text begins with the place of the next
 * piece (-1: there is no next piece) and a line feed. Then it contains the rows, with commas
 * between them. `from` is the place of this piece (-1: the place of the newest job). The text is
 * empty if `from` is a place of another engine. Returns NULL if memory runs out. */
char *harpe_jobs_piece(const harpe_jobs *jobs, const char *scope, int64_t from);

/* Returns a piece of the list of all jobs, newest first. The piece begins after the place `after`
 * (NULL: at the newest job) and skips `offset` jobs. It has at most `limit` jobs, and fewer if
 * their rows are long. A place stays valid while jobs are added and evicted. A job that exists all
 * the time is listed once. If another engine gave the place, for example before a restart, jobs
 * that were registered in the same second may be listed again.
 *
 * The text begins with a line "COUNT TOTAL PLACE": the number of rows in this piece, the number of
 * all jobs, and the place after these rows ("-" if no job follows). Then it contains the rows as
 * JSON objects, separated by commas. Free it with free(). Returns NULL if memory runs out. */
char *harpe_jobs_list(const harpe_jobs *jobs, const char *scope, const char *after, size_t offset,
                      size_t limit);
/* Returns true if `text` can be a place. */
bool harpe_jobs_is_place(const char *text);

#endif
