/* SPDX-License-Identifier: Apache-2.0 */
/* Where this server leads: calls of other servers' clients, which the engine handles like its own,
 * and letters of all kinds on their way in. When a server dies, its clients are gone, and schedules
 * of which it has not said that they arrived have not. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/peers_parts.h"

enum { REMOTE_BYTES = 512 << 20 }; /* of bodies that came and are not answered; one may be longer */

/* ---- Known ones --------------------------------------------------------------------------- */

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
    peers->remote_bytes -= remote->length;
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

/* ---- Questions ---------------------------------------------------------------------------- */

static void answer_remote(harpe_call *call, const harpe_call_answer *answer) {
    harpe_remote *remote = call->user;
    harpe_peers *peers = remote->peers;
    harpe_letter *letter = harpe_peers_new_letter(peers, HARPE_LETTER_ANSWER, remote->server,
                                                  remote->number, answer->http_status);
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
    *remote = (harpe_remote){
        .number = letter->call, .server = letter->peer, .peers = peers, .length = letter->length};
    remote->call = (harpe_call){.kind = (harpe_call_kind)letter->value,
                                .rank = letter->rank,
                                .round = letter->round,
                                .asked_ns = letter->sent_ns,
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
    peers->remote_bytes += remote->length;
    remote->following = peers->remotes;
    if (remote->following) remote->following->previous = remote;
    peers->remotes = remote;
    return remote;
}

static void refuse_question(const harpe_peers *peers, const harpe_letter *question) {
    static const char detail[] =
        "{\"detail\":\"the server that leads has too much to read: try again later\"}";
    harpe_letter *letter =
        harpe_peers_new_letter(peers, HARPE_LETTER_ANSWER, question->peer, question->call, 503);
    if (!letter) return;
    letter->round = -1;
    letter->body = strdup(detail);
    letter->length = letter->body ? strlen(detail) : 0;
    harpe_mailbox_send(peers->mailbox, letter);
}

/* Without memory nothing is answered: the asker's client will give up and try again. */
static void read_question(harpe_peers *peers, harpe_letter *letter) {
    if (peers->is_stopping || find_remote(peers, letter)) return;
    if (peers->remote_bytes > 0 && peers->remote_bytes + letter->length > REMOTE_BYTES) {
        refuse_question(peers, letter);
        return;
    }
    harpe_remote *remote = add_remote(peers, letter);
    if (remote) harpe_peers_place(peers, &remote->call, true);
}

/* ---- Ends --------------------------------------------------------------------------------- */

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
    case HARPE_LETTER_ANSWER: harpe_peers_read_answer(peers, letter); break;
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
