/* SPDX-License-Identifier: Apache-2.0 */
/* Makes zeusd's answers: JSON texts, plain texts, and the errors of several devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/zeusd_internal.h"
#include "base/clock.h"

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

void harpe_zeusd_ask_answer(harpe_zeusd_ask *ask) {
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
