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
#include "server/engine/engine_internal.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "pfo/models.h"

/* ---- The text of a round --------------------------------------------------------------------- */

/* The schedules of one round as text. The text is made once for all ranks. It is stored and dumped
 * as one list, and each rank gets a slice of it. If several ranks have the same instructions, these
 * are written once and then copied. */

static harpe_round_text *new_round_text(int count) {
    harpe_round_text *round = harpe_calloc(1, sizeof *round);
    if (!round) return NULL;
    round->references = 1;
    round->offsets = harpe_calloc((size_t)count + 1, sizeof *round->offsets);
    if (round->offsets) return round;
    free(round);
    return NULL;
}

harpe_round_text *harpe_round_text_ref(harpe_round_text *text) {
    if (text) text->references++;
    return text;
}

void harpe_round_text_unref(harpe_round_text *text) {
    if (!text || --text->references > 0) return;
    free(text->text);
    free(text->offsets);
    free(text);
}

/* ---- The text of a round: writing ------------------------------------------------------------ */

/* The number of latest schedules that are remembered while the text is written. An entry is the
 * slice of the text that follows the rank's number. The address of the instructions identifies an
 * entry. Stages have few different schedules, and these alternate. */
enum { REMEMBERED = 64 };
typedef struct written_schedule {
    const harpe_scheduled_instruction *instructions;
    size_t count, start, length;
} written_schedule;

/* Writes all of a schedule and remembers it. `prefix` is the part that differs between ranks. */
static harpe_status append_new(harpe_text *text, const harpe_frequency_schedule *schedule,
                               const char *prefix, written_schedule *written, harpe_error *error) {
    char *json = NULL;
    harpe_status status = harpe_frequency_schedule_format(schedule, &json, error);
    if (status != HARPE_OK) return status;
    size_t length = strlen(json);
    size_t prefix_length = strlen(prefix);
    if (strncmp(json, prefix, prefix_length) == 0) {
        *written = (written_schedule){schedule->instructions, schedule->instruction_count,
                                      text->length + prefix_length, length - prefix_length};
    }
    harpe_text_append(text, json, length);
    free(json);
    return HARPE_OK;
}

static harpe_status append_schedule(harpe_text *text, const harpe_frequency_schedule *schedule,
                                    written_schedule written[REMEMBERED], harpe_error *error) {
    char prefix[32];
    size_t length = (size_t)snprintf(prefix, sizeof prefix, "{\"rank\":%d", schedule->rank);
    /* The lowest four bits are often the same, because memory is aligned. The next bits differ
     * between stages, because the blocks of memory of the stages lie side by side. */
    size_t place = ((uintptr_t)schedule->instructions >> 4) % REMEMBERED;
    written_schedule *same = &written[place];
    if (schedule->instruction_count == 0 || same->instructions != schedule->instructions ||
        same->count != schedule->instruction_count)
        return append_new(text, schedule, prefix, same, error);
    if (!HARPE_ARRAY_RESERVE(text->data, text->capacity, text->length + length + same->length + 1))
        return harpe_fail_memory(error);
    harpe_text_append(text, prefix, length);
    harpe_text_append(text, text->data + same->start, same->length);
    return HARPE_OK;
}

harpe_status harpe_round_text_format(const harpe_frequency_schedule *schedules, int count,
                                     harpe_round_text **out, harpe_error *error) {
    harpe_round_text *round = new_round_text(count);
    if (!round) return harpe_fail_memory(error);
    written_schedule written[REMEMBERED] = {0};
    harpe_text text = {0};
    harpe_status status = HARPE_OK;
    for (int r = 0; r < count && status == HARPE_OK; r++) {
        harpe_text_append(&text, r == 0 ? "[" : ",", 1);
        round->offsets[r] = text.length;
        status = append_schedule(&text, &schedules[r], written, error);
    }
    harpe_text_append(&text, "]", 1);
    if (status == HARPE_OK && text.failed) status = harpe_fail_memory(error);
    round->text = text.data;
    round->length = round->offsets[count] = text.length;
    if (status != HARPE_OK) {
        harpe_round_text_unref(round);
        return status;
    }
    *out = round;
    return HARPE_OK;
}

/* ---- The text of a round: reading back ------------------------------------------------------- */

/* Returns the position of the ',' or ']' that follows the JSON value at `at`. Returns `length` if
 * none follows. */
static size_t end_of_value(const char *text, size_t length, size_t at) {
    int depth = 0;
    bool is_in_string = false;
    for (; at < length; at++) {
        char c = text[at];
        if (is_in_string) {
            if (c == '\\')
                at++;
            else if (c == '"')
                is_in_string = false;
        } else if (c == '"') {
            is_in_string = true;
        } else if (depth == 0 && (c == ',' || c == ']')) {
            return at;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return length;
}

harpe_status harpe_round_text_split(const char *text, size_t length, int count,
                                    harpe_round_text **out, harpe_error *error) {
    harpe_round_text *round = new_round_text(count);
    char *copy = harpe_calloc(length + 1, 1);
    if (!round || !copy) {
        free(copy);
        harpe_round_text_unref(round);
        return harpe_fail_memory(error);
    }
    memcpy(copy, text, length);
    round->text = copy;
    round->length = length;
    size_t at = length > 0 && text[0] == '[' ? 1 : length;
    int found = 0;
    while (found < count && at < length) {
        round->offsets[found++] = at;
        at = end_of_value(text, length, at) + 1;
    }
    round->offsets[count] = at;
    if (found < count || at != length) {
        harpe_round_text_unref(round);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the stored round is not a list of the schedules of %d ranks", count);
    }
    *out = round;
    return HARPE_OK;
}

/* ---- Contact --------------------------------------------------------------------------------- */

/* A client of Harpe keeps its connection while it trains, so the kernel closes the connection when
 * the process is killed. If this has happened to all ranks of a job that have not ended, the job is
 * out of contact until one of them sends a request. This changes only what is shown. Published
 * clients close their connections after each request, and the routes do not report those. */

/* The engine may handle a request so long after its arrival. */
static const double slack_s = 2;

bool harpe_job_is_out_of_contact(const harpe_job *job) {
    return job->lost > 0 && job->lost + job->ended >= job->registered && !job->failure &&
           !job->is_evicted;
}

static void set_lost(harpe_job *job, harpe_rank *slot, bool is_lost) {
    if (slot->is_lost == is_lost) return;
    slot->is_lost = is_lost;
    job->lost += is_lost ? 1 : -1;
    harpe_job_changed(job);
}

void harpe_rank_is_heard(harpe_job *job, int rank) {
    harpe_rank *slot = harpe_job_rank(job, rank);
    if (!slot) return;
    slot->heard_s = harpe_jobs_steady_s(job->jobs);
    set_lost(job, slot, false);
}

void harpe_take_loss(harpe_job *job, harpe_call *call) {
    harpe_rank *slot = harpe_job_rank(job, (int)call->rank);
    double asked_s = harpe_jobs_steady_s(job->jobs) - (double)call->round / 1000;
    /* A rank that was heard later has another connection. */
    if (slot && slot->is_registered && !slot->has_ended && slot->heard_s < asked_s + slack_s) {
        set_lost(job, slot, true);
        job->lost_s = harpe_jobs_now_s(job->jobs);
    }
    harpe_reply_null(call, -1);
}

/* ---- Held requests --------------------------------------------------------------------------- */

/* Holds requests for schedules until the next round begins. Ranks that are not registered can also
 * ask, but only a limited number of their requests is held. */

/* Ranks usually ask after they have registered, but any client can ask for ranks that are not
 * registered. At most this many of these requests are held. They may be refused to make room for
 * other requests. */
enum { UNREGISTERED_MAX = 1024, CONNECTIONS_PER_UNREGISTERED = 8 };

static void tell_gives_way(harpe_call *call, bool gives_way) {
    if (call->gives_way) call->gives_way(call, gives_way);
}

static void leave_unregistered(harpe_call *call) {
    if (!call->list) return;
    harpe_calls_remove(call);
    tell_gives_way(call, false);
}

static void join_unregistered(harpe_jobs *jobs, harpe_call *call) {
    size_t limit = (size_t)jobs->options.settings->max_connections / CONNECTIONS_PER_UNREGISTERED;
    if (limit > UNREGISTERED_MAX) limit = UNREGISTERED_MAX;
    harpe_calls_append(&jobs->unregistered, call);
    tell_gives_way(call, true);
    while (jobs->unregistered.count > limit && jobs->unregistered.first != call) {
        harpe_call *oldest = jobs->unregistered.first;
        harpe_job *job = oldest->held_by;
        harpe_job_changed(job);
        harpe_job_unhold(job, oldest);
        harpe_reply_detail(oldest, 503,
                           "rank %lld is not registered, and too many such requests are held: "
                           "register it first",
                           (long long)oldest->rank);
    }
}

/* ---- Replacing held requests ----------------------------------------------------------------- */

static void reply_replaced(harpe_call *call) {
    harpe_reply_detail(call, 409, "rank %lld asked again: this request was replaced",
                       (long long)call->rank);
}

/* Holds a request for the next schedule. Answers an older request of the same rank with 409. */
static void job_hold(harpe_job *job, harpe_call *call) {
    harpe_rank *slot = harpe_job_make_rank(job, (int)call->rank);
    if (!slot) {
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_call *older = slot->asking;
    /* The older request is removed from the list first. Otherwise the older request could be
     * refused to make room for the new request. */
    if (older) leave_unregistered(older);
    slot->asking = call;
    call->held_by = job;
    if (!slot->is_registered) join_unregistered(job->jobs, call);
    if (older) {
        reply_replaced(older);
        return;
    }
    job->asking++;
    job->jobs->counts.ranks_waiting++;
}

void harpe_job_unhold(harpe_job *job, harpe_call *call) {
    leave_unregistered(call);
    call->held_by = NULL;
    harpe_job_rank(job, (int)call->rank)->asking = NULL;
    job->asking--;
    job->jobs->counts.ranks_waiting--;
}

void harpe_job_keep_held(harpe_job *job, int rank) {
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot && slot->asking) leave_unregistered(slot->asking);
}

/* Answers all held requests with an error. */
static void job_refuse_asking(harpe_job *job, int http_status, const char *detail) {
    const harpe_rank *slot;
    for (int r = 0; job->asking > 0 && (slot = harpe_job_next_rank(job, &r)); r++) {
        harpe_call *call = slot->asking;
        if (!call) continue;
        harpe_job_unhold(job, call);
        harpe_reply_detail(call, http_status, "%s", detail);
    }
}

void harpe_job_refuse_held(harpe_job *job, int http_status, const char *detail) {
    job_refuse_asking(job, http_status, detail);
    for (harpe_call *call; (call = harpe_calls_take_first(&job->queue));)
        harpe_reply_detail(call, http_status, "%s", detail);
}

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
    if (call->rank < 0)
        harpe_problems_add_limit(&problems, json_pack("[s,s]", "query", "rank"),
                                 "value_error.number.not_ge",
                                 "ensure this value is greater than or equal to 0", 0);
    else
        harpe_add_unknown_rank(&problems, "query", call->rank, job);
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
    job_hold(job, call);
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

static void state_is_stored(harpe_operation *operation) {
    const harpe_job *job = operation->job;
    /* The job continues. Without this state a restart replays more rounds. */
    if (operation->status != HARPE_OK)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: the scheduler's state could not be stored: %s", job->id,
                       operation->error->message);
    harpe_turn_end(job->turn);
}

/* Makes the change that stores the sums of the results up to the round that is over. Returns NULL
 * if there is none; then a restart adds the results of that round to the sums before. */
static harpe_change *make_sums(harpe_turn *turn) {
    const harpe_job *job = turn->operation.job;
    turn->text = job->round >= 0 ? harpe_job_save_sums(job) : NULL;
    if (!turn->text) return NULL;
    turn->sums = (harpe_change){.kind = HARPE_CHANGE_SUMS,
                                .job_id = job->id,
                                .round = job->round,
                                .text = turn->text,
                                .length = strlen(turn->text)};
    return &turn->sums;
}

static void round_is_stored(harpe_operation *operation) {
    harpe_job *job = operation->job;
    if (operation->status != HARPE_OK) {
        char detail[HARPE_ERROR_MESSAGE_SIZE + 64];
        (void)snprintf(detail, sizeof detail, "the round could not be stored, try again: %s",
                       operation->error->message);
        job_refuse_asking(job, 503, detail);
        harpe_turn_end(job->turn);
        return;
    }
    begin_round(job);
    answer_all(job);
    harpe_job_changed(job);
    if (!job->state_text || job->eviction || job->jobs->is_stopping) {
        harpe_turn_end(job->turn);
        return;
    }
    int64_t last = job->round - 1;
    operation->earlier = NULL;
    /* `number` says which older data the store can delete: see harpe_change_kind. */
    operation->change = (harpe_change){.round = job->round,
                                       .number = last - harpe_dumps_first_round(job, last),
                                       .text = job->state_text,
                                       .length = job->state_length};
    harpe_operation_store(operation, HARPE_CHANGE_STATE, state_is_stored);
}

static void begin_hand_out(harpe_job *job) {
    harpe_turn *turn = harpe_turn_new(job, NULL);
    if (!turn) {
        job_refuse_asking(job, 503, "the server is out of memory: try again later");
        return;
    }
    bool is_as_before = job->next == job->current;
    turn->operation.earlier = make_sums(turn);
    turn->operation.change = (harpe_change){.round = job->round + 1,
                                            .number = harpe_dumps_first_round(job, job->round + 1),
                                            .text = is_as_before ? "" : job->next->text,
                                            .length = is_as_before ? 0 : job->next->length};
    harpe_operation_store(&turn->operation, HARPE_CHANGE_ROUND, round_is_stored);
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
