/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees jobs, and computes their states from their data. */
#ifndef HARPE_SERVER_ENGINE_JOB_H
#define HARPE_SERVER_ENGINE_JOB_H

#include "server/engine/job_state.h"

/* Makes a job without ranks, and takes over `id` and `info` on success. Returns NULL if there is no
 * memory. */
harpe_job *harpe_job_new(harpe_jobs *jobs, char *id, harpe_job_info *info);
void harpe_job_free(harpe_job *job);
/* Frees all data that only a job that is not evicted needs, unless a worker still reads the job. */
void harpe_job_release(harpe_job *job);

harpe_job_state harpe_job_state_of(const harpe_job *job);
const char *harpe_job_state_name(harpe_job_state state);
const char *harpe_rank_state_name(const harpe_job *job, int rank);
/* Returns true if all ranks have reported their result of the current round, or if there was no
 * round yet. */
bool harpe_job_round_is_over(const harpe_job *job);
/* Returns true if all ranks have reported the end of their training. */
bool harpe_job_has_ended(const harpe_job *job);

#endif
