/* SPDX-License-Identifier: Apache-2.0 */
/* What stays of jobs that were evicted: their ids, so that requests about them and requests about
 * unknown jobs get different answers, and what watchers of a list need to be told that they are
 * gone. The oldest are forgotten when there are more than HARPE_EVICTED_KEPT. */
#ifndef HARPE_SERVER_ENGINE_EVICTED_JOBS_H
#define HARPE_SERVER_ENGINE_EVICTED_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_EVICTED_KEPT = 100000 }; /* the store remembers the same number of evicted jobs */

typedef struct harpe_evicted_job {
    struct harpe_evicted_job *same_bucket;
    struct harpe_evicted_job *older, *newer; /* by time of eviction */
    uint64_t hash;
    int64_t version;   /* of its last change; does not fall from older to newer */
    const char *group; /* NULL: none */
    char id[];
} harpe_evicted_job;

/* Initialise it with zeros. */
typedef struct harpe_evicted_jobs {
    harpe_evicted_job **buckets;
    harpe_evicted_job *oldest, *newest;
    size_t count;
} harpe_evicted_jobs;

/* Remembers a job; `group` may be NULL. Returns false if memory runs out. */
bool harpe_evicted_jobs_add(harpe_evicted_jobs *all, const char *id, uint64_t hash,
                            const char *group, int64_t version);
/* `hash` is the hash of the id with which the job was added. */
bool harpe_evicted_jobs_have(const harpe_evicted_jobs *all, const char *id, uint64_t hash);
void harpe_evicted_jobs_free(harpe_evicted_jobs *all);

#endif
