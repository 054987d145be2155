/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the results that an earlier server has stored to the figures of their job. */
#ifndef HARPE_SERVER_ENGINE_COUNT_STORED_H
#define HARPE_SERVER_ENGINE_COUNT_STORED_H

#include "server/engine/job_state.h"

/* Finds out which figures of a loaded job are known. */
void harpe_count_stored_begin(harpe_job *job);
/* Begins the turn that counts the results of job->uncounted ranks. */
void harpe_begin_count_stored(harpe_job *job);

#endif
