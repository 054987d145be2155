/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the server that concern Unix sockets: the number of connections of each user, and
 * the process at the other end of a connection. base/unix_socket.c listens. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/process.h"
#include "base/unix_socket.h"
#include "http/http_internal.h"

enum { DEFAULT_MODE = 0666 };

harpe_status harpe_http_listen_unix(harpe_http *http, const char *path, mode_t mode,
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

bool harpe_http_user_has_room(const harpe_http *http, int fd) {
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
