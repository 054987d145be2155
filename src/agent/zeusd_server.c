/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees the zeusd server: its sockets, and the list of its devices. Finds the route of a
 * request, checks that the client may use it, and reads the query. The order of the checks is the
 * same as in zeusd: the group of routes, the token, the route, the query. Paths are compared as
 * they were sent, without decoding. So the check of the scope and the answer use the same path. */
#include "agent/zeusd_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"

/* ---- Routes ---------------------------------------------------------------------------------- */

static const harpe_zeusd_field persistence_fields[] = {{"gpu_ids", HARPE_ZEUSD_TEXT, false},
                                                       {"enabled", HARPE_ZEUSD_SWITCH, false},
                                                       {"block", HARPE_ZEUSD_SWITCH, false},
                                                       {NULL, HARPE_ZEUSD_TEXT, false}};
static const harpe_zeusd_field limit_fields[] = {{"gpu_ids", HARPE_ZEUSD_TEXT, false},
                                                 {"power_limit_mw", HARPE_ZEUSD_NUMBER, false},
                                                 {"block", HARPE_ZEUSD_SWITCH, false},
                                                 {NULL, HARPE_ZEUSD_TEXT, false}};
static const harpe_zeusd_field lock_fields[] = {{"gpu_ids", HARPE_ZEUSD_TEXT, false},
                                                {"min_clock_mhz", HARPE_ZEUSD_NUMBER, false},
                                                {"max_clock_mhz", HARPE_ZEUSD_NUMBER, false},
                                                {"block", HARPE_ZEUSD_SWITCH, false},
                                                {NULL, HARPE_ZEUSD_TEXT, false}};
static const harpe_zeusd_field reset_fields[] = {{"gpu_ids", HARPE_ZEUSD_TEXT, false},
                                                 {"block", HARPE_ZEUSD_SWITCH, false},
                                                 {NULL, HARPE_ZEUSD_TEXT, false}};
static const harpe_zeusd_field gpu_fields[] = {{"gpu_ids", HARPE_ZEUSD_TEXT, true},
                                               {NULL, HARPE_ZEUSD_TEXT, false}};
static const harpe_zeusd_field cpu_fields[] = {{"cpu_ids", HARPE_ZEUSD_TEXT, true},
                                               {NULL, HARPE_ZEUSD_TEXT, false}};
static const harpe_zeusd_field cpu_energy_fields[] = {{"cpu_ids", HARPE_ZEUSD_TEXT, true},
                                                      {"cpu", HARPE_ZEUSD_SWITCH, false},
                                                      {"dram", HARPE_ZEUSD_SWITCH, false},
                                                      {NULL, HARPE_ZEUSD_TEXT, false}};

enum {
    PERSISTENCE = 1 << HARPE_SET_PERSISTENCE,
    POWER_LIMIT = 1 << HARPE_SET_POWER_LIMIT,
    GRAPHICS = 1 << HARPE_SET_GRAPHICS_CLOCKS,
    MEMORY = 1 << HARPE_SET_MEMORY_CLOCKS,
};

#define WRITE(name, fields_of, settings_of, resets) \
    { \
        .method = "POST", .path = "/gpu/" name, .action = HARPE_ZEUSD_WRITE, \
        .fields = (fields_of), .settings = (settings_of), .is_reset = (resets) \
    }
#define READ(name, kind) \
    { \
        .method = "GET", .path = "/gpu/" name, .action = HARPE_ZEUSD_GPU_READING, \
        .fields = gpu_fields, .read = (kind) \
    }
#define OTHER(path_of, action_of, fields_of) \
    { .method = "GET", .path = (path_of), .action = (action_of), .fields = (fields_of) }

static const harpe_zeusd_route routes[] = {
    OTHER("/discover", HARPE_ZEUSD_DISCOVER, NULL),
    OTHER("/time", HARPE_ZEUSD_TIME, NULL),
    OTHER("/auth/whoami", HARPE_ZEUSD_WHOAMI, NULL),
    WRITE("set_persistence_mode", persistence_fields, PERSISTENCE, false),
    WRITE("set_power_limit", limit_fields, POWER_LIMIT, false),
    WRITE("set_gpu_locked_clocks", lock_fields, GRAPHICS, false),
    WRITE("set_mem_locked_clocks", lock_fields, MEMORY, false),
    WRITE("reset_gpu_locked_clocks", reset_fields, GRAPHICS, true),
    WRITE("reset_mem_locked_clocks", reset_fields, MEMORY, true),
    WRITE("reset_locked_clocks", reset_fields, GRAPHICS | MEMORY, true),
    READ("get_cumulative_energy", HARPE_ZEUSD_READ_ENERGY),
    READ("get_power", HARPE_ZEUSD_READ_POWER),
    READ("get_power_limit", HARPE_ZEUSD_READ_LIMIT),
    READ("get_power_limit_constraints", HARPE_ZEUSD_READ_CONSTRAINTS),
    READ("get_persistence_mode", HARPE_ZEUSD_READ_PERSISTENCE),
    OTHER("/gpu/stream_power", HARPE_ZEUSD_GPU_STREAM, gpu_fields),
    OTHER("/cpu/get_cumulative_energy", HARPE_ZEUSD_CPU_ENERGY, cpu_energy_fields),
    OTHER("/cpu/get_power", HARPE_ZEUSD_CPU_POWER, cpu_fields),
    OTHER("/cpu/stream_power", HARPE_ZEUSD_CPU_STREAM, cpu_fields),
};

static const harpe_zeusd_route *find_route(const harpe_http_request *request) {
    if (!harpe_http_wants_body(request)) return NULL; /* HEAD has no routes */
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(routes[i].path, harpe_http_path(request)) == 0 &&
            strcmp(routes[i].method, harpe_http_method(request)) == 0)
            return &routes[i];
    return NULL;
}

/* ---- Who may ask ----------------------------------------------------------------------------- */

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* Returns the group of a path, also if the path has no route. Returns 0 if there is no group. */
static unsigned group_of(const char *path) {
    if (starts_with(path, "/gpu/set_") || starts_with(path, "/gpu/reset_"))
        return HARPE_ZEUSD_GPU_CONTROL;
    if (starts_with(path, "/gpu/")) return HARPE_ZEUSD_GPU_READ;
    return starts_with(path, "/cpu/") ? HARPE_ZEUSD_CPU_READ : 0;
}

static void refuse_scope(harpe_http_request *request, const harpe_zeusd_claims *claims,
                         const char *needed) {
    harpe_text text = {0};
    harpe_text_printf(&text, "Token for user '%s' lacks required scope '%s'. Token scopes: [",
                      claims->subject, needed);
    for (size_t i = 0; i < claims->scope_count; i++)
        harpe_text_printf(&text, "%s'%s'", i > 0 ? ", " : "",
                          harpe_zeusd_group_name(claims->scopes[i]));
    harpe_text_printf(&text, "]");
    harpe_zeusd_answer_error(request, 403, text.failed ? "out of memory" : text.data);
    harpe_text_free(&text);
}

/* Checks the token. Returns false if the request was answered. */
static bool check_token(const harpe_zeusd_server *server, harpe_http_request *request,
                        unsigned group, harpe_zeusd_claims *claims) {
    harpe_error error;
    const char *given = harpe_http_header(request, "authorization");
    if (!given || !starts_with(given, "Bearer ")) {
        harpe_zeusd_answer_error(request, 401,
                                 "Authentication required. Provide an Authorization: Bearer "
                                 "<token> header.");
        return false;
    }
    if (harpe_zeusd_token_check(server->tokens, given + strlen("Bearer "),
                                harpe_zeusd_time_ms() / 1000, claims, &error) != HARPE_OK) {
        harpe_zeusd_answer_error(request, 401, error.message);
        return false;
    }
    if (group == 0 || harpe_zeusd_claims_grant(claims, (harpe_zeusd_group)group)) return true;
    refuse_scope(request, claims, harpe_zeusd_group_name((harpe_zeusd_group)group));
    return false;
}

/* Returns true if the client may use the path. Otherwise answers the request and returns false. */
static bool may_ask(harpe_zeusd_transport *transport, harpe_http_request *request,
                    harpe_zeusd_claims *claims) {
    harpe_zeusd_server *server = transport->server;
    const char *path = harpe_http_path(request);
    unsigned group = group_of(path);
    if (group != 0 && (server->options.groups & group) == 0) {
        char text[100];
        (void)snprintf(text, sizeof text, "API group '%s' is not enabled on this server.",
                       harpe_zeusd_group_name((harpe_zeusd_group)group));
        harpe_zeusd_answer_error(request, 404, text);
        return false;
    }
    if (transport->needs_token) {
        bool is_open = strcmp(path, "/discover") == 0 || strcmp(path, "/time") == 0;
        return is_open || check_token(server, request, group, claims);
    }
    if (!starts_with(path, "/auth/")) return true;
    harpe_zeusd_answer_error(request, 404, "Authentication is not enabled on this server.");
    return false;
}

/* ---- Lists of devices ------------------------------------------------------------------------ */

/* A request whose query is read. */
typedef struct query {
    const harpe_zeusd_route *route;
    harpe_zeusd_value values[HARPE_ZEUSD_FIELDS_MAX];
    uint64_t *ids;
    size_t count;
} query;

static uint64_t id_at(const harpe_zeusd_server *server, bool is_cpu, size_t i) {
    return is_cpu ? (uint64_t)i : (uint64_t)server->gpu[i].id;
}

static bool has_device(harpe_zeusd_server *server, bool is_cpu, uint64_t id) {
    return is_cpu ? id < server->cpus.count : harpe_zeusd_gpu_find(server, id) != NULL;
}

static bool list_all(harpe_zeusd_server *server, bool is_cpu, query *q) {
    q->count = is_cpu ? server->cpus.count : server->gpu_count;
    q->ids = calloc(q->count + 1, sizeof *q->ids);
    for (size_t i = 0; q->ids && i < q->count; i++)
        q->ids[i] = id_at(server, is_cpu, i);
    return q->ids != NULL;
}

static void answer_unknown(harpe_http_request *request, const query *q, const char *device,
                           uint64_t id) {
    char text[80];
    bool is_write = q->route->action == HARPE_ZEUSD_WRITE;
    (void)snprintf(text, sizeof text,
                   is_write ? "%s index %llu does not exist." : "%s %llu not found", device,
                   (unsigned long long)id);
    if (is_write)
        harpe_zeusd_answer_text(request, 400, text);
    else
        harpe_zeusd_answer_error(request, 400, text);
}

/* Answers "Unknown GPU indices: [5]. Available: [0, 1]". */
static void answer_unknown_of_stream(harpe_zeusd_server *server, harpe_http_request *request,
                                     const query *q, bool is_cpu) {
    harpe_text text = {0};
    const char *separator = "";
    size_t device_count = is_cpu ? server->cpus.count : server->gpu_count;
    harpe_text_printf(&text, "Unknown %s indices: [", is_cpu ? "CPU" : "GPU");
    for (size_t i = 0; i < q->count; i++) {
        if (has_device(server, is_cpu, q->ids[i])) continue;
        harpe_text_printf(&text, "%s%llu", separator, (unsigned long long)q->ids[i]);
        separator = ", ";
    }
    harpe_text_printf(&text, "]. Available: [");
    for (size_t i = 0; i < device_count; i++)
        harpe_text_printf(&text, "%s%llu", i > 0 ? ", " : "",
                          (unsigned long long)id_at(server, is_cpu, i));
    harpe_text_printf(&text, "]");
    harpe_zeusd_answer_error(request, 400, text.failed ? "out of memory" : text.data);
    harpe_text_free(&text);
}

/* Reads the list of devices. Returns false if the request was answered. */
static bool read_ids(harpe_zeusd_server *server, harpe_http_request *request, query *q) {
    bool is_cpu = strcmp(q->route->fields[0].name, "cpu_ids") == 0;
    const char *device = is_cpu ? "CPU" : "GPU";
    bool is_stream =
        q->route->action == HARPE_ZEUSD_GPU_STREAM || q->route->action == HARPE_ZEUSD_CPU_STREAM;
    char *why = NULL;
    if (!q->values[0].is_given) {
        if (list_all(server, is_cpu, q)) return true;
        harpe_zeusd_answer_error(request, 503, "out of memory");
        return false;
    }
    if (harpe_zeusd_ids_read(q->values[0].text, q->values[0].text_length, device, &q->ids,
                             &q->count, &why) != HARPE_OK) {
        harpe_zeusd_answer_error(request, 400, why ? why : "out of memory");
        free(why);
        return false;
    }
    for (size_t i = 0; i < q->count; i++) {
        if (has_device(server, is_cpu, q->ids[i])) continue;
        if (is_stream)
            answer_unknown_of_stream(server, request, q, is_cpu);
        else
            answer_unknown(request, q, device, q->ids[i]);
        return false;
    }
    return true;
}

/* ---- Routes of devices ----------------------------------------------------------------------- */

static void begin_reading(harpe_zeusd_server *server, harpe_http_request *request, const query *q) {
    harpe_zeusd_ask *ask = harpe_zeusd_ask_new(server, request, q->route, q->count);
    if (!ask) return;
    for (size_t i = 0; i < q->count; i++) {
        harpe_zeusd_gpu *gpu = harpe_zeusd_gpu_find(server, q->ids[i]);
        ask->parts[i].id = gpu->id;
        harpe_zeusd_part_wait(&ask->parts[i], &gpu->waiting[q->route->read]);
        harpe_zeusd_gpu_read(gpu);
    }
    harpe_zeusd_ask_begin(ask);
}

static void begin_cpus(harpe_zeusd_server *server, harpe_http_request *request, query *q) {
    harpe_zeusd_ask *ask = harpe_zeusd_ask_new(server, request, q->route, q->count > 0 ? 1 : 0);
    if (!ask) return;
    ask->wants_cpu = q->values[1].is_on;
    ask->wants_dram = q->values[2].is_on;
    ask->cpu_ids = q->ids;
    ask->cpu_count = q->count;
    q->ids = NULL;
    if (ask->count > 0) {
        harpe_zeusd_part_wait(&ask->parts[0], &server->cpus.waiting);
        harpe_zeusd_cpus_read(server);
    }
    harpe_zeusd_ask_begin(ask);
}

/* Returns the values of a write, which are the fields between the devices and "block". */
static void take_values(const query *q, uint32_t values[2]) {
    const harpe_zeusd_field *fields = q->route->fields;
    for (size_t i = 1, next = 0; fields[i].name && next < 2; i++) {
        if (strcmp(fields[i].name, "block") == 0) continue;
        values[next++] =
            fields[i].type == HARPE_ZEUSD_SWITCH ? q->values[i].is_on : q->values[i].number;
    }
}

static bool is_blocking(const query *q) {
    for (size_t i = 0; q->route->fields[i].name; i++)
        if (strcmp(q->route->fields[i].name, "block") == 0) return q->values[i].is_on;
    return false;
}

static size_t count_bits(unsigned set) {
    size_t count = 0;
    for (; set != 0; set &= set - 1)
        count++;
    return count;
}

/* Queues the writes of one GPU. `*part` moves to the next unused part. */
static void write_one(harpe_zeusd_gpu *gpu, const query *q, harpe_zeusd_client *client,
                      harpe_zeusd_part **part) {
    const harpe_zeusd_ops *ops = &gpu->server->ops;
    uint32_t values[2] = {0, 0};
    harpe_error error;
    take_values(q, values);
    for (int setting = 0; setting < HARPE_SETTINGS; setting++) {
        if ((q->route->settings & (1U << setting)) == 0) continue;
        harpe_zeusd_part *own = (*part)++;
        own->id = gpu->id;
        harpe_status status =
            ops->may_set(ops->user, &client->holder, gpu->gpu, (harpe_setting)setting, &error);
        bool waits = status == HARPE_OK && is_blocking(q);
        if (status == HARPE_OK)
            harpe_zeusd_gpu_write(gpu, (harpe_setting)setting, q->route->is_reset, values, client,
                                  waits ? own : NULL);
        if (!waits) harpe_zeusd_part_end(own, status, &error, NULL);
    }
}

static void begin_writing(harpe_zeusd_transport *transport, harpe_http_request *request,
                          const query *q, const harpe_zeusd_claims *claims) {
    harpe_zeusd_server *server = transport->server;
    harpe_zeusd_client *client = harpe_zeusd_client_new(transport, request, claims);
    if (!client) {
        harpe_zeusd_answer_error(request, 503, "out of memory");
        return;
    }
    harpe_zeusd_ask *ask =
        harpe_zeusd_ask_new(server, request, q->route, q->count * count_bits(q->route->settings));
    if (ask) {
        harpe_zeusd_part *part = ask->parts;
        for (size_t i = 0; i < q->count; i++)
            write_one(harpe_zeusd_gpu_find(server, q->ids[i]), q, client, &part);
        harpe_zeusd_ask_begin(ask);
    }
    harpe_zeusd_client_leave(client);
}

static void answer_devices(harpe_zeusd_transport *transport, harpe_http_request *request,
                           const harpe_zeusd_route *route, const harpe_zeusd_claims *claims) {
    harpe_zeusd_server *server = transport->server;
    query q = {.route = route};
    char *why = NULL;
    if (harpe_zeusd_query_read(harpe_http_raw_query(request), route->fields, q.values, &why) !=
        HARPE_OK) {
        harpe_zeusd_answer_text(request, 400, why ? why : "out of memory");
    } else if (read_ids(server, request, &q)) {
        switch (route->action) {
        case HARPE_ZEUSD_WRITE: begin_writing(transport, request, &q, claims); break;
        case HARPE_ZEUSD_GPU_READING: begin_reading(server, request, &q); break;
        case HARPE_ZEUSD_CPU_ENERGY:
        case HARPE_ZEUSD_CPU_POWER: begin_cpus(server, request, &q); break;
        default: harpe_zeusd_stream_begin(server, request, route, q.ids, q.count); break;
        }
    }
    free(why);
    free(q.ids);
    harpe_zeusd_values_free(q.values);
}

/* ---- Other routes ---------------------------------------------------------------------------- */

static void answer_whoami(harpe_http_request *request, const harpe_zeusd_claims *claims) {
    json_t *scopes = json_array();
    for (size_t i = 0; i < claims->scope_count; i++)
        json_array_append_new(scopes, json_string(harpe_zeusd_group_name(claims->scopes[i])));
    json_t *answer = json_pack("{s:s,s:o}", "sub", claims->subject, "scopes", scopes);
    if (claims->expires)
        json_object_set_new(answer, "exp", json_integer((json_int_t)claims->expiry_s));
    harpe_zeusd_answer_json(request, 200, answer);
}

static void answer_discover(const harpe_zeusd_transport *transport, harpe_http_request *request) {
    json_t *answer = json_copy(transport->server->devices);
    json_object_set_new(answer, "auth_required", json_boolean(transport->needs_token));
    harpe_zeusd_answer_json(request, 200, answer);
}

/* Answers a request at once, or after its devices have answered. `user` is the transport. */
static void on_request(void *user, harpe_http_request *request) {
    harpe_zeusd_transport *transport = user;
    harpe_zeusd_server *server = transport->server;
    harpe_zeusd_claims claims = {.scope_count = 0};
    server->counts.requests++;
    if (!may_ask(transport, request, &claims)) {
        server->counts.refused++;
        return;
    }
    const harpe_zeusd_route *route = find_route(request);
    if (!route) {
        harpe_zeusd_answer_empty(request, 404);
        return;
    }
    switch (route->action) {
    case HARPE_ZEUSD_DISCOVER: answer_discover(transport, request); break;
    case HARPE_ZEUSD_TIME:
        harpe_zeusd_answer_json(
            request, 200, json_pack("{s:I}", "timestamp_ms", (json_int_t)harpe_zeusd_time_ms()));
        break;
    case HARPE_ZEUSD_WHOAMI: answer_whoami(request, &claims); break;
    default:
        answer_devices(transport, request, route, transport->needs_token ? &claims : NULL);
        break;
    }
}

enum {
    ALL_GROUPS = HARPE_ZEUSD_GPU_CONTROL | HARPE_ZEUSD_GPU_READ | HARPE_ZEUSD_CPU_READ,
    BODY_BYTES = 65536, /* no route reads a body */
    HEAD_BYTES = 32768,
    KEEP_ALIVE_MS = 60000,
};

/* ---- Connections ----------------------------------------------------------------------------- */

static void on_gone(void *user, harpe_http_request *request) {
    (void)user;
    bool *is_stream = harpe_http_data(request);
    if (!is_stream) return;
    if (*is_stream)
        harpe_zeusd_stream_free((harpe_zeusd_stream *)is_stream);
    else
        harpe_zeusd_ask_free((harpe_zeusd_ask *)is_stream);
}

static void on_sent(void *user, void *data, bool is_delivered) {
    (void)user;
    bool *is_stream = data;
    if (is_delivered && *is_stream) harpe_zeusd_stream_sent((harpe_zeusd_stream *)data);
}

static harpe_status open_transport(harpe_zeusd_server *server, harpe_zeusd_transport *transport,
                                   harpe_http_options options, harpe_error *error) {
    harpe_http_handler handler = {
        .request = on_request, .gone = on_gone, .sent = on_sent, .user = transport};
    transport->server = server;
    options.max_header_bytes = HEAD_BYTES;
    options.max_body_bytes = BODY_BYTES;
    options.max_connections = server->options.connections_max;
    options.max_connections_per_user = server->options.user_connections_max;
    options.keep_alive_timeout_ms = KEEP_ALIVE_MS;
    options.drop = server->options.drop;
    options.drop_user = server->options.drop_user;
    options.log = server->options.log;
    return harpe_http_new(server->loop, &options, &handler, &transport->http, error);
}

static harpe_status open_sockets(harpe_zeusd_server *server, harpe_error *error) {
    const harpe_zeusd_options *options = &server->options;
    harpe_status status = HARPE_OK;
    server->unix_transport.needs_token = options->unix_needs_token;
    server->tcp_transport.needs_token = server->tcp_transport.is_tcp = true;
    if (options->unix_socket)
        status = open_transport(server, &server->unix_transport,
                                (harpe_http_options){.unix_socket = options->unix_socket,
                                                     .unix_mode = options->unix_mode},
                                error);
    if (status == HARPE_OK && options->tcp_address)
        status = open_transport(
            server, &server->tcp_transport,
            (harpe_http_options){.address = options->tcp_address, .port = options->tcp_port},
            error);
    return status;
}

/* ---- Devices --------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b) {
    int one = ((const harpe_zeusd_gpu *)a)->id, other = ((const harpe_zeusd_gpu *)b)->id;
    return (one > other) - (one < other);
}

static harpe_status list_gpus(harpe_zeusd_server *server, harpe_error *error) {
    size_t count = server->gpus ? (size_t)harpe_gpus_count(server->gpus) : 0;
    server->gpu = harpe_calloc(count, sizeof *server->gpu);
    if (!server->gpu) return harpe_fail_memory(error);
    server->gpu_count = count;
    for (size_t i = 0; i < count; i++) {
        harpe_zeusd_gpu *gpu = &server->gpu[i];
        pthread_mutex_init(&gpu->counter.lock, NULL);
        gpu->server = server;
        gpu->gpu = (int)i;
        gpu->id = harpe_gpu_info_at(server->gpus, (int)i)->driver_index;
        (void)snprintf(gpu->subject, sizeof gpu->subject, "GPU %d", gpu->id);
    }
    qsort(server->gpu, count, sizeof *server->gpu, by_id);
    return HARPE_OK;
}

/* Writes a PCI address as dddd:bb:dd.f. The driver writes the domain with eight digits, and letters
 * in upper case. */
static void write_pci_address(const char *bus_id, char out[32]) {
    size_t length = strlen(bus_id);
    bool has_long_domain = length == strlen("00000000:00:00.0") && strncmp(bus_id, "0000", 4) == 0;
    (void)snprintf(out, 32, "%.31s", bus_id + (has_long_domain ? 4 : 0));
    for (char *c = out; *c; c++)
        *c = (char)tolower((unsigned char)*c);
}

static json_t *describe_gpu(const harpe_zeusd_gpu *gpu) {
    const harpe_gpu_info *info = harpe_gpu_info_at(gpu->server->gpus, gpu->gpu);
    char address[32];
    uint64_t energy_mj;
    write_pci_address(info->pci_bus_id, address);
    bool has_energy =
        harpe_gpu_total_energy(gpu->server->gpus, gpu->gpu, &energy_mj, NULL) == HARPE_OK;
    return json_pack("{s:i,s:s,s:s,s:b}", "id", gpu->id, "name", info->name, "pci_address", address,
                     "cumulative_energy_available", has_energy);
}

static harpe_status describe_devices(harpe_zeusd_server *server, harpe_error *error) {
    static const harpe_zeusd_group groups[] = {HARPE_ZEUSD_GPU_CONTROL, HARPE_ZEUSD_GPU_READ,
                                               HARPE_ZEUSD_CPU_READ};
    json_t *gpus = json_array(), *cpus = json_array(), *enabled = json_array();
    for (size_t i = 0; i < server->gpu_count; i++)
        json_array_append_new(gpus, describe_gpu(&server->gpu[i]));
    for (size_t i = 0; i < server->cpus.count; i++)
        json_array_append_new(cpus, json_pack("{s:i,s:b}", "id", (int)i, "dram_available",
                                              harpe_rapl_has_dram(server->cpus.rapl, i)));
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if ((server->options.groups & groups[i]) != 0)
            json_array_append_new(enabled, json_string(harpe_zeusd_group_name(groups[i])));
    server->devices =
        json_pack("{s:o,s:o,s:o}", "gpus", gpus, "cpus", cpus, "enabled_api_groups", enabled);
    return server->devices ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- Beginning and end ----------------------------------------------------------------------- */

static void set_defaults(harpe_zeusd_options *options) {
    if (options->groups == 0) options->groups = ALL_GROUPS;
    if (options->connections_max <= 0) options->connections_max = 1024;
    if (options->streams_max <= 0) options->streams_max = 64;
    if (options->user_connections_max <= 0)
        options->user_connections_max = (options->connections_max + 1) / 2;
    if (options->user_streams_max <= 0) options->user_streams_max = (options->streams_max + 1) / 2;
    if (options->answer_timeout_ms <= 0) options->answer_timeout_ms = 30000;
    if (options->gpu_poll_ms <= 0) options->gpu_poll_ms = 50;
    if (options->cpu_poll_ms <= 0) options->cpu_poll_ms = 100;
}

static harpe_status check_options(const harpe_zeusd_options *options, harpe_error *error) {
    if (!options->unix_socket && !options->tcp_address)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "zeusd's routes need a Unix socket or an address of TCP");
    if (!options->signing_key && options->tcp_address)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "zeusd's routes on TCP (%s) need a signing key, because every user who "
                          "can connect could change GPUs",
                          options->tcp_address);
    if (!options->signing_key && options->unix_needs_token)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "tokens for zeusd's Unix socket need a signing key");
    return HARPE_OK;
}

harpe_status harpe_zeusd_server_new(harpe_loop *loop, harpe_workers *workers, harpe_gpus *gpus,
                                    const harpe_zeusd_options *options, const harpe_zeusd_ops *ops,
                                    harpe_zeusd_server **out, harpe_error *error) {
    harpe_status status = check_options(options, error);
    if (status != HARPE_OK) return status;
    harpe_zeusd_server *server = calloc(1, sizeof *server);
    if (!server) return harpe_fail_memory(error);
    server->loop = loop;
    server->workers = workers;
    server->gpus = gpus;
    server->options = *options;
    server->ops = *ops;
    set_defaults(&server->options);
    if (options->signing_key)
        status = harpe_zeusd_tokens_new(options->signing_key, options->signing_key_length,
                                        &server->tokens, error);
    if (status == HARPE_OK) status = list_gpus(server, error);
    if (status == HARPE_OK && (server->options.groups & HARPE_ZEUSD_CPU_READ) != 0)
        status = harpe_zeusd_cpus_open(server, error);
    if (status == HARPE_OK) status = describe_devices(server, error);
    if (status == HARPE_OK) status = open_sockets(server, error);
    if (status != HARPE_OK) {
        harpe_zeusd_server_free(server);
        return status;
    }
    server->options.unix_socket = server->options.tcp_address = server->options.rapl_path = NULL;
    server->options.signing_key = NULL;
    *out = server;
    return HARPE_OK;
}

int harpe_zeusd_server_port(const harpe_zeusd_server *server) {
    return server->tcp_transport.http ? harpe_http_port(server->tcp_transport.http) : 0;
}

void harpe_zeusd_server_stop_accepting(harpe_zeusd_server *server) {
    if (server->unix_transport.http) harpe_http_stop_accepting(server->unix_transport.http);
    if (server->tcp_transport.http) harpe_http_stop_accepting(server->tcp_transport.http);
}

void harpe_zeusd_server_free(harpe_zeusd_server *server) {
    if (!server) return;
    server->is_ending = true;
    harpe_http_free(server->unix_transport.http);
    harpe_http_free(server->tcp_transport.http);
    harpe_timer_cancel(server->gpu_poll);
    harpe_timer_cancel(server->cpu_poll);
    harpe_zeusd_gpus_free(server);
    harpe_rapl_close(server->cpus.rapl);
    harpe_zeusd_tokens_free(server->tokens);
    json_decref(server->devices);
    free(server);
}

harpe_zeusd_counts harpe_zeusd_server_count(const harpe_zeusd_server *server) {
    return server->counts;
}
