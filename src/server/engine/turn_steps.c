/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of turns. On a worker, they show results to the scheduler and collect its answer. On the
 * loop, they apply the answer to the job. */
#include "server/engine/turn_steps.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/engine/job.h"
#include "server/engine/job_figures.h"
#include "server/engine/profile_dump.h"
#include "server/engine/round_results.h"
#include "server/engine/round_text.h"

harpe_status harpe_turn_observe(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round,
                                const harpe_round_results *results) {
    const harpe_job *job = turn->job;
    if (!harpe_scheduler_observes(scheduler)) return HARPE_OK;
    harpe_stored_round from = {job->jobs->options.store, job->id, round};
    size_t count = (size_t)job->info.world_size;
    harpe_round_reports reports;
    harpe_status status = harpe_round_results_decode(&from, results, scheduler, job->info.tp_degree,
                                                     &reports, &turn->error);
    if (status != HARPE_OK) return status;
    harpe_scheduler_tell_clocks(scheduler, reports.clocks);
    status = harpe_scheduler_observe(scheduler, reports.results, count, &turn->error);
    harpe_scheduler_tell_clocks(scheduler, NULL); /* they are freed below */
    if (status == HARPE_OK)
        harpe_scheduler_count_conduct(scheduler, reports.results, reports.conducts, count);
    harpe_round_reports_free(&reports);
    return status;
}

/* Saves the state in the form in which it is stored: 'f' (finished) or 'r' (running), and then 's'
 * with the scheduler's own text, or '-' if the scheduler cannot save its state. */
static harpe_status save_state(harpe_turn *turn, harpe_turn_outcome *outcome,
                               const harpe_scheduler *scheduler) {
    char *own = NULL;
    size_t length = 0;
    harpe_status status = harpe_scheduler_save(scheduler, &own, &length, &turn->error);
    if (status != HARPE_OK && status != HARPE_NOT_SUPPORTED) return status;
    char *text = harpe_calloc(length + 2, 1);
    if (!text) {
        free(own);
        return harpe_fail_memory(&turn->error);
    }
    text[0] = outcome->is_finished ? 'f' : 'r';
    text[1] = status != HARPE_OK ? '-' : 's';
    if (length > 0) memcpy(text + 2, own, length);
    free(own);
    outcome->state_text = text;
    outcome->state_length = length + 2;
    return HARPE_OK;
}

void harpe_turn_outcome_clear(harpe_turn_outcome *outcome) {
    harpe_round_text_unref(outcome->next);
    harpe_scheduler_file_free(&outcome->file);
    free(outcome->state_text);
    *outcome = (harpe_turn_outcome){0};
}

harpe_status harpe_turn_conclude(harpe_turn *turn, harpe_turn_outcome *outcome,
                                 harpe_scheduler *scheduler,
                                 const harpe_frequency_schedule *schedules) {
    harpe_status status = HARPE_OK;
    if (schedules) {
        status = harpe_round_text_format(schedules, turn->job->info.world_size, &outcome->next,
                                         &turn->error);
    }
    outcome->is_finished = harpe_scheduler_is_finished(scheduler);
    outcome->has_figures = harpe_scheduler_figures(scheduler, &outcome->figures);
    outcome->conduct = harpe_scheduler_conduct(scheduler);
    outcome->tokens_per_step = harpe_scheduler_tokens_per_step(scheduler);
    harpe_scheduler_take_file(scheduler, &outcome->file);
    if (status != HARPE_OK || harpe_scheduler_needs_history(scheduler)) return status;
    return save_state(turn, outcome, scheduler);
}

static bool is_same_text(const harpe_round_text *a, const harpe_round_text *b) {
    return a && b && a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

void harpe_apply_turn(const harpe_turn *turn, harpe_turn_outcome *outcome) {
    harpe_job *job = turn->job;
    job->is_finished = outcome->is_finished;
    if (outcome->has_figures) harpe_job_take_figures(job, &outcome->figures);
    job->figures.is_known = true; /* a store of an older version has no other sums */
    harpe_job_take_conduct(job, &outcome->conduct, outcome->tokens_per_step);
    harpe_dump_profile(job, &outcome->file);
    harpe_round_text *next = outcome->next;
    outcome->next = NULL;
    if (is_same_text(next, job->current) || (!next && job->is_finished && !job->next)) {
        harpe_round_text_unref(next);
        next = harpe_round_text_ref(job->current);
    }
    if (next) {
        harpe_round_text_unref(job->next);
        job->next = next;
    }
    if (!job->is_finished && !harpe_job_round_is_over(job)) {
        /* The schedules after this round depend on its results, so they are not known yet. */
        harpe_round_text_unref(job->next);
        job->next = NULL;
    }
    free(job->state_text);
    job->state_text = outcome->state_text;
    job->state_length = outcome->state_length;
    job->state_round = job->round + turn->is_over;
    outcome->state_text = NULL;
}
