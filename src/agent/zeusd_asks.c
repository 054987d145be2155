/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait for devices: their parts, their time limit, and their end. */
#include <stdlib.h>
#include <string.h>

#include "agent/zeusd_internal.h"
#include "base/array.h"
#include "base/error.h"

void harpe_zeusd_part_leave(harpe_zeusd_part *part) {
    harpe_zeusd_parts *list = part->list;
    if (!list) return;
    if (part->previous)
        part->previous->next = part->next;
    else
        list->first = part->next;
    if (part->next)
        part->next->previous = part->previous;
    else
        list->last = part->previous;
    part->list = NULL;
    part->previous = part->next = NULL;
}

void harpe_zeusd_part_wait(harpe_zeusd_part *part, harpe_zeusd_parts *list) {
    part->list = list;
    part->previous = list->last;
    part->next = NULL;
    if (list->last)
        list->last->next = part;
    else
        list->first = part;
    list->last = part;
}

void harpe_zeusd_parts_move(harpe_zeusd_parts *from, harpe_zeusd_parts *to) {
    for (harpe_zeusd_part *part; (part = from->first);) {
        harpe_zeusd_part_leave(part);
        harpe_zeusd_part_wait(part, to);
    }
}

harpe_zeusd_ask *harpe_zeusd_ask_new(harpe_zeusd_server *server, harpe_http_request *request,
                                     const harpe_zeusd_route *route, size_t count) {
    harpe_zeusd_ask *ask = harpe_calloc(1, sizeof *ask + count * sizeof ask->parts[0]);
    if (!ask) {
        harpe_zeusd_answer_error(request, 503, "out of memory");
        return NULL;
    }
    ask->server = server;
    ask->request = request;
    ask->route = route;
    ask->count = ask->left = count;
    for (size_t i = 0; i < count; i++)
        ask->parts[i].ask = ask;
    harpe_http_set_data(request, ask);
    return ask;
}

void harpe_zeusd_ask_free(harpe_zeusd_ask *ask) {
    for (size_t i = 0; i < ask->count; i++) {
        harpe_zeusd_part_leave(&ask->parts[i]);
        free(ask->parts[i].message);
    }
    harpe_timer_cancel(ask->deadline);
    harpe_timer_cancel(ask->pause);
    free(ask->first);
    free(ask->cpu_ids);
    free(ask);
}

/* Notes the result of a part. */
static void end_part(harpe_zeusd_part *part, harpe_status status, const harpe_error *error,
                     const uint64_t *values) {
    harpe_zeusd_part_leave(part);
    part->status = status;
    part->has_ended = true;
    part->ask->left--;
    if (status != HARPE_OK)
        part->message = strdup(error ? error->message : "out of memory");
    else if (values)
        memcpy(part->values, values, sizeof part->values);
}

void harpe_zeusd_part_end(harpe_zeusd_part *part, harpe_status status, const harpe_error *error,
                          const uint64_t *values) {
    harpe_zeusd_ask *ask = part->ask;
    end_part(part, status, error, values);
    /* If the request has not begun to wait, harpe_zeusd_ask_begin answers it. */
    if (ask->left == 0 && ask->deadline) harpe_zeusd_ask_answer(ask);
}

static void give_up(void *user) {
    harpe_zeusd_ask *ask = user;
    harpe_error error;
    ask->deadline = NULL;
    harpe_fail(&error, HARPE_DRIVER_ERROR, "the driver has not answered for %g s%s",
               ask->server->options.answer_timeout_ms / 1e3,
               ask->route->action == HARPE_ZEUSD_WRITE ? "; the change may still be made" : "");
    harpe_timer_cancel(ask->pause);
    ask->pause = NULL;
    for (size_t i = 0; i < ask->count; i++)
        if (!ask->parts[i].has_ended) end_part(&ask->parts[i], error.status, &error, NULL);
    harpe_zeusd_ask_answer(ask);
}

void harpe_zeusd_ask_begin(harpe_zeusd_ask *ask) {
    if (ask->left == 0) {
        harpe_zeusd_ask_answer(ask);
        return;
    }
    if (harpe_loop_after(ask->server->loop, ask->server->options.answer_timeout_ms, give_up, ask,
                         &ask->deadline, NULL) == HARPE_OK)
        return;
    harpe_http_request *request = ask->request;
    harpe_http_set_data(request, NULL);
    harpe_zeusd_ask_free(ask);
    harpe_zeusd_answer_error(request, 503, "out of memory");
}
