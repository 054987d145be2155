/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait for devices: their parts, their time limit, and their end, with zeusd's
 * answers: JSON texts, plain texts, and the errors of several devices. */
#include "agent/zeusd_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"

int64_t harpe_zeusd_time_ms(void) { return harpe_clock_wall_ns() / 1000000; }

void harpe_zeusd_answer_empty(harpe_http_request *request, int status) {
    harpe_http_answer(request, status, NULL, NULL, 0, false, NULL);
}

void harpe_zeusd_answer_text(harpe_http_request *request, int status, const char *text) {
    char *copy = strdup(text);
    harpe_http_answer(request, status, "text/plain; charset=utf-8", copy, copy ? strlen(copy) : 0,
                      true, NULL);
}

void harpe_zeusd_answer_json(harpe_http_request *request, int status, json_t *value) {
    static const harpe_http_header_field challenge[] = {
        {"www-authenticate", "Bearer realm=\"zeusd\""}, {NULL, NULL}};
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (!text) {
        harpe_zeusd_answer_empty(request, 503);
        return;
    }
    harpe_http_answer(request, status, "application/json", text, strlen(text), true,
                      status == 401 ? challenge : NULL);
}

void harpe_zeusd_answer_error(harpe_http_request *request, int status, const char *text) {
    harpe_zeusd_answer_json(request, status, json_pack("{s:s}", "error", text));
}

/* ---- Failures -------------------------------------------------------------------------------- */

static int http_status_of(harpe_status status) {
    switch (status) {
    case HARPE_PERMISSION_DENIED:
    case HARPE_ALREADY_EXISTS: return 403;
    case HARPE_INVALID_ARGUMENT:
    case HARPE_NOT_SUPPORTED: return 400;
    default: return 500;
    }
}

/* Adds the message of one device. If the device already has a message, that message stays. */
static void add_error(json_t *errors, uint64_t id, const char *message) {
    char name[24];
    (void)snprintf(name, sizeof name, "%llu", (unsigned long long)id);
    if (json_object_get(errors, name)) return;
    json_t *text = json_string(message ? message : "out of memory");
    /* A driver's text may contain bytes that are not UTF-8. */
    json_object_set_new(errors, name, text ? text : json_string("the driver's text is unreadable"));
}

/* Answers with the failures of the devices. Returns false if there is none. */
static bool answer_failures(const harpe_zeusd_ask *ask, harpe_http_request *request) {
    int highest = 0;
    json_t *errors = json_object();
    for (size_t i = 0; i < ask->count; i++) {
        const harpe_zeusd_part *part = &ask->parts[i];
        if (part->status == HARPE_OK) continue;
        int status = http_status_of(part->status);
        if (status > highest) highest = status;
        if (ask->cpu_ids)
            for (size_t cpu = 0; cpu < ask->cpu_count; cpu++)
                add_error(errors, ask->cpu_ids[cpu], part->message);
        else
            add_error(errors, (uint64_t)part->id, part->message);
    }
    if (highest == 0) {
        json_decref(errors);
        return false;
    }
    harpe_zeusd_answer_json(request, highest, json_pack("{s:o}", "errors", errors));
    return true;
}

/* ---- Readings -------------------------------------------------------------------------------- */

static json_t *value_of(harpe_zeusd_read read, const uint64_t values[2]) {
    json_int_t one = (json_int_t)values[0], other = (json_int_t)values[1];
    switch (read) {
    case HARPE_ZEUSD_READ_ENERGY: return json_pack("{s:I}", "energy_mj", one);
    case HARPE_ZEUSD_READ_POWER: return json_integer(one);
    case HARPE_ZEUSD_READ_LIMIT: return json_pack("{s:I}", "power_limit_mw", one);
    case HARPE_ZEUSD_READ_CONSTRAINTS:
        return json_pack("{s:I,s:I}", "min_power_limit_mw", one, "max_power_limit_mw", other);
    default: return json_pack("{s:b}", "enabled", one != 0);
    }
}

static json_t *gpu_readings(const harpe_zeusd_ask *ask) {
    json_t *all = json_object();
    for (size_t i = 0; i < ask->count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%d", ask->parts[i].id);
        json_object_set_new(all, name, value_of(ask->route->read, ask->parts[i].values));
    }
    if (ask->route->read != HARPE_ZEUSD_READ_POWER) return all;
    return json_pack("{s:I,s:o}", "timestamp_ms", (json_int_t)harpe_zeusd_time_ms(), "power_mw",
                     all);
}

/* Answers a request whose parts all have results, and frees it. */
static void answer_ask(harpe_zeusd_ask *ask) {
    harpe_http_request *request = ask->request;
    harpe_http_set_data(request, NULL);
    if (answer_failures(ask, request)) {
        harpe_zeusd_ask_free(ask);
        return;
    }
    switch (ask->route->action) {
    case HARPE_ZEUSD_WRITE: harpe_zeusd_answer_empty(request, 200); break;
    case HARPE_ZEUSD_CPU_ENERGY:
        harpe_zeusd_answer_json(request, 200, harpe_zeusd_cpus_energy(ask));
        break;
    case HARPE_ZEUSD_CPU_POWER:
        harpe_zeusd_answer_json(request, 200, harpe_zeusd_cpus_power(ask));
        break;
    default: harpe_zeusd_answer_json(request, 200, gpu_readings(ask)); break;
    }
    harpe_zeusd_ask_free(ask);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

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
    if (ask->left == 0 && ask->deadline) answer_ask(ask);
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
    answer_ask(ask);
}

void harpe_zeusd_ask_begin(harpe_zeusd_ask *ask) {
    if (ask->left == 0) {
        answer_ask(ask);
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
