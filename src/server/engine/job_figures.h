/* SPDX-License-Identifier: Apache-2.0 */
/* Energy, time and savings of a job. */
#ifndef HARPE_SERVER_ENGINE_JOB_FIGURES_H
#define HARPE_SERVER_ENGINE_JOB_FIGURES_H

#include "base/text.h"
#include "server/engine/job_state.h"

/* Adds a result of `rank` that is stored. */
void harpe_job_count_result(harpe_job *job, int rank, const harpe_result_totals *totals);
/* Takes over the figures of the job's scheduler. */
void harpe_job_take_figures(harpe_job *job, const harpe_figures *figures);
/* Takes over what the scheduler has counted, unless it reads no results. */
void harpe_job_take_conduct(harpe_job *job, const harpe_conduct_sums *conduct,
                            int64_t tokens_per_step);
/* Returns the sums as they are stored, for the caller to free; NULL: no memory. */
char *harpe_job_save_sums(const harpe_job *job);
/* Takes over stored sums. Returns false if they cannot be read. */
bool harpe_job_load_sums(harpe_job *job, const harpe_change *record);
/* Appends the figures as a JSON object. */
void harpe_job_append_figures(harpe_text *text, const harpe_job *job);

/* Adds one job. `saved_j` counts only if its uncertainty is finite and there is a baseline. */
void harpe_figure_sums_add(harpe_figure_sums *sums, double used_j, double power_w, double saved_j,
                           double uncertainty_j, double baseline_j);
/* Appends the sums as a JSON object. */
void harpe_figure_sums_append(harpe_text *text, const char *name, const harpe_figure_sums *sums);

#endif
