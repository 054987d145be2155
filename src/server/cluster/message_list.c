/* SPDX-License-Identifier: Apache-2.0 */
/* A list with a pointer to its end, so that appending does not walk through the list. */
#include "server/cluster/message_list.h"

#include <stdlib.h>

void harpe_message_list_init(harpe_message_list *messages) {
    *messages = (harpe_message_list){.end = &messages->first};
}

void harpe_message_list_append(harpe_message_list *messages, harpe_message *more) {
    *messages->end = more;
    for (; more; more = more->next) {
        messages->bytes += more->length;
        messages->end = &more->next;
    }
}

harpe_message *harpe_message_list_take(harpe_message_list *messages) {
    harpe_message *first = messages->first;
    harpe_message_list_init(messages);
    return first;
}

void harpe_message_list_clear(harpe_message_list *messages) {
    for (harpe_message *message = harpe_message_list_take(messages), *next; message;
         message = next) {
        next = message->next;
        harpe_message_free(message);
    }
}

/* Removes the message at `*place`. */
static void drop(harpe_message_list *messages, harpe_message **place) {
    harpe_message *message = *place;
    *place = message->next;
    if (!message->next) messages->end = place;
    messages->bytes -= message->length;
    harpe_message_free(message);
}

bool harpe_message_list_withdraw(harpe_message_list *messages, int64_t peer, int64_t call) {
    for (harpe_message **place = &messages->first; *place; place = &(*place)->next) {
        const harpe_message *message = *place;
        if (message->kind != HARPE_MESSAGE_ASK || message->call != call || message->peer != peer)
            continue;
        drop(messages, place);
        return true;
    }
    return false;
}

void harpe_message_list_keep_from(harpe_message_list *messages, int64_t me) {
    for (harpe_message **place = &messages->first; *place;)
        if ((*place)->from == me)
            place = &(*place)->next;
        else
            drop(messages, place);
}
