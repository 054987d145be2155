/* SPDX-License-Identifier: Apache-2.0 */
/* Frees schedulers. */
#ifndef HARPE_SERVER_ENGINE_SCHEDULER_END_H
#define HARPE_SERVER_ENGINE_SCHEDULER_END_H

#include "server/engine/job_state.h"

/* Frees the job's scheduler on a worker, because this may wait for the end of a program. Does not
 * change job->scheduler. */
void harpe_job_end_scheduler(const harpe_job *job);

#endif
