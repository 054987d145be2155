/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over all jobs of the engine and describes each of them. This file changes no job. */
#include "server/engine/job_glance.h"

#include "server/engine/job.h"
#include "server/engine/job_table.h"

static harpe_job_glance glance_at(harpe_job *job) {
    bool is_over = harpe_job_round_is_over(job);
    return (harpe_job_glance){.id = job->id,
                              .metadata = job->info.job_metadata,
                              .group = job->group,
                              .world_size = job->info.world_size,
                              .has_begun = job->registered == job->info.world_size,
                              .has_ended = harpe_job_has_ended(job),
                              .has_failed = job->failure != NULL,
                              .is_ready = job->is_ready,
                              .round = job->round,
                              .reported_round = is_over ? job->round : job->round - 1,
                              .figures = &job->figures,
                              .member = &job->member,
                              .account = &job->account};
}

void harpe_jobs_glance(harpe_jobs *jobs, void (*visit)(void *user, const harpe_job_glance *glance),
                       void *user) {
    for (harpe_job *job = jobs->table.newest, *older; job; job = older) {
        older = job->older;
        if (!job->is_stored || job->is_evicted) continue;
        harpe_job_glance glance = glance_at(job);
        visit(user, &glance);
    }
}

void harpe_jobs_on_eviction(harpe_jobs *jobs,
                            void (*begins)(void *user, const harpe_job_glance *glance),
                            void *user) {
    jobs->eviction_begins = begins;
    jobs->eviction_user = user;
}

void harpe_job_tell_eviction(harpe_job *job) {
    harpe_job_glance glance = glance_at(job);
    if (job->jobs->eviction_begins) job->jobs->eviction_begins(job->jobs->eviction_user, &glance);
}

int64_t harpe_jobs_round_of(const harpe_jobs *jobs, const char *job_id) {
    const harpe_job *job = harpe_job_table_find(&jobs->table, job_id);
    return job ? job->round : -1;
}

bool harpe_jobs_have(const harpe_jobs *jobs, const char *job_id) {
    const harpe_job *job = harpe_job_table_find(&jobs->table, job_id);
    return job && !job->is_evicted;
}
