/* SPDX-License-Identifier: Apache-2.0 */
/* The state of all jobs, for a caller that looks at them again and again. */
#ifndef HARPE_SERVER_ENGINE_JOB_GLANCE_H
#define HARPE_SERVER_ENGINE_JOB_GLANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/scheduler/figures.h"

typedef struct harpe_jobs harpe_jobs;
struct harpe_job;

typedef struct harpe_job_glance {
    const char *id, *metadata; /* metadata may be NULL */
    const char *group;         /* NULL: none */
    int world_size;
    bool has_begun; /* all ranks have registered */
    bool has_ended;
    bool has_failed;        /* its scheduler has failed, and its ranks may still train */
    bool is_ready;          /* its scheduler is made */
    int64_t round;          /* the round that was handed out last; -1: none */
    int64_t reported_round; /* the last round of which all results came; -1: none */
    const harpe_figures *figures;
    /* The caller may keep pointers here, as long as the job exists. */
    void **member, **account;
} harpe_job_glance;

/* Calls `visit` for each job that was not evicted. `visit` must not call the engine. The pointers
 * of a glance are valid until `visit` returns. */
void harpe_jobs_glance(harpe_jobs *jobs, void (*visit)(void *user, const harpe_job_glance *glance),
                       void *user);
/* Calls `begins` for each job whose eviction begins, before it is stored. NULL: no longer. */
void harpe_jobs_on_eviction(harpe_jobs *jobs,
                            void (*begins)(void *user, const harpe_job_glance *glance), void *user);
/* Tells that the eviction of the job begins. */
void harpe_job_tell_eviction(struct harpe_job *job);
/* Returns the round of a job that was handed out last, or -1. */
int64_t harpe_jobs_round_of(const harpe_jobs *jobs, const char *job_id);
/* Returns true if the job exists and was not evicted. */
bool harpe_jobs_have(const harpe_jobs *jobs, const char *job_id);

#endif
