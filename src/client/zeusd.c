/* SPDX-License-Identifier: Apache-2.0 */
/* Finds zeusd, and sends requests to it on a connection that stays open. Time and size are limited,
 * so a faulty zeusd cannot block the controller. */
#include "client/control.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/array.h"
#include "base/error.h"
#include "base/token.h"
#include "gpu/visible.h"
#include "http/client/connection.h"

#define CONNECT_LIMIT_S 1.0
#define REQUEST_LIMIT_S 5.0

enum { ANSWER_SIZE = 512, PATH_SIZE = 256, DEVICES_SIZE = 1 << 20 };

struct harpe_zeusd {
    harpe_connection *connection;
    int number; /* of the GPU in zeusd's routes */
    bool knows_number;
    char pci_bus_id[32];
    harpe_zeusd_address address;
};

/* ---- Finding --------------------------------------------------------------------------------- */

static harpe_status check_host_port(const char *text, harpe_error *error) {
    const char *colon = strrchr(text, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    /* An IPv6 address has colons, so it must be in brackets. */
    bool is_one_host = colon && (strchr(text, ':') == colon || (*text == '[' && colon[-1] == ']'));
    bool is_right = is_one_host && colon > text && digits > 0 && digits <= 5 &&
                    colon[1 + digits] == '\0' && strtol(colon + 1, NULL, 10) <= 65535 &&
                    !strpbrk(text, "/?#@ \t\r\n") &&
                    strlen(text) < sizeof((harpe_zeusd_place *)NULL)->host_port;
    if (is_right) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "ZEUSD_HOST_PORT: expected HOST:PORT, found '%.200s'", text);
}

harpe_status harpe_zeusd_take_token(harpe_zeusd_address *out, harpe_error *error) {
    char *token = NULL;
    out->token[0] = '\0';
    harpe_status status =
        harpe_token_take(secure_getenv("ZEUSD_TOKEN"), "ZEUSD_TOKEN", &token, error);
    if (status != HARPE_OK) return status;
    if (token && strlen(token) >= sizeof out->token)
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "ZEUSD_TOKEN: has more than %zu characters", sizeof out->token - 1);
    else if (token)
        memcpy(out->token, token, strlen(token) + 1);
    if (token) explicit_bzero(token, strlen(token));
    free(token);
    return status;
}

harpe_status harpe_zeusd_find(const char *socket, harpe_zeusd_address *out, harpe_error *error) {
    memset(out, 0, sizeof *out);
    const char *host_port = NULL;
    if (!socket) socket = secure_getenv("ZEUSD_SOCK_PATH");
    if (!socket) host_port = secure_getenv("ZEUSD_HOST_PORT");
    if (socket && strlen(socket) >= sizeof out->place.socket)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "zeusd's socket '%.200s' has too long a path for a socket", socket);
    if (host_port && *host_port) {
        harpe_status status = check_host_port(host_port, error);
        if (status != HARPE_OK) return status;
        memcpy(out->place.host_port, host_port, strlen(host_port) + 1);
    }
    if (socket) memcpy(out->place.socket, socket, strlen(socket) + 1);
    return harpe_zeusd_is_given(&out->place) ? harpe_zeusd_take_token(out, error) : HARPE_OK;
}

/* ---- Connection ------------------------------------------------------------------------------ */

static harpe_status connect_to(const harpe_zeusd_address *address, size_t answer_bytes,
                               harpe_connection **out, harpe_error *error) {
    char url[sizeof address->place.host_port + 8];
    bool is_tcp = address->place.host_port[0] != '\0';
    (void)snprintf(url, sizeof url, "http://%s", is_tcp ? address->place.host_port : "zeusd");
    harpe_connection_options options = {.server_url = url,
                                        .url_name = "ZEUSD_HOST_PORT",
                                        .unix_socket = is_tcp ? NULL : address->place.socket,
                                        .token = address->token[0] ? address->token : NULL,
                                        .connect_limit_s = CONNECT_LIMIT_S,
                                        .answer_limit_s = REQUEST_LIMIT_S,
                                        .answer_limit_bytes = answer_bytes,
                                        .cuts_answers = true};
    return harpe_connection_new(&options, out, error);
}

harpe_status harpe_zeusd_open(const harpe_zeusd_address *address, const harpe_gpu_info *gpu,
                              harpe_zeusd **out, harpe_error *error) {
    harpe_zeusd *zeusd = harpe_calloc(1, sizeof *zeusd);
    if (!zeusd) return harpe_fail_memory(error);
    zeusd->number = gpu->driver_index;
    (void)snprintf(zeusd->pci_bus_id, sizeof zeusd->pci_bus_id, "%s", gpu->pci_bus_id);
    zeusd->address = *address;
    harpe_status status = connect_to(address, ANSWER_SIZE - 1, &zeusd->connection, error);
    if (status != HARPE_OK) {
        harpe_zeusd_close(zeusd);
        return status;
    }
    *out = zeusd;
    return HARPE_OK;
}

void harpe_zeusd_close(harpe_zeusd *zeusd) {
    if (!zeusd) return;
    harpe_connection_free(zeusd->connection);
    explicit_bzero(zeusd->address.token, sizeof zeusd->address.token);
    free(zeusd);
}

/* Maps a status. zeusd answers 403 for NVML's "no permission", 400 for "invalid", and 500 with
 * NVML's text for everything else. */
static harpe_status status_of(long code, const char *answer) {
    if (strcasestr(answer, "not supported") || strcasestr(answer, "NotSupported"))
        return HARPE_NOT_SUPPORTED;
    if (strcasestr(answer, "lost")) return HARPE_GPU_LOST;
    switch (code) {
    case 400: return HARPE_INVALID_ARGUMENT;
    case 401:
    case 403: return HARPE_PERMISSION_DENIED;
    case 404: return HARPE_NOT_SUPPORTED;
    default: return HARPE_DRIVER_ERROR;
    }
}

/* Returns advice for a refusal. zeusd answers 401 to a missing or wrong token, and 403 to a token
 * without the scope. */
static const char *advice_for(const harpe_zeusd *zeusd, long code) {
    if (code != 401) return "";
    return zeusd->address.token[0] ? ": the token in ZEUSD_TOKEN is not accepted"
                                   : ": set ZEUSD_TOKEN to a token with the scope gpu-control";
}

static harpe_status fail_silent(const harpe_zeusd *zeusd, const char *reason, harpe_error *error) {
    bool is_tcp = zeusd->address.place.host_port[0] != '\0';
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "zeusd at '%s' does not answer (%s): start it, or unset %s",
                      is_tcp ? zeusd->address.place.host_port : zeusd->address.place.socket, reason,
                      is_tcp ? "ZEUSD_HOST_PORT" : "ZEUSD_SOCK_PATH");
}

/* ---- The number of the GPU ------------------------------------------------------------------- */

/* Finds the number in zeusd's list of devices. Without PCI addresses, the number stays. */
static harpe_status read_number(harpe_zeusd *zeusd, const json_t *gpus, harpe_error *error) {
    bool has_addresses = false;
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *gpu = json_array_get(gpus, i);
        const json_t *id = json_object_get(gpu, "id");
        const char *address = json_string_value(json_object_get(gpu, "pci_address"));
        if (!address || !json_is_integer(id)) continue;
        has_addresses = true;
        if (!harpe_pci_address_matches(address, zeusd->pci_bus_id)) continue;
        zeusd->number = (int)json_integer_value(id);
        return HARPE_OK;
    }
    if (!has_addresses) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_FOUND,
                      "zeusd has no GPU at %s: restart zeusd, which lists the GPUs when it starts",
                      zeusd->pci_bus_id);
}

static harpe_status find_number(harpe_zeusd *zeusd, harpe_error *error) {
    harpe_connection *connection = NULL;
    harpe_request request = {.path = "/discover"};
    harpe_answer answer;
    harpe_status status = connect_to(&zeusd->address, DEVICES_SIZE, &connection, error);
    if (status != HARPE_OK) return status;
    if (harpe_connection_call(connection, &request, &answer, NULL) != HARPE_OK) {
        status = fail_silent(zeusd, harpe_connection_reason(connection), error);
    } else {
        json_t *devices = json_loadb(answer.body, answer.length, 0, NULL);
        status = read_number(zeusd, json_object_get(devices, "gpus"), error);
        json_decref(devices);
    }
    harpe_connection_free(connection);
    zeusd->knows_number = status == HARPE_OK;
    return status;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

harpe_status harpe_zeusd_call(harpe_zeusd *zeusd, harpe_error *error, const char *command,
                              const char *format, ...) {
    char path[PATH_SIZE];
    harpe_status status = zeusd->knows_number ? HARPE_OK : find_number(zeusd, error);
    if (status != HARPE_OK) return status;
    int length =
        snprintf(path, sizeof path, "/gpu/%s?gpu_ids=%d&block=true", command, zeusd->number);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(path + length, sizeof path - (size_t)length, format, arguments);
    va_end(arguments);
    harpe_request request = {.path = path, .body = ""};
    harpe_answer answer;
    if (harpe_connection_call(zeusd->connection, &request, &answer, NULL) != HARPE_OK) {
        zeusd->knows_number = false; /* another zeusd may answer next */
        return fail_silent(zeusd, harpe_connection_reason(zeusd->connection), error);
    }
    long code = answer.http_status;
    if (code >= 200 && code < 300) return HARPE_OK;
    status =
        harpe_fail(error, status_of(code, answer.body), "GPU %d: zeusd refuses %s with %ld: %s%s",
                   zeusd->number, command, code, answer.body, advice_for(zeusd, code));
    if (error) error->vendor_code = (int)code;
    return status;
}
