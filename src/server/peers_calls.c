/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of clients here that wait for the leader's answer.
 *
 * A call that was sent keeps its body: a new leader is asked again, under the same number. Asking
 * again is what a client does that retries: a registration of a rank or a result is told from a new
 * one by what is stored; one of a job, by a key that it is given here; and a job that is already
 * evicted has been, perhaps by the very call. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "pfo/models.h"
#include "server/peers_parts.h"

static const int64_t patience_ns = INT64_C(30000000000);
enum {
    LONGEST_BODY = 256 << 20,   /* of a letter */
    LONGEST_BACKLOG = 64 << 20, /* of bodies to be sent; a single one may be longer */
};

/* ---- Answers ------------------------------------------------------------------------------ */

void harpe_peers_answer(harpe_call *call, int http_status, const char *detail) {
    char *body = NULL;
    int length = asprintf(&body, "{\"detail\":\"%s\"}", detail);
    harpe_call_answer answer = {http_status, length < 0 ? NULL : body,
                                length < 0 ? 0 : (size_t)length, -1};
    call->answer(call, &answer);
}

static void answer_out_of_memory(harpe_call *call) {
    harpe_peers_answer(call, 503, "the server is out of memory: try again later");
}

/* ---- Waiting calls ------------------------------------------------------------------------ */

static int compare_pending(const void *a, const void *b) {
    const harpe_pending *x = a;
    const harpe_pending *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static harpe_pending *find_pending(const harpe_peers *peers, int64_t number) {
    const harpe_pending key = {.number = number};
    harpe_pending **node = tfind(&key, &peers->pending_by_number, compare_pending);
    return node ? *node : NULL;
}

static harpe_pending *add_pending(harpe_peers *peers, harpe_call *call, bool is_remote) {
    harpe_pending *pending = harpe_calloc(1, sizeof *pending);
    if (!pending) return NULL;
    pending->number = ++peers->last_number;
    pending->call = call;
    pending->is_remote = is_remote;
    pending->since_ns = harpe_clock_boot_ns();
    if (!tsearch(pending, &peers->pending_by_number, compare_pending)) {
        free(pending);
        return NULL;
    }
    pending->previous = peers->last_pending;
    if (pending->previous)
        pending->previous->following = pending;
    else
        peers->pending = pending;
    peers->last_pending = pending;
    call->pending = pending;
    return pending;
}

static harpe_call *remove_pending(harpe_peers *peers, harpe_pending *pending) {
    harpe_call *call = pending->call;
    (void)tdelete(pending, &peers->pending_by_number, compare_pending);
    if (pending->previous)
        pending->previous->following = pending->following;
    else
        peers->pending = pending->following;
    if (pending->following)
        pending->following->previous = pending->previous;
    else
        peers->last_pending = pending->previous;
    call->pending = NULL;
    free(pending);
    return call;
}

/* ---- Letters out -------------------------------------------------------------------------- */

harpe_letter *harpe_peers_new_letter(const harpe_peers *peers, harpe_letter_kind kind, int64_t to,
                                     int64_t call, int64_t value) {
    harpe_letter *letter = harpe_calloc(1, sizeof *letter);
    if (!letter) return NULL;
    letter->kind = kind;
    letter->from = peers->view.me;
    letter->peer = to;
    letter->call = call;
    letter->value = value;
    return letter;
}

void harpe_peers_tell(const harpe_peers *peers, harpe_letter_kind kind, int64_t to, int64_t call,
                      int64_t value) {
    harpe_letter *letter = harpe_peers_new_letter(peers, kind, to, call, value);
    if (letter) harpe_mailbox_send(peers->mailbox, letter);
}

/* A copy of the call; NULL when out of memory. */
static harpe_letter *letter_of(const harpe_peers *peers, const harpe_pending *pending) {
    const harpe_call *call = pending->call;
    harpe_letter *letter = harpe_peers_new_letter(peers, HARPE_LETTER_ASK, peers->view.leader,
                                                  pending->number, call->kind);
    if (!letter) return NULL;
    letter->rank = call->rank;
    letter->round = call->round;
    letter->length = call->length;
    if (call->job_id) letter->job_id = strdup(call->job_id);
    if (call->body) letter->body = malloc(call->length + 1);
    if ((call->job_id && !letter->job_id) || (call->body && !letter->body)) {
        harpe_letter_free(letter);
        return NULL;
    }
    if (call->body) {
        memcpy(letter->body, call->body, call->length);
        letter->body[call->length] = '\0';
    }
    return letter;
}

/* ---- What is asked twice ------------------------------------------------------------------ */

/* A job without a key is given one of this call alone, so that it is registered once however often
 * it is asked for. What is not a job the leader may refuse. */
static void give_key(const harpe_peers *peers, const harpe_pending *pending) {
    harpe_call *call = pending->call;
    harpe_job_info info = {0};
    harpe_problems problems = {0};
    char *body = NULL;
    if (call->kind != HARPE_CALL_REGISTER_JOB) return;
    bool is_job = harpe_job_info_decode(call->body, call->length, &info, &problems);
    harpe_problems_free(&problems);
    if (is_job && !info.job_key) {
        char key[64];
        (void)snprintf(key, sizeof key, "call-%016llx-%lld", (unsigned long long)peers->tag,
                       (long long)pending->number);
        info.job_key = key;
        (void)harpe_job_info_format(&info, &body, NULL);
    }
    harpe_job_info_free(&info);
    if (!body) return;
    free(call->body);
    call->body = body;
    call->length = strlen(body);
}

static void answer_repeated_eviction(harpe_call *call, const harpe_call_answer *answer) {
    harpe_call_answer mended = *answer;
    char *body = answer->http_status == 410 ? strdup("null") : NULL;
    if (body) {
        free(answer->body);
        mended = (harpe_call_answer){200, body, strlen(body), -1};
    }
    call->pass_on(call, &mended);
}

/* Whoever was asked may have done it. */
static void ask_again(harpe_pending *pending) {
    harpe_call *call = pending->call;
    pending->asked = 0;
    pending->since_ns = harpe_clock_boot_ns();
    if (call->kind != HARPE_CALL_EVICT || call->pass_on) return;
    call->pass_on = call->answer;
    call->answer = answer_repeated_eviction;
}

/* ---- Placing ------------------------------------------------------------------------------ */

static bool has_room(const harpe_peers *peers, size_t length) {
    size_t backlog = length > 0 ? harpe_mailbox_backlog(peers->mailbox) : 0;
    return backlog == 0 || backlog + length <= LONGEST_BACKLOG;
}

/* Where there is no memory or room for a letter it is tried again at the next tick. */
static void ask_leader(const harpe_peers *peers, harpe_pending *pending) {
    const harpe_mailbox_view *view = &peers->view;
    if (pending->is_remote || view->me == 0 || view->leader == 0 || view->leader == view->me ||
        pending->asked == view->leader || !has_room(peers, pending->call->length)) {
        return;
    }
    give_key(peers, pending);
    harpe_letter *letter = letter_of(peers, pending);
    if (!letter) return;
    pending->asked = view->leader;
    pending->call->number = pending->number;
    harpe_mailbox_send(peers->mailbox, letter);
}

void harpe_peers_place(harpe_peers *peers, harpe_call *call, bool is_remote) {
    if (harpe_peers_lead(peers)) {
        harpe_jobs_handle(peers->jobs, call);
        return;
    }
    if (call->length > LONGEST_BODY) {
        harpe_peers_answer(call, 413, "too large to be passed on to the server that leads");
        return;
    }
    harpe_pending *pending = add_pending(peers, call, is_remote);
    if (pending)
        ask_leader(peers, pending);
    else
        answer_out_of_memory(call);
}

void harpe_peers_place_all(harpe_peers *peers, bool is_new) {
    if (!peers->mailbox || peers->is_stopping) return;
    bool leads = harpe_peers_lead(peers);
    for (harpe_pending *pending = peers->pending, *next; pending; pending = next) {
        next = pending->following;
        if (is_new && pending->asked != 0) ask_again(pending);
        if (leads)
            harpe_jobs_handle(peers->jobs, remove_pending(peers, pending));
        else
            ask_leader(peers, pending);
    }
}

/* Its asker is no longer there; nor shall the leader think that it is. */
static harpe_call *take_back(harpe_peers *peers, harpe_pending *pending) {
    if (pending->asked != 0 &&
        !harpe_mailbox_withdraw(peers->mailbox, pending->asked, pending->number)) {
        harpe_peers_tell(peers, HARPE_LETTER_FORGET, pending->asked, pending->number, 0);
    }
    return remove_pending(peers, pending);
}

/* A leader may let a call wait for as long as it is heard of. */
void harpe_peers_refuse_late(harpe_peers *peers) {
    int64_t now_ns = harpe_clock_boot_ns();
    for (harpe_pending *pending = peers->pending, *next; pending; pending = next) {
        next = pending->following;
        int64_t heard_ns = pending->asked != 0 ? peers->view.confirmed_ns : 0;
        int64_t since_ns = pending->since_ns > heard_ns ? pending->since_ns : heard_ns;
        if (pending->is_remote || now_ns - since_ns < patience_ns) continue;
        harpe_peers_answer(take_back(peers, pending), 503,
                           "no server leads: the database does not answer; try again");
    }
}

void harpe_peers_refuse_all(harpe_peers *peers) {
    while (peers->pending) {
        harpe_peers_answer(remove_pending(peers, peers->pending), 503,
                           "the server is stopping: try again");
    }
}

/* ---- Calls of clients here ---------------------------------------------------------------- */

void harpe_peers_handle(harpe_peers *peers, harpe_call *call) {
    if (peers->is_stopping)
        harpe_peers_answer(call, 503, "the server is stopping: try again");
    else
        harpe_peers_place(peers, call, false);
}

void harpe_peers_forget(harpe_peers *peers, harpe_call *call) {
    harpe_pending *pending = call->pending;
    if (pending) {
        (void)take_back(peers, pending);
        return;
    }
    /* One of them has it. */
    if (peers->jobs) harpe_jobs_forget(peers->jobs, call);
    for (int i = 0; i < peers->retired_count; i++) {
        harpe_jobs_forget(peers->retired[i], call);
    }
}

void harpe_peers_delivered(harpe_peers *peers, const harpe_call *call, int64_t round,
                           bool has_arrived) {
    if (peers->jobs) {
        harpe_jobs_delivered(peers->jobs, call->job_id, (int)call->rank, round, has_arrived);
    } else if (call->number != 0 && peers->view.leader != 0 && peers->mailbox) {
        harpe_peers_tell(peers, HARPE_LETTER_DELIVERED, peers->view.leader, call->number,
                         has_arrived);
    }
}

void harpe_peers_read_answer(harpe_peers *peers, harpe_letter *letter) {
    harpe_pending *pending = find_pending(peers, letter->call);
    if (!pending || pending->asked != letter->peer) {
        harpe_peers_tell(peers, HARPE_LETTER_DELIVERED, letter->peer, letter->call, false);
        return;
    }
    harpe_call *call = remove_pending(peers, pending);
    harpe_call_answer answer = {(int)letter->value, letter->body, letter->length, letter->round};
    letter->body = NULL;
    call->answer(call, &answer);
}
