/* SPDX-License-Identifier: Apache-2.0 */
/* Watchers: calls that are held until a job has changed. */
#ifndef HARPE_SERVER_ENGINE_CHANGES_H
#define HARPE_SERVER_ENGINE_CHANGES_H

#include "server/engine/call.h"
#include "server/engine/job_state.h"

/* Call this before the first job is made. */
void harpe_changes_begin(harpe_jobs *jobs);
/* Call this after changes. Answers the watchers after a short delay. */
void harpe_changes_tell(harpe_jobs *jobs);
/* Answers the call if its client knows no version of this engine. Otherwise holds the call until
 * there is a newer version. `job` NULL: the call is about all jobs. */
void harpe_ask_for_changes(harpe_jobs *jobs, harpe_job *job, harpe_call *call);
/* Call this after a change of the tree of groups: clients whose tokens are limited to groups may
 * see other jobs now, and get the whole list again. */
void harpe_changes_regroup(harpe_jobs *jobs);
/* Answers 503 to all watchers. */
void harpe_changes_end(harpe_jobs *jobs);

#endif
