/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of waiting calls: first in, first out. Any call can be removed in constant time. */
#include "server/engine/call.h"

void harpe_calls_append(harpe_call_list *list, harpe_call *call) {
    call->list = list;
    call->previous = list->last;
    call->next = NULL;
    if (list->last)
        list->last->next = call;
    else
        list->first = call;
    list->last = call;
    list->count++;
}

void harpe_calls_remove(harpe_call *call) {
    harpe_call_list *list = call->list;
    if (call->previous)
        call->previous->next = call->next;
    else
        list->first = call->next;
    if (call->next)
        call->next->previous = call->previous;
    else
        list->last = call->previous;
    list->count--;
    call->list = NULL;
    call->previous = call->next = NULL;
}

harpe_call *harpe_calls_take_first(harpe_call_list *list) {
    harpe_call *first = list->first;
    if (first) harpe_calls_remove(first);
    return first;
}
