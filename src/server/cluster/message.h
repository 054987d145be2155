/* SPDX-License-Identifier: Apache-2.0 */
/* A message from one server to another. */
#ifndef HARPE_SERVER_CLUSTER_MESSAGE_H
#define HARPE_SERVER_CLUSTER_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

typedef enum harpe_message_kind {
    /* A call; value: its kind, and in the bits from HARPE_SCOPE_SHIFT on the length of its scope,
     * with which the body begins. A call with a scope has a job_id: if it has none of its own, the
     * job_id is "" and HARPE_SCOPE_NO_ID is set. So servers that know no scope refuse the call. */
    HARPE_MESSAGE_ASK,
    HARPE_MESSAGE_ANSWER,    /* value: HTTP status */
    HARPE_MESSAGE_FORGET,    /* the client of the call has disconnected */
    HARPE_MESSAGE_DELIVERED, /* a schedule was sent to the client; value: 1 if it arrived, otherwise
                                0 */
    HARPE_MESSAGE_GONE,      /* `peer` is gone; made by this server, never sent */
} harpe_message_kind;

enum { HARPE_SCOPE_NO_ID = 1 << 15, HARPE_SCOPE_SHIFT = 16 };

typedef struct harpe_message {
    struct harpe_message *next;
    harpe_message_kind kind;
    int64_t from; /* the sender's id; a message is dropped if the sender has taken a new id since */
    int64_t peer; /* the other server: the recipient, or the sender of a received message */
    int64_t call; /* number of the call at the server whose client made it */
    int64_t value, rank, round;
    int64_t sent_ns; /* of a received message: time of sending in ns of this machine's
                        harpe_clock_boot_ns */
    char *job_id;    /* malloc'ed; may be any text; NULL: none */
    char *body;      /* malloc'ed; a NUL follows the `length` bytes; NULL: none */
    size_t length;
} harpe_message;

void harpe_message_free(harpe_message *message);

#endif
