/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a new scheduler to the state that matches the stored rounds of the job. It loads the
 * scheduler's saved state and replays the later rounds, or replays all rounds if no state was
 * saved. For a job without rounds it only asks for the first schedules. Runs on a worker, and does
 * not change the job. */
#include "server/engine/replay.h"

#include <string.h>

#include "base/error.h"
#include "server/engine/round_results.h"
#include "server/engine/turn_steps.h"

/* Passes stored job requests to the scheduler: either the requests that came while `round` ran, or
 * those that came before it was handed out. Returns the number of requests that the scheduler
 * accepted. A refused request is not an error, because the scheduler may have refused it before
 * too. */
static int apply_requests(const harpe_job *job, harpe_scheduler *scheduler, int64_t round,
                          bool is_within_round) {
    int applied = 0;
    for (size_t i = 0; i < job->request_count; i++) {
        const harpe_stored_job_request *stored = &job->requests[i];
        if (stored->round != round || stored->is_within_round != is_within_round) continue;
        applied += harpe_scheduler_handle_request(scheduler, stored->kind, stored->value, NULL) ==
                   HARPE_OK;
    }
    return applied;
}

static harpe_status observe_stored(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round) {
    harpe_round_results *results = harpe_round_results_new(turn->job->info.world_size);
    if (!results) return harpe_fail_memory(&turn->error);
    harpe_status status = harpe_turn_observe(turn, scheduler, round, results);
    harpe_round_results_unref(results);
    return status;
}

harpe_saved_state harpe_job_saved_state(const harpe_job *job) {
    if (job->saved_text)
        return (harpe_saved_state){job->saved_text, job->saved_length, job->saved_round};
    return (harpe_saved_state){job->state_text, job->state_length, job->state_round};
}

/* Replays the rounds from `round` on. The scheduler has already chosen the schedules of `round`.
 * `*schedules` becomes the schedules for the next round, or NULL if the running round keeps its
 * schedules. */
static harpe_status replay_rounds(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round,
                                  const harpe_frequency_schedule **schedules) {
    const harpe_job *job = turn->job;
    harpe_status status = HARPE_OK;
    for (; round < job->round || (round == job->round && turn->is_over); round++) {
        int applied = apply_requests(job, scheduler, round, true);
        bool is_finished = harpe_scheduler_is_finished(scheduler);
        if (!is_finished) status = observe_stored(turn, scheduler, round);
        if (status != HARPE_OK) return status;
        applied += apply_requests(job, scheduler, round + 1, false);
        if (!is_finished || applied > 0)
            status = harpe_scheduler_next(scheduler, schedules, &turn->error);
        if (status != HARPE_OK) return status;
    }
    if (turn->is_over) return HARPE_OK;
    *schedules = NULL;
    int applied = apply_requests(job, scheduler, job->round, true);
    harpe_saved_state saved = harpe_job_saved_state(job);
    if (applied == 0 || !saved.text || saved.text[0] != 'f') return HARPE_OK;
    return harpe_scheduler_next(scheduler, schedules, &turn->error);
}

/* Handles a job whose scheduler had finished and whose state was not saved. The results of such a
 * job are deleted, so they cannot be replayed. The new scheduler is used only if it is finished
 * without any results. Otherwise the job continues without a scheduler. */
static harpe_status make_finished(harpe_turn *turn, harpe_turn_outcome *outcome,
                                  harpe_scheduler **scheduler) {
    const harpe_job *job = turn->job;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_status status = harpe_scheduler_next(*scheduler, &schedules, &turn->error);
    if (status != HARPE_OK) return status;
    if (harpe_scheduler_is_finished(*scheduler))
        return harpe_turn_conclude(turn, outcome, *scheduler, NULL);
    harpe_scheduler_free(*scheduler);
    *scheduler = NULL;
    outcome->is_finished = true;
    harpe_saved_state saved = harpe_job_saved_state(job);
    outcome->state_text = strdup(saved.text);
    outcome->state_length = outcome->state_text ? saved.length : 0;
    return HARPE_OK;
}

harpe_status harpe_turn_replay(harpe_turn *turn, harpe_turn_outcome *outcome,
                               harpe_scheduler **scheduler) {
    const harpe_job *job = turn->job;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_saved_state saved = harpe_job_saved_state(job);
    int64_t round = saved.text ? saved.round : 0;
    harpe_status status = HARPE_OK;
    if (saved.text && saved.text[0] == 'f' && saved.text[1] == '-')
        return make_finished(turn, outcome, scheduler);
    if (saved.text && saved.text[1] == 's') {
        status = harpe_scheduler_load(*scheduler, saved.text + 2, saved.length - 2, &turn->error);
    } else {
        (void)apply_requests(job, *scheduler, 0, false);
        status = harpe_scheduler_next(*scheduler, &schedules, &turn->error);
    }
    if (status == HARPE_OK) status = replay_rounds(turn, *scheduler, round, &schedules);
    return status != HARPE_OK ? status : harpe_turn_conclude(turn, outcome, *scheduler, schedules);
}
