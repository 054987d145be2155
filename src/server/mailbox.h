/* SPDX-License-Identifier: Apache-2.0 */
/* What the servers on one PostgreSQL know of one another: who lives, who leads, and letters between
 * them. A thread with a connection of its own keeps this server's life known (a beat), takes away
 * those who died, and carries letters through a table; the loop looks at what it found. Knows
 * nothing of calls or jobs.
 *
 * A server is its session: when that is lost, its id is over, and with it every letter from and to
 * it; it comes back as another. So no letter is ever repeated or answered late unnoticed. */
#ifndef HARPE_SERVER_MAILBOX_H
#define HARPE_SERVER_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "server/loop.h"

/* A server beats this often; one whose beat stands still for so long is taken for dead. Whoever
 * leads must have been confirmed in it this short a time ago, else it holds its answers back: a
 * server that slept wakes up without believing that it still leads. In ns. */
#define HARPE_BEAT_EVERY_NS INT64_C(500000000)
#define HARPE_BEAT_DEAD_NS INT64_C(6000000000)
#define HARPE_LEASE_NS INT64_C(2000000000)

typedef enum harpe_letter_kind {
    HARPE_LETTER_ASK,       /* a call; value: its kind */
    HARPE_LETTER_ANSWER,    /* value: HTTP status */
    HARPE_LETTER_FORGET,    /* the asker went away */
    HARPE_LETTER_DELIVERED, /* a schedule; value: has it arrived? */
    HARPE_LETTER_GONE,      /* `peer` has died; made here, never sent */
} harpe_letter_kind;

typedef struct harpe_letter {
    struct harpe_letter *next;
    harpe_letter_kind kind;
    int64_t from; /* the sender's own id; a letter of an earlier id is dropped */
    int64_t peer; /* the other server: to whom, from whom */
    int64_t call; /* the asker's number for the call */
    int64_t value, rank, round;
    int64_t sent_ns; /* of a letter that came: when it was sent, as harpe_clock_boot_ns here */
    char *job_id;    /* malloc'ed; may be any text; NULL: none */
    char *body;      /* malloc'ed, ended by a NUL beyond `length`; NULL: none */
    size_t length;
} harpe_letter;

void harpe_letter_free(harpe_letter *letter);

/* 0: none. */
typedef struct harpe_mailbox_view {
    int64_t me, leader;   /* who leads lives */
    int64_t confirmed_ns; /* when it was asked what `me` and `leader` are, harpe_clock_boot_ns */
} harpe_mailbox_view;

typedef struct harpe_mailbox harpe_mailbox;

/* Connects, and begins to live. `has_news` is called on the loop whenever a letter came or the view
 * (but for confirmed_ns) may have changed. */
harpe_status harpe_mailbox_open(const char *where, harpe_loop *loop, harpe_log log,
                                void (*has_news)(void *user), void *user, harpe_mailbox **out,
                                harpe_error *error);
/* Ends this server's life among the others. Blocks for as long as the database takes. */
void harpe_mailbox_close(harpe_mailbox *mailbox);

harpe_mailbox_view harpe_mailbox_look(harpe_mailbox *mailbox);
/* The letters that came for view.me, the oldest first. */
harpe_letter *harpe_mailbox_take(harpe_mailbox *mailbox, harpe_mailbox_view *view);
/* Takes `letter` over. Letters of one server to another arrive in order, or its id ends. */
void harpe_mailbox_send(harpe_mailbox *mailbox, harpe_letter *letter);
/* Bytes in bodies of letters that are not sent yet. */
size_t harpe_mailbox_backlog(harpe_mailbox *mailbox);
/* Takes back what asks `peer` for `call`, if it is not being sent yet: true. */
bool harpe_mailbox_withdraw(harpe_mailbox *mailbox, int64_t peer, int64_t call);
/* Ends this server's life, if it is still `me`, and begins another: whoever has asked `me` hears
 * that it is gone. */
void harpe_mailbox_begin_anew(harpe_mailbox *mailbox, int64_t me);
/* Looks at once, not at the next beat. */
void harpe_mailbox_hurry(harpe_mailbox *mailbox);

#endif
