/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps of ranks, schedules and results. A worker writes them if the settings ask for dumps. */
#ifndef HARPE_SERVER_ENGINE_DUMPS_H
#define HARPE_SERVER_ENGINE_DUMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/engine/job_state.h"

void harpe_dump_ranks(harpe_job *job);
void harpe_dump_schedules(harpe_job *job, int64_t round, harpe_round_text *text);
/* Queues the dump of a round's results. `results` NULL: all results are in the store. */
void harpe_dump_results(harpe_job *job, int64_t round, harpe_round_results *results);
/* Returns the first round whose dump is not finished, or `otherwise` if that is earlier. */
int64_t harpe_dumps_first_round(const harpe_job *job, int64_t otherwise);
/* Starts to write the dumps that were queued while the job was restored. */
void harpe_dumps_begin(const harpe_job *job);
/* Stops trying to write dumps that have failed. The next server tries again. */
void harpe_dumps_give_up(harpe_job *job);
/* Returns the path of the job's directory, which need not exist; NULL: none is possible, or memory
 * ran out. Free it with free(). Any thread. */
char *harpe_dump_directory(const harpe_jobs *jobs, const char *job_id);

#endif
