/* SPDX-License-Identifier: Apache-2.0 */
/* Turns: what a job does with its scheduler, one at a time, on a worker. Here the scheduler is made
 * or brought back, is shown the results of a round, and says the next schedules; when it fails, the
 * job fails. When a turn is due is decided in rounds.c. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clean.h"
#include "base/error.h"
#include "server/job.h"

/* ---- Begin and end ------------------------------------------------------------------------ */

static void free_turn(harpe_turn *turn) {
    harpe_round_text_unref(turn->next);
    harpe_scheduler_free(turn->scheduler);
    free(turn->state_text);
    free(turn->json);
    free(turn);
}

static void drop_turn(harpe_under_way *self) { free_turn((harpe_turn *)self); }

harpe_turn *harpe_turn_new(harpe_job *job, harpe_turn_kind kind) {
    harpe_turn *turn = harpe_calloc(1, sizeof *turn);
    if (!turn) return NULL;
    turn->kind = kind;
    turn->jobs = job->jobs;
    turn->job = job;
    turn->is_over = harpe_job_round_is_over(job);
    harpe_under_way_add(job->jobs, &turn->under_way, drop_turn);
    job->turn = turn;
    return turn;
}

void harpe_turn_end(harpe_turn *turn) {
    harpe_job *job = turn->job;
    harpe_under_way_remove(job->jobs, &turn->under_way);
    if (turn->kind != HARPE_TURN_FRONTIER) harpe_job_changed(job); /* that only looked */
    free_turn(turn);
    job->turn = NULL;
    if (job->is_evicted) {
        harpe_scheduler_kind_forget(job->jobs->options.scheduler, job->id);
        harpe_job_bury(job);
    }
    harpe_job_advance(job);
}

void harpe_turn_run(harpe_turn *turn, void (*work)(void *user), void (*done)(void *user)) {
    harpe_job *job = turn->job;
    bool plans = harpe_scheduler_kind_plans(turn->jobs->options.scheduler);
    job->users++;
    turn->work = (harpe_work){.work = work,
                              .done = done,
                              .user = turn,
                              .pool = plans ? HARPE_POOL_PLAN : HARPE_POOL_SCHEDULE,
                              .subject = job->id};
    harpe_workers_submit(turn->jobs->options.workers, &turn->work);
}

bool harpe_turn_is_back(harpe_turn *turn) {
    turn->job->users--;
    if (!turn->job->is_evicted) return true;
    harpe_turn_end(turn);
    return false;
}

/* ---- The end of a scheduler --------------------------------------------------------------- */

typedef struct scheduler_end {
    harpe_under_way under_way;
    harpe_jobs *jobs;
    harpe_scheduler *scheduler;
    harpe_work work;
} scheduler_end;

static void drop_end(harpe_under_way *under_way) {
    scheduler_end *self = (scheduler_end *)under_way;
    harpe_scheduler_free(self->scheduler);
    free(self);
}

static void end_scheduler(void *user) {
    scheduler_end *self = user;
    harpe_scheduler_free(self->scheduler);
    self->scheduler = NULL;
}

static void has_ended(void *user) {
    scheduler_end *self = user;
    harpe_under_way_remove(self->jobs, &self->under_way);
    free(self);
}

void harpe_job_leave_scheduler(harpe_job *job) {
    harpe_jobs *jobs = job->jobs;
    scheduler_end *self = NULL;
    if (job->scheduler && !jobs->is_ending) self = harpe_calloc(1, sizeof *self);
    if (!self) {
        harpe_scheduler_free(job->scheduler);
        return;
    }
    self->jobs = jobs;
    self->scheduler = job->scheduler;
    self->work = (harpe_work){
        .work = end_scheduler, .done = has_ended, .user = self, .pool = HARPE_POOL_SCHEDULE};
    harpe_under_way_add(jobs, &self->under_way, drop_end);
    harpe_workers_submit(jobs->options.workers, &self->work);
}

/* The job needs no process until a rank comes back, or all ranks ask. */
bool harpe_job_rests(const harpe_job *job) {
    return harpe_scheduler_kind_can_return(job->jobs->options.scheduler) &&
           harpe_job_has_ended(job) && job->asking < job->info.world_size && !job->queue.first;
}

void harpe_job_rest(harpe_job *job) {
    bool has_process = job->scheduler && harpe_scheduler_has_process(job->scheduler);
    if (!has_process) return;
    harpe_job_leave_scheduler(job);
    job->scheduler = NULL;
    job->is_ready = false;
}

/* ---- What a turn leaves behind ------------------------------------------------------------ */

/* As it is stored: 'f' for finished or 'r' for running, 's' when the scheduler's own text follows
 * or '-'. */
static harpe_status save_state(harpe_turn *turn, const harpe_scheduler *scheduler) {
    char *own = NULL;
    size_t length = 0;
    harpe_status status = harpe_scheduler_save(scheduler, &own, &length, &turn->error);
    if (status && status != HARPE_NOT_SUPPORTED) return status;
    char *text = harpe_calloc(length + 2, 1);
    if (!text) {
        free(own);
        turn->error = (harpe_error){.status = HARPE_OUT_OF_MEMORY, .message = "out of memory"};
        return HARPE_OUT_OF_MEMORY;
    }
    text[0] = turn->is_finished ? 'f' : 'r';
    text[1] = status ? '-' : 's';
    if (length > 0) memcpy(text + 2, own, length);
    free(own);
    turn->state_text = text;
    turn->state_length = length + 2;
    return HARPE_OK;
}

harpe_status harpe_turn_conclude(harpe_turn *turn, harpe_scheduler *scheduler,
                                 const harpe_frequency_schedule *schedules) {
    harpe_status status = HARPE_OK;
    if (schedules) {
        status = harpe_round_text_format(schedules, turn->job->info.world_size, &turn->next,
                                         &turn->error);
    }
    turn->is_finished = harpe_scheduler_is_finished(scheduler);
    turn->has_figures = harpe_scheduler_figures(scheduler, &turn->figures);
    if (status || harpe_scheduler_needs_history(scheduler)) return status;
    return save_state(turn, scheduler);
}

static bool is_same_text(const harpe_round_text *a, const harpe_round_text *b) {
    return a && b && a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

void harpe_turn_take_lesson(harpe_turn *turn) {
    harpe_job *job = turn->job;
    job->is_finished = turn->is_finished;
    if (turn->has_figures) harpe_job_take_figures(job, &turn->figures);
    harpe_round_text *next = turn->next;
    turn->next = NULL;
    if (is_same_text(next, job->current) || (!next && job->is_finished && !job->next)) {
        harpe_round_text_unref(next);
        next = harpe_round_text_ref(job->current);
    }
    if (next) {
        harpe_round_text_unref(job->next);
        job->next = next;
    }
    if (!job->is_finished && !harpe_job_round_is_over(job)) {
        /* What it will say depends on this round. */
        harpe_round_text_unref(job->next);
        job->next = NULL;
    }
    free(job->state_text);
    job->state_text = turn->state_text;
    job->state_length = turn->state_length;
    job->state_round = job->round + turn->is_over;
    turn->state_text = NULL;
}

/* ---- Failing ------------------------------------------------------------------------------ */

/* Whether or not it could be stored: the scheduler cannot be asked again as if nothing happened.
 * After a restart it would be. */
static void failure_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_turn *turn = user;
    harpe_job *job = turn->job;
    if (status) {
        harpe_jobs_log(job->jobs, HARPE_LOG_WARNING, "%s: its failure is not stored: %s", job->id,
                       error->message);
    }
    if (!job->is_evicted && !job->failure) {
        job->failure = turn->json;
        turn->json = NULL;
        job->jobs->counts.failed++;
        harpe_job_leave_scheduler(job);
        job->scheduler = NULL;
        harpe_jobs_log(job->jobs, HARPE_LOG_ERROR, "%s: failed: %s", job->id, job->failure);
        harpe_job_refuse_held(job, 500, job->failure);
    }
    harpe_turn_end(turn);
}

void harpe_turn_fail_job(harpe_turn *turn, const harpe_error *error) {
    harpe_job *job = turn->job;
    turn->kind = HARPE_TURN_FAIL;
    turn->json =
        strndup(error->message, harpe_cut_length(error->message, sizeof error->message - 1));
    if (turn->json)
        harpe_clean_in_place(turn->json); /* a scheduler's own code may have written it */
    if (!turn->json || job->eviction || turn->jobs->is_stopping) {
        harpe_job_refuse_held(job, 503, "the server could not go on: try again");
        harpe_turn_end(turn);
        return;
    }
    turn->change = (harpe_change){.kind = HARPE_CHANGE_FAILED,
                                  .job_id = job->id,
                                  .text = turn->json,
                                  .length = strlen(turn->json),
                                  .done = failure_is_stored,
                                  .user = turn};
    harpe_store_submit(turn->jobs->options.store, &turn->change);
}

/* ---- Prepare: a scheduler for the job ----------------------------------------------------- */

/* On a worker: one that has lived through all stored rounds. */
static harpe_status make_scheduler(harpe_turn *turn) {
    harpe_job *job = turn->job;
    const harpe_jobs_options *options = &turn->jobs->options;
    char *directory = NULL;
    /* If it cannot be made, the dumps report that, and the job goes on. A built-in scheduler makes
     * it when it writes something, so an unreachable file server does not delay the first round of
     * a job. */
    if (options->settings->dump_data) {
        bool makes_it = harpe_scheduler_kind_is_foreign(options->scheduler);
        (void)harpe_dump_directory(turn->jobs, job->id, makes_it, &directory, NULL);
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
    if (!status) status = harpe_turn_bring_back(turn, &scheduler);
    if (status)
        harpe_scheduler_free(scheduler);
    else
        turn->scheduler = scheduler;
    return status;
}

static void prepare(void *user) {
    harpe_turn *turn = user;
    turn->status = make_scheduler(turn);
}

static bool was_finished(const harpe_job *job) {
    harpe_saved_state saved = harpe_job_saved_state(job);
    return saved.text && saved.text[0] == 'f' && job->current;
}

static void is_prepared(void *user) {
    harpe_turn *turn = user;
    harpe_job *job = turn->job;
    if (!harpe_turn_is_back(turn)) return;
    if (turn->status && was_finished(job)) {
        /* A plan file may have gone meanwhile: what it said is stored. */
        harpe_jobs_log(turn->jobs, HARPE_LOG_WARNING, "%s: goes on with its last schedules: %s",
                       job->id, turn->error.message);
        turn->is_finished = true;
    } else if (turn->status) {
        harpe_turn_fail_job(turn, &turn->error);
        return;
    }
    job->scheduler = turn->scheduler;
    turn->scheduler = NULL;
    harpe_turn_take_lesson(turn);
    job->is_ready = true;
    free(job->saved_text);
    free(job->wishes);
    job->saved_text = NULL;
    job->wishes = NULL;
    job->wish_count = job->wish_capacity = 0;
    harpe_turn_end(turn);
}

void harpe_begin_prepare(harpe_job *job) {
    harpe_turn *turn = harpe_turn_new(job, HARPE_TURN_PREPARE);
    if (turn) harpe_turn_run(turn, prepare, is_prepared);
}

/* ---- Observe: a round is over ------------------------------------------------------------- */

harpe_status harpe_turn_observe(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round,
                                const harpe_round_results *results) {
    const harpe_job *job = turn->job;
    if (!harpe_scheduler_observes(scheduler)) return HARPE_OK;
    harpe_stored_round from = {turn->jobs->options.store, job->id, round};
    size_t count = (size_t)job->info.world_size;
    harpe_profiling_result *list = NULL;
    harpe_status status = harpe_round_results_decode(&from, results, &list, &turn->error);
    if (status) return status;
    status = harpe_scheduler_observe(scheduler, list, count, &turn->error);
    harpe_profiling_results_free(list, count);
    return status;
}

static harpe_status observe_and_ask(harpe_turn *turn) {
    const harpe_job *job = turn->job;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_status status = harpe_turn_observe(turn, job->scheduler, job->round, job->results);
    if (!status) status = harpe_scheduler_next(job->scheduler, &schedules, &turn->error);
    return status ? status : harpe_turn_conclude(turn, job->scheduler, schedules);
}

static void observe(void *user) {
    harpe_turn *turn = user;
    const harpe_job *job = turn->job;
    turn->status = observe_and_ask(turn);
    if (!turn->status || !harpe_scheduler_is_lost(job->scheduler)) return;
    harpe_jobs_log(turn->jobs, HARPE_LOG_WARNING, "%s: %s; it is started anew and brought back",
                   job->id, turn->error.message);
    harpe_round_text_unref(turn->next);
    turn->next = NULL;
    turn->status = make_scheduler(turn);
}

static void has_observed(void *user) {
    harpe_turn *turn = user;
    harpe_job *job = turn->job;
    if (!harpe_turn_is_back(turn)) return;
    if (turn->status) {
        harpe_turn_fail_job(turn, &turn->error);
        return;
    }
    if (turn->scheduler) {
        harpe_scheduler_free(job->scheduler);
        job->scheduler = turn->scheduler;
        turn->scheduler = NULL;
    }
    harpe_turn_take_lesson(turn);
    harpe_turn_end(turn);
}

void harpe_begin_observe(harpe_job *job) {
    harpe_turn *turn = harpe_turn_new(job, HARPE_TURN_OBSERVE);
    if (turn) harpe_turn_run(turn, observe, has_observed);
}
