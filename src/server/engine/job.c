/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees jobs, and derives the state of a job and of its ranks from their members. Other
 * files change these members, above all rounds.c. */
#include "server/engine/job.h"

#include <stdlib.h>

#include "base/array.h"
#include "server/engine/job_group.h"
#include "server/engine/job_ranks.h"
#include "server/engine/round_results.h"
#include "server/engine/round_text.h"
#include "server/engine/scheduler_end.h"

/* ---- Made and freed -------------------------------------------------------------------------- */

harpe_job *harpe_job_new(harpe_jobs *jobs, char *id, harpe_job_info *info) {
    harpe_job *job = harpe_calloc(1, sizeof *job);
    if (!job || (info && !harpe_metadata_group(info->job_metadata, &job->group))) {
        free(job);
        return NULL;
    }
    job->jobs = jobs;
    job->id = id;
    job->round = job->sums_from = -1;
    job->figures.is_known = true;
    job->dumps_end = &job->dumps;
    if (info) {
        job->info = *info;
        if (!harpe_job_read_words(job)) {
            job->info = (harpe_job_info){0};
            job->id = NULL;
            harpe_job_free(job);
            return NULL;
        }
        *info = (harpe_job_info){0};
    }
    return job;
}

void harpe_job_release(harpe_job *job) {
    if (job->users > 0) return;
    harpe_job_free_ranks(job);
    harpe_round_results_unref(job->results);
    harpe_round_text_unref(job->current);
    harpe_round_text_unref(job->next);
    harpe_job_end_scheduler(job);
    free(job->state_text);
    free(job->saved_text);
    free(job->requests);
    free(job->failure);
    harpe_job_info_free(&job->info);
    job->results = NULL;
    job->current = job->next = NULL;
    job->scheduler = NULL;
    job->state_text = job->saved_text = NULL;
    job->requests = NULL;
    job->failure = NULL;
}

void harpe_job_free(harpe_job *job) {
    job->users = 0;
    harpe_job_release(job);
    free(job->id);
    free(job->group);
    for (int w = 0; w < HARPE_WORDS; w++)
        free(job->words[w]);
    free(job);
}

/* ---- States ---------------------------------------------------------------------------------- */

bool harpe_job_round_is_over(const harpe_job *job) {
    return job->round < 0 || job->reported == job->info.world_size;
}

bool harpe_job_has_ended(const harpe_job *job) {
    return job->info.world_size > 0 && job->ended == job->info.world_size && !job->failure &&
           !job->is_evicted;
}

harpe_job_state harpe_job_state_of(const harpe_job *job) {
    if (job->is_evicted) return HARPE_JOB_EVICTED;
    if (job->failure) return HARPE_JOB_FAILED;
    if (job->registered < job->info.world_size) return HARPE_JOB_REGISTERING;
    if (harpe_job_has_ended(job)) return HARPE_JOB_ENDED;
    if (!harpe_job_round_is_over(job)) return HARPE_JOB_RUNNING;
    if (!job->is_ready) return HARPE_JOB_PREPARING;
    return job->next ? HARPE_JOB_GATHERING : HARPE_JOB_OBSERVING;
}

const char *harpe_job_state_name(harpe_job_state state) {
    static const char *const names[] = {
        [HARPE_JOB_REGISTERING] = "registering", [HARPE_JOB_PREPARING] = "preparing",
        [HARPE_JOB_GATHERING] = "gathering",     [HARPE_JOB_RUNNING] = "running",
        [HARPE_JOB_OBSERVING] = "observing",     [HARPE_JOB_ENDED] = "ended",
        [HARPE_JOB_FAILED] = "failed",           [HARPE_JOB_EVICTED] = "evicted",
    };
    return names[state];
}

const char *harpe_rank_state_name(const harpe_job *job, int rank) {
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot && slot->asking) return "asking";
    if (!slot || !slot->is_registered) return "unknown";
    if (slot->has_ended) return "ended";
    if (job->round < 0) return "registered";
    return slot->has_reported ? "reported" : "served";
}
