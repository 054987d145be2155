/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs from the store. */
#ifndef HARPE_SERVER_ENGINE_RESTORE_H
#define HARPE_SERVER_ENGINE_RESTORE_H

#include "server/engine/job_state.h"

/* Loads all jobs of the store. Blocks. */
harpe_status harpe_jobs_load(harpe_jobs *jobs, harpe_error *error);

#endif
