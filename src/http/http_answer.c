/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the handler's answers, and the server's own answers to requests that it refuses. This file
 * puts an answer together, and http_exchange.c sends it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/text.h"
#include "http/http_internal.h"

/* Memory for a head and a short body, allocated at once. */
enum { USUAL_HEAD = 320 };

static const char *reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {413, "Content Too Large"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Entity"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "Status";
}

/* Returns the current date. The text is made once a second. */
static const char *date(harpe_http *http) {
    time_t now_s = harpe_clock_wall_whole_s();
    if (now_s != http->date_s) {
        static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
        static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
        struct tm utc;
        gmtime_r(&now_s, &utc);
        snprintf(http->date, sizeof http->date, "%s, %02d %s %d %02d:%02d:%02d GMT",
                 days[utc.tm_wday], utc.tm_mday % 100, months[utc.tm_mon],
                 (utc.tm_year + 1900) % 10000, utc.tm_hour % 100, utc.tm_min % 100,
                 utc.tm_sec % 100);
        http->date_s = now_s;
    }
    return http->date;
}

static void put(harpe_text *text, const char *words) {
    harpe_text_append(text, words, strlen(words));
}

static void put_field(harpe_text *text, const char *name, const char *value) {
    put(text, name);
    put(text, ": ");
    put(text, value);
    put(text, "\r\n");
}

/* Stands for a length that is not known: the body is sent in chunks, or ends with the connection.
 */
#define NO_LENGTH SIZE_MAX

static harpe_text make_head(harpe_http_connection *connection, int status, const char *content_type,
                            size_t length, const harpe_http_header_field *headers) {
    const harpe_http_request *request = connection->request;
    char line[100];
    harpe_text head = {0};
    connection->http->counts.failures += status >= 500;
    head.failed = !HARPE_ARRAY_RESERVE(head.data, head.capacity, USUAL_HEAD);
    snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\n", status, reason(status));
    put(&head, line);
    put_field(&head, "date", date(connection->http));
    if (content_type) put_field(&head, "content-type", content_type);
    snprintf(line, sizeof line, "%zu", length);
    if (status != 204 && status != 304 && length != NO_LENGTH)
        put_field(&head, "content-length", line);
    if (length == NO_LENGTH && connection->is_chunked)
        put_field(&head, "transfer-encoding", "chunked");
    if (!connection->keep_alive)
        put_field(&head, "connection", "close");
    else if (request && request->head.is_http_1_0)
        put_field(&head, "connection", "keep-alive");
    for (; headers && headers->name; headers++)
        if (!strpbrk(headers->value, "\r\n")) /* so that a value cannot add a second field */
            put_field(&head, headers->name, headers->value);
    put(&head, "\r\n");
    return head;
}

/* Stores the answer in the connection and queues the connection, which then sends the answer. Takes
 * `body` over if it is not NULL. */
static void send_soon(harpe_http_connection *connection, harpe_text *out, char *body,
                      size_t length) {
    connection->is_broken = connection->is_broken || out->failed;
    connection->out = out->data;
    connection->out_length = out->length;
    connection->out_body = body;
    connection->out_body_length = body ? length : 0;
    connection->out_sent = 0;
    harpe_http_enter(connection, HARPE_HTTP_SENDING);
    harpe_http_enqueue(connection);
}

/* Does the same as send_soon and ends the request. */
static void put_out(harpe_http_connection *connection, harpe_text *out, char *body, size_t length) {
    if (connection->request) harpe_http_request_free(connection->request);
    connection->request = NULL;
    send_soon(connection, out, body, length);
}

static bool has_body(const harpe_http_request *request, int status) {
    return status != 204 && status != 304 && (!request || !request->wants_no_body);
}

void harpe_http_answer(harpe_http_request *request, int status, const char *content_type,
                       char *body, size_t length, bool take_body,
                       const harpe_http_header_field *headers) {
    harpe_http_connection *connection = request->connection;
    harpe_text out = make_head(connection, status, content_type, length, headers);
    connection->sent_data = request->data;
    char *taken = take_body ? body : NULL;
    if (length == 0 || !has_body(request, status)) {
        free(taken);
        taken = NULL;
    } else if (!take_body) {
        harpe_text_append(&out, body, length);
    }
    put_out(connection, &out, taken, length);
}

bool harpe_http_wants_body(const harpe_http_request *request) { return !request->wants_no_body; }

void harpe_http_stream(harpe_http_request *request, const char *content_type, char *piece,
                       size_t length, const harpe_http_header_field *headers) {
    harpe_http_connection *connection = request->connection;
    harpe_text head = {0};
    bool is_first = !connection->is_stream;
    if (is_first) {
        connection->is_stream = true;
        connection->keep_alive = connection->keep_alive && connection->is_chunked;
        harpe_http_request_drop_body(request);
        head = make_head(connection, 200, content_type, NO_LENGTH, headers);
    }
    if (request->wants_no_body || length == 0) {
        free(piece);
        piece = NULL;
    }
    /* The line end after a chunk is sent at the beginning of the next chunk. */
    if (connection->is_chunked && piece)
        harpe_text_printf(&head, "%s%zx\r\n", is_first ? "" : "\r\n", length);
    send_soon(connection, &head, piece, length);
}

void harpe_http_set_whole(harpe_http_request *request) {
    request->connection->is_whole = true;
    request->connection->is_chunked = !request->head.is_http_1_0;
}

void harpe_http_stream_break(harpe_http_request *request) {
    harpe_http_connection *connection = request->connection;
    connection->is_broken = true;
    harpe_http_enqueue(connection);
}

void harpe_http_stream_end(harpe_http_request *request) {
    harpe_http_connection *connection = request->connection;
    harpe_text end = {0};
    connection->is_stream = false;
    if (connection->is_chunked && !request->wants_no_body) put(&end, "\r\n0\r\n\r\n");
    put_out(connection, &end, NULL, 0);
}

void harpe_http_refuse(harpe_http_connection *connection, int status, const char *detail) {
    static const harpe_http_header_field challenge[] = {{"www-authenticate", "Bearer"},
                                                        {NULL, NULL}};
    char body[400];
    size_t length = (size_t)snprintf(body, sizeof body, "{\"detail\":\"%.380s\"}", detail);
    connection->keep_alive = false;
    connection->lingers = true;
    connection->sent_data = NULL;
    harpe_text out =
        make_head(connection, status, "application/json", length, status == 401 ? challenge : NULL);
    if (has_body(connection->request, status)) harpe_text_append(&out, body, length);
    put_out(connection, &out, NULL, 0);
}
