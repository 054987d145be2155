/* SPDX-License-Identifier: Apache-2.0 */
/* Two kinds of turns. A prepare turn makes the job's scheduler. An observe turn shows the results
 * of a round to the scheduler and asks for the next schedules. If the scheduler fails, the job
 * fails. rounds.c decides when such a turn begins. */
#include "server/engine/scheduler_turns.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "server/engine/dump_files.h"
#include "server/engine/dumps.h"
#include "server/engine/job_ranks.h"
#include "server/engine/replay.h"
#include "server/engine/turn.h"
#include "server/engine/turn_steps.h"

typedef struct scheduler_turn {
    harpe_turn turn;
    harpe_turn_outcome outcome;
    harpe_scheduler *made; /* NULL: the job keeps its scheduler */
} scheduler_turn;

static void free_scheduler_turn(harpe_turn *turn) {
    scheduler_turn *self = (scheduler_turn *)turn;
    harpe_turn_outcome_clear(&self->outcome);
    harpe_scheduler_free(self->made);
}

static const harpe_turn_kind scheduler_kind = {.size = sizeof(scheduler_turn),
                                               .free_own = free_scheduler_turn};

/* ---- Making a scheduler ---------------------------------------------------------------------- */

/* Makes a scheduler that has replayed all stored rounds. Runs on a worker. */
static harpe_status make_scheduler(scheduler_turn *self) {
    harpe_turn *turn = &self->turn;
    harpe_job *job = turn->job;
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
    if (status == HARPE_OK) status = harpe_turn_replay(turn, &self->outcome, &scheduler);
    if (status != HARPE_OK)
        harpe_scheduler_free(scheduler);
    else
        self->made = scheduler;
    return status;
}

static void prepare(void *user) {
    scheduler_turn *self = user;
    self->turn.status = make_scheduler(self);
}

static bool was_finished(const harpe_job *job) {
    harpe_saved_state saved = harpe_job_saved_state(job);
    return saved.text && saved.text[0] == 'f' && job->current;
}

static void is_prepared(void *user) {
    scheduler_turn *self = user;
    harpe_turn *turn = &self->turn;
    harpe_job *job = turn->job;
    if (!harpe_turn_is_back(turn)) return;
    if (turn->status != HARPE_OK && was_finished(job)) {
        /* For example, the plan file may be missing now. The job's last schedules are stored. */
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: continues with its last schedules: %s", job->id, turn->error.message);
        self->outcome.is_finished = true;
    } else if (turn->status != HARPE_OK) {
        harpe_turn_fail_job(turn, &turn->error);
        return;
    }
    job->scheduler = self->made;
    self->made = NULL;
    harpe_apply_turn(turn, &self->outcome);
    job->is_ready = true;
    free(job->saved_text);
    free(job->requests);
    job->saved_text = NULL;
    job->requests = NULL;
    job->request_count = job->request_capacity = 0;
    harpe_turn_end(turn);
}

void harpe_begin_prepare(harpe_job *job) {
    scheduler_turn *self = harpe_turn_new(job, &scheduler_kind);
    if (self) harpe_turn_run(&self->turn, prepare, is_prepared);
}

/* ---- Observing a round ----------------------------------------------------------------------- */

static harpe_status observe_and_ask(scheduler_turn *self) {
    harpe_turn *turn = &self->turn;
    const harpe_job *job = turn->job;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_status status = harpe_turn_observe(turn, job->scheduler, job->round, job->results);
    if (status == HARPE_OK) status = harpe_scheduler_next(job->scheduler, &schedules, &turn->error);
    return status != HARPE_OK
               ? status
               : harpe_turn_conclude(turn, &self->outcome, job->scheduler, schedules);
}

static void observe(void *user) {
    scheduler_turn *self = user;
    harpe_turn *turn = &self->turn;
    const harpe_job *job = turn->job;
    turn->status = observe_and_ask(self);
    if (turn->status == HARPE_OK || !harpe_scheduler_is_lost(job->scheduler)) return;
    harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                   "%s: %s; it is started again and the rounds are replayed", job->id,
                   turn->error.message);
    harpe_turn_outcome_clear(&self->outcome);
    turn->status = make_scheduler(self);
}

static void has_observed(void *user) {
    scheduler_turn *self = user;
    harpe_turn *turn = &self->turn;
    harpe_job *job = turn->job;
    if (!harpe_turn_is_back(turn)) return;
    if (turn->status != HARPE_OK) {
        harpe_turn_fail_job(turn, &turn->error);
        return;
    }
    if (self->made) {
        harpe_scheduler_free(job->scheduler);
        job->scheduler = self->made;
        self->made = NULL;
    }
    harpe_apply_turn(turn, &self->outcome);
    harpe_turn_end(turn);
}

void harpe_begin_observe(harpe_job *job) {
    scheduler_turn *self = harpe_turn_new(job, &scheduler_kind);
    if (self) harpe_turn_run(&self->turn, observe, has_observed);
}
