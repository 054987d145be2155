/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees the zeusd server: its sockets, and the list of its devices. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/zeusd_requests.h"
#include "base/array.h"
#include "base/error.h"

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
        .request = harpe_zeusd_on_request, .gone = on_gone, .sent = on_sent, .user = transport};
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
