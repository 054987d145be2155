/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends turns, and makes a job fail when its turn fails. The work of the turns is in
 * scheduler_turns.c, job_requests.c and rounds.c. */
#include "server/engine/turn.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/text.h"
#include "server/engine/held_requests.h"
#include "server/engine/in_flight.h"
#include "server/engine/job.h"
#include "server/engine/marked_jobs.h"
#include "server/engine/pools.h"
#include "server/engine/scheduler_end.h"

static void free_turn(harpe_turn *turn) {
    if (turn->kind->free_own) turn->kind->free_own(turn);
    free(turn);
}

static void drop_turn(harpe_in_flight *self) { free_turn((harpe_turn *)self); }

void *harpe_turn_new(harpe_job *job, const harpe_turn_kind *kind) {
    harpe_turn *turn = harpe_calloc(1, kind->size);
    if (!turn) return NULL;
    turn->kind = kind;
    turn->job = job;
    turn->is_over = harpe_job_round_is_over(job);
    harpe_in_flight_add(job->jobs, &turn->in_flight, drop_turn);
    job->turn = turn;
    return turn;
}

void harpe_turn_end(harpe_turn *turn) {
    harpe_job *job = turn->job;
    harpe_in_flight_remove(job->jobs, &turn->in_flight);
    bool has_only_read = turn->kind->only_reads;
    free_turn(turn);
    job->turn = NULL;
    if (job->is_evicted) {
        harpe_scheduler_kind_forget(job->jobs->options.scheduler, job->id);
        harpe_job_release(job);
    }
    if (has_only_read)
        harpe_job_wake(job);
    else
        harpe_job_changed(job);
}

void harpe_turn_run_in(harpe_turn *turn, int pool, void (*work)(void *user),
                       void (*done)(void *user)) {
    harpe_job *job = turn->job;
    job->users++;
    turn->work =
        (harpe_work){.work = work, .done = done, .user = turn, .pool = pool, .subject = job->id};
    harpe_workers_submit(job->jobs->options.workers, &turn->work);
}

void harpe_turn_run(harpe_turn *turn, void (*work)(void *user), void (*done)(void *user)) {
    bool plans = harpe_scheduler_kind_plans(turn->job->jobs->options.scheduler);
    harpe_turn_run_in(turn, plans ? HARPE_POOL_PLAN : HARPE_POOL_SCHEDULE, work, done);
}

bool harpe_turn_is_back(harpe_turn *turn) {
    turn->job->users--;
    if (!turn->job->is_evicted) return true;
    harpe_turn_end(turn);
    return false;
}

/* ---- Failing --------------------------------------------------------------------------------- */

typedef struct failure_turn {
    harpe_turn turn;
    harpe_change change;
    char *failure;
} failure_turn;

static void free_failure(harpe_turn *turn) { free(((failure_turn *)turn)->failure); }

static const harpe_turn_kind failure_kind = {.size = sizeof(failure_turn),
                                             .free_own = free_failure};

/* The job also fails if its failure could not be stored, because the scheduler may be in a wrong
 * state and cannot be asked again. After a restart a new scheduler is asked. */
static void failure_is_stored(void *user, harpe_status status, const harpe_error *error) {
    failure_turn *self = user;
    harpe_job *job = self->turn.job;
    if (status != HARPE_OK) {
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: its failure could not be stored: %s", job->id, error->message);
    }
    if (!job->is_evicted && !job->failure) {
        job->failure = self->failure;
        self->failure = NULL;
        job->jobs->counts.failed++;
        harpe_job_end_scheduler(job);
        job->scheduler = NULL;
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_ERROR, "%s: failed: %s", job->id,
                       job->failure);
        harpe_job_refuse_held(job, 500, job->failure);
    }
    harpe_turn_end(&self->turn);
}

/* Frees `turn` and returns the turn that stores the failure. If there is no memory, keeps `turn`
 * and returns NULL. */
static failure_turn *replace_turn(harpe_turn *turn, const harpe_error *error) {
    harpe_job *job = turn->job;
    failure_turn *self = NULL;
    char *failure =
        strndup(error->message, harpe_cut_length(error->message, sizeof error->message - 1));
    if (failure) self = harpe_turn_new(job, &failure_kind);
    if (!self) {
        free(failure);
        return NULL;
    }
    harpe_clean_in_place(failure); /* the scheduler's own code may have written the message */
    self->failure = failure;
    harpe_in_flight_remove(job->jobs, &turn->in_flight);
    free_turn(turn);
    return self;
}

void harpe_turn_fail_job(harpe_turn *turn, const harpe_error *error) {
    harpe_job *job = turn->job;
    bool may_store = !job->eviction && !job->jobs->is_stopping;
    failure_turn *self = may_store ? replace_turn(turn, error) : NULL;
    if (!self) {
        harpe_job_refuse_held(job, 503, "the server could not continue: try again");
        harpe_turn_end(turn);
        return;
    }
    self->change = (harpe_change){.kind = HARPE_CHANGE_FAILED,
                                  .job_id = job->id,
                                  .text = self->failure,
                                  .length = strlen(self->failure),
                                  .done = failure_is_stored,
                                  .user = self};
    harpe_store_submit(job->jobs->options.store, &self->change);
}
