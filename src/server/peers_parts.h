/* SPDX-License-Identifier: Apache-2.0 */
/* What peers.c (who leads), peers_calls.c (calls to the leader) and peers_remotes.c (calls to this
 * server) share. */
#ifndef HARPE_SERVER_PEERS_PARTS_H
#define HARPE_SERVER_PEERS_PARTS_H

#include "server/mailbox.h"
#include "server/peers.h"

/* A call that the engine here does not have: it waits until this server leads for certain, or was
 * sent to the one that leads. */
typedef struct harpe_pending {
    int64_t number; /* of the call; first: the tree compares it */
    harpe_call *call;
    int64_t asked;    /* the server that has it, or that it is on its way to; 0: none */
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
    size_t length; /* of the body that it came with */
    struct harpe_remote *previous, *following;
} harpe_remote;

enum { HARPE_RETIRED_MAX = 4 };

struct harpe_peers {
    harpe_jobs_options engine;
    harpe_jobs *jobs; /* NULL: another server leads, or nobody */
    /* Those that led before: what they began comes to its end. */
    harpe_jobs *retired[HARPE_RETIRED_MAX];
    int retired_count;
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
    uint64_t tag; /* at random: with `last_number` names a call among those of all times */
    harpe_remote *remotes;
    void *remotes_by_number;
    size_t remote_bytes; /* of their bodies */
};

/* May answers be given from here, this very moment? */
bool harpe_peers_lead(const harpe_peers *peers);

/* ---- Calls (peers_calls.c) ---------------------------------------------------------------- */

void harpe_peers_answer(harpe_call *call, int http_status, const char *detail);
/* Hands `call` to the engine here, or sends it to the server that leads, or lets it wait. */
void harpe_peers_place(harpe_peers *peers, harpe_call *call, bool is_remote);
/* All that wait anew; `is_new`: the server that leads or the id of this one has changed. */
void harpe_peers_place_all(harpe_peers *peers, bool is_new);
/* Those that have been without a leader, or one that is heard of, for too long are answered 503. */
void harpe_peers_refuse_late(harpe_peers *peers);
void harpe_peers_refuse_all(harpe_peers *peers);
/* NULL: out of memory. */
harpe_letter *harpe_peers_new_letter(const harpe_peers *peers, harpe_letter_kind kind, int64_t to,
                                     int64_t call, int64_t value);
/* What cannot be said for want of memory is made up for by the other's end: nobody waits for it. */
void harpe_peers_tell(const harpe_peers *peers, harpe_letter_kind kind, int64_t to, int64_t call,
                      int64_t value);
/* An answer that nobody waits for any more has not arrived, and its sender is told so. */
void harpe_peers_read_answer(harpe_peers *peers, harpe_letter *letter);

/* ---- Calls of other servers' clients, and letters (peers_remotes.c) ------------------------- */

/* Takes the letter over. */
void harpe_peers_read(harpe_peers *peers, harpe_letter *letter);
/* Forgets the calls of other servers: they will ask elsewhere. */
void harpe_peers_drop_remotes(harpe_peers *peers);

#endif
