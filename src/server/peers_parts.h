/* SPDX-License-Identifier: Apache-2.0 */
/* What peers.c (who leads) and peers_calls.c (calls on their way between servers) share. */
#ifndef HARPE_SERVER_PEERS_PARTS_H
#define HARPE_SERVER_PEERS_PARTS_H

#include "server/mailbox.h"
#include "server/peers.h"

/* A call that the engine here does not have: it waits until this server leads for certain, or was
 * sent to the one that leads. */
typedef struct harpe_pending {
    int64_t number; /* of the call; first: the tree compares it */
    harpe_call *call;
    int64_t asked;    /* the server that has it; 0: none */
    int64_t since_ns; /* without one */
    bool is_remote;   /* it is another server's: never sent on */
    struct harpe_pending *previous, *following;
} harpe_pending;

/* Another server's call, until it was answered; one for a schedule until it is known whether that
 * arrived. */
typedef struct harpe_remote {
    int64_t number, server; /* first: the tree compares them */
    harpe_call call;
    harpe_peers *peers;
    bool is_answered;
    int64_t round; /* of the answer */
    struct harpe_remote *previous, *following;
} harpe_remote;

struct harpe_peers {
    harpe_jobs_options engine;
    harpe_jobs *jobs;     /* NULL: another server leads, or nobody */
    harpe_jobs *retiring; /* led before: what it began comes to its end */
    bool is_stopping;

    /* With others; all below is zero without: */
    harpe_mailbox *mailbox;
    harpe_mailbox_view view;
    harpe_timer *timer;
    harpe_work work; /* tries to own the store */
    bool is_trying;
    int64_t tried_as;
    harpe_ownership ownership; /* what came of it */
    harpe_status tried;
    int64_t lead_as; /* the id under which the store is owned; 0: it is not */
    int64_t lead_at_ns;

    harpe_pending *pending, *last_pending; /* the oldest first */
    void *pending_by_number;               /* tsearch(3) */
    int64_t last_number;
    harpe_remote *remotes;
    void *remotes_by_number;
};

/* May answers be given from here, this very moment? */
bool harpe_peers_lead(const harpe_peers *peers);

/* ---- Calls (peers_calls.c) ---------------------------------------------------------------- */

void harpe_peers_answer(harpe_call *call, int http_status, const char *detail);
/* Hands `call` to the engine here, or sends it to the server that leads, or lets it wait. */
void harpe_peers_place(harpe_peers *peers, harpe_call *call, bool is_remote);
/* All that wait anew; `is_new`: the server that leads or the id of this one has changed. */
void harpe_peers_place_all(harpe_peers *peers, bool is_new);
/* Those that have waited for a leader for too long are answered 503. */
void harpe_peers_refuse_late(harpe_peers *peers);
void harpe_peers_refuse_all(harpe_peers *peers);
/* Takes the letter over. */
void harpe_peers_read(harpe_peers *peers, harpe_letter *letter);
/* Forgets the calls of other servers: they will ask elsewhere. */
void harpe_peers_drop_remotes(harpe_peers *peers);
/* The engine that has this server's calls. */
harpe_jobs *harpe_peers_engine(const harpe_peers *peers);

#endif
