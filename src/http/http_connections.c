/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as the handler sees them, and connections. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/process.h"
#include "http/http_internal.h"

/* ---- Requests -------------------------------------------------------------------------------- */

/* A request is one block of memory with its head, made when the head is complete, and a body that
 * grows as it arrives. No socket is read here. */

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

/* ---- Connections ----------------------------------------------------------------------------- */

/* Manages connections: it opens and closes them, keeps the lists of their states, and serves the
 * queues of connections that proceed before the loop waits again. http_exchange.c moves the bytes.
 */

/* ---- Lists ----------------------------------------------------------------------------------- */

static void leave(harpe_http_connection *connection) {
    if (connection->state >= HARPE_HTTP_STATE_COUNT) return;
    harpe_http_list *list = &connection->http->states[connection->state];
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        list->oldest = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    else
        list->newest = connection->previous;
    list->count--;
}

void harpe_http_enter(harpe_http_connection *connection, harpe_http_state state) {
    leave(connection);
    harpe_http_list *list = &connection->http->states[state];
    connection->state = state;
    connection->since_ns = harpe_clock_ns();
    connection->previous = list->newest;
    connection->next = NULL;
    if (list->newest)
        list->newest->next = connection;
    else
        list->oldest = connection;
    list->newest = connection;
    list->count++;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

/* The limits of one turn of the loop for newcomers and for connections that move bulk: calls that
 * accept connections, steps, and time. */
enum { ACCEPT_CALLS = 8, NEWCOMER_STEPS = 32, BULK_STEPS = 8 };
static const int64_t share_ns = 250000;

/* The largest percentage of the thread's time that newcomers, or connections that move bulk, get
 * while established clients send small requests. The loop sleeps for the rest of the time if it has
 * nothing else to do. Without this limit the loop would never sleep, and programs on the same
 * processor would have to wait. */
enum { NEWCOMER_PERCENT = 67, BULK_PERCENT = 25 };
static const int64_t small_lately_ns = 50000000;

static bool awaits_first_request(const harpe_http_connection *connection) {
    return connection->is_newcomer && connection->state <= HARPE_HTTP_RECEIVING;
}

static harpe_http_queue *queue_for(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    if (harpe_http_moves_bulk(connection)) return &http->bulk;
    return awaits_first_request(connection) ? &http->newcomers : &http->queue;
}

void harpe_http_enqueue(harpe_http_connection *connection) {
    if (connection->is_queued || connection->is_proceeding) return;
    harpe_http_queue *queue = queue_for(connection);
    connection->is_queued = true;
    connection->next_queued = NULL;
    if (queue->last)
        queue->last->next_queued = connection;
    else
        queue->first = connection;
    queue->last = connection;
}

static void serve_first(harpe_http_queue *queue) {
    harpe_http_connection *connection = queue->first;
    queue->first = connection->next_queued;
    if (!queue->first) queue->last = NULL;
    connection->is_queued = false;
    if (connection->state == HARPE_HTTP_CLOSED)
        free(connection);
    else
        harpe_http_proceed(connection);
}

/* Serves the connections that are in the queue now. Others may join the queue meanwhile. */
static void serve_queue(harpe_http_queue *queue) {
    harpe_http_queue now = *queue;
    *queue = (harpe_http_queue){NULL, NULL};
    while (now.first)
        serve_first(&now);
}

/* Serves a part of the queue. Returns the time at the end. */
static int64_t serve_some(harpe_http_queue *queue, int steps, int64_t now_ns) {
    int64_t end_ns = now_ns + share_ns;
    for (int i = 0; i < steps && queue->first && now_ns < end_ns; i++) {
        serve_first(queue);
        now_ns = harpe_clock_ns();
    }
    return now_ns;
}

/* Returns true if established clients have sent small requests lately. */
static bool has_others(const harpe_http *http, int64_t now_ns) {
    return now_ns - http->last_small_ns < small_lately_ns;
}

static int64_t rest_until(const harpe_http *http, int64_t begin_ns, int64_t end_ns, int percent) {
    return has_others(http, end_ns) ? begin_ns + (end_ns - begin_ns) * 100 / percent : end_ns;
}

/* Returns true if more than a quarter of the connections is in use. */
static bool is_crowded(const harpe_http *http) {
    return http->counts.connections > http->options.max_connections / 4;
}

/* Accepts many connections, and serves all newcomers that are in the queue. They are usually the
 * ranks of a job, which connect at the same moment. */
static int64_t serve_all_newcomers(harpe_http *http) {
    for (int i = 0; i < ACCEPT_CALLS && http->has_callers; i++)
        harpe_http_accept_some(http);
    serve_queue(&http->newcomers);
    return harpe_clock_ns();
}

static int64_t serve_newcomers(harpe_http *http, int64_t begin_ns) {
    if (!is_crowded(http) || !has_others(http, begin_ns)) return serve_all_newcomers(http);
    while (http->has_callers && harpe_clock_ns() - begin_ns < share_ns)
        harpe_http_accept_some(http);
    int64_t end_ns = serve_some(&http->newcomers, NEWCOMER_STEPS, harpe_clock_ns());
    http->newcomers_rest_until_ns = rest_until(http, begin_ns, end_ns, NEWCOMER_PERCENT);
    return end_ns;
}

static void serve_bulk(harpe_http *http, int64_t begin_ns) {
    int64_t end_ns = serve_some(&http->bulk, BULK_STEPS, begin_ns);
    http->bulk_rests_until_ns = rest_until(http, begin_ns, end_ns, BULK_PERCENT);
}

static bool has_newcomers(const harpe_http *http) {
    return http->has_callers || http->newcomers.first;
}

void harpe_http_run_queues(void *user) {
    harpe_http *http = user;
    serve_queue(&http->queue);
    int64_t now_ns = harpe_clock_ns();
    if (has_newcomers(http) && now_ns >= http->newcomers_rest_until_ns)
        now_ns = serve_newcomers(http, now_ns);
    if (http->bulk.first && now_ns >= http->bulk_rests_until_ns) serve_bulk(http, now_ns);
}

int64_t harpe_http_queues_wait_ns(void *user) {
    const harpe_http *http = user;
    if (http->queue.first) return 0;

    int64_t next_ns = INT64_MAX;
    if (has_newcomers(http)) next_ns = http->newcomers_rest_until_ns;
    if (http->bulk.first && http->bulk_rests_until_ns < next_ns)
        next_ns = http->bulk_rests_until_ns;
    if (next_ns == INT64_MAX) return -1;
    int64_t now_ns = harpe_clock_ns();
    return next_ns > now_ns ? next_ns - now_ns : 0;
}

static void empty_queue(harpe_http_queue *queue) {
    while (queue->first)
        serve_first(queue);
}

void harpe_http_empty_queues(harpe_http *http) {
    empty_queue(&http->queue);
    empty_queue(&http->newcomers);
    empty_queue(&http->bulk);
}

/* ---- Beginning and end ----------------------------------------------------------------------- */

static void ready(void *user, uint32_t events) {
    harpe_http_connection *connection = user;
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) connection->is_broken = true;
    if ((events & EPOLLRDHUP) != 0) connection->peer_closed = true;
    if ((events & (EPOLLIN | EPOLLRDHUP)) != 0) connection->is_readable = true;
    bool has_news = connection->is_readable || connection->is_broken || connection->peer_closed;
    if (connection->state == HARPE_HTTP_IDLE && !has_news) return;
    if (queue_for(connection) == &connection->http->queue)
        harpe_http_proceed(connection);
    else
        harpe_http_enqueue(connection);
}

bool harpe_http_connection_open(harpe_http *http, int fd, bool is_of_other) {
    harpe_http_connection *connection = calloc(1, sizeof *connection);
    if (!connection) {
        close(fd);
        return false;
    }
    connection->http = http;
    connection->fd = harpe_process_holds(fd);
    connection->state = HARPE_HTTP_CLOSED;
    connection->is_newcomer = true;
    if (http->tls) connection->tls = harpe_http_tls_session_new(http->tls, fd);
    /* The watch is edge-triggered and set once for the connection's life, so no request costs a
     * call of epoll_ctl. */
    bool is_watched = (!http->tls) == (!connection->tls) &&
                      harpe_loop_watch(http->loop, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                       ready, connection, &connection->watch, NULL) == HARPE_OK;
    if (!is_watched) {
        harpe_http_tls_session_free(connection->tls);
        free(connection);
        harpe_process_close(fd);
        return false;
    }
    connection->is_of_other = is_of_other;
    http->others += is_of_other;
    http->counts.connections++;
    harpe_http_user_joins(connection);
    harpe_http_enter(connection, connection->tls ? HARPE_HTTP_HANDSHAKING : HARPE_HTTP_IDLE);
    return true;
}

void harpe_http_connection_close(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    harpe_http_handler *handler = &http->handler;
    harpe_http_state state = connection->state;
    leave(connection);
    connection->state = HARPE_HTTP_CLOSED;
    http->counts.connections--;
    http->others -= connection->is_of_other;
    harpe_http_user_leaves(connection);

    bool is_kept =
        state == HARPE_HTTP_WORKING || state == HARPE_HTTP_WAITING || connection->is_stream;
    harpe_http_unread_forget(connection);
    if (is_kept) handler->gone(handler->user, connection->request);
    if (state == HARPE_HTTP_SENDING && !is_kept && connection->sent_data && handler->sent)
        handler->sent(handler->user, connection->sent_data, false);
    if (connection->client && handler->left)
        handler->left(handler->user, connection->client,
                      connection->peer_closed || connection->is_broken);
    if (connection->request) harpe_http_request_free(connection->request);
    harpe_watch_remove(connection->watch);
    harpe_http_tls_session_free(connection->tls);
    harpe_http_close_socket(http, connection->fd);
    free(connection->in);
    free(connection->out);
    free(connection->out_body);
    if (!connection->is_queued) free(connection);
}

/* ---- Making room ----------------------------------------------------------------------------- */

enum { STREAMS_LEFT = 4 }; /* if connections are reserved, this many streams are closed last */

static harpe_http_connection *longest_idle(harpe_http *http) {
    static const harpe_http_state may_give_way[] = {HARPE_HTTP_HANDSHAKING, HARPE_HTTP_IDLE,
                                                    HARPE_HTTP_RECEIVING, HARPE_HTTP_SENDING,
                                                    HARPE_HTTP_LINGERING};
    harpe_http_connection *longest = NULL;
    for (size_t i = 0; i < sizeof may_give_way / sizeof *may_give_way; i++) {
        harpe_http_connection *oldest = http->states[may_give_way[i]].oldest;
        if (oldest && (!longest || oldest->since_ns < longest->since_ns)) longest = oldest;
    }
    return longest;
}

static bool evict(harpe_http *http, harpe_http_connection *connection) {
    if (!connection) return false;
    http->counts.evicted++;
    harpe_http_connection_close(connection);
    return true;
}

bool harpe_http_evict_waiting(harpe_http *http) {
    return evict(http, http->states[HARPE_HTTP_WAITING].oldest);
}

bool harpe_http_evict(harpe_http *http) {
    const harpe_http_list *streams = &http->states[HARPE_HTTP_STREAMING];
    int streams_left = http->options.reserved_connections > 0 ? STREAMS_LEFT : 0;
    if (harpe_http_evict_waiting(http)) return true;
    if (streams->count > streams_left) return evict(http, streams->oldest);
    harpe_http_connection *idle = longest_idle(http);
    return evict(http, idle ? idle : streams->oldest);
}

void harpe_http_set_gives_way(harpe_http_request *request, bool gives_way) {
    harpe_http_connection *connection = request->connection;
    harpe_http_state state = gives_way ? HARPE_HTTP_WAITING : HARPE_HTTP_WORKING;
    bool is_kept =
        connection->state == HARPE_HTTP_WORKING || connection->state == HARPE_HTTP_WAITING;
    connection->gives_way = gives_way;
    if (is_kept && connection->state != state) harpe_http_enter(connection, state);
}
