/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on their way between servers: those of clients here that wait for the leader's answer, and,
 * where this server leads, those of other servers' clients, which the engine handles like its own.
 *
 * A call that was sent keeps its body: a new leader is asked again, under the same number. Asking
 * again is what a client does that retries: a registration of a rank or a result is told from a new
 * one by what is stored. When a server dies, its clients are gone, and schedules of which it has
 * not said that they arrived have not. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "server/peers_parts.h"

static const int64_t patience_ns = INT64_C(30000000000);
enum { LONGEST_BODY = 256 << 20 }; /* of a letter */

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
    pending->since_ns = harpe_clock_ns();
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

static harpe_letter *new_letter(const harpe_peers *peers, harpe_letter_kind kind, int64_t to,
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

/* What cannot be said for want of memory is made up for by the other's end: nobody waits for it. */
static void tell(const harpe_peers *peers, harpe_letter_kind kind, int64_t to, int64_t call,
                 int64_t value) {
    harpe_letter *letter = new_letter(peers, kind, to, call, value);
    if (letter) harpe_mailbox_send(peers->mailbox, letter);
}

/* A copy of the call; NULL when out of memory. */
static harpe_letter *letter_of(const harpe_peers *peers, const harpe_pending *pending) {
    const harpe_call *call = pending->call;
    harpe_letter *letter =
        new_letter(peers, HARPE_LETTER_ASK, peers->view.leader, pending->number, call->kind);
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

/* ---- Placing ------------------------------------------------------------------------------ */

/* Where there is no memory for a letter it is tried again at the next tick. */
static void ask_leader(const harpe_peers *peers, harpe_pending *pending) {
    const harpe_mailbox_view *view = &peers->view;
    if (pending->is_remote || view->me == 0 || view->leader == 0 || view->leader == view->me ||
        pending->asked == view->leader) {
        return;
    }
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
        if (is_new && pending->asked != 0) {
            pending->asked = 0;
            pending->since_ns = harpe_clock_ns();
        }
        if (leads)
            harpe_jobs_handle(peers->jobs, remove_pending(peers, pending));
        else
            ask_leader(peers, pending);
    }
}

void harpe_peers_refuse_late(harpe_peers *peers) {
    int64_t now_ns = harpe_clock_ns();
    for (harpe_pending *pending = peers->pending, *next; pending; pending = next) {
        next = pending->following;
        if (pending->is_remote || pending->asked != 0 || now_ns - pending->since_ns < patience_ns) {
            continue;
        }
        harpe_peers_answer(remove_pending(peers, pending), 503,
                           "no server leads: the database cannot be reached; try again");
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
    if (!pending) {
        harpe_jobs *engine = harpe_peers_engine(peers);
        if (engine) harpe_jobs_forget(engine, call);
        return;
    }
    if (pending->asked != 0) tell(peers, HARPE_LETTER_FORGET, pending->asked, pending->number, 0);
    (void)remove_pending(peers, pending);
}

void harpe_peers_delivered(harpe_peers *peers, const harpe_call *call, int64_t round,
                           bool has_arrived) {
    if (peers->jobs) {
        harpe_jobs_delivered(peers->jobs, call->job_id, (int)call->rank, round, has_arrived);
    } else if (call->number != 0 && peers->view.leader != 0 && peers->mailbox) {
        tell(peers, HARPE_LETTER_DELIVERED, peers->view.leader, call->number, has_arrived);
    }
}

static void read_answer(harpe_peers *peers, harpe_letter *letter) {
    harpe_pending *pending = find_pending(peers, letter->call);
    if (!pending || pending->asked != letter->peer) return;
    harpe_call *call = remove_pending(peers, pending);
    harpe_call_answer answer = {(int)letter->value, letter->body, letter->length, letter->round};
    letter->body = NULL;
    call->answer(call, &answer);
}

/* ---- Calls of other servers' clients ------------------------------------------------------ */

static int compare_remote(const void *a, const void *b) {
    const harpe_remote *x = a;
    const harpe_remote *y = b;
    if (x->number != y->number) return x->number > y->number ? 1 : -1;
    return (x->server > y->server) - (x->server < y->server);
}

static harpe_remote *find_remote(const harpe_peers *peers, const harpe_letter *letter) {
    const harpe_remote key = {.number = letter->call, .server = letter->peer};
    harpe_remote **node = tfind(&key, &peers->remotes_by_number, compare_remote);
    return node ? *node : NULL;
}

static void unlink_remote(harpe_peers *peers, harpe_remote *remote) {
    (void)tdelete(remote, &peers->remotes_by_number, compare_remote);
    if (remote->previous)
        remote->previous->following = remote->following;
    else
        peers->remotes = remote->following;
    if (remote->following) remote->following->previous = remote->previous;
}

static void free_remote(harpe_remote *remote) {
    free(remote->call.job_id);
    free(remote->call.body);
    free(remote);
}

static void answer_remote(harpe_call *call, const harpe_call_answer *answer) {
    harpe_remote *remote = call->user;
    harpe_peers *peers = remote->peers;
    harpe_letter *letter =
        new_letter(peers, HARPE_LETTER_ANSWER, remote->server, remote->number, answer->http_status);
    if (letter) {
        letter->body = answer->body;
        letter->length = answer->length;
        letter->round = answer->round;
        harpe_mailbox_send(peers->mailbox, letter);
    } else {
        free(answer->body);
    }
    remote->is_answered = call->kind == HARPE_CALL_SCHEDULE && answer->http_status == 200;
    remote->round = answer->round;
    if (remote->is_answered) return;
    unlink_remote(peers, remote);
    free_remote(remote);
}

static harpe_remote *add_remote(harpe_peers *peers, harpe_letter *letter) {
    harpe_remote *remote = harpe_calloc(1, sizeof *remote);
    if (!remote) return NULL;
    *remote = (harpe_remote){.number = letter->call, .server = letter->peer, .peers = peers};
    remote->call = (harpe_call){.kind = (harpe_call_kind)letter->value,
                                .rank = letter->rank,
                                .round = letter->round,
                                .job_id = letter->job_id,
                                .body = letter->body,
                                .length = letter->length,
                                .answer = answer_remote,
                                .user = remote};
    if (!tsearch(remote, &peers->remotes_by_number, compare_remote)) {
        free(remote);
        return NULL;
    }
    letter->job_id = letter->body = NULL;
    remote->following = peers->remotes;
    if (remote->following) remote->following->previous = remote;
    peers->remotes = remote;
    return remote;
}

/* Without memory nothing is answered: the asker's client will give up and try again. */
static void read_question(harpe_peers *peers, harpe_letter *letter) {
    if (peers->is_stopping || find_remote(peers, letter)) return;
    harpe_remote *remote = add_remote(peers, letter);
    if (remote) harpe_peers_place(peers, &remote->call, true);
}

/* Ends what is known of it, whether answered or not. */
static void end_remote(harpe_peers *peers, harpe_remote *remote, bool has_arrived) {
    unlink_remote(peers, remote);
    if (!remote->is_answered) {
        harpe_peers_forget(peers, &remote->call);
    } else if (peers->jobs) {
        harpe_jobs_delivered(peers->jobs, remote->call.job_id, (int)remote->call.rank,
                             remote->round, has_arrived);
    }
    free_remote(remote);
}

/* First all that wait, so that nothing is answered to the dead; what was answered is then out of
 * the engine's reach. */
static void read_death(harpe_peers *peers, int64_t server) {
    harpe_remote *answered = NULL;
    for (harpe_remote *remote = peers->remotes, *next; remote; remote = next) {
        next = remote->following;
        if (remote->server != server) continue;
        if (!remote->is_answered) {
            end_remote(peers, remote, false);
            continue;
        }
        unlink_remote(peers, remote);
        remote->following = answered;
        answered = remote;
    }
    for (harpe_remote *remote = answered, *next; remote; remote = next) {
        next = remote->following;
        if (peers->jobs) {
            harpe_jobs_delivered(peers->jobs, remote->call.job_id, (int)remote->call.rank,
                                 remote->round, false);
        }
        free_remote(remote);
    }
}

void harpe_peers_drop_remotes(harpe_peers *peers) {
    while (peers->remotes) {
        harpe_remote *remote = peers->remotes;
        if (!remote->is_answered) harpe_peers_forget(peers, &remote->call);
        unlink_remote(peers, remote);
        free_remote(remote);
    }
}

void harpe_peers_read(harpe_peers *peers, harpe_letter *letter) {
    harpe_remote *remote = NULL;
    switch (letter->kind) {
    case HARPE_LETTER_ASK: read_question(peers, letter); break;
    case HARPE_LETTER_ANSWER: read_answer(peers, letter); break;
    case HARPE_LETTER_FORGET:
    case HARPE_LETTER_DELIVERED:
        remote = find_remote(peers, letter);
        if (remote) {
            end_remote(peers, remote, letter->kind == HARPE_LETTER_DELIVERED && letter->value != 0);
        }
        break;
    case HARPE_LETTER_GONE: read_death(peers, letter->peer); break;
    }
    harpe_letter_free(letter);
}
