/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds of a job: ranks ask for schedules, the schedules are handed out, results come. The
 * state of a job follows from its members (job.c). Every event changes members and marks the job.
 * The loop then calls harpe_job_advance, which begins the turn that the state requires. A job does
 * one turn at a time. A change is stored before its request is answered.
 *
 * state         event                              reaction
 * registering   last rank registered, stored       prepare turn -> preparing
 * any but the   rank asks (no round, or round + 1) held; an older call of the rank gets 409
 *   last two    rank asks with the current round   the same schedule again, at once
 *               rank asks with another round       409
 *               rank asks without round, and its   the current round again, once
 *                 last answer may be lost
 *               client of a held call is gone      the rank no longer asks
 *               result                             409 before a schedule; otherwise see running
 *               job request, frontier request      queued for a turn; 409 without a scheduler
 *               eviction                           deletion stored, new calls wait for it; then
 *                                                  held calls get 410 -> evicted
 *               store fails                        503 for the calls concerned; no member changes
 * preparing     scheduler made, first schedules    -> gathering
 *               scheduler fails                    failure stored, held calls get 500 -> failed
 * gathering     all ranks ask                      round stored, then all calls answered
 *                                                  -> running; ranks whose client is gone may ask
 *                                                  again
 * running       first result of a rank             stored, then 200
 *               another result of the rank         compared with the stored one: 200 or 409
 *               result of the last rank            observe turn -> observing; -> gathering if the
 *                                                  scheduler is finished
 * observing     results observed, next schedules   -> gathering
 *               scheduler fails                    as in preparing -> failed
 * any, after    a rank registers again             stored, then 200 -> the state before the end (a
 *   all ends                                       scheduler process has ended, and is replaced)
 * failed        schedule, result, job request      500 with the failure
 * evicted       anything                           410
 *
 * After a crash the state follows from the records: JOB and RANKs (registering), ROUND k without
 * all of its RESULTs (running), ROUND k with all of them (observing). The schedules of round k + 1
 * were not handed out, so they are computed again. A prepare turn replays the rounds for the
 * scheduler; the ranks of a running job do not wait for it. */
#include "server/engine/rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/engine/count_stored.h"
#include "server/engine/dumps.h"
#include "server/engine/held_requests.h"
#include "server/engine/job.h"
#include "server/engine/job_figures.h"
#include "server/engine/job_ranks.h"
#include "server/engine/job_requests.h"
#include "server/engine/marked_jobs.h"
#include "server/engine/replies.h"
#include "server/engine/round_results.h"
#include "server/engine/round_text.h"
#include "server/engine/scheduler_end.h"
#include "server/engine/scheduler_turns.h"
#include "server/engine/turn.h"

/* ---- Asking ---------------------------------------------------------------------------------- */

static void reply_schedule(harpe_job *job, harpe_call *call) {
    const harpe_round_text *round = job->current;
    harpe_job_rank(job, (int)call->rank)->may_ask_again = false;
    size_t start = round->offsets[call->rank];
    size_t length = round->offsets[call->rank + 1] - 1 - start;
    char *body = malloc(length + 1);
    if (!body) {
        harpe_reply_out_of_memory(call);
        return;
    }
    memcpy(body, round->text + start, length);
    body[length] = '\0';
    harpe_reply(call, 200, body, length, job->round);
}

static void refuse_rank(const harpe_job *job, harpe_call *call) {
    harpe_problems problems = {0};
    json_t *location = json_pack("[s,s]", "query", "rank");
    if (call->rank < 0) {
        harpe_problems_add_limit(&problems, location, "value_error.number.not_ge",
                                 "ensure this value is greater than or equal to 0", 0);
    } else {
        char message[96];
        (void)snprintf(message, sizeof message, "rank %lld is not in a job of %d ranks",
                       (long long)call->rank, job->info.world_size);
        harpe_problems_add(&problems, location, "assertion_error", message);
    }
    harpe_reply_problems(call, &problems);
    harpe_problems_free(&problems);
}

void harpe_ask_for_schedule(harpe_job *job, harpe_call *call) {
    if (call->rank < 0 || call->rank >= job->info.world_size) {
        refuse_rank(job, call);
        return;
    }
    if (job->failure) {
        harpe_reply_detail(call, 500, "%s", job->failure);
        return;
    }
    const harpe_rank *slot = harpe_job_rank(job, (int)call->rank);
    bool wants_again = slot && call->round < 0 && slot->may_ask_again && !slot->has_reported;
    if (job->round >= 0 && (call->round == job->round || wants_again)) {
        reply_schedule(job, call);
        return;
    }
    if (call->round >= 0 && call->round != job->round + 1) {
        harpe_reply_detail(call, 409, "round %lld cannot be requested: the next one is %lld",
                           (long long)call->round, (long long)job->round + 1);
        return;
    }
    harpe_job_hold(job, call);
}

void harpe_job_schedule_is_lost(harpe_job *job, int rank, int64_t round) {
    harpe_rank *slot = harpe_job_rank(job, rank);
    if (job->round != round || !slot || slot->has_reported) return;
    slot->may_ask_again = true;
    /* The client may have sent a new request before the server noticed the lost connection. */
    harpe_call *call = slot->asking;
    if (!call || call->round >= 0) return;
    harpe_job_changed(job);
    harpe_job_unhold(job, call);
    reply_schedule(job, call);
}

/* ---- Handing out ----------------------------------------------------------------------------- */

static void begin_round(harpe_job *job) {
    job->round++;
    job->reported = 0;
    harpe_round_results_unref(job->results);
    job->results = NULL;
    harpe_round_text_unref(job->current);
    job->current = job->next;
    /* A finished scheduler keeps its last schedules. */
    job->next = job->is_finished ? harpe_round_text_ref(job->current) : NULL;
    harpe_rank *slot;
    for (int r = 0; (slot = harpe_job_next_rank(job, &r)); r++) {
        slot->has_reported = false;
        slot->may_ask_again = !slot->asking;
    }
    job->jobs->counts.rounds++;
    harpe_dump_schedules(job, job->round, job->current);
}

/* Answers the calls of all ranks. While one call is answered, the next request of its rank may
 * arrive, and the client of another rank's call may disconnect. Therefore each call stays held
 * until it is answered itself. */
static void answer_all(harpe_job *job) {
    const harpe_rank *slot;
    for (int r = 0; (slot = harpe_job_next_rank(job, &r)); r++) {
        harpe_call *call = slot->asking;
        if (!call) continue;
        harpe_job_unhold(job, call);
        reply_schedule(job, call);
    }
}

typedef struct hand_out_turn {
    harpe_turn turn;
    harpe_change sums, change;
    char *sums_text;
} hand_out_turn;

static void free_hand_out(harpe_turn *turn) { free(((hand_out_turn *)turn)->sums_text); }

static const harpe_turn_kind hand_out_kind = {.size = sizeof(hand_out_turn),
                                              .free_own = free_hand_out};

static void state_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_turn *turn = &((hand_out_turn *)user)->turn;
    /* The job continues. Without this state a restart replays more rounds. */
    if (status != HARPE_OK) {
        harpe_log_line(&turn->job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: the scheduler's state could not be stored: %s", turn->job->id,
                       error->message);
    }
    harpe_turn_end(turn);
}

/* Makes the change that stores the sums of the results up to the round that is over. Returns false
 * if there is none; then a restart adds the results of that round to the sums before. */
static bool make_sums(hand_out_turn *self) {
    const harpe_job *job = self->turn.job;
    self->sums_text = job->round >= 0 ? harpe_job_save_sums(job) : NULL;
    if (!self->sums_text) return false;
    self->sums = (harpe_change){.kind = HARPE_CHANGE_SUMS,
                                .job_id = job->id,
                                .round = job->round,
                                .text = self->sums_text,
                                .length = strlen(self->sums_text)};
    return true;
}

/* Stores a record of the round. `number` tells the store which older data it can delete: see
 * harpe_change_kind. */
static void store_round(hand_out_turn *self, harpe_change_kind kind, const char *text,
                        size_t length, int64_t round, int64_t number,
                        void (*done)(void *user, harpe_status status, const harpe_error *error)) {
    self->change = (harpe_change){.kind = kind,
                                  .job_id = self->turn.job->id,
                                  .round = round,
                                  .number = number,
                                  .text = text,
                                  .length = length,
                                  .done = done,
                                  .user = self};
    harpe_store *store = self->turn.job->jobs->options.store;
    if (kind == HARPE_CHANGE_ROUND && make_sums(self))
        harpe_store_submit_both(store, &self->sums, &self->change);
    else
        harpe_store_submit(store, &self->change);
}

static void round_is_stored(void *user, harpe_status status, const harpe_error *error) {
    hand_out_turn *self = user;
    harpe_turn *turn = &self->turn;
    harpe_job *job = turn->job;
    if (status != HARPE_OK) {
        char detail[HARPE_ERROR_MESSAGE_SIZE + 64];
        (void)snprintf(detail, sizeof detail, "the round could not be stored, try again: %s",
                       error->message);
        harpe_job_refuse_asking(job, 503, detail);
        harpe_turn_end(turn);
        return;
    }
    begin_round(job);
    answer_all(job);
    harpe_job_changed(job);
    if (job->state_text && !job->eviction && !job->jobs->is_stopping) {
        int64_t last = job->round - 1;
        store_round(self, HARPE_CHANGE_STATE, job->state_text, job->state_length, job->round,
                    last - harpe_dumps_first_round(job, last), state_is_stored);
    } else {
        harpe_turn_end(turn);
    }
}

static void begin_hand_out(harpe_job *job) {
    hand_out_turn *self = harpe_turn_new(job, &hand_out_kind);
    if (!self) {
        harpe_job_refuse_asking(job, 503, "the server is out of memory: try again later");
        return;
    }
    bool is_as_before = job->next == job->current;
    store_round(self, HARPE_CHANGE_ROUND, is_as_before ? "" : job->next->text,
                is_as_before ? 0 : job->next->length, job->round + 1,
                harpe_dumps_first_round(job, job->round + 1), round_is_stored);
}

static bool has_job_request(const harpe_job *job) {
    for (const harpe_call *call = job->queue.first; call; call = call->next)
        if (!harpe_call_only_reads(call)) return true;
    return false;
}

/* ---- The next step --------------------------------------------------------------------------- */

/* Returns true if the job needs no scheduler process until a rank registers again or all ranks
 * ask. */
static bool can_rest(const harpe_job *job) {
    return harpe_scheduler_kind_can_return(job->jobs->options.scheduler) &&
           harpe_job_has_ended(job) && job->asking < job->info.world_size && !job->queue.first;
}

static void rest(harpe_job *job) {
    bool has_process = job->scheduler && harpe_scheduler_has_process(job->scheduler);
    if (!has_process) return;
    harpe_job_end_scheduler(job);
    job->scheduler = NULL;
    job->is_ready = false;
}

void harpe_job_advance(harpe_job *job) {
    bool is_over = harpe_job_round_is_over(job);
    if (is_over && job->results && !job->results->is_dumped && !job->is_evicted) {
        job->results->is_dumped = true;
        harpe_dump_results(job, job->round, job->results);
    }
    if (job->jobs->is_stopping || job->is_evicted || job->eviction || job->turn) return;
    if (job->uncounted > 0) {
        harpe_begin_count_stored(job);
        return;
    }
    if (job->failure) return;
    if (job->registered < job->info.world_size) return;
    bool waits_for_round = is_over && job->next && job->asking == job->info.world_size;
    if (can_rest(job)) {
        rest(job);
    } else if (!job->is_ready) {
        harpe_begin_prepare(job);
    } else if (is_over && !job->next) {
        harpe_begin_observe(job);
    } else if (job->queue.first && (!waits_for_round || has_job_request(job))) {
        /* Job requests are handled before the next round is handed out, so that they affect it.
         * Frontier requests can wait. */
        harpe_begin_queued(job);
    } else if (waits_for_round) {
        begin_hand_out(job);
    }
}
