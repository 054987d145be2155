/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of this server's clients that wait for the leader's answer.
 *
 * A call keeps its body after it was sent, so that it can be sent again to a new leader, under the
 * same number. The new leader then gets the call like a request that a client repeats. It
 * recognises a repeated registration of a rank, and a repeated result, from the stored data. It
 * recognises a repeated registration of a job from a key that this file adds. A repeated eviction
 * succeeds if the job is already evicted, because this call may have evicted it. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "pfo/models.h"
#include "server/cluster/peers_internal.h"

static const int64_t no_leader_timeout_ns = INT64_C(30000000000);
enum {
    LONGEST_BODY = 256 << 20,   /* bytes of the body of one message */
    LONGEST_BACKLOG = 64 << 20, /* bytes of all bodies to be sent; a single body may be longer */
};

/* ---- Answers --------------------------------------------------------------------------------- */

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

/* ---- Waiting calls --------------------------------------------------------------------------- */

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

/* ---- Messages out ---------------------------------------------------------------------------- */

harpe_message *harpe_peers_new_message(const harpe_peers *peers, harpe_message_kind kind,
                                       int64_t to, int64_t call, int64_t value) {
    harpe_message *message = harpe_calloc(1, sizeof *message);
    if (!message) return NULL;
    message->kind = kind;
    message->from = peers->view.me;
    message->peer = to;
    message->call = call;
    message->value = value;
    return message;
}

void harpe_peers_tell(const harpe_peers *peers, harpe_message_kind kind, int64_t to, int64_t call,
                      int64_t value) {
    harpe_message *message = harpe_peers_new_message(peers, kind, to, call, value);
    if (message) harpe_message_queue_send(peers->queue, message);
}

/* Returns a message with a copy of the call, or NULL when out of memory. */
static harpe_message *message_of(const harpe_peers *peers, const harpe_pending *pending) {
    const harpe_call *call = pending->call;
    harpe_message *message = harpe_peers_new_message(peers, HARPE_MESSAGE_ASK, peers->view.leader,
                                                     pending->number, call->kind);
    if (!message) return NULL;
    size_t scope_length = call->scope ? strlen(call->scope) : 0;
    const char *job_id = call->job_id || !call->scope ? call->job_id : "";
    bool has_body = call->body || call->scope;
    message->value |= (int64_t)scope_length << HARPE_SCOPE_SHIFT;
    if (call->scope && !call->job_id) message->value |= HARPE_SCOPE_NO_ID;
    message->rank = call->rank;
    message->round = call->round;
    message->length = scope_length + call->length;
    if (job_id) message->job_id = strdup(job_id);
    if (has_body) message->body = malloc(message->length + 1);
    if ((job_id && !message->job_id) || (has_body && !message->body)) {
        harpe_message_free(message);
        return NULL;
    }
    if (call->scope) memcpy(message->body, call->scope, scope_length);
    if (call->body) memcpy(message->body + scope_length, call->body, call->length);
    if (has_body) message->body[message->length] = '\0';
    return message;
}

/* ---- What is asked twice --------------------------------------------------------------------- */

/* If the job has no key, gives it a key that belongs to this call, so that it is registered once
 * even if the call is sent several times. The leader refuses a body that is not a job. */
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

/* Prepares a call to be sent again. The server that received the call before may already have
 * carried it out. */
static void ask_again(harpe_pending *pending) {
    harpe_call *call = pending->call;
    pending->asked = 0;
    pending->since_ns = harpe_clock_boot_ns();
    if (call->kind != HARPE_CALL_EVICT || call->pass_on) return;
    call->pass_on = call->answer;
    call->answer = answer_repeated_eviction;
}

/* ---- Placing --------------------------------------------------------------------------------- */

static bool has_room(const harpe_peers *peers, size_t length) {
    size_t backlog = length > 0 ? harpe_message_queue_backlog(peers->queue) : 0;
    return backlog == 0 || backlog + length <= LONGEST_BACKLOG;
}

/* Sends the call to the leader. If there is no memory or no room for the message, the next tick
 * tries again. */
static void ask_leader(const harpe_peers *peers, harpe_pending *pending) {
    const harpe_message_queue_view *view = &peers->view;
    if (pending->is_remote || view->me == 0 || view->leader == 0 || view->leader == view->me ||
        pending->asked == view->leader || !has_room(peers, pending->call->length))
        return;
    give_key(peers, pending);
    harpe_message *message = message_of(peers, pending);
    if (!message) return;
    pending->asked = view->leader;
    pending->call->number = pending->number;
    harpe_message_queue_send(peers->queue, message);
}

void harpe_peers_handle_here(harpe_peers *peers, harpe_call *call) {
    if (harpe_steering_takes(peers->steering, call))
        harpe_steering_handle(peers->steering, call);
    else
        harpe_jobs_handle(peers->jobs, call);
}

void harpe_peers_place(harpe_peers *peers, harpe_call *call, bool is_remote) {
    if (harpe_peers_lead(peers)) {
        harpe_peers_handle_here(peers, call);
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
    if (!peers->queue || peers->is_stopping) return;
    bool leads = harpe_peers_lead(peers);
    for (harpe_pending *pending = peers->pending, *next; pending; pending = next) {
        next = pending->following;
        if (is_new && pending->asked != 0) ask_again(pending);
        if (leads)
            harpe_peers_handle_here(peers, remove_pending(peers, pending));
        else
            ask_leader(peers, pending);
    }
}

/* Takes back a call whose client has disconnected, and tells the leader. */
static harpe_call *take_back(harpe_peers *peers, harpe_pending *pending) {
    if (pending->asked != 0 &&
        !harpe_message_queue_withdraw(peers->queue, pending->asked, pending->number))
        harpe_peers_tell(peers, HARPE_MESSAGE_FORGET, pending->asked, pending->number, 0);
    return remove_pending(peers, pending);
}

/* Answers 503 to calls that have waited too long without a leader. A call that was sent to a leader
 * may wait as long as the database confirms this leader. */
void harpe_peers_refuse_late(harpe_peers *peers) {
    int64_t now_ns = harpe_clock_boot_ns();
    for (harpe_pending *pending = peers->pending, *next; pending; pending = next) {
        next = pending->following;
        int64_t heard_ns = pending->asked != 0 ? peers->view.confirmed_ns : 0;
        int64_t since_ns = pending->since_ns > heard_ns ? pending->since_ns : heard_ns;
        if (pending->is_remote || now_ns - since_ns < no_leader_timeout_ns) continue;
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

/* ---- Calls of clients here ------------------------------------------------------------------- */

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
    /* The call is in at most one of these engines. */
    if (peers->jobs) {
        harpe_steering_forget(peers->steering, call);
        harpe_jobs_forget(peers->jobs, call);
    }
    for (int i = 0; i < peers->retired_count; i++) {
        harpe_steering_forget(peers->retired_steering[i], call);
        harpe_jobs_forget(peers->retired[i], call);
    }
}

void harpe_peers_delivered(harpe_peers *peers, const harpe_call *call, int64_t round,
                           bool has_arrived) {
    if (peers->jobs) {
        harpe_jobs_delivered(peers->jobs, call->job_id, (int)call->rank, round, has_arrived);
    } else if (call->number != 0 && peers->view.leader != 0 && peers->queue) {
        harpe_peers_tell(peers, HARPE_MESSAGE_DELIVERED, peers->view.leader, call->number,
                         has_arrived);
    }
}

void harpe_peers_read_answer(harpe_peers *peers, harpe_message *message) {
    harpe_pending *pending = find_pending(peers, message->call);
    if (!pending || pending->asked != message->peer) {
        harpe_peers_tell(peers, HARPE_MESSAGE_DELIVERED, message->peer, message->call, false);
        return;
    }
    harpe_call *call = remove_pending(peers, pending);
    harpe_call_answer answer = {(int)message->value, message->body, message->length,
                                message->round};
    message->body = NULL;
    call->answer(call, &answer);
}
