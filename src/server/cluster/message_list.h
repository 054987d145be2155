/* SPDX-License-Identifier: Apache-2.0 */
/* A list of messages in order, with the number of bytes in their bodies. Private to the message
 * queue. It has no lock. */
#ifndef HARPE_SERVER_CLUSTER_MESSAGE_LIST_H
#define HARPE_SERVER_CLUSTER_MESSAGE_LIST_H

#include <stdbool.h>

#include "server/cluster/message.h"

typedef struct harpe_message_list {
    harpe_message *first;
    harpe_message **end; /* the link to which the next message is appended */
    size_t bytes;
} harpe_message_list;

void harpe_message_list_init(harpe_message_list *messages);
/* Appends one message or a list of messages, and takes them over. */
void harpe_message_list_append(harpe_message_list *messages, harpe_message *more);
/* Returns all messages as a list, and leaves `messages` empty. */
harpe_message *harpe_message_list_take(harpe_message_list *messages);
void harpe_message_list_clear(harpe_message_list *messages);
/* Frees the message that asks `peer` for `call`. Returns false if there is no such message. */
bool harpe_message_list_withdraw(harpe_message_list *messages, int64_t peer, int64_t call);
/* Frees the messages whose sender is not `me`. */
void harpe_message_list_keep_from(harpe_message_list *messages, int64_t me);

#endif
