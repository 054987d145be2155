/* SPDX-License-Identifier: Apache-2.0 */
/* The connections: from an accepted socket to its end, the lists of their states, and the queue of
 * those that go on before the next wait. What is exchanged over them is http_exchange.c's. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/http_parts.h"

/* ---- Lists -------------------------------------------------------------------------------- */

static void leave(harpe_http_connection *connection) {
    if (connection->state >= HARPE_HTTP_STATE_COUNT) return;
    harpe_http_list *list = &connection->http->states[connection->state];
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        list->oldest = connection->next;
    if (connection->next != NULL)
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
    if (list->newest != NULL)
        list->newest->next = connection;
    else
        list->oldest = connection;
    list->newest = connection;
    list->count++;
}

void harpe_http_queue(harpe_http_connection *connection) {
    if (connection->is_queued || connection->is_proceeding) return;
    harpe_http *http = connection->http;
    connection->is_queued = true;
    connection->next_queued = NULL;
    if (http->last_queued != NULL)
        http->last_queued->next_queued = connection;
    else
        http->first_queued = connection;
    http->last_queued = connection;
}

int64_t harpe_http_run_queue(void *user) {
    harpe_http *http = user;
    harpe_http_connection *connection = http->first_queued;
    http->first_queued = http->last_queued = NULL;
    while (connection != NULL) {
        harpe_http_connection *next = connection->next_queued;
        connection->is_queued = false;
        if (connection->state == HARPE_HTTP_CLOSED)
            free(connection);
        else
            harpe_http_proceed(connection);
        connection = next;
    }
    return http->first_queued != NULL ? 0 : -1;
}

/* ---- Beginning and end -------------------------------------------------------------------- */

static void ready(void *user, uint32_t events) {
    harpe_http_connection *connection = user;
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) connection->is_broken = true;
    if ((events & EPOLLRDHUP) != 0) connection->peer_closed = true;
    if ((events & (EPOLLIN | EPOLLRDHUP)) != 0) connection->is_readable = true;
    harpe_http_proceed(connection);
}

bool harpe_http_connection_open(harpe_http *http, int fd, bool is_of_other) {
    harpe_http_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        close(fd);
        return false;
    }
    connection->http = http;
    connection->fd = fd;
    connection->state = HARPE_HTTP_CLOSED;
    if (http->tls != NULL) connection->tls = harpe_http_tls_session_new(http->tls, fd);
    /* Edge-triggered and once for its whole life: no request costs a call of epoll_ctl. */
    bool is_watched = (http->tls == NULL) == (connection->tls == NULL) &&
                      harpe_loop_watch(http->loop, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                       ready, connection, &connection->watch, NULL) == HARPE_OK;
    if (!is_watched) {
        harpe_http_tls_session_free(connection->tls);
        free(connection);
        close(fd);
        return false;
    }
    connection->is_of_other = is_of_other;
    http->others += is_of_other;
    http->counts.connections++;
    harpe_http_enter(connection,
                     connection->tls != NULL ? HARPE_HTTP_HANDSHAKING : HARPE_HTTP_IDLE);
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

    bool is_kept =
        state == HARPE_HTTP_WORKING || state == HARPE_HTTP_WAITING || connection->is_stream;
    harpe_http_unread_forget(connection);
    if (is_kept) handler->gone(handler->user, connection->request);
    if (state == HARPE_HTTP_SENDING && !is_kept && connection->sent_data != NULL &&
        handler->sent != NULL)
        handler->sent(handler->user, connection->sent_data, false);
    if (connection->request != NULL) harpe_http_request_free(connection->request);
    harpe_watch_remove(connection->watch);
    harpe_http_tls_session_free(connection->tls);
    close(connection->fd);
    free(connection->in);
    free(connection->out);
    free(connection->out_body);
    if (!connection->is_queued) free(connection);
}

/* ---- Making room -------------------------------------------------------------------------- */

enum { STREAMS_LEFT = 4 }; /* this many give way last if connections are reserved */

static harpe_http_connection *longest_idle(harpe_http *http) {
    static const harpe_http_state may_give_way[] = {HARPE_HTTP_HANDSHAKING, HARPE_HTTP_IDLE,
                                                    HARPE_HTTP_RECEIVING, HARPE_HTTP_SENDING,
                                                    HARPE_HTTP_LINGERING};
    harpe_http_connection *longest = NULL;
    for (size_t i = 0; i < sizeof may_give_way / sizeof *may_give_way; i++) {
        harpe_http_connection *oldest = http->states[may_give_way[i]].oldest;
        if (oldest != NULL && (longest == NULL || oldest->since_ns < longest->since_ns))
            longest = oldest;
    }
    return longest;
}

static bool evict(harpe_http *http, harpe_http_connection *connection) {
    if (connection == NULL) return false;
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
    return evict(http, idle != NULL ? idle : streams->oldest);
}

void harpe_http_set_gives_way(harpe_http_request *request, bool gives_way) {
    harpe_http_connection *connection = request->connection;
    harpe_http_state state = gives_way ? HARPE_HTTP_WAITING : HARPE_HTTP_WORKING;
    bool is_kept =
        connection->state == HARPE_HTTP_WORKING || connection->state == HARPE_HTTP_WAITING;
    connection->gives_way = gives_way;
    if (is_kept && connection->state != state) harpe_http_enter(connection, state);
}
