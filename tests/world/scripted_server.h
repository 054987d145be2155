/* SPDX-License-Identifier: Apache-2.0 */
/* A server of a world whose answers a test makes. Each connection has a thread, but the test may
 * change what it likes, because threads of a world give way only where they wait. */
#ifndef HARPE_TESTS_WORLD_SCRIPTED_SERVER_H
#define HARPE_TESTS_WORLD_SCRIPTED_SERVER_H

#include "world/in_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process.h"

enum { SCRIPTED_PEERS = 16, SCRIPTED_SIZE = 16384 };

typedef struct scripted_server {
    const char *name; /* a URL, or the path of a Unix socket */
    /* Answers a request, which ends in NUL. Returns false to close the connection. */
    bool (*answer)(void *user, int peer, const char *request, const char *body);
    void *user;
    struct scripted_peer {
        struct scripted_server *server; /* NULL: its thread is not started yet */
        int socket;                     /* 0: there is no connection */
    } peers[SCRIPTED_PEERS];
    pthread_t acceptor;
    bool is_gone;
    _Atomic uint32_t news;
} scripted_server;

/* Returns false if the peer has closed the connection. */
static inline bool send_bytes(int peer, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(peer, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd wait = {.fd = peer, .events = POLLOUT};
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent < 0) (void)harpe_poll(&wait, 1, -1);
        bytes += sent > 0 ? sent : 0;
        length -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

/* `status` is such as "200 OK". `headers` are whole lines. */
static inline bool send_answer(int peer, const char *status, const char *headers,
                               const char *body) {
    char text[2048];
    int length = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%s\r\n%s",
                          status, strlen(body), headers, body);
    return send_bytes(peer, text, (size_t)length);
}

/* Returns the body of a whole request, or NULL. */
static inline const char *whole_body(const char *request) {
    const char *end = strstr(request, "\r\n\r\n");
    const char *size = strcasestr(request, "content-length:");
    if (!end || !size || size > end) return end ? end + 4 : NULL;
    return strlen(end + 4) >= strtoul(size + 15, NULL, 10) ? end + 4 : NULL;
}

static inline void *serve_scripted_peer(void *user) {
    struct scripted_peer *self = user;
    char request[SCRIPTED_SIZE];
    size_t length = 0;
    for (bool goes_on = true; goes_on;) {
        struct pollfd wait = {.fd = self->socket, .events = POLLIN};
        (void)harpe_poll(&wait, 1, -1);
        ssize_t got = recv(self->socket, request + length, sizeof request - 1 - length, 0);
        if (got <= 0) break;
        length += (size_t)got;
        request[length] = '\0';
        const char *body = whole_body(request);
        if (!body) continue;
        goes_on = self->server->answer(self->server->user, self->socket, request, body);
        length = 0;
    }
    (void)close(self->socket);
    *self = (struct scripted_peer){0};
    return NULL;
}

static inline void tell_acceptor(scripted_server *one) {
    atomic_fetch_add(&one->news, 1);
    harpe_wake(&one->news);
}

/* Runs in the process of the client. */
static inline bool accept_scripted(void *user, int socket) {
    scripted_server *one = user;
    size_t place = 0;
    while (one->peers[place].socket > 0)
        assert_true(++place < SCRIPTED_PEERS);
    one->peers[place].socket = socket;
    tell_acceptor(one);
    return true;
}

static inline void *start_peers(void *user) {
    scripted_server *one = user;
    while (!one->is_gone) {
        uint32_t seen = atomic_load(&one->news);
        for (struct scripted_peer *peer = one->peers; peer < one->peers + SCRIPTED_PEERS; peer++) {
            if (peer->socket == 0 || peer->server) continue;
            peer->server = one;
            (void)start_thread(serve_scripted_peer, peer);
        }
        (void)harpe_wait_while(&one->news, seen, -1);
    }
    return NULL;
}

static inline void start_scripted(scripted_server *one) {
    one->acceptor = start_thread(start_peers, one);
    assert_true(harpe_transport_serve(one->name, harpe_process_self(), accept_scripted, one));
}

/* Nobody listens any more, and all connections end. */
static inline void stop_scripted(scripted_server *one) {
    harpe_transport_unserve(one->name);
    one->is_gone = true;
    tell_acceptor(one);
    harpe_thread_join(one->acceptor);
    for (struct scripted_peer *peer = one->peers; peer < one->peers + SCRIPTED_PEERS; peer++) {
        if (peer->socket > 0) (void)shutdown(peer->socket, SHUT_RDWR);
        if (peer->server) WAIT_FOR(peer->socket == 0);
    }
}

#endif
