/* SPDX-License-Identifier: Apache-2.0 */
/* The 3D wrapper. It lets schedulers that support only pipelines schedule data and tensor parallel
 * jobs. Such a scheduler sees one rank per stage, and one result per stage: the maximum of the
 * times and the sum of the energies of the stage's ranks. */
#ifndef HARPE_SERVER_SCHEDULER_STAGES_H
#define HARPE_SERVER_SCHEDULER_STAGES_H

#include <harpe/pfo.h>

typedef struct harpe_stages harpe_stages;

/* `ranks` (sorted by rank, job->world_size of them) must outlive the stages. Refuses a stage whose
 * ranks have no frequency in common. */
harpe_status harpe_stages_new(const harpe_job_info *job, const harpe_rank_info *ranks,
                              harpe_stages **out, harpe_error *error);
void harpe_stages_free(harpe_stages *stages);

/* Returns the job that a scheduler sees: dp = tp = 1, world_size = pp_degree, rank = pp_rank, and
 * the stage's common frequencies in the order of its first rank. */
const harpe_job_info *harpe_stages_job(const harpe_stages *stages);
const harpe_rank_info *harpe_stages_ranks(const harpe_stages *stages);

/* Combines one result per rank (in rank order) into one per stage, valid until the next call. If
 * lengths differ within a stage, returns HARPE_INVALID_INPUT and names both ranks. */
harpe_status harpe_stages_combine(harpe_stages *stages, const harpe_profiling_result *results,
                                  const harpe_profiling_result **combined, harpe_error *error);

/* Returns the breakdown of an instruction, or NULL. */
const harpe_breakdown *harpe_find_breakdown(const harpe_breakdown *list, size_t count,
                                            const char *instruction);

/* Returns whether a rank's GPU offers a frequency. */
bool harpe_rank_has_frequency(const harpe_rank_info *rank, int frequency_mhz);

#endif
