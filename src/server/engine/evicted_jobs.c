/* SPDX-License-Identifier: Apache-2.0 */
/* A list of evicted jobs by time, and a hash table of the same jobs. An entry is one piece of
 * memory of about 150 bytes. This file does not know what a job is. */
#include "server/engine/evicted_jobs.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { BUCKET_BITS = 15 };

static harpe_evicted_job **bucket_of(const harpe_evicted_jobs *all, uint64_t hash) {
    return &all->buckets[hash & ((1 << BUCKET_BITS) - 1)];
}

static void forget_oldest(harpe_evicted_jobs *all) {
    harpe_evicted_job *job = all->oldest;
    harpe_evicted_job **place = bucket_of(all, job->hash);
    while (*place != job)
        place = &(*place)->same_bucket;
    *place = job->same_bucket;
    all->oldest = job->newer;
    if (job->newer)
        job->newer->older = NULL;
    else
        all->newest = NULL;
    all->count--;
    free(job);
}

bool harpe_evicted_jobs_add(harpe_evicted_jobs *all, const char *id, uint64_t hash,
                            const char *group, int64_t version) {
    size_t id_size = strlen(id) + 1, group_size = group ? strlen(group) + 1 : 0;
    if (!all->buckets) all->buckets = harpe_calloc(1 << BUCKET_BITS, sizeof *all->buckets);
    harpe_evicted_job *job = harpe_calloc(1, sizeof *job + id_size + group_size);
    if (!job || !all->buckets) {
        free(job);
        return false;
    }
    memcpy(job->id, id, id_size);
    if (group) job->group = memcpy(job->id + id_size, group, group_size);
    harpe_evicted_job **bucket = bucket_of(all, hash);
    job->hash = hash;
    job->same_bucket = *bucket;
    *bucket = job;
    job->older = all->newest;
    job->version = job->older && job->older->version > version ? job->older->version : version;
    if (job->older)
        job->older->newer = job;
    else
        all->oldest = job;
    all->newest = job;
    if (++all->count > HARPE_EVICTED_KEPT) forget_oldest(all);
    return true;
}

bool harpe_evicted_jobs_have(const harpe_evicted_jobs *all, const char *id, uint64_t hash) {
    const harpe_evicted_job *job = all->buckets ? *bucket_of(all, hash) : NULL;
    while (job && strcmp(job->id, id) != 0)
        job = job->same_bucket;
    return job != NULL;
}

void harpe_evicted_jobs_free(harpe_evicted_jobs *all) {
    while (all->oldest)
        forget_oldest(all);
    free(all->buckets);
    *all = (harpe_evicted_jobs){0};
}
