/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of an online scheduler that several of its sources need: a line in the log of the job, a
 * new sweep, and what the pipeline does not include. */
#include "server/scheduler/perseus/perseus_job.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"

void harpe_perseus_log(const harpe_perseus *self, harpe_log_level level, const char *format, ...) {
    char prefix[208];
    (void)snprintf(prefix, sizeof prefix, "%.200s: ", self->job->job->job_id);
    va_list arguments;
    va_start(arguments, format);
    harpe_log_prefixed_line(&self->job->log, level, prefix, format, arguments);
    va_end(arguments);
}

harpe_online_outside harpe_perseus_outside(const harpe_perseus *self) {
    return (harpe_online_outside){self->outside_time_s > 0 ? self->outside_time_s : 0,
                                  self->outside_energy_j > 0 ? self->outside_energy_j : 0};
}

int harpe_perseus_gpus_per_stage(const harpe_perseus *self) {
    return self->job->job->dp_degree * self->job->job->tp_degree;
}

harpe_status harpe_perseus_new_sweep(const harpe_perseus *self, harpe_sweep **out,
                                     harpe_error *error) {
    const harpe_scheduler_job *job = self->job;
    return harpe_sweep_new(self->pipeline, job->ranks, job->job->world_size,
                           self->args.frequency_stride, self->args.rises_to_stop, out, error);
}

harpe_sweep *harpe_perseus_sweep_under_way(const harpe_perseus *self) {
    return self->sweep_again ? self->sweep_again : self->sweep;
}

harpe_status harpe_perseus_begin_learning(harpe_perseus *self, harpe_error *error) {
    if (self->args.learns_by_sweep) {
        self->phase = HARPE_PERSEUS_SWEEP;
        return HARPE_OK;
    }
    harpe_explorer *explorer;
    harpe_status status = harpe_explorer_new(self->pipeline, harpe_perseus_sweep_under_way(self),
                                             self->latencies, &explorer, error);
    if (status != HARPE_OK) return status;
    harpe_explorer_free(self->explorer);
    self->explorer = explorer;
    self->explores = self->explores_next = false;
    self->phase = HARPE_PERSEUS_EXPLORE;
    return HARPE_OK;
}

void harpe_perseus_find_blocking_power(harpe_perseus *self) {
    int ranks = self->job->job->pp_degree;
    bool is_given = harpe_perseus_args_have_blocking_power(&self->args);
    double sum_w = 0;
    for (int p = 0; p < ranks; p++) {
        self->blocking_powers_w[p] = is_given ? harpe_perseus_args_blocking_power_w(&self->args, p)
                                              : harpe_sweep_blocking_power_w(self->sweep, p);
        sum_w += self->blocking_powers_w[p];
    }
    self->blocking_power_w = sum_w / ranks;
}

harpe_status harpe_perseus_begin_sweep(harpe_perseus *self, int microbatches, harpe_error *error) {
    harpe_status status = harpe_online_pipeline_new(&self->args.schedule, self->job->job->pp_degree,
                                                    microbatches, &self->pipeline, error);
    if (status == HARPE_OK) status = harpe_perseus_new_sweep(self, &self->sweep, error);
    if (status == HARPE_OK)
        self->latencies =
            harpe_online_latencies_new(self->sweep->clocks, self->pipeline->rank_count);
    if (status == HARPE_OK && !self->latencies) status = harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_perseus_begin_learning(self, error);
    return status;
}

harpe_online_reports harpe_perseus_late_reports(const harpe_perseus *self) {
    harpe_online_reports reports = self->reports;
    if (!harpe_online_latencies_are_late(self->latencies)) reports.clocks = NULL;
    return reports;
}
