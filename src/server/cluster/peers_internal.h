/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by peers_leader.c (which server leads), peers_calls.c (calls to the leader) and
 * peers_remotes.c (calls to this server). */
#ifndef HARPE_SERVER_CLUSTER_PEERS_INTERNAL_H
#define HARPE_SERVER_CLUSTER_PEERS_INTERNAL_H

#include "server/cluster/message_queue.h"
#include "server/cluster/peers.h"
#include "server/engine/pools.h"
#include "server/fleet/steering.h"

/* A call that this server's engine has not received. Either the call waits until this server is
 * confirmed as the leader, or it was sent to the leader. */
typedef struct harpe_pending {
    int64_t number; /* number of the call; the first member, because the tree compares it */
    harpe_call *call;
    int64_t asked;    /* the server to which the call was sent; 0: none */
    int64_t since_ns; /* time from which on no server had the call */
    bool is_remote;   /* the call of another server's client; it is never sent on */
    struct harpe_pending *previous, *following;
} harpe_pending;

/* A call of another server. It exists until it was answered; a call for a schedule exists until it
 * is known whether the schedule arrived. */
typedef struct harpe_remote {
    int64_t number, server; /* the first members, because the tree compares them */
    harpe_call call;
    harpe_peers *peers;
    bool is_answered;
    int64_t round; /* round of the answer */
    size_t length; /* length of the body of the call */
    struct harpe_remote *previous, *following;
} harpe_remote;

enum { HARPE_RETIRED_MAX = 4 };

struct harpe_peers {
    harpe_jobs_options engine;
    harpe_jobs *jobs;         /* NULL: another server leads, or no server leads */
    harpe_steering *steering; /* of `jobs` */
    /* Engines from earlier times of leading that still finish their work. */
    harpe_jobs *retired[HARPE_RETIRED_MAX];
    harpe_steering *retired_steering[HARPE_RETIRED_MAX];
    int retired_count;
    bool is_stopping;

    /* The members below are zero if the store belongs to this server alone. */
    harpe_message_queue *queue;
    harpe_message_queue_view view;
    harpe_timer *timer;
    harpe_work work; /* tries to become the owner of the store */
    bool is_trying;
    int64_t tried_as;
    harpe_ownership ownership; /* the result of `work` */
    harpe_status tried;
    int64_t lead_as; /* the id under which this server owns the store; 0: it does not */
    int64_t lead_at_ns;

    harpe_pending *pending, *last_pending; /* in the order of their arrival */
    void *pending_by_number;               /* the root of a tree, tsearch(3) */
    int64_t last_number;
    uint64_t tag; /* a random number: `tag` and `last_number` identify a call for all time */
    harpe_remote *remotes;
    void *remotes_by_number;
    size_t remote_bytes; /* bytes of the bodies of their calls */
};

/* Returns true if this server may give answers at this moment. */
bool harpe_peers_lead(const harpe_peers *peers);

/* ---- Calls (peers_calls.c) ------------------------------------------------------------------- */

void harpe_peers_answer(harpe_call *call, int http_status, const char *detail);
/* Gives a call to the engine of this server, or to its fleet. */
void harpe_peers_handle_here(harpe_peers *peers, harpe_call *call);
/* Gives `call` to the engine here, or sends it to the leader, or lets it wait. */
void harpe_peers_place(harpe_peers *peers, harpe_call *call, bool is_remote);
/* Places all waiting calls again. `is_new`: the leader or the id of this server has changed. */
void harpe_peers_place_all(harpe_peers *peers, bool is_new);
/* Answers 503 to calls that have waited too long without a confirmed leader. */
void harpe_peers_refuse_late(harpe_peers *peers);
void harpe_peers_refuse_all(harpe_peers *peers);
/* NULL: out of memory. */
harpe_message *harpe_peers_new_message(const harpe_peers *peers, harpe_message_kind kind,
                                       int64_t to, int64_t call, int64_t value);
/* Sends a message without a body. If memory runs out, sends nothing. No server waits for such a
 * message, and the recipient also ends the call when one of the two servers ends. */
void harpe_peers_tell(const harpe_peers *peers, harpe_message_kind kind, int64_t to, int64_t call,
                      int64_t value);
/* Gives an answer to the call that waits for it. If no call waits for it, tells the sender that the
 * answer has not arrived. */
void harpe_peers_read_answer(harpe_peers *peers, harpe_message *message);

/* ---- Calls of other servers' clients, and messages (peers_remotes.c) ------------------------- */

/* Takes the message over. */
void harpe_peers_read(harpe_peers *peers, harpe_message *message);
/* Forgets the calls of other servers, which send them to the next leader. */
void harpe_peers_drop_remotes(harpe_peers *peers);

#endif
