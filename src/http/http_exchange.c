/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers on connections: the memory of answers, how an answer is put together, and
 * how bytes move. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/text.h"
#include "http/http_internal.h"

/* ---- Unread answers -------------------------------------------------------------------------- */

/* Limits the memory of answers that clients do not read. Such an answer stays in memory until the
 * socket has taken all of it. If all of these answers together exceed the limit, the connection
 * that has made no progress for the longest time is closed. An answer counts from the first write
 * that does not send all of it. An answer that the first write sends whole never counts. */

static void append(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    connection->longer_unread = http->shortest_unread;
    connection->shorter_unread = NULL;
    if (http->shortest_unread)
        http->shortest_unread->shorter_unread = connection;
    else
        http->longest_unread = connection;
    http->shortest_unread = connection;
    connection->unread_memory = connection->out_length + connection->out_body_length;
    http->unread_memory += connection->unread_memory;
    connection->is_unread = true;
}

void harpe_http_unread_forget(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    if (!connection->is_unread) return;
    if (connection->longer_unread)
        connection->longer_unread->shorter_unread = connection->shorter_unread;
    else
        http->longest_unread = connection->shorter_unread;
    if (connection->shorter_unread)
        connection->shorter_unread->longer_unread = connection->longer_unread;
    else
        http->shortest_unread = connection->longer_unread;
    http->unread_memory -= connection->unread_memory;
    connection->is_unread = false;
}

/* Notes that a write did not send all of the answer. `has_progressed`: the socket took some of it.
 * May close other connections to get memory. Returns false if this connection must be closed. */
static bool note_unread(harpe_http_connection *connection, bool has_progressed) {
    harpe_http *http = connection->http;
    if (has_progressed) harpe_http_unread_forget(connection);
    if (!connection->is_unread) append(connection);
    while (http->unread_memory > http->options.max_unread_bytes &&
           http->longest_unread != http->shortest_unread) {
        http->counts.evicted++;
        if (http->longest_unread == connection) return false;
        harpe_http_connection_close(http->longest_unread);
    }
    return true;
}

/* ---- Answers --------------------------------------------------------------------------------- */

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

/* ---- Exchanges ------------------------------------------------------------------------------- */

/* Moves bytes over connections: it reads a request, gives it to the handler, sends the answer, and
 * starts again. A connection proceeds until it would have to wait. Only this file reads and writes
 * client sockets. Each connection handles one request at a time. Further requests of its client
 * wait in the socket. */

enum {
    READS_PER_TURN = 16, /* reads of one connection before the other connections are served */
    LEAST_READ = 4096,
    BULK_BYTES = HARPE_HTTP_READ_SIZE, /* bytes of a large body or answer that one step moves */
};

static const char TOO_MUCH[] = "more is being sent than the server can take: try again later";

typedef enum step {
    STEP_ON,    /* do the next step at once */
    STEP_WAIT,  /* wait for the socket, the handler or a turn */
    STEP_CLOSE, /* close the connection */
} step;

/* ---- The socket ------------------------------------------------------------------------------ */

/* Receives bytes of a client that may send descriptors with them. Looks at them first, and receives
 * no byte that it has not seen: `*size` may become smaller. Fails if there are descriptors. */
static ssize_t receive_without_files(int fd, char *buffer, size_t *size) {
    bool has_files = false;
    ssize_t seen = harpe_http_look(fd, &has_files);
    if (has_files) {
        errno = EPROTO;
        return -1;
    }
    if (seen <= 0) return seen;
    if ((size_t)seen < *size) *size = (size_t)seen;
    return recv(fd, buffer, *size, 0);
}

static ssize_t receive_bytes(const harpe_http_connection *connection, char *buffer, size_t *size) {
    const harpe_http *http = connection->http;
    if (connection->tls) return harpe_http_tls_receive(connection->tls, buffer, *size);
    if (http->options.drop && harpe_http_is_unix(http))
        return receive_without_files(connection->fd, buffer, size);
    return recv(connection->fd, buffer, *size, 0);
}

/* Receives at most `size` bytes and updates the socket's state from the result. */
static ssize_t read_socket(harpe_http_connection *connection, char *buffer, size_t size) {
    ssize_t got = receive_bytes(connection, buffer, &size);
    if (got == 0) connection->peer_closed = true;
    if (got < 0 && errno != EAGAIN && errno != EINTR) connection->is_broken = true;
    /* After a short read the socket is empty, but TLS may still hold decrypted bytes. After the
     * peer has ended, epoll reports no further event, so the code reads until it finds the end. */
    bool is_empty = got < 0 ? errno == EAGAIN
                            : !connection->tls && !connection->peer_closed && (size_t)got < size;
    if (got == 0 || is_empty) connection->is_readable = false;
    return got;
}

/* Returns the step after a read that received no bytes. `got` is the result of the read. */
static step after_no_bytes(const harpe_http_connection *connection, ssize_t got) {
    return got == 0 || connection->is_broken ? STEP_CLOSE : STEP_WAIT;
}

static size_t at_most(size_t length, size_t limit) { return length < limit ? length : limit; }

/* Writes at most BULK_BYTES of the head and at most BULK_BYTES of the body. */
static ssize_t write_socket(harpe_http_connection *connection) {
    size_t sent = connection->out_sent, head_length = connection->out_length;
    size_t head_left = sent < head_length ? head_length - sent : 0;
    size_t body_sent = sent > head_length ? sent - head_length : 0;
    size_t body_left = connection->out_body_length - body_sent;
    struct iovec parts[2] = {{NULL, 0}};
    int count = 0;
    if (head_left > 0)
        parts[count++] = (struct iovec){connection->out + sent, at_most(head_left, BULK_BYTES)};
    if (body_left > 0 && head_left <= BULK_BYTES)
        parts[count++] =
            (struct iovec){connection->out_body + body_sent, at_most(body_left, BULK_BYTES)};
    if (connection->tls)
        return harpe_http_tls_send(connection->tls, parts[0].iov_base, parts[0].iov_len);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    return sendmsg(connection->fd, &message, MSG_NOSIGNAL);
}

/* ---- Who asks -------------------------------------------------------------------------------- */

static bool is_same_secret(const char *given, const char *expected) {
    size_t given_length = strlen(given), length = strlen(expected);
    unsigned difference = given_length != length;
    for (size_t i = 0; i < length; i++) {
        char c = i < given_length ? given[i] : '\0';
        difference |= (unsigned)(unsigned char)(c ^ expected[i]);
    }
    return difference == 0;
}

/* Returns true if the client has a token or needs none. */
static bool may_enter(const harpe_http *http, harpe_http_request *request) {
    const harpe_http_handler *handler = &http->handler;
    const char *given = harpe_http_bearer(request);
    if (!http->token && !handler->knows_token) return true;
    if (!given) return false;
    request->has_own_token = http->token && is_same_secret(given, http->token);
    return request->has_own_token ||
           (handler->knows_token && handler->knows_token(handler->user, given));
}

/* Returns 0 if the request may be made, otherwise the status to refuse it with. */
static int check_client(const harpe_http *http, harpe_http_request *request, const char **why) {
    const harpe_http_handler *handler = &http->handler;
    const char *method = request->head.method, *path = request->head.target;
    bool is_of_other = request->connection->is_of_other;
    request->is_trusted = !is_of_other && may_enter(http, request);
    if (request->is_trusted) return 0;
    if (is_of_other) {
        *why = http->own_user_only;
        bool is_open =
            handler->is_for_others && handler->is_for_others(handler->user, method, path);
        return is_open ? 0 : 403;
    }
    *why = "a valid bearer token is needed";
    bool is_open = handler->needs_token && !handler->needs_token(handler->user, method, path);
    return is_open ? 0 : 401;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Returns true if a connection is left for this request. Held requests never take reserved
 * connections, so requests that only read always get one. */
static bool has_place(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    const harpe_http_handler *handler = &http->handler;
    const harpe_http_head *head = &connection->request->head;
    int held = http->states[HARPE_HTTP_WORKING].count + http->states[HARPE_HTTP_WAITING].count;
    if (held < http->options.max_connections) return true;
    if (handler->only_looks && handler->only_looks(handler->user, head->method, head->target))
        return true;
    return harpe_http_evict_waiting(http);
}

static void hand_over(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    connection->gives_way = connection->is_whole = connection->is_chunked = false;
    if (!has_place(connection)) {
        http->counts.refused++;
        harpe_http_refuse(connection, 503, "too many requests are held: try again later");
        return;
    }
    connection->request->arrived_ns = harpe_clock_ns();
    if (!connection->is_newcomer && connection->request->body_length <= BULK_BYTES)
        http->last_small_ns = connection->request->arrived_ns;
    http->counts.requests++;
    http->handler.request(http->handler.user, connection->request);
    bool is_kept = connection->request && !connection->is_stream;
    if (is_kept)
        harpe_http_enter(connection,
                         connection->gives_way ? HARPE_HTTP_WAITING : HARPE_HTTP_WORKING);
}

/* Sends "100 Continue". If the socket does not take these 25 bytes, the client waits for a while
 * and then sends its body. */
static void send_continue(harpe_http_connection *connection) {
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    ssize_t sent = connection->tls != NULL
                       ? harpe_http_tls_send(connection->tls, text, sizeof text - 1)
                       : send(connection->fd, text, sizeof text - 1, MSG_NOSIGNAL);
    if (sent >= 0 && (size_t)sent < sizeof text - 1) connection->is_broken = true;
}

/* Begins a request whose head is complete. If possible, refuses the request before its body comes.
 */
static void begin_request(harpe_http_connection *connection, const char *head, size_t length,
                          bool has_more) {
    harpe_http *http = connection->http;
    const char *why;
    int status = harpe_http_request_new(connection, head, length, &connection->request, &why);
    if (status != 0) {
        harpe_http_refuse(connection, status, why);
        return;
    }
    harpe_http_request *request = connection->request;
    connection->keep_alive = request->head.keep_alive && !connection->is_of_other;
    status = check_client(http, request, &why);
    if (status != 0) {
        harpe_http_refuse(connection, status, why);
        return;
    }
    request->body_limit = http->options.max_body_bytes;
    if (http->handler.body_limit)
        request->body_limit = http->handler.body_limit(http->handler.user, request);
    if (request->head.content_length > request->body_limit) {
        harpe_http_refuse(connection, 413, "the body is too large");
        return;
    }
    bool has_body = request->head.is_chunked || request->head.content_length > 0;
    if (!has_body)
        hand_over(connection);
    else if (request->head.expects_continue && !has_more && !request->head.is_http_1_0)
        send_continue(connection);
}

static size_t body_memory_of(const harpe_http_connection *connection) {
    return connection->request ? connection->request->body_memory : 0;
}

/* Makes room for `length` bytes under the limit of all bodies together. For this it refuses the
 * requests that have been arriving for the longest time, but only if this frees enough memory. It
 * does not touch requests that are being answered, or requests that hold no body memory. */
static bool make_room_for_body(harpe_http_connection *connection, size_t length) {
    harpe_http *http = connection->http;
    size_t needed = http->body_memory + length, limit = http->options.max_all_bodies_bytes;
    size_t free_soon = 0;
    harpe_http_connection *last = http->states[HARPE_HTTP_RECEIVING].oldest;
    for (; needed > limit + free_soon && last != connection; last = last->next)
        free_soon += body_memory_of(last);
    if (needed > limit + free_soon) return false;

    harpe_http_connection *next = http->states[HARPE_HTTP_RECEIVING].oldest;
    for (harpe_http_connection *older; (older = next) != last;) {
        next = older->next;
        if (body_memory_of(older) == 0) continue;
        http->counts.evicted++;
        harpe_http_refuse(older, 503, TOO_MUCH);
    }
    return true;
}

static void append_body(harpe_http_connection *connection, const char *bytes, size_t length) {
    harpe_http_request *request = connection->request;
    if (length > request->body_limit - request->body_length)
        harpe_http_refuse(connection, 413, "the body is too large");
    else if (!make_room_for_body(connection, length))
        harpe_http_refuse(connection, 503, TOO_MUCH);
    else if (!harpe_http_request_append(request, bytes, length))
        harpe_http_refuse(connection, 503, "out of memory");
}

static void take_chunks(harpe_http_connection *connection, const char **bytes, size_t *length) {
    while (connection->state == HARPE_HTTP_RECEIVING) {
        const char *data;
        size_t data_length;
        switch (harpe_http_chunks_take(&connection->request->chunks, bytes, length, &data,
                                       &data_length)) {
        case HARPE_HTTP_CHUNK_DATA: append_body(connection, data, data_length); break;
        case HARPE_HTTP_CHUNK_MORE: return;
        case HARPE_HTTP_CHUNK_END: hand_over(connection); break;
        case HARPE_HTTP_CHUNK_INVALID:
            harpe_http_refuse(connection, 400, "the chunked body is malformed");
            break;
        }
    }
}

static void take_body(harpe_http_connection *connection, const char **bytes, size_t *length) {
    harpe_http_request *request = connection->request;
    if (request->head.is_chunked) {
        take_chunks(connection, bytes, length);
        return;
    }
    uint64_t missing = request->head.content_length - request->body_length;
    size_t taken = missing < *length ? (size_t)missing : *length;
    append_body(connection, *bytes, taken);
    *bytes += taken;
    *length -= taken;
    if (connection->state == HARPE_HTTP_RECEIVING && taken == missing) hand_over(connection);
}

/* Takes a head if it is complete. Refuses it if it is too long. */
static void take_head(harpe_http_connection *connection, const char **bytes, size_t *length) {
    while (*length >= 2 && memcmp(*bytes, "\r\n", 2) == 0) {
        *bytes += 2; /* RFC 9112 2.2: empty lines before a request are skipped */
        *length -= 2;
        connection->scanned = 0;
    }
    if (*length == 0) return;
    if (connection->state == HARPE_HTTP_IDLE) harpe_http_enter(connection, HARPE_HTTP_RECEIVING);
    unsigned char first = (unsigned char)((*bytes)[0] | 0x20);
    if ((first < 'a' || first > 'z') && (*bytes)[0] != '\r') {
        harpe_http_refuse(connection, 400, "this is not HTTP");
        return;
    }
    size_t limit = connection->http->options.max_header_bytes;
    size_t head_length = harpe_http_head_length(*bytes, *length, connection->scanned);
    if (head_length > limit || (head_length == 0 && *length >= limit)) {
        harpe_http_refuse(connection, 431, "the request's head is too large");
        return;
    }
    connection->scanned = head_length > 0 ? 0 : *length;
    if (head_length == 0) return;
    const char *head = *bytes;
    *bytes += head_length;
    *length -= head_length;
    begin_request(connection, head, head_length, *length > 0);
}

/* Uses as many of the bytes as possible. Stops when a request is complete. */
static void take(harpe_http_connection *connection, const char **bytes, size_t *length) {
    if (!connection->request) take_head(connection, bytes, length);
    /* begin_request has already handed over a request without a body. */
    if (connection->state == HARPE_HTTP_RECEIVING && connection->request && *length > 0)
        take_body(connection, bytes, length);
}

/* Keeps `length` bytes at `bytes` for later. `bytes` may point into `connection->in`. */
static bool keep(harpe_http_connection *connection, const char *bytes, size_t length) {
    if (bytes == connection->in && length == connection->in_length) return true;
    if (length == 0 || connection->lingers) { /* data after a refused request is not read */
        free(connection->in);
        connection->in = NULL;
        connection->in_length = connection->in_capacity = 0;
        return true;
    }
    if (connection->in && bytes >= connection->in &&
        bytes <= connection->in + connection->in_length) {
        memmove(connection->in, bytes, length);
    } else {
        if (!HARPE_ARRAY_RESERVE(connection->in, connection->in_capacity, length)) return false;
        memcpy(connection->in, bytes, length);
    }
    connection->in_length = length;
    return true;
}

/* Receives a part of a body of known length directly into the body's memory. The memory of a large
 * body grows with the received bytes, so a client that sends little gets little memory. */
static step receive_body(harpe_http_connection *connection) {
    harpe_http_request *request = connection->request;
    size_t missing = (size_t)request->head.content_length - request->body_length;
    size_t like_before = request->body_length > LEAST_READ ? request->body_length : LEAST_READ;
    size_t size = at_most(missing, at_most(like_before, BULK_BYTES));
    bool has_room = make_room_for_body(connection, size);
    char *room = has_room ? harpe_http_request_room(request, size) : NULL;
    if (!room) {
        harpe_http_refuse(connection, 503, has_room ? "out of memory" : TOO_MUCH);
        return STEP_ON;
    }
    ssize_t got = read_socket(connection, room, size);
    if (got <= 0) return after_no_bytes(connection, got);
    harpe_http_request_grow(request, (size_t)got);
    if (request->body_length == request->head.content_length) hand_over(connection);
    return STEP_ON;
}

/* Returns true if the next bytes from the socket belong to a body of known length. */
static bool lacks_only_body(const harpe_http_connection *connection) {
    return connection->state == HARPE_HTTP_RECEIVING && connection->request &&
           !connection->request->head.is_chunked && connection->in_length == 0;
}

static step receive(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    const char *bytes = connection->in;
    size_t length = connection->in_length;
    if (length == 0 || connection->lacks_bytes) {
        if (!connection->is_readable) return connection->peer_closed ? STEP_CLOSE : STEP_WAIT;
        if (lacks_only_body(connection)) return receive_body(connection);
        ssize_t got = read_socket(connection, http->read_buffer, sizeof http->read_buffer);
        if (got <= 0) return after_no_bytes(connection, got);
        bytes = http->read_buffer;
        length = (size_t)got;
        if (connection->in_length > 0) {
            size_t whole = connection->in_length + length;
            if (!HARPE_ARRAY_RESERVE(connection->in, connection->in_capacity, whole))
                return STEP_CLOSE;
            memcpy(connection->in + connection->in_length, bytes, length);
            connection->in_length = whole;
            bytes = connection->in;
            length = whole;
        }
    }
    take(connection, &bytes, &length);
    connection->lacks_bytes = connection->state == HARPE_HTTP_RECEIVING;
    return keep(connection, bytes, length) ? STEP_ON : STEP_CLOSE;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Tells the handler that a piece was sent. The handler may give the next piece at once. */
static step after_piece(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    harpe_http_enter(connection, HARPE_HTTP_STREAMING);
    http->handler.sent(http->handler.user, connection->request->data, true);
    return STEP_ON;
}

static step after_answer(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    harpe_http_unread_forget(connection);
    connection->is_newcomer = false;
    void *data = connection->sent_data;
    free(connection->out);
    free(connection->out_body);
    connection->out = connection->out_body = NULL;
    connection->out_length = connection->out_body_length = connection->out_sent = 0;
    connection->sent_data = NULL;
    if (connection->is_stream) return after_piece(connection);
    if (connection->keep_alive)
        harpe_http_enter(connection, HARPE_HTTP_IDLE);
    else
        harpe_http_enter(connection, HARPE_HTTP_LINGERING);
    if (data && http->handler.sent) http->handler.sent(http->handler.user, data, true);
    if (connection->keep_alive) return STEP_ON;

    if (connection->tls) harpe_http_tls_end(connection->tls);
    if (!connection->lingers) return STEP_CLOSE;
    shutdown(connection->fd, SHUT_WR);
    return STEP_ON;
}

static size_t unsent(const harpe_http_connection *connection) {
    return connection->out_length + connection->out_body_length - connection->out_sent;
}

static step send_answer(harpe_http_connection *connection) {
    ssize_t sent = unsent(connection) > 0 ? write_socket(connection) : 0;
    if (sent < 0 && errno == EINTR) return STEP_ON;
    if (sent < 0 && errno != EAGAIN) return STEP_CLOSE;
    if (sent > 0) connection->out_sent += (size_t)sent;
    if (unsent(connection) == 0) return after_answer(connection);
    if (!note_unread(connection, sent > 0)) return STEP_CLOSE;
    return sent > 0 ? STEP_ON : STEP_WAIT;
}

/* Reads and drops the data that the client still sends. If a socket with unread bytes were closed,
 * the kernel would reset the connection before the client reads the answer. */
static step linger(harpe_http_connection *connection) {
    if (!connection->is_readable) return connection->peer_closed ? STEP_CLOSE : STEP_WAIT;
    harpe_http *http = connection->http;
    ssize_t got = read_socket(connection, http->read_buffer, sizeof http->read_buffer);
    return got > 0 ? STEP_ON : after_no_bytes(connection, got);
}

/* ---- One turn -------------------------------------------------------------------------------- */

static step shake_hands(harpe_http_connection *connection) {
    if (harpe_http_tls_handshake(connection->tls) != 0)
        return errno == EAGAIN && !connection->peer_closed ? STEP_WAIT : STEP_CLOSE;
    harpe_http_enter(connection, HARPE_HTTP_IDLE);
    return STEP_ON;
}

static step next_step(harpe_http_connection *connection) {
    if (connection->is_broken) return STEP_CLOSE;
    switch (connection->state) {
    case HARPE_HTTP_HANDSHAKING: return shake_hands(connection);
    case HARPE_HTTP_IDLE:
    case HARPE_HTTP_RECEIVING: return receive(connection);
    case HARPE_HTTP_WORKING:
    case HARPE_HTTP_WAITING:
    case HARPE_HTTP_STREAMING:
        return connection->peer_closed && !connection->is_whole ? STEP_CLOSE : STEP_WAIT;
    case HARPE_HTTP_SENDING: return send_answer(connection);
    case HARPE_HTTP_LINGERING: return linger(connection);
    default: return STEP_WAIT;
    }
}

bool harpe_http_moves_bulk(const harpe_http_connection *connection) {
    const harpe_http_request *request = connection->request;
    if (connection->state == HARPE_HTTP_LINGERING) return true;
    if (connection->state == HARPE_HTTP_SENDING) return unsent(connection) > BULK_BYTES;
    if (connection->state != HARPE_HTTP_RECEIVING || !request) return false;
    return request->head.is_chunked ||
           request->head.content_length - request->body_length > BULK_BYTES;
}

void harpe_http_proceed(harpe_http_connection *connection) {
    connection->is_proceeding = true;
    step result = next_step(connection);
    for (int i = 1; i < 2 * READS_PER_TURN && result == STEP_ON; i++) {
        if (harpe_http_moves_bulk(connection)) break;
        result = next_step(connection);
    }
    connection->is_proceeding = false;
    if (result == STEP_CLOSE)
        harpe_http_connection_close(connection);
    else if (result == STEP_ON)
        harpe_http_enqueue(connection);
}
