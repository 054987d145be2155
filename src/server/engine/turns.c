/* SPDX-License-Identifier: Apache-2.0 */
/* Turns: a job does one thing at a time with its scheduler. This file begins and ends turns, makes
 * a job fail when its turn fails, makes schedulers, and shows results to them. Other turns are in
 * job_requests.c, results.c and rounds.c, which also decides when a turn begins. */
#include "server/engine/engine_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "http/loop.h"

/* ---- The end of schedulers ------------------------------------------------------------------- */

static void end_scheduler(harpe_operation *operation) {
    harpe_scheduler_free(operation->scheduler);
    operation->scheduler = NULL;
}

static void has_ended(harpe_operation *operation) { (void)harpe_operation_end(operation); }

static void free_scheduler(harpe_operation *operation) {
    harpe_scheduler_free(operation->scheduler);
}

void harpe_job_end_scheduler(const harpe_job *job) {
    harpe_jobs *jobs = job->jobs;
    harpe_operation *operation =
        job->scheduler && !jobs->is_ending ? harpe_operation_new(jobs, NULL, NULL) : NULL;
    if (!operation) {
        harpe_scheduler_free(job->scheduler);
        return;
    }
    operation->free_own = free_scheduler;
    operation->scheduler = job->scheduler;
    harpe_operation_run(operation, HARPE_POOL_SCHEDULE, end_scheduler, has_ended);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static void free_turn(harpe_operation *operation) {
    harpe_turn *turn = (harpe_turn *)operation;
    harpe_turn_outcome_clear(&turn->outcome);
    harpe_scheduler_free(turn->made);
    free(turn->text);
    free(turn->json);
    free(turn->counted);
}

harpe_turn *harpe_turn_new(harpe_job *job, harpe_call *call) {
    harpe_turn *turn = harpe_operation_new_kind(job->jobs, job, call, sizeof *turn, free_turn);
    if (!turn) return NULL;
    turn->is_over = harpe_job_round_is_over(job);
    turn->operation.error = &turn->error;
    job->turn = turn;
    return turn;
}

void harpe_turn_end(harpe_turn *turn) {
    harpe_job *job = turn->operation.job;
    bool has_only_read = turn->only_reads;
    job->turn = NULL;
    if (job->is_evicted) harpe_scheduler_kind_forget(job->jobs->options.scheduler, job->id);
    (void)harpe_operation_end(&turn->operation);
    if (has_only_read)
        harpe_job_wake(job);
    else
        harpe_job_changed(job);
}

void harpe_turn_run(harpe_turn *turn, harpe_step *work, harpe_step *done) {
    bool plans = harpe_scheduler_kind_plans(turn->operation.jobs->options.scheduler);
    harpe_operation_run(&turn->operation, plans ? HARPE_POOL_PLAN : HARPE_POOL_SCHEDULE, work,
                        done);
}

/* ---- Failing --------------------------------------------------------------------------------- */

/* Returns true if another server, or this one later, loads the jobs again. */
static bool jobs_are_lost(const harpe_store *store) {
    return harpe_store_is_shared(store) && !harpe_store_is_owned(store);
}

/* The job also fails if its failure could not be stored, because the scheduler may be in a wrong
 * state and cannot be asked again. After a restart a new scheduler is asked. If this server no
 * longer owns the store, the next leader asks a new scheduler, so the ranks are told to ask again.
 */
static void failure_is_stored(harpe_operation *operation) {
    harpe_job *job = operation->job;
    bool is_stored = operation->status == HARPE_OK;
    if (!is_stored)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: its failure could not be stored: %s", job->id,
                       operation->error->message);
    if (!is_stored && jobs_are_lost(job->jobs->options.store)) {
        harpe_job_refuse_held(job, 503, "the server could not continue: try again");
    } else if (!job->is_evicted && !job->failure) {
        job->failure = operation->body;
        operation->body = NULL;
        job->jobs->counts.failed++;
        harpe_job_end_scheduler(job);
        job->scheduler = NULL;
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_ERROR, "%s: failed: %s", job->id,
                       job->failure);
        harpe_job_refuse_held(job, 500, job->failure);
    }
    harpe_turn_end(job->turn);
}

void harpe_turn_fail_job(harpe_turn *turn) {
    harpe_operation *operation = &turn->operation;
    harpe_job *job = operation->job;
    const char *message = turn->error.message;
    bool may_store = !job->eviction && !job->jobs->is_stopping;
    char *failure =
        may_store ? strndup(message, harpe_cut_length(message, sizeof turn->error.message - 1))
                  : NULL;
    if (!failure) {
        harpe_job_refuse_held(job, 503, "the server could not continue: try again");
        harpe_turn_end(turn);
        return;
    }
    harpe_clean_in_place(failure); /* the scheduler's own code may have written the message */
    free(operation->body);
    operation->body = failure;
    operation->change = (harpe_change){.text = failure, .length = strlen(failure)};
    harpe_operation_store(operation, HARPE_CHANGE_FAILED, failure_is_stored);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Steps of turns. On a worker, they show results to the scheduler and collect its answer. On the
 * loop, they apply the answer to the job. */

/* Shows the results of `round` to the scheduler if it observes results. Call this on a worker. */
static harpe_status turn_observe(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round,
                                 const harpe_round_results *results) {
    const harpe_job *job = turn->operation.job;
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
static harpe_status save_state(harpe_turn *turn, const harpe_scheduler *scheduler) {
    harpe_turn_outcome *outcome = &turn->outcome;
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

harpe_status harpe_turn_conclude(harpe_turn *turn, harpe_scheduler *scheduler,
                                 const harpe_frequency_schedule *schedules) {
    harpe_turn_outcome *outcome = &turn->outcome;
    harpe_status status = HARPE_OK;
    if (schedules) {
        status = harpe_round_text_format(schedules, turn->operation.job->info.world_size,
                                         &outcome->next, &turn->error);
    }
    outcome->is_finished = harpe_scheduler_is_finished(scheduler);
    outcome->has_figures = harpe_scheduler_figures(scheduler, &outcome->figures);
    outcome->conduct = harpe_scheduler_conduct(scheduler);
    outcome->tokens_per_step = harpe_scheduler_tokens_per_step(scheduler);
    harpe_scheduler_take_file(scheduler, &outcome->file);
    if (status != HARPE_OK || harpe_scheduler_needs_history(scheduler)) return status;
    return save_state(turn, scheduler);
}

static bool is_same_text(const harpe_round_text *a, const harpe_round_text *b) {
    return a && b && a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

void harpe_apply_turn(harpe_turn *turn) {
    harpe_job *job = turn->operation.job;
    harpe_turn_outcome *outcome = &turn->outcome;
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

/* ---- Replaying rounds ------------------------------------------------------------------------ */

/* Brings a new scheduler to the state that matches the stored rounds of the job. It loads the
 * scheduler's saved state and replays the later rounds, or replays all rounds if no state was
 * saved. For a job without rounds it only asks for the first schedules. Runs on a worker, and does
 * not change the job. */

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
    harpe_round_results *results = harpe_round_results_new(turn->operation.job->info.world_size);
    if (!results) return harpe_fail_memory(&turn->error);
    harpe_status status = turn_observe(turn, scheduler, round, results);
    harpe_round_results_unref(results);
    return status;
}

/* Returns true if the last state of the job's scheduler says that it has finished. */
static bool state_is_finished(const harpe_job *job) {
    return job->state_text && job->state_text[0] == 'f';
}

/* Replays the rounds from `round` on. The scheduler has already chosen the schedules of `round`.
 * `*schedules` becomes the schedules for the next round, or NULL if the running round keeps its
 * schedules. */
static harpe_status replay_rounds(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round,
                                  const harpe_frequency_schedule **schedules) {
    const harpe_job *job = turn->operation.job;
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
    if (applied == 0 || !state_is_finished(job)) return HARPE_OK;
    return harpe_scheduler_next(scheduler, schedules, &turn->error);
}

/* Handles a job whose scheduler had finished and whose state was not saved. The results of such a
 * job are deleted, so they cannot be replayed. The new scheduler is used only if it is finished
 * without any results. Otherwise the job continues without a scheduler. */
static harpe_status make_finished(harpe_turn *turn, harpe_scheduler **scheduler) {
    const harpe_job *job = turn->operation.job;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_status status = harpe_scheduler_next(*scheduler, &schedules, &turn->error);
    if (status != HARPE_OK) return status;
    if (harpe_scheduler_is_finished(*scheduler)) return harpe_turn_conclude(turn, *scheduler, NULL);
    harpe_scheduler_free(*scheduler);
    *scheduler = NULL;
    turn->outcome.is_finished = true;
    turn->outcome.state_text = strdup(job->state_text);
    turn->outcome.state_length = turn->outcome.state_text ? job->state_length : 0;
    return HARPE_OK;
}

/* Loads the saved state, if any, replays the stored rounds after it, and fills in the outcome. May
 * free *scheduler and set it to NULL. If this fails, the caller frees *scheduler. Call this on a
 * worker. */
static harpe_status turn_replay(harpe_turn *turn, harpe_scheduler **scheduler) {
    const harpe_job *job = turn->operation.job;
    const harpe_frequency_schedule *schedules = NULL;
    const char *state = job->state_text;
    int64_t round = state ? job->state_round : 0;
    harpe_status status = HARPE_OK;
    if (state_is_finished(job) && state[1] == '-') return make_finished(turn, scheduler);
    if (state && state[1] == 's') {
        status = harpe_scheduler_load(*scheduler, state + 2, job->state_length - 2, &turn->error);
    } else {
        (void)apply_requests(job, *scheduler, 0, false);
        status = harpe_scheduler_next(*scheduler, &schedules, &turn->error);
    }
    if (status == HARPE_OK) status = replay_rounds(turn, *scheduler, round, &schedules);
    return status != HARPE_OK ? status : harpe_turn_conclude(turn, *scheduler, schedules);
}

/* Two kinds of turns. A prepare turn makes the job's scheduler. An observe turn shows the results
 * of a round to the scheduler and asks for the next schedules. If the scheduler fails, the job
 * fails. rounds.c decides when such a turn begins. */

/* ---- Making a scheduler ---------------------------------------------------------------------- */

/* Makes a scheduler that has replayed all stored rounds. Runs on a worker. */
static harpe_status make_scheduler(harpe_turn *turn) {
    harpe_job *job = turn->operation.job;
    const harpe_jobs_options *options = &job->jobs->options;
    char *directory = NULL;
    /* If the directory cannot be made, the job continues, and the dumps report the failure. For a
     * built-in scheduler the directory is not made here but when a file is written. Therefore a
     * file server that does not answer does not delay the first round of a job. */
    if (options->settings->dump_data) directory = harpe_dump_directory(job->jobs, job->id);
    if (directory && harpe_scheduler_kind_is_foreign(options->scheduler)) {
        harpe_dump_order order = {.directory = directory};
        harpe_dump_finding finding;
        if (harpe_dump_files_do(options->dump_files, &order, &finding, NULL)) {
            free(directory);
            directory = NULL;
        }
    }
    harpe_job_info info = job->info;
    info.job_id = job->id;
    harpe_scheduler *scheduler = NULL;
    harpe_rank_info *ranks = harpe_job_rank_infos(job);
    harpe_status status = ranks ? harpe_scheduler_new(options->scheduler, &info, ranks, directory,
                                                      &scheduler, &turn->error)
                                : harpe_fail_memory(&turn->error);
    free(ranks); /* the scheduler has copies */
    free(directory);
    if (status == HARPE_OK) status = turn_replay(turn, &scheduler);
    if (status != HARPE_OK)
        harpe_scheduler_free(scheduler);
    else
        turn->made = scheduler;
    return status;
}

static void prepare(harpe_operation *operation) {
    operation->status = make_scheduler(operation->job->turn);
}

static void is_prepared(harpe_operation *operation) {
    harpe_job *job = operation->job;
    harpe_turn *turn = job->turn;
    if (operation->status != HARPE_OK && state_is_finished(job) && job->current) {
        /* For example, the plan file may be missing now. The job's last schedules are stored. */
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: continues with its last schedules: %s", job->id, turn->error.message);
        turn->outcome.is_finished = true;
    } else if (operation->status != HARPE_OK) {
        harpe_turn_fail_job(turn);
        return;
    }
    job->scheduler = turn->made;
    turn->made = NULL;
    harpe_apply_turn(turn);
    job->is_ready = true;
    free(job->requests);
    job->requests = NULL;
    job->request_count = job->request_capacity = 0;
    harpe_turn_end(turn);
}

void harpe_begin_prepare(harpe_job *job) {
    harpe_turn *turn = harpe_turn_new(job, NULL);
    if (turn) harpe_turn_run(turn, prepare, is_prepared);
}

/* ---- Observing a round ----------------------------------------------------------------------- */

static harpe_status observe_and_ask(harpe_turn *turn) {
    const harpe_job *job = turn->operation.job;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_status status = turn_observe(turn, job->scheduler, job->round, job->results);
    if (status == HARPE_OK) status = harpe_scheduler_next(job->scheduler, &schedules, &turn->error);
    return status != HARPE_OK ? status : harpe_turn_conclude(turn, job->scheduler, schedules);
}

static void observe(harpe_operation *operation) {
    const harpe_job *job = operation->job;
    operation->status = observe_and_ask(job->turn);
    if (operation->status == HARPE_OK || !harpe_scheduler_is_lost(job->scheduler)) return;
    harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                   "%s: %s; it is started again and the rounds are replayed", job->id,
                   operation->error->message);
    harpe_turn_outcome_clear(&job->turn->outcome);
    operation->status = make_scheduler(job->turn);
}

static void has_observed(harpe_operation *operation) {
    harpe_job *job = operation->job;
    harpe_turn *turn = job->turn;
    if (operation->status != HARPE_OK) {
        harpe_turn_fail_job(turn);
        return;
    }
    if (turn->made) {
        harpe_scheduler_free(job->scheduler);
        job->scheduler = turn->made;
        turn->made = NULL;
    }
    harpe_apply_turn(turn);
    harpe_turn_end(turn);
}

void harpe_begin_observe(harpe_job *job) {
    harpe_turn *turn = harpe_turn_new(job, NULL);
    if (turn) harpe_turn_run(turn, observe, has_observed);
}
