/* SPDX-License-Identifier: Apache-2.0 */
/* Listens, accepts connections, limits their number, and closes connections that exceed a time
 * limit. http_connections.c and http_exchange.c handle open connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/unix_socket.h"
#include "http/http.h"
#include "http/http_internal.h"

enum {
    ACCEPTS_AT_ONCE = 16, /* connections that one call of harpe_http_accept_some accepts */
    ACCEPT_PAUSE_MS = 50, /* pause after running out of descriptors or memory */
    QUIET_MS = 10000,     /* after this time without a pause the server logs that it accepts all
                             connections again */
    LARGEST_BODIES = 16,  /* number of largest bodies for which there is memory at a time */
    LINGER_MS = 2000,     /* time for a refused client to read the reason */
    /* Bytes of each connection in the kernel's memory. The kernel's default is up to 4 MiB. */
    UNSENT_BYTES = 1 << 20,
    OTHER_FILES = 256, /* descriptors that are not connections */
    DEFAULT_CONNECTIONS = 65536,
    ENOUGH_CONNECTIONS = 4096, /* fewer than the default cause a warning only below this number */
    LATE_PER_TICK = 64,        /* most connections of a state that are closed in one tick */
    MOST_TICK_MS = 1000,
    LEAST_TICK_MS = 10,
    MOST_OTHERS = 256,      /* most open connections of other users */
    OTHERS_LINE_MS = 60000, /* between two log lines about other users */
};

static void log_line(const harpe_http *http, harpe_log_level level, const char *line) {
    if (http->options.log.write) http->options.log.write(http->options.log.user, level, line);
}

/* ---- Unix sockets ---------------------------------------------------------------------------- */

enum { DEFAULT_MODE = 0666 };

/* Listens on the Unix socket of the options and fills in the members of `http` for it. */
static harpe_status listen_unix(harpe_http *http, const char *path, mode_t mode,
                                harpe_error *error) {
    return harpe_unix_listen(path, SOCK_STREAM, mode ? mode : DEFAULT_MODE, HARPE_HTTP_BACKLOG,
                             &http->unix_listener, &http->listen_fd, error);
}

ssize_t harpe_http_look(int fd, bool *has_files) {
    char bytes[4096];
    struct iovec data = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    /* There is no room for descriptors, so the kernel reports them as cut. */
    ssize_t got = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);
    *has_files = got >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
    return got;
}

void harpe_http_close_socket(const harpe_http *http, int fd) {
    const harpe_http_options *options = &http->options;
    bool has_files = false;
    char bytes[4096];
    if (options->drop && harpe_http_is_unix(http)) {
        (void)shutdown(fd, SHUT_RD); /* from now on, nothing can be sent */
        for (ssize_t got; (got = harpe_http_look(fd, &has_files)) > 0 && !has_files;)
            (void)recv(fd, bytes, (size_t)got, MSG_DONTWAIT);
    }
    if (has_files)
        options->drop(options->drop_user, fd);
    else
        harpe_process_close(fd);
}

bool harpe_http_is_unix(const harpe_http *http) { return http->unix_listener.path[0] != '\0'; }

/* ---- Connections of each user ---------------------------------------------------------------- */

static bool user_of(int fd, uid_t *uid) {
    struct ucred peer;
    if (!harpe_process_peer(fd, &peer)) return false;
    *uid = peer.uid;
    return true;
}

/* Returns the index of the user; user_count: there is none. */
static size_t find_user(const harpe_http *http, uid_t uid) {
    size_t i = 0;
    while (i < http->user_count && http->users[i].uid != uid)
        i++;
    return i;
}

/* Returns true if the user of a new connection may have one more. */
static bool user_has_room(const harpe_http *http, int fd) {
    uid_t uid;
    if (!harpe_http_is_unix(http) || http->options.max_connections_per_user <= 0) return true;
    if (!user_of(fd, &uid)) return false;
    size_t place = find_user(http, uid);
    return uid == 0 || place == http->user_count ||
           http->users[place].connections < http->options.max_connections_per_user;
}

void harpe_http_user_joins(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    if (!harpe_http_is_unix(http) || http->options.max_connections_per_user <= 0) return;
    if (!user_of(connection->fd, &connection->uid)) return;
    size_t place = find_user(http, connection->uid);
    if (place == http->user_count) {
        if (!HARPE_ARRAY_RESERVE(http->users, http->user_capacity, http->user_count + 1)) return;
        http->users[http->user_count++] = (harpe_http_user){.uid = connection->uid};
    }
    http->users[place].connections++;
    connection->is_counted = true;
}

void harpe_http_user_leaves(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    if (!connection->is_counted) return;
    size_t place = find_user(http, connection->uid);
    connection->is_counted = false;
    if (--http->users[place].connections == 0) http->users[place] = http->users[--http->user_count];
}

/* ---- Who connected --------------------------------------------------------------------------- */

bool harpe_http_peer_of(const harpe_http_request *request, harpe_http_peer *out) {
    const harpe_http_connection *connection = request->connection;
    struct ucred peer;
    if (!harpe_http_is_unix(connection->http) || !harpe_process_peer(connection->fd, &peer))
        return false;
    *out = (harpe_http_peer){.process = peer.pid, .uid = peer.uid, .gid = peer.gid};
    return true;
}

int harpe_http_peer_pidfd(const harpe_http_request *request) {
    const harpe_http_connection *connection = request->connection;
    return harpe_http_is_unix(connection->http) ? harpe_unix_peer_pidfd(connection->fd) : -1;
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

/* Closes connections that have been in a state for longer than its time limit. Each list is in the
 * order of entry, so the late connections are at its start. Returns false if some late connections
 * may be left. */
static bool close_late(harpe_http *http, harpe_http_state state, int64_t limit_ms) {
    int64_t latest_ns = harpe_clock_ns() - limit_ms * 1000000;
    for (int i = 0; i < LATE_PER_TICK; i++) {
        harpe_http_connection *connection = http->states[state].oldest;
        if (!connection || connection->since_ns > latest_ns) return true;
        bool is_late_answer = state != HARPE_HTTP_IDLE && state != HARPE_HTTP_LINGERING;
        http->counts.timeouts += is_late_answer;
        if (state == HARPE_HTTP_RECEIVING)
            harpe_http_refuse(connection, 408, "the request took too long to arrive");
        else
            harpe_http_connection_close(connection);
    }
    return false;
}

static void arm_tick(harpe_http *http, bool has_late);

static void note_recovery(harpe_http *http) {
    if (http->paused_ns == 0 || harpe_clock_ns() - http->paused_ns < QUIET_MS * INT64_C(1000000))
        return;
    http->paused_ns = 0;
    log_line(http, HARPE_LOG_INFO, "every connection is accepted again");
}

static void tick(void *user) {
    harpe_http *http = user;
    http->tick = NULL;
    note_recovery(http);
    bool is_done = close_late(http, HARPE_HTTP_HANDSHAKING, http->options.request_timeout_ms);
    is_done &= close_late(http, HARPE_HTTP_RECEIVING, http->options.request_timeout_ms);
    is_done &= close_late(http, HARPE_HTTP_SENDING, http->options.request_timeout_ms);
    is_done &= close_late(http, HARPE_HTTP_IDLE, http->options.keep_alive_timeout_ms);
    is_done &= close_late(http, HARPE_HTTP_LINGERING, LINGER_MS);
    if (http->counts.connections > 0) arm_tick(http, !is_done);
}

static void arm_tick(harpe_http *http, bool has_late) {
    if (http->tick) return;
    int64_t shortest = http->options.request_timeout_ms;
    if (http->options.keep_alive_timeout_ms < shortest)
        shortest = http->options.keep_alive_timeout_ms;
    int64_t delay_ms = shortest / 8;
    if (delay_ms > MOST_TICK_MS) delay_ms = MOST_TICK_MS;
    if (delay_ms < LEAST_TICK_MS || has_late) delay_ms = LEAST_TICK_MS;
    /* If memory runs out, the next connection tries to start the timer again. */
    harpe_loop_after(http->loop, delay_ms, tick, http, &http->tick, NULL);
}

/* ---- Accepting ------------------------------------------------------------------------------- */

static void accept_again(void *user) {
    harpe_http *http = user;
    http->accept_again = NULL;
    http->has_callers = true;
}

/* Stops accepting for a short time and closes a connection. Without a free descriptor, accept()
 * would fail again and again. */
static void pause_accepting(harpe_http *http, int reason) {
    if (http->paused_ns == 0) {
        char line[160];
        snprintf(line, sizeof line,
                 "cannot accept every connection: %s; idle connections are closed to make room",
                 strerror(reason));
        log_line(http, HARPE_LOG_WARNING, line);
    }
    http->paused_ns = harpe_clock_ns();
    harpe_http_evict(http);
    if (!http->accept_again && harpe_loop_after(http->loop, ACCEPT_PAUSE_MS, accept_again, http,
                                                &http->accept_again, NULL) == HARPE_OK)
        http->has_callers = false;
}

/* Logs at most one line a minute, because other users choose how often they connect. */
static void tell_other(harpe_http *http, bool is_known, uid_t uid) {
    char line[200];
    int64_t now_ns = harpe_clock_ns();
    bool is_told = http->others_told_ns != 0 &&
                   now_ns - http->others_told_ns < OTHERS_LINE_MS * INT64_C(1000000);
    if (is_told) return;
    http->others_told_ns = now_ns;
    if (is_known)
        (void)snprintf(line, sizeof line,
                       "a connection of the user with uid %lu is refused: this server serves only "
                       "its own user and root",
                       (unsigned long)uid);
    else
        (void)snprintf(line, sizeof line,
                       "a connection is refused because the kernel does not say which user owns "
                       "it: this server serves only its own user and root");
    log_line(http, HARPE_LOG_WARNING, line);
}

/* Finds the user of the other end of a connection. Returns false if the user is not known. */
static bool owner_of_peer(harpe_http *http, int fd, uid_t *uid) {
    return harpe_http_is_unix(http) ? user_of(fd, uid)
                                    : harpe_socket_owner_of_peer(&http->owners, fd, uid);
}

/* Returns true if the connection belongs to a user who may not use the server. Call it as early as
 * possible: after the other end has closed its socket, its owner cannot be found. */
static bool is_of_other(harpe_http *http, int fd) {
    uid_t uid = 0;
    if (!http->own_user_only) return false;
    bool is_known = owner_of_peer(http, fd, &uid);
    if (is_known && (uid == 0 || uid == geteuid())) return false;
    tell_other(http, is_known, uid);
    return true;
}

static void let_in(harpe_http *http, int fd, bool of_other) {
    bool is_full = http->counts.connections >=
                   http->options.max_connections + http->options.reserved_connections;
    bool has_room = !user_has_room(http, fd) ? false
                    : of_other               ? !is_full && http->others < MOST_OTHERS
                                             : !is_full || harpe_http_evict(http);
    if (!has_room) {
        http->counts.refused++;
        harpe_http_close_socket(http, fd);
        return;
    }
    if (harpe_http_connection_open(http, fd, of_other))
        http->counts.accepted++;
    else
        http->counts.refused++;
}

static void note_callers(void *user, uint32_t events) {
    (void)events;
    harpe_http *http = user;
    http->has_callers = !http->accept_again;
}

void harpe_http_accept_some(harpe_http *http) {
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(http->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            let_in(http, fd, is_of_other(http, fd));
            continue;
        }
        bool is_out = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (is_out) pause_accepting(http, errno);
        if (errno == EAGAIN) http->has_callers = false;
        if (is_out || errno == EAGAIN) break;
        /* Any other error concerns one connection, which no longer exists. */
    }
    arm_tick(http, false);
}

void harpe_http_adopt(harpe_http *http, int socket) {
    int flags = fcntl(socket, F_GETFL);
    if (http->has_stopped || flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) != 0) {
        (void)close(socket);
        return;
    }
    let_in(http, socket, false);
    arm_tick(http, false);
}

/* ---- Listening ------------------------------------------------------------------------------- */

static bool parse_address(const char *text, int port, struct sockaddr_storage *address,
                          socklen_t *length) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        memcpy(address, &v4, sizeof v4);
        *length = sizeof v4;
        return true;
    }
    if (inet_pton(AF_INET6, text, &v6.sin6_addr) != 1) return false;
    memcpy(address, &v6, sizeof v6);
    *length = sizeof v6;
    return true;
}

static int bound_port(int fd) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {.v6 = {0}};
    socklen_t length = sizeof address;
    if (getsockname(fd, &address.any, &length) != 0) return 0;
    return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

static harpe_status fail_to_listen(int failed, const char *text, int port, harpe_error *error) {
    if (failed == EADDRINUSE)
        return harpe_fail(error, HARPE_IO_ERROR,
                          "cannot listen on %s, port %d: it is taken; choose another with --port "
                          "(0: any free one)",
                          text, port);
    return harpe_fail_errno(error, failed, "cannot listen on %s, port %d", text, port);
}

/* Makes a socket that is bound to the address and does not listen yet. */
static harpe_status bind_to(const char *text, int port, int *out, harpe_error *error) {
    int on = 1;
    int unsent = UNSENT_BYTES;
    struct sockaddr_storage address;
    socklen_t length;
    if (port < 0 || port > 65535 || !parse_address(text, port, &address, &length))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "cannot listen on %s, port %d: give a numeric IPv4 or IPv6 address and "
                          "a port from 0 to 65535",
                          text, port);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return harpe_fail_errno(error, errno, "cannot make a socket for %s", text);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* connections inherit both options */
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    if (bind(fd, (struct sockaddr *)&address, length) != 0) {
        int failed = errno;
        close(fd);
        return fail_to_listen(failed, text, port, error);
    }
    *out = fd;
    return HARPE_OK;
}

static harpe_status listen_on_tcp(harpe_http *http, harpe_error *error) {
    int fd;
    harpe_status status = bind_to(http->address, http->options.port, &fd, error);
    if (status != HARPE_OK) return status;
    if (listen(fd, HARPE_HTTP_BACKLOG) != 0) {
        int failed = errno;
        close(fd);
        return fail_to_listen(failed, http->address, http->options.port, error);
    }
    http->listen_fd = fd;
    http->port = bound_port(fd);
    return HARPE_OK;
}

static harpe_status listen_on(harpe_http *http, const harpe_http_options *options,
                              harpe_error *error) {
    harpe_status status = options->unix_socket
                              ? listen_unix(http, options->unix_socket, options->unix_mode, error)
                              : listen_on_tcp(http, error);
    if (status != HARPE_OK) return status;
    return harpe_loop_watch(http->loop, http->listen_fd, EPOLLIN | EPOLLET, note_callers, http,
                            &http->listen_watch, error);
}

harpe_status harpe_http_check_address(const char *address, int port, harpe_error *error) {
    int fd;
    harpe_status status = bind_to(address, port, &fd, error);
    if (status == HARPE_OK) close(fd);
    return status;
}

int harpe_http_make_room(int connections, int *reserved) {
    if (connections <= 0) connections = DEFAULT_CONNECTIONS;
    struct rlimit limit;
    rlim_t needed = (rlim_t)connections + (rlim_t)*reserved + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return connections;
    struct rlimit raised = {needed, limit.rlim_max > needed ? limit.rlim_max : needed};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return connections;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= needed) return connections;
    int most = (int)limit.rlim_cur - *reserved - OTHER_FILES;
    if (most >= 1) return most;
    *reserved = 0;
    return (int)limit.rlim_cur / 2;
}

/* Raises the limit of open files so that all connections fit. If that is not possible, lowers the
 * maximum number of connections. */
static void make_room_for_files(harpe_http *http) {
    int asked = http->options.max_connections;
    int most = harpe_http_make_room(asked, &http->options.reserved_connections);
    if (most == asked) return;
    http->options.max_connections = most;
    /* The user has chosen no number, so a number slightly below the default causes no warning. */
    if (asked == DEFAULT_CONNECTIONS && most >= ENOUGH_CONNECTIONS) return;
    char line[200];
    snprintf(line, sizeof line,
             "takes only %d connections at once instead of %d, so at most %d ranks can wait for "
             "their schedules: raise the limit of open files (ulimit -Hn)",
             most, asked, most);
    log_line(http, HARPE_LOG_WARNING, line);
}

/* ---- The server ------------------------------------------------------------------------------ */

static harpe_status copy_options(harpe_http *http, const harpe_http_options *options,
                                 harpe_error *error) {
    http->options = *options;
    http->address = strdup(options->address ? options->address : "127.0.0.1");
    http->own_user_only = options->own_user_only ? strdup(options->own_user_only) : NULL;
    http->options.address = http->options.token = http->options.own_user_only = NULL;
    http->options.unix_socket = NULL;
    http->options.tls_cert_pem = http->options.tls_key_pem = NULL;
    if (!http->address || (options->own_user_only && !http->own_user_only))
        return harpe_fail_memory(error);
    harpe_http_options *own = &http->options;
    if (own->max_header_bytes == 0) own->max_header_bytes = 16384;
    if (own->max_body_bytes == 0) own->max_body_bytes = (size_t)64 << 20;
    if (own->max_all_bodies_bytes == 0) {
        own->max_all_bodies_bytes = (size_t)1 << 30; /* many small bodies are normal */
        if (own->max_body_bytes > own->max_all_bodies_bytes / LARGEST_BODIES)
            own->max_all_bodies_bytes = LARGEST_BODIES * own->max_body_bytes;
    }
    if (own->max_unread_bytes == 0) own->max_unread_bytes = (size_t)256 << 20;
    if (own->max_connections <= 0) own->max_connections = DEFAULT_CONNECTIONS;
    if (own->request_timeout_ms <= 0) own->request_timeout_ms = 60000;
    if (own->keep_alive_timeout_ms <= 0) own->keep_alive_timeout_ms = 600000;
    return HARPE_OK;
}

static harpe_status know_owners(harpe_http *http, harpe_error *error) {
    harpe_status status = harpe_socket_owners_open(&http->owners, http->listen_fd, error);
    if (status == HARPE_OK && http->owners.netlink_fd < 0)
        log_line(http, HARPE_LOG_WARNING,
                 "netlink is refused, so the server reads /proc/self/net/tcp to learn which user "
                 "owns a connection; this may take 50 ms for each connection");
    return status;
}

harpe_status harpe_http_set_secrets(harpe_http *http, const char *token, const char *cert_pem,
                                    const char *key_pem, harpe_error *error) {
    harpe_http_tls *tls = NULL;
    if (!cert_pem != !key_pem)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "TLS needs both a certificate and its key");
    char *copy = token ? strdup(token) : NULL;
    harpe_status status = token && !copy ? harpe_fail_memory(error) : HARPE_OK;
    if (status == HARPE_OK && cert_pem) status = harpe_http_tls_new(cert_pem, key_pem, &tls, error);
    if (status != HARPE_OK) {
        free(copy);
        return status;
    }
    free(http->token);
    harpe_http_tls_free(http->tls);
    http->token = copy;
    http->tls = tls;
    return HARPE_OK;
}

harpe_status harpe_http_new(harpe_loop *loop, const harpe_http_options *options,
                            const harpe_http_handler *handler, harpe_http **out,
                            harpe_error *error) {
    harpe_http *http = calloc(1, sizeof *http);
    if (!http) return harpe_fail_memory(error);
    http->loop = loop;
    http->handler = *handler;
    http->listen_fd = -1;
    http->owners.netlink_fd = -1;
    http->date_s = -1;
    harpe_status status = copy_options(http, options, error);
    if (status == HARPE_OK)
        status = harpe_http_set_secrets(http, options->token, options->tls_cert_pem,
                                        options->tls_key_pem, error);
    if (status == HARPE_OK && !options->is_enclosed) status = listen_on(http, options, error);
    if (status == HARPE_OK && http->own_user_only && http->port > 0)
        status = know_owners(http, error);
    if (status != HARPE_OK) {
        harpe_http_free(http);
        return status;
    }
    make_room_for_files(
        http); /* called last, because a server that cannot listen must not log about its limit */
    http->before_wait = (harpe_before_wait){
        .run = harpe_http_run_queues, .wait_ns = harpe_http_queues_wait_ns, .user = http};
    harpe_loop_before_wait_add(loop, &http->before_wait);
    *out = http;
    return HARPE_OK;
}

int harpe_http_port(const harpe_http *http) { return http->port; }

void harpe_http_stop_accepting(harpe_http *http) {
    http->has_stopped = true;
    harpe_timer_cancel(http->accept_again);
    http->accept_again = NULL;
    harpe_watch_remove(http->listen_watch);
    http->listen_watch = NULL;
    http->has_callers = false;
    if (http->listen_fd < 0) return;
    /* The close of the listener would drop what waiting connections have sent. */
    for (int fd; http->options.drop &&
                 (fd = accept4(http->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
        harpe_http_close_socket(http, fd);
    harpe_unix_remove(&http->unix_listener);
    close(http->listen_fd);
    http->listen_fd = -1;
}

void harpe_http_free(harpe_http *http) {
    if (!http) return;
    harpe_http_stop_accepting(http);
    harpe_loop_before_wait_remove(http->loop, &http->before_wait);
    harpe_timer_cancel(http->tick);
    for (int state = 0; state < HARPE_HTTP_STATE_COUNT; state++)
        while (http->states[state].oldest)
            harpe_http_connection_close(http->states[state].oldest);
    harpe_http_empty_queues(http);
    harpe_http_tls_free(http->tls);
    free(http->address);
    harpe_socket_owners_close(&http->owners);
    free(http->token);
    free(http->own_user_only);
    free(http->users);
    free(http);
}

harpe_http_counts harpe_http_count(const harpe_http *http) {
    harpe_http_counts counts = http->counts;
    counts.held = http->states[HARPE_HTTP_WORKING].count + http->states[HARPE_HTTP_WAITING].count;
    counts.streams = http->states[HARPE_HTTP_STREAMING].count;
    counts.body_memory = http->body_memory;
    counts.unread_memory = http->unread_memory;
    counts.connections_max = http->options.max_connections;
    return counts;
}
