/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of one job, found by their number. */
#ifndef HARPE_SERVER_ENGINE_JOB_RANKS_H
#define HARPE_SERVER_ENGINE_JOB_RANKS_H

#include <stddef.h>

#include "server/engine/job_state.h"

/* Returns NULL if no request has named this rank, or if the job has no such rank. The rank stays
 * valid until harpe_job_release. */
harpe_rank *harpe_job_rank(const harpe_job *job, int rank);
/* Like harpe_job_rank, but makes the rank if no request has named it yet. Returns NULL if there is
 * no memory, or if the job has no such rank. */
harpe_rank *harpe_job_make_rank(harpe_job *job, int rank);
/* Returns the first rank that exists and whose number is *rank or higher, and sets *rank to its
 * number. Returns NULL if there is none, and sets *rank to world_size. A loop that calls this
 * function with r, and then adds 1 to r, visits every registered or asking rank. It may also visit
 * empty ranks. */
harpe_rank *harpe_job_next_rank(const harpe_job *job, int *rank);
/* Returns an array of all ranks in their order, for a job whose ranks are all registered. Free the
 * array with free(); its elements point to memory of the job. Returns NULL if memory runs out.
 * May be called on a worker. */
harpe_rank_info *harpe_job_rank_infos(const harpe_job *job);
/* Returns the index of a rank's coordinates (dp_rank, pp_rank, tp_rank) among all coordinates of
 * the job. */
size_t harpe_job_coordinate(const harpe_job *job, const harpe_rank_info *rank);
void harpe_job_free_ranks(harpe_job *job);

#endif
