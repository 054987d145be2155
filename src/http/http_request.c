/* SPDX-License-Identifier: Apache-2.0 */
/* A request as the handler sees it: one block of memory with its head, made when the head is
 * complete, and a body that grows as it arrives. This file reads no socket. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/array.h"
#include "http/http_internal.h"

/* The most memory that a body gets before its first byte has come. A client may announce a large
 * size and send nothing. */
enum { FIRST_BODY_ROOM = 65536 };

int harpe_http_request_new(harpe_http_connection *connection, const char *head, size_t length,
                           harpe_http_request **out, const char **why) {
    *why = "out of memory";
    size_t line_length = strcspn(head, "\r"); /* a complete head has a line */
    if (line_length >= length) line_length = length - 1;
    harpe_http_request *request = malloc(sizeof *request + length + line_length + 1);
    if (!request) return 503;
    *request = (harpe_http_request){.connection = connection};
    memcpy(request->text, head, length);
    request->decoded = request->text + length;
    int status = harpe_http_head_parse(request->text, length, &request->head, why);
    if (status != 0) {
        free(request);
        return status;
    }
    if (strcmp(request->head.method, "HEAD") == 0) {
        request->wants_no_body = true;
        request->head.method = "GET";
    }
    char *mark = strchr(request->head.target, '?');
    if (mark) {
        *mark = '\0';
        request->query = mark + 1;
    }
    *out = request;
    return 0;
}

void harpe_http_request_drop_body(harpe_http_request *request) {
    if (request->body_memory > 0) request->connection->http->body_memory -= request->body_memory;
    request->body_memory = request->body_length = request->body_capacity = 0;
    free(request->body);
    request->body = NULL;
}

void harpe_http_request_free(harpe_http_request *request) {
    harpe_http_request_drop_body(request);
    free(request);
}

char *harpe_http_request_room(harpe_http_request *request, size_t length) {
    size_t needed = request->body_length + length + 1;
    if (!request->body && request->head.content_length < FIRST_BODY_ROOM &&
        needed <= request->head.content_length)
        needed = (size_t)request->head.content_length + 1;
    if (!HARPE_ARRAY_RESERVE(request->body, request->body_capacity, needed)) return NULL;
    request->connection->http->body_memory += request->body_capacity - request->body_memory;
    request->body_memory = request->body_capacity;
    return request->body + request->body_length;
}

void harpe_http_request_grow(harpe_http_request *request, size_t length) {
    request->body_length += length;
    request->body[request->body_length] = '\0';
}

bool harpe_http_request_append(harpe_http_request *request, const char *bytes, size_t length) {
    char *room = harpe_http_request_room(request, length);
    if (!room) return false;
    memcpy(room, bytes, length);
    harpe_http_request_grow(request, length);
    return true;
}

/* ---- Parts ----------------------------------------------------------------------------------- */

const char *harpe_http_method(const harpe_http_request *request) { return request->head.method; }

const char *harpe_http_path(const harpe_http_request *request) { return request->head.target; }

int harpe_http_segment_count(harpe_http_request *request) {
    const char *path = request->head.target;
    int count = 0;
    if (path[0] != '/' || path[1] == '\0') return 0;
    for (; *path != '\0'; path++)
        count += *path == '/';
    return count;
}

const char *harpe_http_segment(harpe_http_request *request, int index) {
    if (index < 0 || index >= harpe_http_segment_count(request)) return NULL;
    const char *segment = request->head.target + 1;
    for (; index > 0; index--)
        segment = strchr(segment, '/') + 1;
    char *decoded = request->decoded + (segment - request->head.target);
    return harpe_http_decode(segment, strcspn(segment, "/"), false, decoded) ? decoded : NULL;
}

const char *harpe_http_query(const harpe_http_request *request, const char *name) {
    const char *parameter = request->query;
    while (parameter && *parameter != '\0') {
        size_t length = strcspn(parameter, "&");
        size_t name_length = strcspn(parameter, "&=");
        char *decoded = request->decoded + (parameter - request->head.target);
        bool is_it =
            harpe_http_decode(parameter, name_length, true, decoded) && strcmp(decoded, name) == 0;
        if (is_it && name_length == length) return ""; /* there is no '=' */
        const char *value = parameter + name_length + 1;
        decoded += name_length + 1;
        if (is_it && harpe_http_decode(value, length - name_length - 1, true, decoded))
            return decoded;
        parameter += length + (parameter[length] == '&');
    }
    return NULL;
}

const char *harpe_http_raw_query(const harpe_http_request *request) { return request->query; }

const char *harpe_http_header(const harpe_http_request *request, const char *name) {
    return harpe_http_field(request->head.fields, name);
}

const char *harpe_http_body(const harpe_http_request *request, size_t *length) {
    *length = request->body_length;
    return request->body ? request->body : "";
}

char *harpe_http_take_body(harpe_http_request *request, size_t *length) {
    char *body = request->body ? request->body : calloc(1, 1);
    *length = request->body_length;
    request->body = NULL;
    request->body_length = request->body_capacity = 0;
    return body;
}

void harpe_http_set_data(harpe_http_request *request, void *data) { request->data = data; }

void *harpe_http_data(const harpe_http_request *request) { return request->data; }

void harpe_http_set_client(harpe_http_request *request, void *client) {
    request->connection->client = client;
}

void *harpe_http_client(const harpe_http_request *request) { return request->connection->client; }

const char *harpe_http_bearer(const harpe_http_request *request) {
    const char *given = harpe_http_header(request, "authorization");
    return given && strncasecmp(given, "Bearer ", 7) == 0 ? given + 7 : NULL;
}

bool harpe_http_has_own_token(const harpe_http_request *request) { return request->has_own_token; }

void harpe_http_client_address(const harpe_http_request *request,
                               char out[HARPE_HTTP_ADDRESS_SIZE]) {
    struct sockaddr_storage peer = {0};
    socklen_t length = sizeof peer;
    bool is_known = !harpe_http_is_unix(request->connection->http) &&
                    getpeername(request->connection->fd, (struct sockaddr *)&peer, &length) == 0 &&
                    getnameinfo((const struct sockaddr *)&peer, length, out,
                                HARPE_HTTP_ADDRESS_SIZE, NULL, 0, NI_NUMERICHOST) == 0;
    if (!is_known) *out = '\0';
}

bool harpe_http_is_trusted(const harpe_http_request *request) { return request->is_trusted; }

int64_t harpe_http_arrived_ns(const harpe_http_request *request) { return request->arrived_ns; }
