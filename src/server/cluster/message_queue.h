/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges heartbeats and messages between the servers on one PostgreSQL database, and reports
 * which server leads. A thread with a connection of its own sends this server's heartbeat, removes
 * servers that have died, and passes messages through a table. The loop takes the received messages
 * from this thread. This file knows nothing of calls or jobs.
 *
 * A server's id belongs to its session. When the session is lost, the id ends, the messages from
 * and to this id are dropped, and the server registers under another id. So no message is repeated.
 * A server that waits for an answer from an id learns when this id has ended. */
#ifndef HARPE_SERVER_CLUSTER_MESSAGE_QUEUE_H
#define HARPE_SERVER_CLUSTER_MESSAGE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "http/loop.h"
#include "server/cluster/lease.h"
#include "server/cluster/message.h"

/* The ids are 0 if there is no such server. */
typedef struct harpe_message_queue_view {
    int64_t me, leader;   /* `leader` is the id of a registered server */
    int64_t confirmed_ns; /* when the heartbeat that confirmed `me` and `leader` was sent,
                             harpe_clock_boot_ns */
} harpe_message_queue_view;

typedef struct harpe_message_queue harpe_message_queue;

/* Connects and registers this server. `has_news` is called on the loop when a message came, or when
 * members of the view other than confirmed_ns may have changed. */
harpe_status harpe_message_queue_open(const char *where, harpe_loop *loop, harpe_log log,
                                      void (*has_news)(void *user), void *user,
                                      harpe_message_queue **out, harpe_error *error);
/* Deregisters this server. Blocks for as long as the database takes. */
void harpe_message_queue_close(harpe_message_queue *queue);

harpe_message_queue_view harpe_message_queue_get_view(harpe_message_queue *queue);
/* Returns the messages to `view->me` that came, the oldest first. `*view` receives the view. */
harpe_message *harpe_message_queue_take(harpe_message_queue *queue, harpe_message_queue_view *view);
/* Sends `message` and takes it over. Messages from one server to another arrive in order. If a
 * message cannot arrive in order, the sender's id ends. */
void harpe_message_queue_send(harpe_message_queue *queue, harpe_message *message);
/* Returns the number of bytes in the bodies of messages that are not sent yet. */
size_t harpe_message_queue_backlog(harpe_message_queue *queue);
/* Drops the message that asks `peer` for `call`. Returns false if this message is already being
 * sent or was sent. */
bool harpe_message_queue_withdraw(harpe_message_queue *queue, int64_t peer, int64_t call);
/* Ends this server's session if its id is still `me`, and starts another session. Servers that have
 * sent calls to `me` learn that this id has ended. */
void harpe_message_queue_begin_anew(harpe_message_queue *queue, int64_t me);
/* Sends the next heartbeat at once, and so learns at once which server leads. */
void harpe_message_queue_hurry(harpe_message_queue *queue);

#endif
