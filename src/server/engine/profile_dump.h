/* SPDX-License-Identifier: Apache-2.0 */
/* The file with the profile that a scheduler has measured. */
#ifndef HARPE_SERVER_ENGINE_PROFILE_DUMP_H
#define HARPE_SERVER_ENGINE_PROFILE_DUMP_H

#include "server/engine/job_state.h"
#include "server/scheduler/scheduler_host.h"

/* Takes over `file`, and writes it on a worker. */
void harpe_dump_profile(harpe_job *job, harpe_scheduler_file *file);
/* Stops trying to write a file. The next server tries again. */
void harpe_profile_dump_give_up(const harpe_job *job);

#endif
