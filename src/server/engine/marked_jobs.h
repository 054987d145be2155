/* SPDX-License-Identifier: Apache-2.0 */
/* Marks jobs that have changed, and collects calls that the loop handles again. */
#ifndef HARPE_SERVER_ENGINE_MARKED_JOBS_H
#define HARPE_SERVER_ENGINE_MARKED_JOBS_H

#include "server/engine/job_state.h"

/* Call this when a row of the job (harpe_job_row) may have changed, when the job may have to
 * continue, and after job requests. The loop then does what the job's state requires
 * (harpe_job_advance), and answers the watchers. This function calls no other function of the
 * engine, with one exception: when the program ends, the loop does not run any more, and this
 * function handles the jobs itself. */
void harpe_job_changed(harpe_job *job);
/* Does the same as harpe_job_changed, for a change that watchers do not see. */
void harpe_job_wake(harpe_job *job);
/* Removes the mark of the job that was marked first, and returns the job. Returns NULL if no job is
 * marked. */
harpe_job *harpe_jobs_take_marked(harpe_jobs *jobs);
/* Takes all calls out of `calls`. The loop handles them again later. Until then harpe_jobs_forget
 * may remove each of them. */
void harpe_jobs_handle_again(harpe_jobs *jobs, harpe_call_list *calls);

#endif
