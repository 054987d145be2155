/* SPDX-License-Identifier: Apache-2.0 */
/* The table of jobs. */
#ifndef HARPE_SERVER_ENGINE_JOB_TABLE_H
#define HARPE_SERVER_ENGINE_JOB_TABLE_H

#include "server/engine/job_state.h"

/* Returns false if memory runs out. */
bool harpe_job_table_add(harpe_job_table *table, harpe_job *job);
void harpe_job_table_remove(harpe_job_table *table, harpe_job *job);
/* Returns NULL if no job has this id. An evicted job is found as long as work uses it. */
harpe_job *harpe_job_table_find(const harpe_job_table *table, const char *id);
/* Returns the newest job with this key in this group (NULL: in no group) that is not evicted. */
harpe_job *harpe_job_table_find_key(const harpe_job_table *table, const char *key,
                                    const char *group);
/* Moves a job to the evicted jobs. A later call frees it when no work uses it any more. The table
 * keeps the id of the job until HARPE_EVICTED_KEPT other jobs have been evicted after it. */
void harpe_job_table_retire(harpe_job_table *table, harpe_job *job);
/* Adds the id of a job that was evicted earlier. Returns false if memory runs out. */
bool harpe_job_table_add_evicted(harpe_job_table *table, const char *id);
/* Returns true if a job with this id was evicted and harpe_job_table_find does not find it. */
bool harpe_job_table_has_evicted(const harpe_job_table *table, const char *id);
/* Frees the table with all jobs. */
void harpe_job_table_free(harpe_job_table *table);

#endif
