/* SPDX-License-Identifier: Apache-2.0 */
/* The same handler as in harpe_server.c, on libmicrohttpd. By default it runs in the main thread,
 * which waits on the library's epoll descriptor, as Harpe's loop would. With internal=1 it runs in
 * the library's own thread. With watch=1 the handler watches the sockets of held requests in an
 * epoll set of its own, because the library does not watch the socket of a suspended connection. */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "options.h"

typedef struct request {
    struct request *previous, *next; /* in the ring of held requests */
    struct MHD_Connection *connection;
    char *body;
    size_t length, capacity;
    enum { RECEIVING, HELD, RELEASED } state;
} request;

typedef struct server {
    bench_options options;
    struct MHD_Daemon *daemon;
    request list; /* a ring */
    int count, gone, watch_fd;
} server;

/* ---- Answers --------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, void *body,
                              size_t length, enum MHD_ResponseMemoryMode mode) {
    struct MHD_Response *response = MHD_create_response_from_buffer(length, body, mode);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/plain");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, const char *text) {
    char copy[64];
    size_t length = (size_t)snprintf(copy, sizeof copy, "%s", text);
    return answer(connection, MHD_HTTP_OK, copy, length, MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result large(struct MHD_Connection *connection) {
    char *body = malloc(LARGE_BYTES);
    memset(body, 'L', LARGE_BYTES);
    return answer(connection, MHD_HTTP_OK, body, LARGE_BYTES, MHD_RESPMEM_MUST_FREE);
}

/* ---- Holding --------------------------------------------------------------------------------- */

static int socket_of(request *r) {
    return MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

static enum MHD_Result hold(server *s, request *r) {
    r->previous = s->list.previous;
    r->next = &s->list;
    r->previous->next = r->next->previous = r;
    r->state = HELD;
    s->count++;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = r};
    if (s->options.watch) epoll_ctl(s->watch_fd, EPOLL_CTL_ADD, socket_of(r), &event);
    MHD_suspend_connection(r->connection);
    return MHD_YES;
}

static void let_go(server *s, request *r) {
    r->previous->next = r->next;
    r->next->previous = r->previous;
    r->state = RELEASED;
    s->count--;
    if (s->options.watch) epoll_ctl(s->watch_fd, EPOLL_CTL_DEL, socket_of(r), NULL);
    MHD_resume_connection(r->connection);
}

static void release(server *s) {
    while (s->list.next != &s->list)
        let_go(s, s->list.next);
}

/* Resumes the held requests whose clients have closed their connections. The library notices the
 * end of a connection only after its request is resumed. */
static void take_gone(server *s) {
    struct epoll_event events[64];
    int count = epoll_wait(s->watch_fd, events, 64, 0);
    for (int i = 0; i < count; i++) {
        s->gone++;
        let_go(s, events[i].data.ptr);
    }
}

static enum MHD_Result refuse_hold(struct MHD_Connection *connection) {
    static char text[] = "too many requests are held";
    return answer(connection, MHD_HTTP_SERVICE_UNAVAILABLE, text, sizeof text - 1,
                  MHD_RESPMEM_PERSISTENT);
}

/* ---- Handler --------------------------------------------------------------------------------- */

static enum MHD_Result dispatch(server *s, request *r, const char *path) {
    char text[64];
    if (strcmp(path, "/hold") == 0)
        return s->count < s->options.connections ? hold(s, r) : refuse_hold(r->connection);
    if (strcmp(path, "/release") == 0) {
        release(s);
        return answer_text(r->connection, "done");
    }
    if (strcmp(path, "/echo") == 0) {
        char *body = r->body;
        r->body = NULL;
        return answer(r->connection, MHD_HTTP_OK, body, r->length, MHD_RESPMEM_MUST_FREE);
    }
    if (strcmp(path, "/large") == 0) return large(r->connection);
    if (strcmp(path, "/length") == 0)
        snprintf(text, sizeof text, "%zu", r->length);
    else if (strcmp(path, "/counts") == 0)
        snprintf(text, sizeof text, "held %d gone %d", s->count, s->gone);
    else
        snprintf(text, sizeof text, "hello");
    return answer_text(r->connection, text);
}

static enum MHD_Result refuse_body(struct MHD_Connection *connection) {
    static char text[] = "the body is too large";
    return answer(connection, MHD_HTTP_CONTENT_TOO_LARGE, text, sizeof text - 1,
                  MHD_RESPMEM_PERSISTENT);
}

/* Called when the head is here and no body yet, so that the body may be refused. */
static enum MHD_Result begin(server *s, struct MHD_Connection *connection, void **own) {
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (length && strtoull(length, NULL, 10) > s->options.body_bytes)
        return refuse_body(connection);
    request *r = calloc(1, sizeof *r);
    if (!r) return MHD_NO;
    r->connection = connection;
    *own = r;
    return MHD_YES;
}

static enum MHD_Result append(server *s, request *r, const char *bytes, size_t *length) {
    size_t whole = r->length + *length;
    if (whole > s->options.body_bytes) return MHD_NO;
    if (whole > r->capacity) {
        size_t capacity = whole > 2 * r->capacity ? whole : 2 * r->capacity;
        char *body = realloc(r->body, capacity);
        if (!body) return MHD_NO;
        r->body = body;
        r->capacity = capacity;
    }
    memcpy(r->body + r->length, bytes, *length);
    r->length = whole;
    *length = 0;
    return MHD_YES;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *length, void **own) {
    server *s = user;
    request *r = *own;
    (void)method;
    (void)version;
    if (!r) return begin(s, connection, own);
    if (*length > 0) return append(s, r, bytes, length);
    if (r->state == RELEASED) return answer_text(connection, "released");
    return dispatch(s, r, path);
}

static void on_completed(void *user, struct MHD_Connection *connection, void **own,
                         enum MHD_RequestTerminationCode code) {
    (void)user;
    (void)connection;
    (void)code;
    request *r = *own;
    if (!r) return;
    free(r->body);
    free(r);
    *own = NULL;
}

/* ---- Running --------------------------------------------------------------------------------- */

static struct MHD_Daemon *start(server *s) {
    static char priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    const bench_options *o = &s->options;
    unsigned flags = (unsigned)MHD_USE_EPOLL | (unsigned)MHD_ALLOW_SUSPEND_RESUME;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (o->internal) flags |= MHD_USE_INTERNAL_POLLING_THREAD;
    if (o->turbo) flags |= MHD_USE_TURBO;
    if (o->cert_pem) flags |= MHD_USE_TLS;
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, o->cert_pem},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, o->key_pem},
                                   {MHD_OPTION_HTTPS_PRIORITIES, 0, priorities},
                                   {MHD_OPTION_END, 0, NULL}};
    if (!o->cert_pem) tls[0] = tls[3];
    /* One number is both the deadline between two bytes and the time between two requests. */
    return MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)o->pool_bytes, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)(o->connections + RESERVED_CONNECTIONS),
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)o->request_s,
                            MHD_OPTION_LISTEN_BACKLOG_SIZE, 65535U, MHD_OPTION_SOCK_ADDR, &address,
                            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
                            on_completed, s, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

static void run(server *s) {
    int outer = epoll_create1(EPOLL_CLOEXEC);
    int inner = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    struct epoll_event library = {.events = EPOLLIN, .data.fd = inner};
    struct epoll_event watch = {.events = EPOLLIN, .data.fd = s->watch_fd};
    epoll_ctl(outer, EPOLL_CTL_ADD, inner, &library);
    epoll_ctl(outer, EPOLL_CTL_ADD, s->watch_fd, &watch);
    while (1) {
        struct epoll_event events[2];
        MHD_UNSIGNED_LONG_LONG wait_ms;
        int timeout_ms = -1;
        if (MHD_get_timeout(s->daemon, &wait_ms) == MHD_YES)
            timeout_ms = wait_ms > 1000 ? 1000 : (int)wait_ms;
        int count = epoll_wait(outer, events, 2, timeout_ms);
        for (int i = 0; i < count; i++)
            if (events[i].data.fd == s->watch_fd) take_gone(s);
        MHD_run(s->daemon);
    }
}

int main(int argc, char **argv) {
    server s = {.options = bench_options_read(argc, argv), .list = {.previous = &s.list}};
    s.list.next = &s.list;
    s.watch_fd = epoll_create1(EPOLL_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    s.daemon = start(&s);
    if (!s.daemon) {
        fprintf(stderr, "libmicrohttpd does not start with these options\n");
        return 1;
    }
    bench_say_port(MHD_get_daemon_info(s.daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    if (s.options.internal)
        while (1)
            pause();
    run(&s);
}
