/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler brought to where the stored rounds left it: from its saved state where there is one,
 * else by living through all rounds again. A job that has had no round yet is the shortest case.
 * On a worker, before anything of the job's present is touched. */
#include <string.h>

#include "server/job.h"

/* Applies what was wished while `round` ran (or before it was handed out). The scheduler may refuse
 * again what it refused before. */
static int apply_wishes(const harpe_job *job, harpe_scheduler *scheduler, int64_t round,
                        bool is_within_round) {
    int applied = 0;
    for (size_t i = 0; i < job->wish_count; i++) {
        const harpe_stored_wish *stored = &job->wishes[i];
        if (stored->round != round || stored->is_within_round != is_within_round) continue;
        applied += harpe_scheduler_wish_for(scheduler, stored->wish, stored->value, NULL) == 0;
    }
    return applied;
}

static harpe_status observe_stored(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round) {
    harpe_round_results *results = harpe_round_results_new(turn->job->info.world_size);
    if (!results) {
        turn->error = (harpe_error){.status = HARPE_OUT_OF_MEMORY, .message = "out of memory"};
        return HARPE_OUT_OF_MEMORY;
    }
    harpe_status status = harpe_turn_observe(turn, scheduler, round, results);
    harpe_round_results_unref(results);
    return status;
}

harpe_saved_state harpe_job_saved_state(const harpe_job *job) {
    if (job->saved_text)
        return (harpe_saved_state){job->saved_text, job->saved_length, job->saved_round};
    return (harpe_saved_state){job->state_text, job->state_length, job->state_round};
}

/* From after schedule `round` was said to the schedules that are to be handed out next; NULL: those
 * of the running round. */
static harpe_status live_through(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round,
                                 const harpe_frequency_schedule **schedules) {
    const harpe_job *job = turn->job;
    harpe_status status = HARPE_OK;
    for (; round < job->round || (round == job->round && turn->is_over); round++) {
        int applied = apply_wishes(job, scheduler, round, true);
        bool is_finished = harpe_scheduler_is_finished(scheduler);
        if (!is_finished) status = observe_stored(turn, scheduler, round);
        if (status) return status;
        applied += apply_wishes(job, scheduler, round + 1, false);
        if (!is_finished || applied > 0) {
            status = harpe_scheduler_next(scheduler, schedules, &turn->error);
        }
        if (status) return status;
    }
    if (turn->is_over) return HARPE_OK;
    *schedules = NULL;
    int applied = apply_wishes(job, scheduler, job->round, true);
    harpe_saved_state saved = harpe_job_saved_state(job);
    if (applied == 0 || !saved.text || saved.text[0] != 'f') return HARPE_OK;
    return harpe_scheduler_next(scheduler, schedules, &turn->error);
}

/* Its results are gone and its state was not kept: only one that never needed any is as it was. */
static harpe_status make_finished(harpe_turn *turn, harpe_scheduler **scheduler) {
    const harpe_job *job = turn->job;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_status status = harpe_scheduler_next(*scheduler, &schedules, &turn->error);
    if (status) return status;
    if (harpe_scheduler_is_finished(*scheduler)) {
        return harpe_turn_conclude(turn, *scheduler, NULL);
    }
    harpe_scheduler_free(*scheduler);
    *scheduler = NULL;
    turn->is_finished = true;
    harpe_saved_state saved = harpe_job_saved_state(job);
    turn->state_text = strdup(saved.text);
    turn->state_length = turn->state_text ? saved.length : 0;
    return HARPE_OK;
}

harpe_status harpe_turn_bring_back(harpe_turn *turn, harpe_scheduler **scheduler) {
    const harpe_job *job = turn->job;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_saved_state saved = harpe_job_saved_state(job);
    int64_t round = saved.text ? saved.round : 0;
    harpe_status status = HARPE_OK;
    if (saved.text && saved.text[0] == 'f' && saved.text[1] == '-')
        return make_finished(turn, scheduler);
    if (saved.text && saved.text[1] == 's') {
        status = harpe_scheduler_load(*scheduler, saved.text + 2, saved.length - 2, &turn->error);
    } else {
        (void)apply_wishes(job, *scheduler, 0, false);
        status = harpe_scheduler_next(*scheduler, &schedules, &turn->error);
    }
    if (!status) status = live_through(turn, *scheduler, round, &schedules);
    return status ? status : harpe_turn_conclude(turn, *scheduler, schedules);
}
