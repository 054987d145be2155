/* SPDX-License-Identifier: Apache-2.0 */
/* When the server keeps the bounds on dumps (dump_bounds.h). Call it on the loop. */
#ifndef HARPE_SERVER_ENGINE_DUMP_SWEEP_H
#define HARPE_SERVER_ENGINE_DUMP_SWEEP_H

#include "server/engine/job_state.h"

/* The files of this job are removed soon. If memory runs out, they stay until they are too old. */
void harpe_dump_sweep_forget(harpe_jobs *jobs, const char *job_id);
/* Begins to remove files if it is time. Call it often. */
void harpe_dump_sweep_check(harpe_jobs *jobs);

#endif
