/* SPDX-License-Identifier: Apache-2.0 */
/* Reads messages of all kinds. While this server leads, it also handles the calls of other servers'
 * clients, and the engine treats them like calls of this server's clients. When another server
 * dies, its clients are gone. A schedule counts as lost if the dead server has not reported its
 * arrival. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/cluster/peers_internal.h"

enum {
    REMOTE_BYTES = 512 << 20
}; /* of bodies of calls that are not answered; a single body may be longer */

/* ---- Known ones ------------------------------------------------------------------------------ */

static int compare_remote(const void *a, const void *b) {
    const harpe_remote *x = a;
    const harpe_remote *y = b;
    if (x->number != y->number) return x->number > y->number ? 1 : -1;
    return (x->server > y->server) - (x->server < y->server);
}

static harpe_remote *find_remote(const harpe_peers *peers, const harpe_message *message) {
    const harpe_remote key = {.number = message->call, .server = message->peer};
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
    free(remote->call.scope);
    free(remote->call.body);
    free(remote);
}

/* ---- Questions ------------------------------------------------------------------------------- */

static void answer_remote(harpe_call *call, const harpe_call_answer *answer) {
    harpe_remote *remote = call->user;
    harpe_peers *peers = remote->peers;
    harpe_message *message = harpe_peers_new_message(peers, HARPE_MESSAGE_ANSWER, remote->server,
                                                     remote->number, answer->http_status);
    if (message) {
        message->body = answer->body;
        message->length = answer->length;
        message->round = answer->round;
        harpe_message_queue_send(peers->queue, message);
    } else {
        free(answer->body);
    }
    remote->is_answered = call->kind == HARPE_CALL_SCHEDULE && answer->http_status == 200;
    remote->round = answer->round;
    if (remote->is_answered) return;
    unlink_remote(peers, remote);
    free_remote(remote);
}

/* Moves the scope from the beginning of a question's body to `*scope`. Returns false if the
 * question is damaged or if memory runs out. */
static bool take_scope(harpe_message *message, char **scope) {
    uint64_t length = (uint64_t)message->value >> HARPE_SCOPE_SHIFT;
    *scope = NULL;
    if (length == 0) return true;
    if (length > message->length || !message->job_id) return false;
    *scope = strndup(message->body, (size_t)length);
    if (!*scope) return false;
    message->length -= (size_t)length;
    memmove(message->body, message->body + length, message->length + 1);
    if (message->value & HARPE_SCOPE_NO_ID) {
        free(message->job_id);
        message->job_id = NULL;
    }
    message->value &= HARPE_SCOPE_NO_ID - 1;
    return true;
}

static harpe_remote *add_remote(harpe_peers *peers, harpe_message *message) {
    harpe_remote *remote = harpe_calloc(1, sizeof *remote);
    char *scope = NULL;
    if (!remote || !take_scope(message, &scope)) {
        free(remote);
        return NULL;
    }
    *remote = (harpe_remote){.number = message->call,
                             .server = message->peer,
                             .peers = peers,
                             .length = message->length};
    remote->call = (harpe_call){.kind = (harpe_call_kind)message->value,
                                .rank = message->rank,
                                .round = message->round,
                                .asked_ns = message->sent_ns,
                                .job_id = message->job_id,
                                .scope = scope,
                                .body = message->body,
                                .length = message->length,
                                .answer = answer_remote,
                                .user = remote};
    if (!tsearch(remote, &peers->remotes_by_number, compare_remote)) {
        free(scope);
        free(remote);
        return NULL;
    }
    message->job_id = message->body = NULL;
    peers->remote_bytes += remote->length;
    remote->following = peers->remotes;
    if (remote->following) remote->following->previous = remote;
    peers->remotes = remote;
    return remote;
}

static void refuse_question(const harpe_peers *peers, const harpe_message *question) {
    static const char detail[] =
        "{\"detail\":\"the server that leads has too much to read: try again later\"}";
    harpe_message *message =
        harpe_peers_new_message(peers, HARPE_MESSAGE_ANSWER, question->peer, question->call, 503);
    if (!message) return;
    message->round = -1;
    message->body = strdup(detail);
    message->length = message->body ? strlen(detail) : 0;
    harpe_message_queue_send(peers->queue, message);
}

/* Passes a call of another server's client to the engine. If memory runs out, nothing is answered,
 * and the client gives up and tries again. */
static void read_question(harpe_peers *peers, harpe_message *message) {
    if (peers->is_stopping || find_remote(peers, message)) return;
    if (peers->remote_bytes > 0 && peers->remote_bytes + message->length > REMOTE_BYTES) {
        refuse_question(peers, message);
        return;
    }
    harpe_remote *remote = add_remote(peers, message);
    if (remote) harpe_peers_place(peers, &remote->call, true);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* Ends a call of another server, answered or not. */
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

/* Ends the calls of a server that is gone. The waiting calls end first, so that the engine answers
 * none of them. Calls that were answered move to a list of their own before the engine learns that
 * their schedules have not arrived. */
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

void harpe_peers_read(harpe_peers *peers, harpe_message *message) {
    harpe_remote *remote = NULL;
    switch (message->kind) {
    case HARPE_MESSAGE_ASK: read_question(peers, message); break;
    case HARPE_MESSAGE_ANSWER: harpe_peers_read_answer(peers, message); break;
    case HARPE_MESSAGE_FORGET:
    case HARPE_MESSAGE_DELIVERED:
        remote = find_remote(peers, message);
        if (remote) {
            end_remote(peers, remote,
                       message->kind == HARPE_MESSAGE_DELIVERED && message->value != 0);
        }
        break;
    case HARPE_MESSAGE_GONE: read_death(peers, message->peer); break;
    }
    harpe_message_free(message);
}
