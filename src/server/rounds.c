/* SPDX-License-Identifier: Apache-2.0 */
/* A job's rounds: who asks, when schedules are handed out, what happens next. The state of a job
 * is what its facts say (job.c); every event changes facts and then calls harpe_job_advance, which
 * begins what they ask for, one turn at a time. Nothing is promised before it is stored.
 *
 * state         event                              then
 * registering   rank registered, stored            the last one: prepare turn -> preparing
 * any but the   rank asks (no round, or round + 1) held; an older call of the rank gets 409
 *   last two    asks with the current round        the same schedule again, at once
 *               asks with an older, a later one    409
 *               asks without round, and its last   the current round again, once
 *                 answer may not have arrived
 *               client of a held call goes away    the rank no longer asks
 *               result                             before a schedule 409; else see running
 *               wish, frontier                     queued for a turn; without scheduler 409
 *               evict                              deletion stored; calls that come meanwhile wait
 *                                                  for it; then all held 410 -> evicted
 *               store fails                        503 to whom it concerns, facts as before
 * preparing     scheduler made, first schedules    -> gathering
 *               it fails                           failure stored, all held 500 -> failed
 * gathering     all ranks ask                      round stored, then all answered -> running; who
 *                                                  went away meanwhile may ask again
 * running       first result of a rank             stored, then 200
 *               another result of it               compared with the stored: 200 or 409
 *               the last rank's result             observe turn -> observing; or, where the
 *                                                  scheduler is finished, -> gathering
 * observing     observed, next schedules           -> gathering
 *               it fails                           as in preparing -> failed
 * any with all  a rank registers again             stored, then 200 -> as before the end
 *   ranks' ends (a scheduler that runs in a process has left, and is brought back then)
 * failed        schedule, result, wish             500 with the failure
 * evicted       anything                           410
 *
 * After a crash the records say the state: JOB and RANKs (registering), ROUND k without all its
 * RESULTs (running), with all (observing). Schedules of round k + 1 are computed anew, nobody saw
 * them. The scheduler is brought back by a prepare turn; ranks of a running job need not wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"

/* ---- Strangers ---------------------------------------------------------------------------- */

/* Ranks usually ask after they have registered, but anybody can ask for ranks that are not
 * registered. Only this many of such requests are held, and they give way to others. */
enum { STRANGERS_MAX = 1024, CONNECTIONS_PER_STRANGER = 8 };

static void tell_gives_way(harpe_call *call, bool gives_way) {
    if (call->gives_way) call->gives_way(call, gives_way);
}

static void leave_strangers(harpe_call *call) {
    if (!call->list) return;
    harpe_calls_remove(call);
    tell_gives_way(call, false);
}

static void join_strangers(harpe_jobs *jobs, harpe_call *call) {
    size_t limit = (size_t)jobs->options.settings->max_connections / CONNECTIONS_PER_STRANGER;
    if (limit > STRANGERS_MAX) limit = STRANGERS_MAX;
    harpe_calls_append(&jobs->strangers, call);
    tell_gives_way(call, true);
    while (jobs->strangers.count > limit && jobs->strangers.first != call) {
        harpe_call *oldest = jobs->strangers.first;
        harpe_job *job = oldest->held_by;
        harpe_job_changed(job);
        harpe_job_unhold(job, oldest);
        harpe_reply_detail(oldest, 503,
                           "rank %lld is not registered, and too many such requests are held: "
                           "register it first",
                           (long long)oldest->rank);
    }
}

void harpe_job_meet(harpe_job *job, int rank) {
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot && slot->asking) leave_strangers(slot->asking);
}

/* ---- Who is held -------------------------------------------------------------------------- */

static void reply_replaced(harpe_call *call) {
    harpe_reply_detail(call, 409, "rank %lld asked again: this request was replaced",
                       (long long)call->rank);
}

static void hold(harpe_job *job, harpe_call *call) {
    harpe_rank *slot = harpe_job_make_rank(job, (int)call->rank);
    if (!slot) {
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_call *older = slot->asking;
    /* A request that another server passed on may arrive after a later one of the same client,
     * which turned to this server when the other one was killed. */
    if (older && call->asked_ns < older->asked_ns) {
        reply_replaced(call);
        return;
    }
    /* It leaves first: else it could be the one that makes room for the new request. */
    if (older) leave_strangers(older);
    slot->asking = call;
    call->held_by = job;
    if (!slot->is_registered) join_strangers(job->jobs, call);
    if (older) {
        reply_replaced(older);
        return;
    }
    job->asking++;
    job->jobs->counts.ranks_waiting++;
}

void harpe_job_unhold(harpe_job *job, harpe_call *call) {
    leave_strangers(call);
    call->held_by = NULL;
    harpe_job_rank(job, (int)call->rank)->asking = NULL;
    job->asking--;
    job->jobs->counts.ranks_waiting--;
}

void harpe_job_refuse_asking(harpe_job *job, int http_status, const char *detail) {
    const harpe_rank *slot;
    for (int r = 0; job->asking > 0 && (slot = harpe_job_next_rank(job, &r)) != NULL; r++) {
        harpe_call *call = slot->asking;
        if (!call) continue;
        harpe_job_unhold(job, call);
        harpe_reply_detail(call, http_status, "%s", detail);
    }
}

void harpe_job_refuse_held(harpe_job *job, int http_status, const char *detail) {
    harpe_job_refuse_asking(job, http_status, detail);
    for (harpe_call *call; (call = harpe_calls_take_first(&job->queue)) != NULL;) {
        harpe_reply_detail(call, http_status, "%s", detail);
    }
}

/* ---- Asking ------------------------------------------------------------------------------- */

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
        harpe_reply_detail(call, 409, "round %lld is not to be had: the next one is %lld",
                           (long long)call->round, (long long)job->round + 1);
        return;
    }
    hold(job, call);
    harpe_job_advance(job);
}

void harpe_jobs_delivered(harpe_jobs *jobs, const char *job_id, int rank, int64_t round,
                          bool has_arrived) {
    harpe_job *job = harpe_job_table_find(&jobs->table, job_id);
    if (has_arrived || !job || job->is_evicted || rank < 0 || rank >= job->info.world_size) return;
    harpe_rank *slot = harpe_job_rank(job, rank);
    if (job->round != round || !slot || slot->has_reported) return;
    slot->may_ask_again = true;
    /* It may have come back before its loss was noticed. */
    harpe_call *call = slot->asking;
    if (!call || call->round >= 0) return;
    harpe_job_changed(job);
    harpe_job_unhold(job, call);
    reply_schedule(job, call);
}

/* ---- Handing out -------------------------------------------------------------------------- */

static void begin_round(harpe_job *job) {
    job->round++;
    job->reported = 0;
    harpe_round_results_unref(job->results);
    job->results = NULL;
    harpe_round_text_unref(job->current);
    job->current = job->next;
    /* A scheduler without more to say keeps its last schedules. */
    job->next = job->is_finished ? harpe_round_text_ref(job->current) : NULL;
    harpe_rank *slot;
    for (int r = 0; (slot = harpe_job_next_rank(job, &r)) != NULL; r++) {
        slot->has_reported = false;
        slot->may_ask_again = !slot->asking;
    }
    job->jobs->counts.rounds++;
    harpe_dump_schedules(job, job->round, job->current);
}

/* An answer may bring the next request of this rank or the loss of another's: each call is still
 * held, where both are looked for, until its turn. */
static void answer_all(harpe_job *job) {
    const harpe_rank *slot;
    for (int r = 0; (slot = harpe_job_next_rank(job, &r)) != NULL; r++) {
        harpe_call *call = slot->asking;
        if (!call) continue;
        harpe_job_unhold(job, call);
        reply_schedule(job, call);
    }
}

static void state_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_turn *turn = user;
    /* Without it a restart goes back further, that is all. */
    if (status) {
        harpe_jobs_log(turn->jobs, HARPE_LOG_WARNING, "%s: the scheduler's state is not stored: %s",
                       turn->job->id, error->message);
    }
    harpe_turn_end(turn);
}

/* `number` says what the store need not keep any longer: see harpe_change_kind. */
static void store_round(harpe_turn *turn, harpe_change_kind kind, const char *text, size_t length,
                        int64_t round, int64_t number,
                        void (*done)(void *user, harpe_status status, const harpe_error *error)) {
    turn->change = (harpe_change){.kind = kind,
                                  .job_id = turn->job->id,
                                  .round = round,
                                  .number = number,
                                  .text = text,
                                  .length = length,
                                  .done = done,
                                  .user = turn};
    harpe_store_submit(turn->jobs->options.store, &turn->change);
}

static void round_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_turn *turn = user;
    harpe_job *job = turn->job;
    if (status) {
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
    if (job->state_text && !job->eviction && !turn->jobs->is_stopping) {
        int64_t last = job->round - 1;
        store_round(turn, HARPE_CHANGE_STATE, job->state_text, job->state_length, job->round,
                    last - harpe_dumps_first_round(job, last), state_is_stored);
    } else {
        harpe_turn_end(turn);
    }
}

static void begin_hand_out(harpe_job *job) {
    harpe_turn *turn = harpe_turn_new(job, HARPE_TURN_HAND_OUT);
    if (!turn) {
        harpe_job_refuse_asking(job, 503, "the server is out of memory: try again later");
        return;
    }
    bool is_as_before = job->next == job->current;
    store_round(turn, HARPE_CHANGE_ROUND, is_as_before ? "" : job->next->text,
                is_as_before ? 0 : job->next->length, job->round + 1,
                harpe_dumps_first_round(job, job->round + 1), round_is_stored);
}

static bool has_wish(const harpe_job *job) {
    for (const harpe_call *call = job->queue.first; call; call = call->next) {
        if (!harpe_call_only_looks(call)) return true;
    }
    return false;
}

/* ---- What next ---------------------------------------------------------------------------- */

static void advance_once(harpe_job *job) {
    bool is_over = harpe_job_round_is_over(job);
    if (is_over && job->results && !job->results->is_dumped && !job->is_evicted) {
        job->results->is_dumped = true;
        harpe_dump_results(job, job->round, job->results);
    }
    if (job->jobs->is_stopping || job->is_evicted || job->failure || job->eviction || job->turn) {
        return;
    }
    if (job->registered < job->info.world_size) return;
    bool waits_for_round = is_over && job->next && job->asking == job->info.world_size;
    if (harpe_job_rests(job)) {
        harpe_job_rest(job);
    } else if (!job->is_ready) {
        harpe_begin_prepare(job);
    } else if (is_over && !job->next) {
        harpe_begin_observe(job);
    } else if (job->queue.first && (!waits_for_round || has_wish(job))) {
        harpe_begin_queued(job); /* a wish counts from the next round on; looks can wait */
    } else if (waits_for_round) {
        begin_hand_out(job);
    }
}

void harpe_job_advance(harpe_job *job) {
    harpe_jobs *jobs = job->jobs;
    if (!job->is_marked) {
        job->is_marked = true;
        job->next_marked = jobs->marked;
        jobs->marked = job;
    }
    if (jobs->is_advancing) return;
    jobs->is_advancing = true;
    for (harpe_job *marked; (marked = jobs->marked) != NULL;) {
        jobs->marked = marked->next_marked;
        marked->is_marked = false;
        advance_once(marked);
    }
    jobs->is_advancing = false;
}
